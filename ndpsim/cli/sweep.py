"""``ndpsim sweep``: a command at many points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ndpsim.cli.command import Command, CommandGroup
from ndpsim.cli.completion import SWEPT_KEYS, names_or_files
from ndpsim.cli.notices import announce_kernels
from ndpsim.cli.options import check_folder, check_outputs, named_as_options, write_json
from ndpsim.cli.sweep_progress import showing
from ndpsim.errors import InputError, one_of

if TYPE_CHECKING:
    from ndpsim.report.sweep_plot import SweepPlot
    from ndpsim.sweeps.command import SweptCommand
    from ndpsim.sweeps.definition import Definition
    from ndpsim.sweeps.table import SweepResult

_R = TypeVar("_R")

_COMMANDS = {
    "gemv": "one expert's GEMV, alone or beside the host, or its reading by the host",
    "moe": "a model's layers under a policy",
    "relayout": "experts from one layout to another",
    "dram": "a request trace through a memory controller",
    "FILE.yaml": "the sweep that a file describes; options take the place of what it says",
}
_ENDINGS = (".yaml", ".yml")
_SHOWN = 40  # points that are printed
_REASONS = 3  # of failures
_FIXED = "fixed_"  # begins the names of parameters that are options of the swept command
_OF_PLOT = ("kind", "x", "y", "by", "log")


_HELP = """What is finished is in the folder --out at once, a file a point, and in table.csv and
table.parquet there. The same call goes on where another was ended; what has changed since, ndpsim or a
file, is computed anew. Exit status 1 when points failed."""
_EXAMPLES = (
    "ndpsim sweep gemv --model mixtral-8x7b --vary tokens=1,2,4 --vary dimm.ranks=1,2,4 --plot gemv.pdf",
    "ndpsim sweep study.yaml --jobs 8 --report study.html",
)


class _Sweeps(CommandGroup):
    """The commands that can be swept, and files that describe a sweep."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _COMMANDS if name != "FILE.yaml"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name.endswith(_ENDINGS):
            return _of(name, [])
        if ctx.resilient_parsing:  # the shell completes: what has to be imported takes its time
            keys = SWEPT_KEYS.get(name)
            return None if keys is None else _of(name, [click.Option([f"--{key}"]) for key in keys.split()])
        from ndpsim.sweeps.commands import swept_commands

        commands = swept_commands()
        return _of(name, _fixed_options(commands[name])) if name in commands else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = bool(args) and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None
        if unknown and not ctx.resilient_parsing:
            raise InputError(one_of(args[0], _COMMANDS, "command or file"), key="sweep")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return names_or_files(self.list_commands(ctx), _ENDINGS, incomplete)

    def command_rows(self) -> list[tuple[str, str]]:
        return list(_COMMANDS.items())


def place_options() -> list[click.Option]:
    """Where points run."""
    return [
        click.Option(
            ["--jobs", "-j"], type=int, help="Processes that run points.  [default: one for each core]"
        ),
        click.Option(
            ["--cluster"],
            metavar="ADDRESS",
            help="Run the points on this Dask cluster instead: tcp://HOST:PORT, or a scheduler file. Files "
            "that are named must be there, too, under the same path.",
        ),
        click.Option(["--retry-failed"], is_flag=True, help="Run points again that failed before."),
    ]


def output_options() -> list[click.Option]:
    """The table and the picture as files."""
    return [
        click.Option(
            ["--json", "json_to"], metavar="FILE", help="Write the table as JSON; - for standard output."
        ),
        click.Option(["--plot", "plot_to"], metavar="FILE", help="Draw the points."),
        click.Option(["--size"], metavar="NAME", help="Of --plot: its size.  [default: single]"),
    ]


def run_with_progress(run: Callable[..., _R], definition: Definition, options: Mapping[str, Any]) -> _R:
    """Run where `place_options` say, with progress."""
    if options["cluster"] is None:
        announce_kernels(definition.command, definition.fixed)
    with showing() as watch:
        return run(**{name: options[name] for name in ("jobs", "cluster", "retry_failed")}, watch=watch)


