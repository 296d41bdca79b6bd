"""``check``: a command trace, or a log of ``moe``, against rules."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.dram import CHANNEL, CONTROLLER, RULE_SET
from ndpsim.base.options.hardware import HW, SET
from ndpsim.base.options.kinds import Flag, Kind, Whole
from ndpsim.base.options.table import Parameter, table

MOST_DESCRIBED = 1_000_000  #: Violations or findings.

CHECK = table(
    {
        "What is simulated": (
            Parameter(
                "trace",
                "The commands, or the log.",
                Kind(form="COMMANDS.csv|LOG.jsonl"),
                positional=True,
                required=True,
                files=("",),
            ),
            replace(HW, help="Take the DRAM of a lane from this hardware.", default=None),
            SET,
        ),
        "Memory": (
            replace(CHANNEL["standard"], help="DDR4, DDR5, ...", default=None),
            replace(CHANNEL["org"], help="Organisation preset, e.g. DDR5_16Gb_x8.", default=None),
            replace(CHANNEL["timing"], help="Timing preset, e.g. DDR5_4800AN.", default=None),
            replace(CHANNEL["ranks"], help="Ranks on the channel."),
            replace(RULE_SET, help="standard, or reference: the rules of Ramulator 2.1."),
            replace(CONTROLLER["refresh"], otherwise="all-bank, or as the hardware says"),
            replace(
                CONTROLLER["rfm"],
                help=f"Banks need refresh management: {CONTROLLER['rfm'].kind.allowed}.",
                otherwise="off, or as the hardware says",
            ),
            replace(
                CONTROLLER["rfm-threshold"],
                help="RAAIMT: activations of a bank after which RFM is due; RAAMMT is a multiple of it.",
                needs="",
            ),
            Parameter("lanes", "The column rank has N lanes, and each lane is a channel.", Whole(1)),
        ),
        "Trace": (
            Parameter(
                "start-clock",
                "The trace begins at clock N; refreshes that were due earlier are taken as done.",
                Whole(0),
                0,
            ),
        ),
        "Results": (
            Parameter("energy", "Print the energy of the commands, if they are legal.", Flag()),
            Parameter(
                "limit", "Maximum number of violations or findings to print.", Whole(0, MOST_DESCRIBED), 20
            ),
        ),
    }
)
