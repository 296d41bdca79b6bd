"""``ndpsim sweep``: run gemv, moe, relayout, dram or serve at many points, on all cores or a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ndpsim.base.errors import InputError, shown
from ndpsim.base.options import Output, Parameter, Table, joined, refuse, table
from ndpsim.base.options.swept import PLOT, STUDIES, STUDY, SWEEP, SWEPT, StudyOptions
from ndpsim.cli.command import CommandGroup, Options, TableCommand, group
from ndpsim.cli.completion import names_or_files
from ndpsim.cli.notices import announce_kernels
from ndpsim.cli.options import JSON, SIZE, TITLE, answer, check_folder, check_format, write_figure

if TYPE_CHECKING:
    from ndpsim.report.sweep_plot import SweepPlot
    from ndpsim.studies.sweeps.points import Progress
    from ndpsim.studies.sweeps.table import SweepResult
    from ndpsim.studies.sweeps.values import Definition


# ---- Progress of a sweep on standard error: a bar on a terminal, otherwise lines at intervals


_LINES_S = 10.0  # between two lines, if standard error is no terminal


def _in_words(state: Progress, elapsed_s: float) -> str:
    """``120 of 1000 points, 25.3 points/s, 35 s left, 2 failed``."""
    rate = (state.done - state.found) / elapsed_s
    parts = [f"{state.done} of {state.points} points", f"{rate:.3g} points/s"]
    if rate > 0 and state.done < state.points:
        parts.append(f"{_duration((state.points - state.done) / rate)} left")
    if state.failed:
        parts.append(f"{state.failed} failed")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """``35 s``, ``4 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def showing() -> Iterator[Callable[[Progress], None]]:
    """A function to call with the progress of a sweep."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        last = began

        def write_line(state: Progress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _LINES_S and state.done < state.points:
                last = now
                click.echo(f"ndpsim: {_in_words(state, now - began)}", err=True)

        yield write_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def draw(state: Progress) -> None:
        words = _in_words(state, time.monotonic() - began)
        bar.update(task, completed=state.done, total=state.points, description=words)

    with bar:
        yield draw


# ---- ``ndpsim sweep``: run gemv, moe, relayout, dram or serve at many points, on all cores or a cluster


_R = TypeVar("_R")

_COMMANDS = {
    "gemv": "one expert's GEMV, alone or beside the host, or its reading by the host",
    "moe": "a model's layers under a policy",
    "relayout": "experts from one layout to another",
    "dram": "a request trace through a memory controller",
    "attention": "the attention of a layer on units in banks",
    "serve": "requests served under a policy",
    "FILE.yaml": "the sweep of a file; options override the file",
}
_SHOWN = 40  # points that are printed
_REASONS = 3  # of failures
_FIXED = "fixed_"  # prefix of parameters that are options of the swept command
OUTPUTS = table(
    {
        "Results": (
            replace(JSON, help="Write the table as JSON; - for standard output."),
            Parameter("plot", "Draw the points.", Output()),
            SIZE,
            TITLE,
        )
    }
)
_REPORT = Parameter("report", "Write a report as one self-contained HTML page.", Output())
_LISTS = Parameter(
    "lists",
    "Write values of numbered parts, such as the utilization of each DIMM, as a long CSV table.",
    Output(),
)

#: Options of every sweep.
OPTIONS = joined(SWEEP, OUTPUTS, PLOT, table({"Results": (_LISTS, _REPORT)}))

_HELP = """Each finished point is a file in the folder --out and a row of table.csv there. With pip install
'ndpsim[parquet]' it is also a row of table.parquet. The same call continues an interrupted sweep. It runs
points again if ndpsim or a file has changed. The exit status is 1 if points failed."""
_EXAMPLES = (
    "ndpsim sweep gemv --model mixtral-8x7b --vary tokens=1,2,4 --vary dimm.ranks=1,2,4 --plot gemv.pdf",
    "ndpsim sweep study.yaml --jobs 8 --report study.html",
)


class _Sweeps(CommandGroup):
    """The commands that can be swept, and files that describe a sweep."""

    named = "command or file"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _COMMANDS if name != "FILE.yaml"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        swept = Table() if name.endswith(STUDIES) else _table_of(name)
        return None if swept is None else _of(name, swept)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return names_or_files(self.list_commands(ctx), STUDIES, incomplete)

    def command_rows(self) -> list[tuple[str, str]]:
        return list(_COMMANDS.items())


def run_with_progress(run: Callable[..., _R], out: Path, definition: Definition, options: Options) -> _R:
    """Run with the executor of the options, and show progress."""
    study = StudyOptions(**STUDY.arguments(options) | {"out": out})
    compiles_here = [partial(announce_kernels, definition.command, definition.fixed)]
    with showing() as watch:
        return run(study, watch, *(compiles_here if study.cluster is None else ()))


def _fixed(parameter: Parameter) -> Parameter:
    """An option of the swept command with one value for all points."""
    return replace(parameter, argument=_FIXED + parameter.argument, positional=False, required=False)


def _table_of(name: str) -> Table | None:
    """The options of a command that can be swept; None: no such command can be swept."""
    if name in SWEPT:
        return SWEPT[name]
    from ndpsim.studies.sweeps.commands import swept_commands

    command = swept_commands().get(name)
    return None if command is None else command.parameters


def _of(name: str, swept: Table) -> TableCommand:
    """The click command that sweeps `name`: a command with these options, or a file."""
    fixed = Table({key: _fixed(parameter) for key, parameter in swept.items()})
    what = f"ndpsim {name}" if fixed else f"the sweep of {name}"
    return TableCommand(
        lambda options: _sweep(name, {key: options[key] for key in fixed if key in options}, options),
        (fixed, OPTIONS),
        _EXAMPLES,
        name=name,
        help=f"{_HELP}\n\nRuns {what}.",
    )


def pairs(options: Options, option: str, form: str) -> dict[str, str]:
    """``KEY=TEXT`` of an option as a mapping.

    Raises:
        InputError: not of this form, or a key is there twice.
    """
    pairs: dict[str, str] = {}
    for text in options.get(option, ()):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise InputError(f"{shown(text)} is not of the form {form}", key=option, code="form")
        if key in pairs:
            raise InputError(f"'{key}' is given twice", key=option, code="twice")
        pairs[key] = value
    return pairs


@contextmanager
def keys_as_typed(options: Options, fixed: Collection[str] = ()) -> Iterator[None]:
    """A mistake in a key names the option with the key: ``--vary tokens``."""
    typed = {key: f"--{key}" for key in fixed}
    for option in ("set", "vary"):
        typed |= {text.partition("=")[0].strip(): f"--{option} " for text in options.get(option, ())}
    try:
        yield
    except InputError as error:
        subject = typed.get(error.key or "") if error.file is None else None
        if subject is None:
            raise
        raise error.at(key=f"{subject}{error.key}" if subject.endswith(" ") else subject) from None


def folder_of(options: Options, name: str, ending: str) -> Path:
    """The folder of the results: ``--out``, or a folder with the name of the command or file."""
    out = Path(options.get("out", f"{Path(name).stem}.{ending}"))
    check_folder(out, "--out")
    return out


def _sweep(name: str, fixed: dict[str, Any], options: Options) -> None:
    """Run a sweep, print the outcome, and write the requested files."""
    from ndpsim.studies.sweeps.run import defined, run_sweep

    out = folder_of(options, name, "sweep")
    sets = pairs(options, "set", "dimm.ranks=2")
    for key in fixed.keys() & sets.keys():
        raise InputError(f"'{key}' is given by --{key}, too; give one of them", key="set", code="twice")
    with keys_as_typed(options, fixed):
        definition = defined(
            name,
            pairs(options, "vary", "tokens=1,2,4"),
            {**fixed, **sets},
            "zip" in options,
            pairs(options, "baseline", "policy=klotski"),
        )
        draws = _check_plot(options, definition)
        result = run_with_progress(partial(run_sweep, definition), out, definition, options)
    answer(options, result.to_dict, lambda: _print(result, out))
    if result.failed:
        _say_failures(result, out)
    if "lists" in options:
        from ndpsim.base.files import replacing
        from ndpsim.studies.sweeps.table import csv_of

        with replacing(options["lists"]) as file:
            file.write(csv_of(result.lists))
    if draws:
        _draw(options, result)
    if "report" in options:
        from ndpsim.report.html.sweeps import write_sweep_report

        plot = _chosen(options, result) if draws else None
        write_sweep_report(options["report"], result.definition, result.rows, plot)
    if result.failed:
        click.get_current_context().exit(1)


def _check_plot(options: Options, definition: Definition) -> bool:
    """Whether a picture is requested, as a file or in a report.

    Raises:
        InputError: it cannot be drawn, according to the options alone.
    """
    from ndpsim.report.sweep_plot import chosen_plot

    if options.keys().isdisjoint(("plot", "report")):
        refuse(options, "needs --plot or --report", *PLOT)
    if options.keys().isdisjoint(("plot", *PLOT)):
        return False
    check_format(options)
    plot = chosen_plot(definition, None, **PLOT.arguments(options))
    metrics = {"y": plot.y} | ({"x": plot.x} if plot.kind == "pareto" else {})
    for axis, metric in metrics.items():
        definition.swept.check_metric(metric, axis, ("speedup",) if definition.baseline else ())
    return True


def _chosen(options: Options, result: SweepResult) -> SweepPlot:
    from ndpsim.report.sweep_plot import chosen_plot

    return chosen_plot(result.definition, result.rows, **PLOT.arguments(options))


def _draw(options: Options, result: SweepResult) -> None:
    if "plot" in options:
        from ndpsim.report.pictures.sweep import points_figure

        size = OUTPUTS.value(options, "size")
        write_figure(
            lambda: points_figure(result.rows, result.definition, _chosen(options, result), size),
            options["plot"],
            size,
            options.get("title"),
        )


def _print(result: SweepResult, out: Path) -> None:
    from ndpsim.report.printing import print_table, print_text

    if answer := result.answer():
        print_text(answer, bold=True)
    names, cells = result.cells(result.main_metrics, _SHOWN)
    print_table(result.title(), names, cells, left=len(names) - len(result.main_metrics))
    if len(result) > _SHOWN:
        print_text(f"and {len(result) - _SHOWN} more in {out / 'table.csv'}")
    print_text(f"{result.computed} simulated, {result.found} reused; all metrics: {out / 'table.csv'}")


def _say_failures(result: SweepResult, out: Path) -> None:
    failed = [row for row in result if row["status"] != "ok"]
    for row in failed[:_REASONS]:
        point = ", ".join(f"{key}={row[key]}" for key in result.definition.varied)
        click.echo(f"ndpsim: {point}: {row['reason']}", err=True)
    click.echo(f"ndpsim: {len(failed)} of {len(result)} points failed; see {out / 'table.csv'}", err=True)


@group(
    *_EXAMPLES,
    cls=_Sweeps,
    help=f"Run a command at many points, on all cores or on a cluster.\n\n{_HELP}",
)
def command() -> None:
    """``ndpsim sweep``."""