def _options() -> list[click.Option]:
    """The options of every sweep."""
    return [
        click.Option(
            ["--vary"],
            multiple=True,
            metavar="KEY=VALUES",
            help="An option without its dashes, or a key of the hardware, and its values: 1,2,4 or 1..8 or "
            "log:10..1000:7. Repeatable; the last changes fastest.",
        ),
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A value of all points, e.g. dimm.ranks=2. Repeatable.",
        ),
        click.Option(["--zip", "zipped"], is_flag=True, help="Take the n-th values of all keys together."),
        click.Option(
            ["--baseline"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Add the metric speedup, over the point with this value. Repeatable.",
        ),
        *place_options(),
        click.Option(
            ["--out", "-o"],
            metavar="DIR",
            help="Folder of the points' files and the tables.  [default: NAME.sweep]",
        ),
        click.Option(["--force"], is_flag=True, help="Replace the tables of another sweep in that folder."),
        *output_options(),
        click.Option(["--kind"], help="Of pictures: lines, bars, heat or pareto.  [default: by what varies]"),
        click.Option(["--x"], metavar="KEY", help="Of pictures: the horizontal axis; of pareto, a metric."),
        click.Option(["--y"], metavar="METRIC", help="Of pictures: what is drawn over it."),
        click.Option(["--by"], metavar="KEY,...", help="Of pictures: keys whose values are lines apart."),
        click.Option(["--log"], metavar="x|y|xy|none", help="Of pictures: logarithmic axes."),
        click.Option(
            ["--report", "report_to"],
            metavar="FILE",
            help="Write everything as one HTML page that needs nothing else.",
        ),
    ]


def _fixed_options(command: SweptCommand) -> list[click.Option]:
    """The options of a command itself; their values are texts, which the sweep takes as it takes all."""
    return [
        click.Option(
            [f"--{key}", _FIXED + key.replace("-", "_")],
            metavar="NAME|FILE" if parameter.is_file else "VALUE",
            help=parameter.words + (f".  [default: {parameter.default}]" if parameter.default else "."),
        )
        for key, parameter in command.parameters.items()
    ]


def _of(name: str, fixed: list[click.Option]) -> Command:
    """The command that sweeps `name`, a command with these options, or a file."""
    keys = {str(option.name): option.opts[0].removeprefix("--") for option in fixed}

    def sweep(**options: Any) -> None:
        given = {keys[name]: options[name] for name in keys if options[name] is not None}
        _sweep(name, given, options)

    what = f"ndpsim {name}" if fixed else f"what {name} says"
    return Command(
        name,
        params=[*fixed, *_options()],
        callback=sweep,
        help=f"{_HELP}\n\nRuns {what}.",
        examples=_EXAMPLES,
    )


