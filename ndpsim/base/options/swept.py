"""The parameters of commands that can be swept, and the parameters of sweeps and searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ndpsim.base.arguments import path_of
from ndpsim.base.choices import MOST_JOBS
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import DRAM
from ndpsim.base.options.gemv import GEMV
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.moe import MOE, SIMULATED
from ndpsim.base.options.pim import ATTENTION
from ndpsim.base.options.relayout import RELAYOUT
from ndpsim.base.options.serve import SERVE
from ndpsim.base.options.settings import Settings, option, table_of
from ndpsim.base.options.table import Choice, Flag, Folder, Kind, Parameter, Table, Whole, joined, table

SWEPT: Mapping[str, Table] = {
    "gemv": GEMV,
    "moe": MOE,
    "relayout": RELAYOUT,
    "dram": DRAM,
    "serve": SERVE,
    "attention": ATTENTION,
}

STUDIES = (".yaml", ".yml", ".json")  #: Endings of files that describe a sweep or a search.
KINDS = ("lines", "bars", "heat", "pareto")  #: Kinds of pictures of a sweep.
LOGS = ("x", "y", "xy", "none")
SAMPLERS = ("tpe", "nsga2", "random")
MOST_RUNS = 100_000
BUDGET, SAMPLER, SEED, BATCH = 100, SAMPLERS[0], 1, 8  #: Of a search whose file says nothing else.

_SWEEP, _RESULTS = "Sweep", "Results"
_VALUES = Kind(form="KEY=VALUES")
_SETS = replace(SET, help="Set a value for all points, e.g. dimm.ranks=2. Repeatable.")


class StudyOptions(Settings):
    """Where and how the points of a sweep or search run and are stored."""

    sections = _SWEEP, _RESULTS

    out: Any = option(
        None,
        Folder(),
        "Folder for the records of points and the tables.",
        _RESULTS,
        "str | PathLike[str] | None",
        told="a folder with the records of finished points, table.csv and table.parquet. The same call "
        "continues an interrupted sweep; it runs points again if ndpsim or a named file has changed. None: "
        "nothing is stored",
        short="o",
    )
    jobs: int | None = option(
        None,
        Whole(1, MOST_JOBS),
        "Processes that run points.",
        _SWEEP,
        otherwise="one for each core",
        short="j",
    )
    cluster: str | None = option(
        None,
        Kind(form="ADDRESS"),
        "Run the points on this Dask cluster: tcp://HOST:PORT, or a scheduler file. Its workers need the "
        "files of the points under the same paths.",
        _SWEEP,
    )
    retry_failed: bool = option(False, Flag(), "Run failed points again.", _SWEEP, stated=None)
    force: bool = option(
        False, Flag(), "Replace the tables of another run in that folder.", _RESULTS, stated=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.folder
        if self.jobs is not None and self.cluster is not None:
            problem = "a cluster sets the number of points that run at once; leave it out"
            raise InputError(problem, "conflict", key="jobs")
        if self.cluster == "":
            problem = "is empty: give the address of a scheduler, or its file"
            raise InputError(problem, "missing", key="cluster")

    @property
    def folder(self) -> Path | None:
        """The folder of points and tables; None: nothing is stored."""
        return None if self.out is None else path_of(self.out, "out")


class SearchOptions(StudyOptions):
    """How many points of a search run, and how they are chosen."""

    first = "budget sampler seed batch"

    budget: int | None = option(
        None,
        Whole(1, MOST_RUNS),
        "Number of points to run.",
        _SWEEP,
        name="runs",
        otherwise=f"the file's budget, or {BUDGET}",
    )
    sampler: str | None = option(
        None,
        Choice(SAMPLERS, "sampler"),
        "Sampler: tpe, nsga2 or random.",
        _SWEEP,
        otherwise=f"the file's, or {SAMPLER}",
    )
    seed: int | None = option(
        None, Whole(0, (1 << 32) - 1), "Seed of the sampler.", _SWEEP, otherwise=f"the file's, or {SEED}"
    )
    batch: int | None = option(
        None,
        Whole(1, MOST_RUNS),
        "Points that the sampler chooses at once.",
        _SWEEP,
        otherwise=f"the file's, or {BATCH}",
    )


STUDY = table_of(StudyOptions)
SEARCH = table_of(SearchOptions)

SWEEP = joined(
    table(
        {
            SIMULATED: (_SETS,),
            _SWEEP: (
                Parameter(
                    "vary",
                    "An option without its dashes, or a key of the hardware, and its values: 1,2,4 or 1..8 "
                    "or log:10..1000:7. Repeatable; the last key changes fastest.",
                    _VALUES,
                    repeatable=True,
                ),
                Parameter(
                    "zip",
                    "The n-th point has the n-th value of every key, instead of all combinations.",
                    Flag(),
                ),
                Parameter(
                    "baseline",
                    "Add the metric speedup, relative to the point with this value. Repeatable.",
                    Kind(form="KEY=VALUE"),
                    repeatable=True,
                ),
            ),
        }
    ),
    STUDY.but(out=replace(STUDY["out"], otherwise="NAME.sweep")),
)
#: Parameters of pictures of sweeps, for `ndpsim.report.sweep_plot`.
PLOT = table(
    {
        _RESULTS: (
            Parameter(
                "kind",
                "With --plot: kind of picture: lines, bars, heat or pareto.",
                Choice(KINDS, "kind"),
                otherwise="depends on the keys that vary",
            ),
            Parameter("x", "With --plot: key on the horizontal axis; for pareto a metric.", Kind(form="KEY")),
            Parameter("y", "With --plot: metric on the vertical axis.", Kind(form="METRIC")),
            Parameter("by", "With --plot: keys with a line for each value.", Kind(form="KEY,...")),
            Parameter("log", "With --plot: logarithmic axes.", Choice(LOGS, "log", form="x|y|xy|none")),
        )
    }
)

OPTIMIZE = joined(
    table(
        {
            SIMULATED: (
                Parameter(
                    "study",
                    "The file of the search.",
                    Kind(form="FILE.yaml"),
                    argument="command",
                    positional=True,
                    required=True,
                    files=STUDIES,
                ),
                _SETS,
            ),
            _SWEEP: (
                Parameter(
                    "vary",
                    "A variable and its values, or a range: 0.5..2.0, log:10..1000. Repeatable.",
                    _VALUES,
                    repeatable=True,
                ),
            ),
        }
    ),
    SEARCH.but(
        out=replace(
            SEARCH["out"],
            help="Folder for the records of points and the tables; points of a sweep there are reused.",
            otherwise="NAME.optimize",
        )
    ),
)
