"""Parameters of most commands: the hardware, changes to it, the model, and the bits of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ndpsim.base.choices import BITS, one_of_bits
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.table import Kind, Own, Parameter, Whole

DEFAULT_MODEL = "qwen3-235b-a22b"  #: Of commands for one expert.
YAML = (".yaml", ".yml")  #: Endings of files of hardware and of parts.
HW = Parameter("hw", "The hardware.", default="trimoe", form="NAME|FILE", names="hw", files=YAML)
SET = Parameter(
    "set",
    "Change a value, e.g. dimm.ranks=2. Repeatable.",
    Kind(form="KEY=VALUE"),
    argument="sets",
    repeatable=True,
)
_MODEL = Parameter(
    "model",
    "A bundled model, a config.json or a GGUF file.",
    form="NAME|FILE",
    names="models",
    files=(".json", ".gguf"),
)


def model_of(default: str | None, **changed: str) -> Parameter:
    """The model, with its default; `changed`: other attributes of `Parameter`."""
    return replace(_MODEL, default=default, **changed)  # type: ignore[arg-type]


# ---- Parameters of the bits of weights


_FORM = "BITS|gate=BITS,up=BITS,down=BITS"


def _bits(value: Any, key: str) -> int | dict[str, int]:
    """Bits of a weight, or of each matrix: ``gate=4,up=4,down=8`` as text."""
    if isinstance(value, str) and "=" in value:
        pairs = [part.partition("=") for part in value.split(",")]
        names = [name.strip() for name, _, _ in pairs]
        if len(set(names)) < len(names):
            raise InputError(f"{shown(value)} names a matrix twice", key=key, code="twice")
        value = dict(zip(names, (number for _, _, number in pairs), strict=True))
    if isinstance(value, Mapping):
        return {str(name): one_of_bits(Whole().read(number), key) for name, number in value.items()}
    return one_of_bits(Whole().read(value), key)


#: The options for the bits of weights.
WEIGHTS = (
    Parameter(
        "bits",
        f"Bits of a weight: {', '.join(map(str, BITS[:-1]))} or {BITS[-1]}. If a GEMV unit's multipliers are "
        "the bottleneck, 3 bits are slower than 4.",
        Own(_bits, form=_FORM, whole=True),
        16,
        names=tuple(map(str, BITS)),
    ),
    Parameter(
        "group-size",
        "Weights along a row that share a scale and a zero point.",
        Whole(1),
        otherwise="no groups",
    ),
    Parameter("scale-bits", "Bits of a group's scale.", Whole(1, 64), 16, needs="group-size"),
    Parameter(
        "zero-point-bits",
        "Bits of a group's zero point.",
        Whole(0, 64),
        otherwise="the bits of a weight",
        needs="group-size",
    ),
    Parameter(
        "weights",
        "A weight file with the format of each matrix, e.g. q4_k_m: ndpsim list weights.",
        Kind(form="NAME"),
        names="weights",
    ),
)
