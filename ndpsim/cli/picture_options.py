"""Options of every command that draws a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ndpsim.cli.options import answer
from ndpsim.parameters import Choice, Output, Parameter, Several
from ndpsim.report.panels import DEFAULT_SIZE, PANELS, SIZES, chosen_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A picture that was asked for: its file, and the choices of `report.panels`."""

    file: str
    size: str
    panels: tuple[str, ...]

    def draw(self, figure: Callable[..., Figure], *what: Any) -> None:
        """Write a figure of `report.pictures` of a result."""
        from ndpsim.report.pictures.canvas import save

        save(figure(*what, self.size, self.panels), self.file, self.size)


SIZE = Parameter(
    "size", f"With --plot: {', '.join(SIZES)}.", Choice(tuple(SIZES), "size"), DEFAULT_SIZE, needs="plot"
)


def picture(drawn: str, *pictures: str) -> tuple[Parameter, ...]:
    """``--plot``, ``--size`` and ``--panels`` of a command; `pictures`: names of `report.panels.PANELS`."""
    names = ", ".join(dict.fromkeys(name for one in pictures for name in PANELS[one]))
    panels = Parameter(
        "panels",
        f"With --plot: panels to draw, of {names}.",
        Several(always=True, form="NAME,..."),
        needs="plot",
    )
    return Parameter("plot", drawn, Output(), files=("",)), SIZE, panels


def plot_of(given: Mapping[str, Any], drawn: str) -> Plot | None:
    """What is asked for of a picture of `report.panels.PANELS`; None without ``--plot``.

    Raises:
        InputError: there is no such format or panel, or nothing to draw is asked for.
    """
    if "plot" not in given:
        return None
    chosen = chosen_panels(given.get("panels"), drawn)
    check_format(given)
    return Plot(given["plot"], given.get("size", DEFAULT_SIZE), chosen)


def check_format(given: Mapping[str, Any]) -> None:
    """Make sure that ``--plot``, where it is given, names a format that can be drawn.

    Raises:
        InputError: it does not.
    """
    if "plot" in given:
        from ndpsim.report.pictures import canvas  # brings matplotlib, which takes its time

        canvas.check_format(given["plot"])


def hand_out(
    given: Mapping[str, Any],
    plot: Plot | None,
    name: str,
    result: Any,
    say: Callable[[Any], None],
    *about: Any,
    module: str = "",
    plain: Callable[[], Any] | None = None,
) -> None:
    """Draw a result, write its report, and answer.

    Args:
        name: of ``NAME_figure`` and ``write_NAME_report``. They bring matplotlib, and so are imported when
            they are asked for.
        say: prints the result.
        about: what the report needs beside the result: the hardware.
        module: of `report.pictures`, that has the figure; empty: of the same name.
        plain: makes the answer as JSON; None: `to_dict` of the result.
    """
    if plot is not None:
        pictures = import_module(f"ndpsim.report.pictures.{module or name}")
        plot.draw(getattr(pictures, f"{name}_figure"), result)
    if "report" in given:
        reports = import_module("ndpsim.report.html.runs")
        getattr(reports, f"write_{name}_report")(given["report"], result, *about)
    answer(given, plain or result.to_dict, lambda: say(result))
