"""How much of a front that is known in full a search finds with 5% of the runs.

``python examples/optimize/known_grid.py [FOLDER]``: all 2,000 points of `time_power.yaml` as a sweep (a
minute or two), then searches with several seeds, which find their points in the sweep's folder. It prints the
hypervolume of each search's front as a share of that of the whole grid: the area that a front dominates, up
to the worst value of each objective on the grid. On a linear scale a few fast points dominate nearly all of
it, also those that are chosen at random; on logarithmic scales the share says more.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ndpsim.base.options.swept import StudyOptions
from ndpsim.studies.search.run import problem_of, run_search
from ndpsim.studies.sweeps.run import run_sweep

FILE = Path(__file__).with_name("time_power.yaml")
SEEDS = range(1, 9)
SAMPLERS = ("tpe", "nsga2", "random")
SHARE_OF_RUNS = 0.05

Point = tuple[float, float]


def hypervolume(points: Iterable[Point], worst: Point) -> float:
    """The area that points dominate, less being better, up to `worst`."""
    area, least = 0.0, worst[1]
    for x, y in sorted(points):
        if y < least:
            area += (worst[0] - x) * (least - y)
            least = y
    return area


def share(some: list[Point], everything: list[Point], scale: Callable[[float], float]) -> float:
    """The hypervolume of some points as a share of that of all, on a scale."""
    worst = (max(scale(x) for x, _ in everything), max(scale(y) for _, y in everything))
    of_some, of_all = ([(scale(x), scale(y)) for x, y in points] for points in (some, everything))
    return hypervolume(of_some, worst) / hypervolume(of_all, worst)


def objectives(problem: Any, rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Both objectives of each point."""
    first, second = problem.objectives
    return [(row[first], row[second]) for row in rows]


def main(folder: str = "known_grid.sweep", **changes: Any) -> dict[str, list[float]]:
    """Print the shares.

    Args:
        folder: of the sweep.
        changes: `vary` and `fixed` of `ndpsim.optimize` in place of what the file says.

    Returns:
        Of each sampler the shares on logarithmic scales, by seed.
    """
    problem = problem_of(FILE, **changes)
    grid = run_sweep(problem.definition, StudyOptions(out=folder))
    everything = objectives(problem, map(problem.judged, grid))
    budget = max(1, round(SHARE_OF_RUNS * len(grid)))
    print(f"{len(grid)} points; {budget} runs are {100 * budget / len(grid):.1f}% of them")
    print("sampler  seed  hypervolume  on logarithmic scales")
    shares: dict[str, list[float]] = {}
    for sampler in SAMPLERS:
        for seed in SEEDS:
            numbers = {"budget": budget, "sampler": sampler, "seed": seed}
            # Searches share the points of one folder; the tables there are of the last one.
            result = run_search(problem_of(FILE, **changes, **numbers), StudyOptions(out=folder, force=True))
            found = objectives(problem, result.front)
            linear, log = share(found, everything, float), share(found, everything, math.log)
            shares.setdefault(sampler, []).append(log)
            print(f"{sampler:7}  {seed:4}  {100 * linear:10.2f}%  {100 * log:20.2f}%", flush=True)
    for sampler, logs in shares.items():
        mean = sum(logs) / len(logs)
        print(f"{sampler}, logarithmic: at least {100 * min(logs):.2f}%, mean {100 * mean:.2f}%")
    return shares


if __name__ == "__main__":
    main(*sys.argv[1:])
