"""``requests``: the requests to a serving system."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.routing import SEED as ANY_SEED
from ndpsim.base.options.routing import file_or_spec, format_of, recording_of, spec_of, written
from ndpsim.base.options.table import Parameter, Whole, table

_RESULTS = (written("requests here, as CSV"),)
_SEED = replace(ANY_SEED, help="Seed; equal seeds give equal requests.")

#: Parameters of a recorded file.
RECORDED = table(
    {
        "Requests": (
            format_of("file", "workload-formats"),
            Parameter("first", "Use only the first N requests.", Whole(1), otherwise="all"),
            Parameter("run", "Use the N-th run of a file with several.", Whole(1), otherwise="the only one"),
        )
    }
)
COMPARE = table({"Requests": (recording_of(), *RECORDED.values())})
GENERATE = table({"Requests": (spec_of("workloads", "poisson"), _SEED), "Results": _RESULTS})
IMPORT = table({"Requests": (recording_of(), *RECORDED.values()), "Results": _RESULTS})
DESCRIBE = table(
    {"Requests": (file_or_spec("requests", "The requests.", "workloads"), *RECORDED.values(), _SEED)}
)
