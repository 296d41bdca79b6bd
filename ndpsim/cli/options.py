"""Options that several commands share, and the functions for their outputs and progress."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVarTuple

import click

from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import ensure_writable, is_in_place, replacing
from ndpsim.base.options import Choice, Flag, Kind, Output, Parameter, Real, Several, Table, refuse
from ndpsim.base.options.dram import CHANNEL, CONTROLLER, DRAM, ControllerOptions
from ndpsim.base.run_files import identity_of
from ndpsim.cli.process import is_closed
from ndpsim.report.panels import DEFAULT_SIZE, PANELS, SIZES, chosen_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ndpsim.config import Hardware
    from ndpsim.report.command_slices import CommandSlices
    from ndpsim.simulate import Memory


JSON = Parameter("json", "Write the result as JSON; - for standard output.", Output())
REPORT = Parameter(
    "report", "Write a report as one HTML file: tables, pictures, configuration, sources.", Output()
)


def timeline(drawn: str) -> Parameter:
    """``--timeline`` of a command."""
    return Parameter("timeline", f"Write {drawn} as a Chrome/Perfetto trace.", Output())


PLOT_COMMANDS = Parameter("plot-commands", "Draw the commands of each bank, and the data bus.", Output())
FIRST_US = Parameter(
    "first-us",
    "With --timeline or --plot-commands: microseconds from the first command in which commands are shown.",
    Real(least=0.001, most=1000),
    5.0,
    needs="timeline plot-commands",
)
COMMANDS = Parameter("commands", "Write every DRAM command as CSV (.gz compresses).", Output())
EXACT_CHECK = Parameter(
    "exact-check", "Run a second time, step by step, on the plain controller, and compare.", Flag()
)

_PATIENCE_S = 1.0  # longer work shows progress
_SECONDS_A_LINE = 30.0  # between two lines, if progress is not a bar


# Clocks, a time, a density or a width.
_VALUE = r"[0-9]{1,18}|[0-9]{1,9}(\.[0-9]{1,9})?\s*(ps|ns|us|Mb|Gb)|x[0-9]{1,4}"


def timing_overrides(sets: Sequence[str]) -> dict[str, int | str]:
    """Settings such as ``nCL=40``, ``tRCD=14.16ns`` or ``rows=65536`` as a mapping.

    Raises:
        InputError: not of this form.
    """
    overrides: dict[str, int | str] = {}
    for text in sets:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not re.fullmatch(_VALUE, value, re.ASCII):
            forms = "nCL=40, tRCD=14.16ns, rows=65536 or density=16Gb"
            raise InputError(f"{shown(text)} is not of the form {forms}", "form", key="--set")
        overrides[name] = int(value) if value.isdigit() else value
    return overrides


def hardware_of(options: Mapping[str, Any], table: Table, command: str | None = None) -> Hardware:
    """The hardware of ``--hw`` with the changes of ``--set``; `command`: as in `load_hardware`."""
    from ndpsim.config import load_hardware

    return load_hardware(table.value(options, "hw"), options.get("set", ()), command)


def answer(
    options: Mapping[str, Any],
    plain: Callable[[], Mapping[str, Any] | Sequence[Mapping[str, Any]]],
    show: Callable[[], None],
) -> None:
    """Write the result to ``--json``, and print it unless ``--json`` is standard output."""
    if "json" in options:
        write_json(plain(), options["json"])
    if options.get("json") != "-":
        show()


def write_json(result: Mapping[str, Any] | Sequence[Mapping[str, Any]], to: str) -> None:
    """Write one JSON object, or a list of them, to a file, or to standard output when `to` is "-"."""
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if to == "-":
        click.echo(text, nl=False)
        return
    with replacing(to) as file:
        file.write(text.encode())


def check_outputs(outputs: Mapping[str, str | None]) -> None:
    """Make sure, before any work, that each file given by an option can be written, and is given once.

    Raises:
        InputError: it cannot, two options name one file, or it is the file of standard output.
    """
    taken: dict[object, str] = {}
    output = identity_of(1)
    if output is not None:
        taken[output] = "standard output"
    for option, path in outputs.items():
        if path is None:
            continue
        if option == "--json" and path == "-":
            if is_closed(1):
                raise InputError("standard output is closed", "unwritable", key=option)
            continue
        target = ensure_writable(path, option)
        if is_in_place(target):
            continue
        identity = identity_of(target) or os.path.realpath(target)
        if identity in taken:
            raise InputError(f"{path} is the file of {taken[identity]}, too", "twice", key=option)
        taken[identity] = option


def check_folder(folder: Path, option: str) -> None:
    """Make sure, before any work, that a folder given by an option can be one.

    Raises:
        InputError: it is a file.
    """
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder} is not a folder", "unwritable", key=option)


@contextmanager
def naming(**names: str) -> Iterator[None]:
    """A mistake in a Python argument names the option instead: ``form="--commands-format"``."""
    try:
        yield
    except InputError as error:
        if error.file is None and error.key in names:
            raise error.at(key=names[error.key]) from None
        raise


def _lines_of_progress(what: str) -> Callable[[float], None]:
    last = time.perf_counter()

    def show(share: float) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= _SECONDS_A_LINE:
            last = now
            click.echo(f"{what}: {100 * share:.0f}%", err=True)

    return show


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[float], None]]:
    """A function to call with the share of work done, from 0.

    It draws a bar on a terminal after a second; elsewhere it writes a line every half minute.
    """
    if not sys.stderr.isatty():
        yield _lines_of_progress(what)
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=1.0)
    began = time.perf_counter()

    def show(share: float) -> None:
        if not bar.live.is_started and time.perf_counter() - began > _PATIENCE_S:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield show
    finally:
        bar.stop()


# ---- The memory that the options describe, for all commands that run a request trace


def check_addressed(by_place: bool, options: Mapping[str, Any]) -> None:
    """Refuse options about addresses for requests with coordinates (`by_place`).

    Raises:
        InputError: one of them was given.
    """
    if by_place:
        refuse(options, "needs addresses; the requests of this trace have coordinates", "wrap", "mapper")


def own_hardware(options: Mapping[str, Any]) -> Hardware | None:
    """The hardware of ``--hw``; None if the other options describe the memory."""
    return hardware_of(options, DRAM) if "hw" in options else None


def memory_of(options: Mapping[str, Any]) -> Memory:
    """The memory that the options describe.

    Raises:
        InputError: the options contradict each other, or name what does not exist.
    """
    from ndpsim.simulate import Memory

    if "hw" in options:
        refuse(options, "cannot be used with --hw, which describes the memory", *CHANNEL, *CONTROLLER)
        return Memory.of_hardware(hardware_of(options, DRAM))
    overrides = timing_overrides(options.get("set", ()))
    controller = ControllerOptions(**CONTROLLER.arguments(options))
    with naming(**{name: f"--set {name}" for name in overrides}):
        return Memory.named(**CHANNEL.arguments(options), overrides=overrides, options=controller)


# ---- Options of every command that draws a picture


Drawn = TypeVarTuple("Drawn")


@dataclass(frozen=True)
class Plot:
    """A requested picture: its file, and choices for `report.panels`."""

    file: str
    size: str
    panels: tuple[str, ...]
    title: str | None = None

    def draw(self, figure: Callable[[*Drawn, str, tuple[str, ...]], Figure], *what: *Drawn) -> None:
        """Write a figure of `report.pictures` of a result and further arguments."""
        write_figure(lambda: figure(*what, self.size, self.panels), self.file, self.size, self.title)


def write_figure(draw: Callable[[], Figure], file: str, size: str, title: str | None) -> None:
    """Draw a figure under the title of ``--title`` (None: its own), and write it."""
    from ndpsim.report.pictures.canvas import save, titled

    with titled(title):
        figure = draw()
    save(figure, file, size)


SIZE = Parameter(
    "size",
    f"With --plot: size of the picture: {', '.join(SIZES)}.",
    Choice(tuple(SIZES), "size"),
    DEFAULT_SIZE,
    needs="plot",
)


TITLE = Parameter(
    "title",
    "With --plot: title of the picture; none: no title.",
    Kind(form="TEXT"),
    otherwise="what ran, and the outcome",
    needs="plot",
)


def picture(drawn: str, *pictures: str, commands: bool = False) -> tuple[Parameter, ...]:
    """``--plot``, ``--size`` and ``--panels`` of a command; `pictures`: names of `report.panels.PANELS`.

    With `commands`, it has ``--plot-commands``, too.
    """
    names = ", ".join(dict.fromkeys(name for kind in pictures for name in PANELS[kind]))
    panels = Parameter(
        "panels",
        f"With --plot: panels to draw: {names}.",
        Several(always=True, form="NAME,..."),
        needs="plot",
    )
    needs = "plot plot-commands" if commands else "plot"
    shared = replace(SIZE, needs=needs), replace(TITLE, needs=needs)
    return Parameter("plot", drawn, Output()), *((PLOT_COMMANDS,) if commands else ()), *shared, panels


def plot_of(options: Mapping[str, Any], drawn: str) -> Plot | None:
    """The requested picture, one of `report.panels.PANELS`; None without ``--plot``.

    Raises:
        InputError: there is no such format or panel, or no panel is left.
    """
    if "plot" not in options:
        return None
    chosen = chosen_panels(options.get("panels"), drawn)
    check_format(options)
    return Plot(options["plot"], options.get("size", DEFAULT_SIZE), chosen, options.get("title"))


def check_format(options: Mapping[str, Any], option: str = "plot") -> None:
    """Make sure that the format of ``--plot``, if given, can be drawn; `option`: another one's name.

    Raises:
        InputError: it cannot.
    """
    if option in options:
        from ndpsim.report.pictures import canvas  # imports matplotlib, which is slow

        canvas.check_format(options[option], f"--{option}")


def plot_commands(options: Mapping[str, Any], title: str, parts: Iterable[tuple[str, CommandSlices]]) -> None:
    """Draw the first of the channels or lanes, with ``--plot-commands``."""
    if "plot-commands" in options:
        from ndpsim.report.pictures.commands import commands_figure

        size = options.get("size", DEFAULT_SIZE)
        name, slices = next(iter(parts))
        write_figure(
            lambda: commands_figure(f"{title}: {name}", slices, size),
            options["plot-commands"],
            size,
            options.get("title"),
        )
