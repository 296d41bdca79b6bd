"""``show``: one thing in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ndpsim.base.options.dram import CHANNEL, RULE_SET
from ndpsim.base.options.gemv import OFFERED
from ndpsim.base.options.hardware import DEFAULT_MODEL, HW, SET, WEIGHTS, YAML, model_of
from ndpsim.base.options.swept import SWEPT
from ndpsim.base.options.table import Choice, Kind, Parameter, Several, Whole, table

PROCESSORS = ("gpu", "cpu")
#: The kinds of objects, each with its names and endings of files as in `Parameter`.
SHOWN: Mapping[str, tuple[str | tuple[str, ...], tuple[str, ...]]] = {
    "hw": ("hw", YAML),
    "part": ("parts", YAML),
    "model": ("models", (".json",)),
    "org": ("orgs", ()),
    "timing": ("timings", ()),
    "schema": (("hw",), ()),
    "layout": (OFFERED, ()),
    "processor": (PROCESSORS, ()),
    "policy": ("policies", (".py",)),
    "weights": ("weights", ()),
    "claim": ((), ()),
}

SHOW = table(
    {
        "What is simulated": (
            Parameter(
                "what",
                "The kind of object.",
                Choice(tuple(SHOWN), "kind of thing", form="WHAT"),
                positional=True,
                required=True,
            ),
            Parameter(
                "name",
                "The name of the object.",
                Kind(form="NAME"),
                names="shown",
                positional=True,
                required=True,
            ),
            replace(HW, help="For a layout or processor: the hardware."),
            model_of(DEFAULT_MODEL, help="For a layout, processor or weight file: the model."),
            Parameter(
                "tokens",
                "For a processor: numbers of tokens of an expert.",
                Several(Whole(1, 1 << 24), always=True),
                [1, 4, 16, 64, 256, 1024],
                otherwise="1,4,16,64,256,1024",
            ),
            SET,
            replace(CHANNEL["org"], help="For a timing: the organisation.", default=None, otherwise="all"),
            replace(RULE_SET, help="For a timing or org: the rules.", default=None, otherwise="both"),
            Parameter(
                "for",
                "For hw: list the values that the file lacks for a command.",
                Choice(tuple(SWEPT), "command that needs hardware", form="COMMAND"),
            ),
        ),
        "Weights": WEIGHTS,
    }
)
