"""``ndpsim optimize``: search for the hardware and policy parameters with the best metrics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ndpsim.base.options.swept import OPTIMIZE
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import answer, check_format, write_figure
from ndpsim.cli.sweep import OUTPUTS, folder_of, keys_as_typed, pairs, run_with_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ndpsim.studies.search.result import SearchResult

_SHOWN = 40  # points that are printed


@taking(
    OPTIMIZE,
    OUTPUTS,
    examples=(
        "ndpsim optimize examples/optimize/time_power.yaml --plot front.svg",
        "ndpsim optimize study.yaml --runs 200 --jobs 8 --json front.json",
    ),
)
def command(options: Options) -> None:
    """Search a sweep for the points with the best metrics; only a few points run.

    FILE.yaml names variables (keys of the hardware and options of a command), objectives, constraints and the
    number of runs. Each finished point is saved in the folder --out at once. The same call continues an
    interrupted search. With more --runs it adds points to a finished search. The points depend only on the
    file, --seed and --batch. The command needs pip install 'ndpsim[optimize]'. The exit status is 1 if no
    point is feasible.
    """
    out = folder_of(options, options["study"], "optimize")
    check_format(options)
    from ndpsim.studies.search.run import problem_of, run_search

    with keys_as_typed(options):
        problem = problem_of(
            options["study"],
            pairs(options, "vary", "tokens=1,2,4"),
            fixed=pairs(options, "set", "dimm.ranks=2"),
            **OPTIMIZE.arguments(options, "runs", "sampler", "seed", "batch"),
        )
        result = run_with_progress(partial(run_search, problem), out, problem.definition, options)
    answer(options, result.to_dict, lambda: _print(result, out))
    if not result.front:
        click.echo(f"ndpsim: no point is feasible; see {out / 'runs.csv'}", err=True)
        click.get_current_context().exit(1)
    if "plot" in options:
        size = OUTPUTS.value(options, "size")
        write_figure(lambda: _figure(result, size), options["plot"], size, options.get("title"))


def _print(result: SearchResult, out: Path) -> None:
    from ndpsim.report.metrics import value_words
    from ndpsim.report.printing import print_table, print_text

    if not result.front:
        return
    if answer := result.answer():
        print_text(answer, bold=True)
    names, cells = result.cells(_SHOWN)
    print_table(result.title(), names, cells, left=1)
    if len(result.shown) > _SHOWN:
        print_text(f"and {len(result.shown) - _SHOWN} more in {out / 'front.csv'}")
    shared = ", ".join(f"{key}={value_words(value)}" for key, value in result.shared().items())
    if shared:
        print_text(f"{'the best' if result.approach else 'all'}: {shared}")
    points = result.points
    files = f"the table: {out / 'front.csv'}, all points: {out / 'runs.csv'}"
    print_text(f"{points.computed} simulated, {points.found} reused; {files}")


def _figure(result: SearchResult, size: str) -> Figure:
    """The approach to the best value of one objective, or the points over two."""
    from ndpsim.report.pictures.sweep import approach_figure, points_figure
    from ndpsim.report.sweep_plot import chosen_plot, sweep_title

    problem = result.problem
    feasible = [row for row in result.points if row["feasible"]]
    objectives = list(problem.objectives)
    if len(objectives) == 1:
        title, kinds = sweep_title(problem.definition), problem.definition.results
        return approach_figure(title, objectives[0], kinds, feasible, result.approach, size)
    definition, axes = result.points.definition, {"x": objectives[0], "y": objectives[1]}
    plot = chosen_plot(definition, feasible, **{"kind": "pareto", **axes, **definition.plot})
    chosen = replace(plot, more=problem.more_is_better())
    return points_figure(feasible, definition, chosen, size)
