"""``dram``: a request trace through a memory controller."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.parameters.hardware import HW
from ndpsim.parameters.kinds import Choice, Flag, Kind, Whole
from ndpsim.parameters.table import Parameter, Table, joined, table
from ndpsim.plugins import option_names

MAPPERS = ("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR", "RoBaCoRaCoBgCh")
RULES = ("standard", "reference")
SCHEDULERS = option_names("dram/schedulers", "FRFCFS")
ROW_POLICIES = option_names("dram/row_policies", "open")
REFRESH_POLICIES = option_names("dram/refresh_policies", "all-bank")
WCK = ("need-sync", "always-on")
RCK = ("always-on", "start-with-read", "start-with-rckstrt")
MOST_IDLE = 1_000_000  #: Maximum clocks without a read after which the read clock stops.
MOST_SLOTS = 1024
MOST_CHANNELS = 4096  #: Maximum number of channels: 64 host channels of 64 sub-channels each.

_SCHEDULER = Choice(SCHEDULERS, "scheduler")
_ROWS = Choice(ROW_POLICIES, "row policy")
_REFRESH = Choice(REFRESH_POLICIES, "refresh")
_WCK = Choice(WCK, "wck")
_RCK = Choice(RCK, "rck")

TRACE = Parameter(
    "trace", "The request trace.", Kind(form="TRACE"), positional=True, required=True, files=("",)
)
STANDARD = Parameter("standard", "DRAM standard.", Kind(form="NAME"), "DDR5", names="standards")
ORG = Parameter("org", "Organisation preset.", Kind(form="NAME"), "DDR5_16Gb_x8", names="orgs")
TIMING = Parameter("timing", "Timing preset.", Kind(form="NAME"), "DDR5_4800AN", names="timings")
RANKS = Parameter("ranks", "Ranks on a channel.", Whole(1), 1)
RULE_SET = Parameter(
    "rules",
    "Rules: standard, or reference: the rules of Ramulator 2.1.",
    Choice(RULES, "set of rules"),
    "standard",
)
REFRESH = Parameter("refresh", f"Refreshes: {_REFRESH.allowed}.", _REFRESH, "all-bank")

#: Parameters of the channels, for `Memory.named`.
CHANNEL = table(
    {
        "Memory": (
            STANDARD,
            ORG,
            TIMING,
            RANKS,
            RULE_SET,
            Parameter("channels", "Channels, interleaved by bursts.", Whole(1, MOST_CHANNELS), 1),
            Parameter(
                "mapper", f"Address mapping: {', '.join(MAPPERS)}.", Choice(MAPPERS, "mapper"), "RoBaRaCoCh"
            ),
        )
    }
)
#: Parameters of the controller, for `ControllerOptions`.
CONTROLLER = table(
    {
        "Memory": (
            Parameter("scheduler", f"Scheduling policy: {_SCHEDULER.allowed}.", _SCHEDULER, "FRFCFS"),
            Parameter("row-policy", f"Row policy: {_ROWS.allowed}.", _ROWS, "open"),
            Parameter(
                "row-cap",
                "Column accesses after which closed-cap closes a row.",
                Whole(1, MOST_SLOTS),
                4,
                needs="row-policy=closed-cap",
            ),
            REFRESH,
            Parameter("read-buffer", "Slots of the read queue.", Whole(1, MOST_SLOTS), 32),
            Parameter("write-buffer", "Slots of the write queue.", Whole(1, MOST_SLOTS), 32),
            Parameter("wck", f"Data clock of LPDDR5: {_WCK.allowed}.", _WCK, "need-sync"),
            Parameter("rck", f"Read clock of GDDR7: {_RCK.allowed}.", _RCK, "always-on"),
            Parameter(
                "rck-idle", "Clocks without a read after which the read clock stops.", Whole(0, MOST_IDLE), 32
            ),
        )
    }
)
MEMORY = joined(
    table({"What is simulated": (TRACE,)}),
    CHANNEL,
    CONTROLLER,
    table(
        {
            "What is simulated": (
                replace(
                    HW,
                    help="Use the memory of this hardware, instead of the options for a memory.",
                    default=None,
                ),
            ),
            "Trace": (
                Parameter(
                    "format",
                    "The trace's format.",
                    Kind(form="NAME"),
                    otherwise="detected",
                    names="request-formats",
                ),
            ),
        }
    ),
)
DRAM: Table = joined(
    MEMORY,
    table({"Trace": (Parameter("wrap", "Take addresses beyond the memory modulo its size.", Flag()),)}),
)
