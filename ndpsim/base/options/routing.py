"""``routing``: the experts that tokens choose; and parameters of all that is generated or imported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndpsim.base.options.hardware import DEFAULT_MODEL, model_of
from ndpsim.base.options.table import Flag, Kind, Output, Parameter, Whole, table

# ---- Parameters of commands that generate data from a SPEC, or import recordings of other programs


MOST = 1 << 24  #: Maximum number of steps, sequences, or tokens of a prompt.

BATCH = Parameter("batch", "Sequences that are decoded together.", Whole(1, MOST), 512)
STEPS = Parameter("steps", "Decode steps.", Whole(0, MOST), 16)
SEED = Parameter("seed", "Seed; equal seeds give equal results.", Whole(0, (1 << 63) - 1), 1)
PROMPT = Parameter("prompt", "Prompt tokens of each sequence; 0: none.", Whole(0, MOST), 0)


def spec_of(kinds: str, default: str) -> Parameter:
    """The SPEC of a generator; `kinds`: the kind of ``ndpsim list`` with the names of SPECs."""
    return Parameter("spec", "What to generate.", Kind(form="SPEC"), default, names=kinds, positional=True)


def file_or_spec(name: str, help: str, kinds: str, ending: str = "") -> Parameter:
    """A file, or a SPEC; `kinds` as in `spec_of`."""
    form = Kind(form="FILE|SPEC")
    return Parameter(name, help, form, names=kinds, files=(ending,), positional=True, required=True)


def recording_of(**more: Any) -> Parameter:
    """The file of a recording, or several; `more`: as in `Parameter`."""
    form = Kind(form="FILE")
    return Parameter("file", "The recording.", form, files=("",), positional=True, required=True, **more)


def format_of(what: str, formats: str) -> Parameter:
    """The format of a file or files; `formats`: a kind of ``ndpsim list``."""
    return Parameter(
        "format", f"Format of the {what}.", Kind(form="NAME"), otherwise="detected", names=formats
    )


def written(what: str) -> Parameter:
    """The output file of a generator or an import."""
    return Parameter("out", f"Write the {what}.", Output(), required=True, short="o")


# ---- ``routing``: which experts the tokens of a model choose


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
