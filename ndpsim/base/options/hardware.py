"""Parameters of most commands: the hardware, changes to it, and the model."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.kinds import Kind
from ndpsim.base.options.table import Parameter

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
