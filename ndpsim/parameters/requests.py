"""``requests``: what arrives at a serving system."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.parameters.generated import SEED as ANY_SEED
from ndpsim.parameters.kinds import Kind, Output, Whole
from ndpsim.parameters.table import Parameter, table

_OUT = Parameter("out", "Write the requests here, as CSV.", Output(), files=("",), required=True, short="o")
_SEED = replace(ANY_SEED, help="The same seed, the same requests.")
_FORMAT = Parameter(
    "format", "Format of the file.", Kind(form="NAME"), otherwise="detected", names="workload-formats"
)
_FIRST = Parameter("first", "Only the first requests.", Whole(1), otherwise="all")

GENERATE = table(
    {
        "Requests": (
            Parameter(
                "spec", "What to generate.", Kind(form="SPEC"), "poisson", names="workloads", positional=True
            ),
            _SEED,
        ),
        "Results": (_OUT,),
    }
)
IMPORT = table(
    {
        "Requests": (
            Parameter(
                "file", "The recording.", Kind(form="FILE"), files=("",), positional=True, required=True
            ),
            _FORMAT,
            _FIRST,
        ),
        "Results": (_OUT,),
    }
)
#: What describes a file that is recorded, not generated.
RECORDED = table({"Requests": (_FORMAT, _FIRST)})
DESCRIBE = table(
    {
        "Requests": (
            Parameter(
                "requests",
                "The requests.",
                Kind(form="FILE|SPEC"),
                names="workloads",
                files=("",),
                positional=True,
                required=True,
            ),
            *RECORDED.values(),
            _SEED,
        )
    }
)
