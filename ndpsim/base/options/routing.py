"""``routing``: which experts the tokens of a model choose."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.gemv import DEFAULT_MODEL
from ndpsim.base.options.generated import (
    BATCH,
    PROMPT,
    SEED,
    STEPS,
    file_or_spec,
    format_of,
    recording_of,
    spec_of,
    written,
)
from ndpsim.base.options.hardware import model_of
from ndpsim.base.options.kinds import Flag, Whole
from ndpsim.base.options.table import Parameter, table

_RESULTS = (written("trace here"),)
_MODEL = model_of(None, otherwise=f"that of the counts, else {DEFAULT_MODEL}")
#: Parameters of generated routing beside the SPEC.
GENERATED = table(
    {"Routing": (_MODEL, BATCH, STEPS, PROMPT, replace(SEED, help="Seed; equal seeds give equal traces."))}
)

GENERATE = table(
    {
        "Routing": (
            spec_of("routing", "skewed"),
            *GENERATED.values(),
            Parameter(
                "offline",
                "Generate the offline trace, from which policies learn: other choices, with `drift`.",
                Flag(),
            ),
        ),
        "Results": _RESULTS,
    }
)
IMPORT = table(
    {
        "Routing": (
            recording_of(argument="files", repeatable=True),
            format_of("files", "routing-formats"),
            model_of(None, help="The model of the recording, which decides the numbers of layers."),
            Parameter("experts", "Experts of a layer.", Whole(1), otherwise="read from the files"),
            Parameter(
                "experts-per-token",
                "Experts that a token chooses, if the files do not contain this number.",
                Whole(1),
            ),
            Parameter("steps", "Use only the first N decode steps.", Whole(1), otherwise="all"),
        ),
        "Results": _RESULTS,
    }
)
DESCRIBE = table({"Routing": (file_or_spec("routing", "The trace.", "routing", ".npz"), *GENERATED.values())})
