"""``dram``: a request trace through a memory controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndpsim.base.options.hardware import HW
from ndpsim.base.options.kinds import Choice, Flag, Kind, Whole
from ndpsim.base.options.settings import NEEDED, Settings, argument, like
from ndpsim.base.options.table import Parameter, Table, joined, table
from ndpsim.base.plugins import option_names

MAPPERS = ("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR", "RoBaCoRaCoBgCh")
RULES = ("standard", "reference")
SCHEDULERS = option_names("dram/schedulers", "FRFCFS")
ROW_POLICIES = option_names("dram/row_policies", "open")
REFRESH_POLICIES = option_names("dram/refresh_policies", "all-bank")
RFM = ("off", "all-bank", "same-bank", "per-bank")
WCK = ("need-sync", "always-on")
REFRESH_CONTROLS = ("own-bank", "reference")
RCK = ("always-on", "start-with-read", "start-with-rckstrt")
MOST_IDLE = 1_000_000  #: Maximum clocks without a read after which the read clock stops.
MOST_SLOTS = 1024
MOST_ACTIVATIONS = 1_000_000  #: Maximum threshold of refresh management.
MOST_CHANNELS = 4096  #: Maximum number of channels: 64 host channels of 64 sub-channels each.

_SCHEDULER = Choice(SCHEDULERS, "scheduler")
_ROWS = Choice(ROW_POLICIES, "row policy")
_REFRESH = Choice(REFRESH_POLICIES, "refresh")
_RFM = Choice(RFM, "RFM")
_WCK = Choice(WCK, "wck")
_REFRESH_CONTROL = Choice(REFRESH_CONTROLS, "refresh control")
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
RFM_MODE = Parameter("rfm", f"Refresh management by RFM commands: {_RFM.allowed}.", _RFM, "off")
RFM_THRESHOLD = Parameter(
    "rfm-threshold",
    "Activations of a bank after which RFM is due (RAAIMT).",
    Whole(1, MOST_ACTIVATIONS),
    otherwise="as the standard says",
    needs="rfm",
)

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
            Parameter(
                "refresh-control",
                "While a refresh of single banks waits: own-bank: only requests for its banks wait; "
                "reference: all queued requests wait, as in Ramulator 2.1.",
                _REFRESH_CONTROL,
                otherwise="own-bank; reference with --rules reference",
            ),
            Parameter("read-buffer", "Slots of the read queue.", Whole(1, MOST_SLOTS), 32),
            Parameter("write-buffer", "Slots of the write queue.", Whole(1, MOST_SLOTS), 32),
            RFM_MODE,
            RFM_THRESHOLD,
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


_TRACE, _MEMORY = "Trace", "Memory"


class TraceSettings(Settings):
    """A request trace, and the memory and the controller that serve it."""

    requests: Any = argument(
        NEEDED,
        "A trace file in any format of `read_requests`, `Requests`, or two integer arrays of one length: "
        "byte addresses, and 1 for a write or 0 for a read.",
        "str | PathLike[str] | Requests | tuple[ArrayLike, ArrayLike]",
    )
    standard: str = like(STANDARD, _MEMORY)
    org: str = like(ORG, _MEMORY)
    timing: str = like(TIMING, _MEMORY)
    ranks: int = like(RANKS, _MEMORY)
    overrides: Any = argument(
        None, "Changed timings and sizes, as in `resolve`.", "Mapping[str, int | str] | None"
    )
    mapper: str = like(CHANNEL["mapper"], _MEMORY)
    scheduler: str = like(CONTROLLER["scheduler"], _MEMORY)
    row_policy: str = like(CONTROLLER["row-policy"], _MEMORY)
    row_cap: int = like(CONTROLLER["row-cap"], _MEMORY)
    refresh: str = like(REFRESH, _MEMORY)
    read_buffer: int = like(CONTROLLER["read-buffer"], _MEMORY)
    write_buffer: int = like(CONTROLLER["write-buffer"], _MEMORY)
    channels: int = like(CHANNEL["channels"], _MEMORY)
    wrap: bool = like(DRAM["wrap"], _TRACE, default=False)
    record_commands: bool = argument(
        False, "Keep the command traces; fast-forward then skips no request.", kind=Flag()
    )
    exact_check: bool = argument(
        False, "First run on both controllers, step by step on the plain one, and compare.", kind=Flag()
    )
    cache: Any = argument(
        False,
        "As in `run_requests`; a trace file is always read, because its contents are part of the key.",
        "bool | ResultCache",
    )
    rules: str = like(RULE_SET, _MEMORY)
    wck: str = like(CONTROLLER["wck"], _MEMORY)
    refresh_control: str | None = like(CONTROLLER["refresh-control"], _MEMORY)
    rfm: str = like(RFM_MODE, _MEMORY)
    rfm_threshold: int | None = like(RFM_THRESHOLD, _MEMORY)
    rck: str = like(CONTROLLER["rck"], _MEMORY)
    rck_idle: int = like(CONTROLLER["rck-idle"], _MEMORY)
