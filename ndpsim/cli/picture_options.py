"""Options of every command that draws a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVarTuple

from ndpsim.base.options import Choice, Output, Parameter, Several
from ndpsim.report.panels import DEFAULT_SIZE, PANELS, SIZES, chosen_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = TypeVarTuple("Drawn")


@dataclass(frozen=True)
class Plot:
    """A requested picture: its file, and choices for `report.panels`."""

    file: str
    size: str
    panels: tuple[str, ...]

    def draw(self, figure: Callable[[*Drawn, str, tuple[str, ...]], Figure], *what: *Drawn) -> None:
        """Write a figure of `report.pictures` of a result and further arguments."""
        from ndpsim.report.pictures.canvas import save

        save(figure(*what, self.size, self.panels), self.file, self.size)


SIZE = Parameter(
    "size",
    f"With --plot: size of the picture: {', '.join(SIZES)}.",
    Choice(tuple(SIZES), "size"),
    DEFAULT_SIZE,
    needs="plot",
)


def picture(drawn: str, *pictures: str) -> tuple[Parameter, ...]:
    """``--plot``, ``--size`` and ``--panels`` of a command; `pictures`: names of `report.panels.PANELS`."""
    names = ", ".join(dict.fromkeys(name for kind in pictures for name in PANELS[kind]))
    panels = Parameter(
        "panels",
        f"With --plot: panels to draw: {names}.",
        Several(always=True, form="NAME,..."),
        needs="plot",
    )
    return Parameter("plot", drawn, Output()), SIZE, panels


def plot_of(options: Mapping[str, Any], drawn: str) -> Plot | None:
    """The requested picture, one of `report.panels.PANELS`; None without ``--plot``.

    Raises:
        InputError: there is no such format or panel, or no panel is left.
    """
    if "plot" not in options:
        return None
    chosen = chosen_panels(options.get("panels"), drawn)
    check_format(options)
    return Plot(options["plot"], options.get("size", DEFAULT_SIZE), chosen)


def check_format(options: Mapping[str, Any]) -> None:
    """Make sure that the format of ``--plot``, if given, can be drawn.

    Raises:
        InputError: it does not.
    """
    if "plot" in options:
        from ndpsim.report.pictures import canvas  # imports matplotlib, which is slow

        canvas.check_format(options["plot"])
