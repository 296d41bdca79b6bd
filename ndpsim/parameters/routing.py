"""``routing``: which experts the tokens of a model choose."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.parameters.gemv import DEFAULT_MODEL
from ndpsim.parameters.generated import BATCH, PROMPT, SEED, STEPS
from ndpsim.parameters.hardware import model_of
from ndpsim.parameters.kinds import Flag, Kind, Output, Whole
from ndpsim.parameters.table import Parameter, table

OUT = Parameter("out", "Write the trace here.", Output(), files=("",), required=True, short="o")
_MODEL = model_of(None, otherwise=f"that of the counts, else {DEFAULT_MODEL}")
#: What is generated beside the SPEC.
GENERATED = table(
    {"Routing": (_MODEL, BATCH, STEPS, PROMPT, replace(SEED, help="The same seed, the same trace."))}
)

GENERATE = table(
    {
        "Routing": (
            Parameter(
                "spec", "What to generate.", Kind(form="SPEC"), "skewed", names="routing", positional=True
            ),
            *GENERATED.values(),
            Parameter(
                "offline",
                "Generate the offline trace, for policies that learn: other choices, with `drift`.",
                Flag(),
            ),
        ),
        "Results": (OUT,),
    }
)
IMPORT = table(
    {
        "Routing": (
            Parameter(
                "file",
                "The recording.",
                Kind(form="FILE"),
                argument="files",
                files=("",),
                positional=True,
                repeatable=True,
                required=True,
            ),
            Parameter(
                "format",
                "Format of the files.",
                Kind(form="NAME"),
                otherwise="detected",
                names="routing-formats",
            ),
            model_of(None, help="The model of the recording; it gives the layers their numbers."),
            Parameter("experts", "Experts of a layer.", Whole(1), otherwise="as the files say"),
            Parameter(
                "experts-per-token", "Experts that a token chooses, if the files do not say it.", Whole(1)
            ),
            Parameter("steps", "Only the first decode steps.", Whole(1), otherwise="all"),
        ),
        "Results": (OUT,),
    }
)
DESCRIBE = table(
    {
        "Routing": (
            Parameter(
                "routing",
                "The trace.",
                Kind(form="FILE|SPEC"),
                names="routing",
                files=(".npz",),
                positional=True,
                required=True,
            ),
            *GENERATED.values(),
        )
    }
)