def pairs(texts: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    """``KEY=TEXT`` as a mapping.

    Raises:
        InputError: not of this form, or a key is there twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise InputError(f"'{text[:60]}' is not of the form {form}", key=option)
        if key in pairs:
            raise InputError(f"'{key}' is given twice", key=option)
        pairs[key] = value
    return pairs


def _sweep(name: str, fixed: dict[str, str], options: dict[str, Any]) -> None:
    """Sweep, say how it went, and write what is asked for."""
    out = Path(options["out"] or f"{Path(name).stem}.sweep")
    check_outputs(
        {
            "--json": options["json_to"],
            "--plot": options["plot_to"],
            "--report": options["report_to"],
        }
    )
    check_folder(out, "--out")
    from ndpsim.sweeps.run import defined, run_sweep

    sets = pairs(options["sets"], "--set", "dimm.ranks=2")
    twice = sorted(fixed.keys() & sets.keys())
    if twice:
        raise InputError(f"'{twice[0]}' is given by --{twice[0]}, too", key="--set")
    with named_as_options("baseline", "zip", "vary", "jobs", "cluster", "out"):
        definition = defined(
            name,
            pairs(options["vary"], "--vary", "tokens=1,2,4"),
            {**fixed, **sets},
            options["zipped"],
            pairs(options["baseline"], "--baseline", "policy=klotski"),
        )
        plot = _plot_of(options, definition)
        run = partial(run_sweep, definition, out, force=options["force"])
        result = run_with_progress(run, definition, options)
    if options["json_to"] is not None:
        write_json(result.to_dict(), options["json_to"])
    if options["json_to"] != "-":
        _print(result, out)
    if result.failed:
        _say_failures(result, out)
    _draw(options, result, plot)
    if result.failed:
        click.get_current_context().exit(1)


def _plot_of(options: Mapping[str, Any], definition: Definition) -> dict[str, Any] | None:
    """The choices of the picture, of a file of its own or in a report; None: it is not asked for.

    Raises:
        InputError: it cannot be drawn, as far as one can tell without results.
    """
    choices = {name: options[name] for name in _OF_PLOT}
    of_report = options["report_to"] is not None
    if options["plot_to"] is None:
        given = [name for name in ("size", *([] if of_report else _OF_PLOT)) if options[name] is not None]
        if given:
            raise InputError("is of --plot, which is not given", key=f"--{given[0]}")
        if not any(choices.values()):
            return None
    from ndpsim.report.panels import DEFAULT_SIZE, chosen_size

    with named_as_options("size", *_OF_PLOT):
        chosen_size(options["size"] or DEFAULT_SIZE)
        _chosen(definition, None, choices)
    if options["plot_to"] is not None:
        from ndpsim.report.pictures import canvas  # brings matplotlib, which takes its time

        canvas.check_format(options["plot_to"])
    return choices


def _chosen(definition: Definition, rows: list[dict[str, Any]] | None, choices: dict[str, Any]) -> SweepPlot:
    from ndpsim.report.sweep_plot import chosen_plot

    return chosen_plot(definition, rows, **choices)


def _draw(options: Mapping[str, Any], result: SweepResult, choices: dict[str, Any] | None) -> None:
    """The picture and the report."""
    plot = None
    if choices is not None:
        with named_as_options(*_OF_PLOT, "plot"):
            plot = _chosen(result.definition, result.rows, choices)
    if plot is not None and options["plot_to"] is not None:
        from ndpsim.report.panels import DEFAULT_SIZE
        from ndpsim.report.pictures.sweep import draw_points

        size = options["size"] or DEFAULT_SIZE
        draw_points(options["plot_to"], result.rows, result.definition, plot, size)
    if options["report_to"] is not None:
        from ndpsim.report.html.sweeps import write_sweep_report

        write_sweep_report(options["report_to"], result, plot)


def _print(result: SweepResult, out: Path) -> None:
    from ndpsim.report.printing import print_table, print_text

    names, cells = result.cells(result.main_metrics, _SHOWN)
    print_table(result.title(), names, cells, left=len(names) - len(result.main_metrics))
    if len(result) > _SHOWN:
        print_text(f"and {len(result) - _SHOWN} more in {out / 'table.csv'}")
    print_text(f"{result.computed} computed, {result.found} found; all metrics: {out / 'table.csv'}")


def _say_failures(result: SweepResult, out: Path) -> None:
    failed = [row for row in result if row["status"] != "ok"]
    for row in failed[:_REASONS]:
        point = ", ".join(f"{key}={row[key]}" for key in result.definition.varied)
        click.echo(f"ndpsim: {point}: {row['reason']}", err=True)
    click.echo(f"ndpsim: {len(failed)} of {len(result)} points failed; see {out / 'table.csv'}", err=True)


@click.group(
    cls=_Sweeps,
    examples=_EXAMPLES,
    help=f"Run a command at many points, on all cores or on a cluster.\n\n{_HELP}",
)
def command() -> None:
    """``ndpsim sweep``."""
