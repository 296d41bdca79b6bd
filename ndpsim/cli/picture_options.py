"""Options of every command that draws a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ndpsim.cli.options import named_as_options
from ndpsim.errors import InputError
from ndpsim.report.panels import DEFAULT_SIZE, PANELS, SIZES, chosen_panels, chosen_size

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Plot:
    """A picture that was asked for: its file, and the choices of `report.panels`."""

    file: str
    size: str
    panels: tuple[str, ...]


def picture_options(drawn: str, *pictures: str) -> Callable[[F], F]:
    """``--plot``, ``--size`` and ``--panels`` of a command; `pictures`: names of `report.panels.PANELS`."""
    names = dict.fromkeys(name for picture in pictures for name in PANELS[picture])

    def with_options(function: F) -> F:
        function = click.option(
            "--panels",
            metavar="NAME,...",
            help=f"Of --plot: draw only these of {', '.join(names)}.",
        )(function)
        function = click.option(
            "--size", metavar="NAME", help=f"Of --plot: {', '.join(SIZES)}.  [default: {DEFAULT_SIZE}]"
        )(function)
        return click.option("--plot", "plot_to", metavar="FILE", help=drawn)(function)

    return with_options


def plot_of(file: str | None, size: str | None, panels: str | None, picture: str) -> Plot | None:
    """What the options ask for, of a `picture` of `report.panels.PANELS`; None without ``--plot``.

    Raises:
        InputError: there is no such format, size or panel, or nothing to draw is asked for.
    """
    if file is None:
        for option, given in {"--size": size, "--panels": panels}.items():
            if given is not None:
                raise InputError("is of --plot, which is not given", key=option)
        return None
    with named_as_options("size", "panels"):
        chosen_size(DEFAULT_SIZE if size is None else size)
        names = None if panels is None else [name.strip() for name in panels.split(",") if name.strip()]
        chosen = chosen_panels(names, picture)

    from ndpsim.report.pictures import canvas  # brings matplotlib, which takes its time

    canvas.check_format(file)
    return Plot(file, DEFAULT_SIZE if size is None else size, chosen)
