"""``ndpsim optimize``: the points of a sweep with the best metrics, by running few of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.options import check_folder, check_outputs, named_as_options, write_json
from ndpsim.cli.sweep import output_options, pairs, place_options, run_with_progress

if TYPE_CHECKING:
    from ndpsim.search.result import SearchResult

_SHOWN = 40  # points that are printed
_HELP = """Search for the points of a sweep with the best metrics, by running few of them.

FILE.yaml names variables (keys of the hardware and options of a command), objectives, constraints and the
number of runs. What is finished is in the folder --out at once; the same call goes on where another was
ended, and with more --runs where another was done. The points follow from the file, --seed and --batch
alone. Needs pip install 'ndpsim[optimize]'. Exit status 1 when no point is feasible."""
_EXAMPLES = (
    "ndpsim optimize examples/optimize/time_power.yaml --plot front.svg",
    "ndpsim optimize study.yaml --runs 200 --jobs 8 --json front.json",
)


def _options() -> list[click.Parameter]:
    return [
        click.Argument(["study"], metavar="FILE.yaml"),
        click.Option(
            ["--vary"],
            multiple=True,
            metavar="KEY=VALUES",
            help="Values of a variable, or a range: 0.5..2.0, log:10..1000. Repeatable.",
        ),
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A value of all points, also of a variable, e.g. dimm.ranks=2. Repeatable.",
        ),
        click.Option(["--runs"], type=int, help="Points that are run.  [default: the file's budget, or 100]"),
        click.Option(
            ["--sampler"], metavar="NAME", help="tpe, nsga2 or random.  [default: the file's, or tpe]"
        ),
        click.Option(["--seed"], type=int, help="Of the sampler.  [default: the file's, or 1]"),
        click.Option(["--batch"], type=int, help="Points asked for together.  [default: the file's, or 8]"),
        *place_options(),
        click.Option(
            ["--out", "-o"],
            metavar="DIR",
            help="Folder of the points' files and the tables; that of a sweep lends its points.  "
            "[default: NAME.optimize]",
        ),
        *output_options(),
    ]


def _optimize(study: str, **options: Any) -> None:
    out = Path(options["out"] or f"{Path(study).stem}.optimize")
    check_outputs({"--json": options["json_to"], "--plot": options["plot_to"]})
    check_folder(out, "--out")
    _check_picture(options)
    from ndpsim.search.run import problem_of, run_search

    names = ("sampler", "seed", "batch")
    with named_as_options(
        "vary", "jobs", "cluster", "out", *(name for name in names if options[name] is not None)
    ):
        problem = problem_of(
            study,
            pairs(options["vary"], "--vary", "tokens=1,2,4"),
            fixed=pairs(options["sets"], "--set", "dimm.ranks=2"),
            budget=options["runs"],
            **{name: options[name] for name in names},
        )
        result = run_with_progress(partial(run_search, problem, out), problem.definition, options)
    if options["json_to"] is not None:
        write_json(result.to_dict(), options["json_to"])
    if options["json_to"] != "-":
        _print(result, out)
    if not result.front:
        click.echo(f"ndpsim: no point is feasible; see {out / 'runs.csv'}", err=True)
        click.get_current_context().exit(1)
    if options["plot_to"] is not None:
        _draw(result, options["plot_to"], options["size"])


def _check_picture(options: Mapping[str, Any]) -> None:
    """Make sure, before anything is run, that the picture can be drawn."""
    from ndpsim.errors import InputError

    if options["plot_to"] is None:
        if options["size"] is not None:
            raise InputError("is of --plot, which is not given", key="--size")
        return
    from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
    from ndpsim.report.pictures import canvas

    with named_as_options("size"):
        chosen_size(options["size"] or DEFAULT_SIZE)
    canvas.check_format(options["plot_to"])


def _print(result: SearchResult, out: Path) -> None:
    from ndpsim.report.metrics import value_words
    from ndpsim.report.printing import print_table, print_text

    if not result.front:
        return
    names, cells = result.cells(_SHOWN)
    print_table(result.title(), names, cells, left=1)
    if len(result.shown) > _SHOWN:
        print_text(f"and {len(result.shown) - _SHOWN} more in {out / 'front.csv'}")
    shared = ", ".join(f"{key}={value_words(value)}" for key, value in result.shared().items())
    if shared:
        print_text(f"{'the best' if result.approach else 'all'}: {shared}")
    points = result.points
    files = f"the table: {out / 'front.csv'}, all points: {out / 'runs.csv'}"
    print_text(f"{points.computed} computed, {points.found} found; {files}")


def _draw(result: SearchResult, path: str, size: str | None) -> None:
    from ndpsim.report.panels import DEFAULT_SIZE
    from ndpsim.report.pictures.canvas import save
    from ndpsim.report.pictures.search import approach_figure
    from ndpsim.report.pictures.sweep import draw_points
    from ndpsim.report.sweep_plot import SweepPlot, chosen_plot, sweep_title

    chosen_size, problem = size or DEFAULT_SIZE, result.problem
    feasible = [row for row in result.points if row["feasible"]]
    objectives = list(problem.objectives)
    if len(objectives) == 1:
        title = sweep_title(problem.definition)
        save(approach_figure(title, objectives[0], feasible, result.approach, chosen_size), path, chosen_size)
        return
    definition, asked = result.points.definition, {"x": objectives[0], "y": objectives[1]}
    plot = chosen_plot(definition, feasible, **{"kind": "pareto", **asked, **definition.plot})
    chosen = SweepPlot(**{**vars(plot), "more": problem.more_is_better()})
    draw_points(path, feasible, definition, chosen, chosen_size)


command = Command("optimize", params=_options(), callback=_optimize, help=_HELP, examples=_EXAMPLES)
