"""The parameters of commands that can be swept, and the parameters of sweeps and searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ndpsim.base.options.dram import DRAM
from ndpsim.base.options.gemv import GEMV
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.kinds import Choice, Flag, Folder, Kind, Whole
from ndpsim.base.options.moe import MOE
from ndpsim.base.options.relayout import RELAYOUT
from ndpsim.base.options.serve import SERVE
from ndpsim.base.options.table import Parameter, Table, table

SWEPT: Mapping[str, Table] = {"gemv": GEMV, "moe": MOE, "relayout": RELAYOUT, "dram": DRAM, "serve": SERVE}

STUDIES = (".yaml", ".yml", ".json")  #: Endings of files that describe a sweep or a search.
KINDS = ("lines", "bars", "heat", "pareto")  #: Kinds of pictures of a sweep.
LOGS = ("x", "y", "xy", "none")
SAMPLERS = ("tpe", "nsga2", "random")
MOST_RUNS = 100_000
MOST_JOBS = 4096

_VALUES = Kind(form="KEY=VALUES")
JOBS = Parameter(
    "jobs", "Processes that run points.", Whole(1, MOST_JOBS), otherwise="one for each core", short="j"
)
_PLACE = (
    JOBS,
    Parameter(
        "cluster",
        "Run the points on this Dask cluster: tcp://HOST:PORT, or a scheduler file. Its workers need the "
        "files of the points under the same paths.",
        Kind(form="ADDRESS"),
    ),
    Parameter("retry-failed", "Run failed points again.", Flag()),
)
#: Parameters of the processes that run points.
PLACE = tuple(one.name for one in _PLACE)
_SETS = replace(SET, help="Set a value for all points, e.g. dimm.ranks=2. Repeatable.")
_OUT = Parameter("out", "Folder for the files of points and the tables.", Folder(), short="o")
FORCE = Parameter("force", "Replace the tables of another run in that folder.", Flag())

SWEEP = table(
    {
        "What is simulated": (_SETS,),
        "Sweep": (
            Parameter(
                "vary",
                "An option without its dashes, or a key of the hardware, and its values: 1,2,4 or 1..8 or "
                "log:10..1000:7. Repeatable; the last key changes fastest.",
                _VALUES,
                repeatable=True,
            ),
            Parameter(
                "zip", "The n-th point has the n-th value of every key, instead of all combinations.", Flag()
            ),
            Parameter(
                "baseline",
                "Add the metric speedup, relative to the point with this value. Repeatable.",
                Kind(form="KEY=VALUE"),
                repeatable=True,
            ),
            *_PLACE,
        ),
        "Results": (replace(_OUT, otherwise="NAME.sweep"), FORCE),
    }
)
#: Parameters of pictures of sweeps, for `ndpsim.report.sweep_plot`.
PLOT = table(
    {
        "Results": (
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

OPTIMIZE = table(
    {
        "What is simulated": (
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
        "Sweep": (
            Parameter(
                "vary",
                "A variable and its values, or a range: 0.5..2.0, log:10..1000. Repeatable.",
                _VALUES,
                repeatable=True,
            ),
            Parameter(
                "runs",
                "Number of points to run.",
                Whole(1, MOST_RUNS),
                otherwise="the file's budget, or 100",
                argument="budget",
            ),
            Parameter(
                "sampler",
                "Sampler: tpe, nsga2 or random.",
                Choice(SAMPLERS, "sampler"),
                otherwise="the file's, or tpe",
            ),
            Parameter("seed", "Seed of the sampler.", Whole(0, (1 << 32) - 1), otherwise="the file's, or 1"),
            Parameter(
                "batch",
                "Points that the sampler chooses at once.",
                Whole(1, MOST_RUNS),
                otherwise="the file's, or 8",
            ),
            *_PLACE,
        ),
        "Results": (
            replace(
                _OUT,
                help="Folder for the files of points and the tables; points of a sweep there are reused.",
                otherwise="NAME.optimize",
            ),
            FORCE,
        ),
    }
)
