"""``pim`` and ``compare banks``: programs of units in banks."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.dram import RULE_SET
from ndpsim.base.options.hardware import HW, SET, model_of
from ndpsim.base.options.host import TrafficSettings
from ndpsim.base.options.settings import table_of
from ndpsim.base.options.table import Choice, Kind, Parameter, Whole, joined, table

PIM_HW = replace(HW, help="The device with units in its banks.", default="aim", names="pim-hw")

_PROGRAM = table(
    {
        "What is simulated": (
            Parameter(
                "program",
                "The program of the units: requests (attacc) or instructions (aim, hbm-pim). Several run at "
                "once, each on channels of its own.",
                Kind(form="PROGRAM.csv"),
                positional=True,
                required=True,
                repeatable=True,
                files=("",),
            ),
            PIM_HW,
            replace(
                SET,
                help="Change a timing (nCCDAB=4), a size (channels=8), or idealise=A2,A8. Repeatable.",
            ),
            replace(
                RULE_SET, help="standard, or reference: with all idealisations of the units' own simulator."
            ),
        ),
    }
)

_TRAFFIC = table_of(TrafficSettings)
PIM = joined(_PROGRAM, _TRAFFIC)
HOST = tuple(_TRAFFIC)  #: Parameters of host traffic.

MOST_CONTEXT = 1 << 20  #: Tokens.
ENGINES = ("bank", "bankgroup", "buffer")  #: Where units are; a buffer is at a pseudo-channel.

ATTENTION = table(
    {
        "What is simulated": (
            replace(
                PIM_HW,
                help="A device with units in its banks, or a machine with such devices (its file has banks).",
                default="attacc",
            ),
            model_of("mixtral-8x7b"),
            Parameter("context", "Tokens in the cache of each sequence.", Whole(1, MOST_CONTEXT), 4096),
            Parameter("batch", "Sequences.", Whole(1, 1 << 16), 1),
            Parameter(
                "engine",
                "Where the units are: bank, bankgroup, or buffer (at a pseudo-channel); gpu: a GPU.",
                Choice((*ENGINES, "gpu"), "engine"),
                otherwise="as the hardware says",
            ),
            PIM["rules"],
        ),
    }
)

CASES = table(
    {
        "What is simulated": (
            Parameter(
                "cases",
                "Reference cases, with their files beside them.",
                Kind(form="CASE.yaml"),
                positional=True,
                required=True,
                repeatable=True,
                files=(".yaml", ".yml"),
            ),
        ),
    }
)
