"""``dram``: a request trace through a memory controller; ``check``: commands against rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndpsim.base.choices import MOST_ACTIVATIONS, MOST_JOBS, RFM, RULES
from ndpsim.base.options.hardware import HW, SET
from ndpsim.base.options.settings import NEEDED, Settings, argument, like, option, table_of
from ndpsim.base.options.table import Choice, Flag, Kind, Parameter, Table, Whole, joined, table
from ndpsim.base.plugins import option_names

MAPPERS = ("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR", "RoBaCoRaCoBgCh")
SCHEDULERS = option_names("dram/schedulers", "FRFCFS")
ROW_POLICIES = option_names("dram/row_policies", "open")
REFRESH_POLICIES = option_names("dram/refresh_policies", "all-bank")
WCK = ("need-sync", "always-on")
REFRESH_CONTROLS = ("own-bank", "reference")
RCK = ("always-on", "start-with-read", "start-with-rckstrt")
MOST_IDLE = 1_000_000  #: Maximum clocks without a read after which the read clock stops.
MOST_SLOTS = 1024
MOST_ACCESSES = 1_000_000  #: Maximum number of column accesses after which a row is closed.
MOST_CHANNELS = 4096  #: Maximum number of channels: 64 host channels of 64 sub-channels each.

_MEMORY, _TRACE = "Memory", "Trace"
_SCHEDULER = Choice(SCHEDULERS, "scheduler")
_ROWS = Choice(ROW_POLICIES, "row policy")
_REFRESH = Choice(REFRESH_POLICIES, "refresh")
_RFM = Choice(RFM, "RFM")
_WCK = Choice(WCK, "wck")
_RCK = Choice(RCK, "rck")

TRACE = Parameter(
    "trace", "The request trace.", Kind(form="TRACE"), positional=True, required=True, files=("",)
)
RULE_SET = Parameter(
    "rules",
    "Rules: standard, or reference: the rules of Ramulator 2.1.",
    Choice(RULES, "set of rules"),
    "standard",
)


class ChannelSettings(Settings):
    """Channels of memory by names."""

    standard: str = option("DDR5", Kind(form="NAME"), "DRAM standard.", _MEMORY, names="standards")
    org: str = option("DDR5_16Gb_x8", Kind(form="NAME"), "Organisation preset.", _MEMORY, names="orgs")
    timing: str = option("DDR5_4800AN", Kind(form="NAME"), "Timing preset.", _MEMORY, names="timings")
    ranks: int = option(1, Whole(1), "Ranks on a channel.", _MEMORY)
    overrides: Any = argument(
        None, "Changed timings and sizes, as in `resolve`.", "Mapping[str, int | str] | None"
    )
    mapper: str = option(
        "RoBaRaCoCh", Choice(MAPPERS, "mapper"), f"Address mapping: {', '.join(MAPPERS)}.", _MEMORY
    )
    channels: int = option(1, Whole(1, MOST_CHANNELS), "Channels, interleaved by bursts.", _MEMORY)


class ControllerOptions(Settings, kw_only=False):
    """Settings of a controller.

    Attributes:
        scheduler: a module of `schedulers`: "FRFCFS", "FRFCFS-RowHit", ...
        row_policy: "open" or "closed-cap".
        row_cap: column accesses after which "closed-cap" closes a row.
        refresh: one of `refresh_policies.NAMES`.
        refresh_control: what a waiting refresh of one bank, or of one bank of each group, holds back: the
            requests for its banks ("own-bank"), or all queued requests ("reference", as Ramulator 2.1). None:
            as the rules of the standard, "reference" or "standard", which has own-bank. A refresh of a rank
            holds back all queued requests in any case. With "reference", a precharge of the row policy issues
            even if another command has closed its bank.
        read_buffer: slots of the read queue.
        write_buffer: slots of the write queue.
        rfm: refresh management: "off", or the scope of the RFM commands: "all-bank", "same-bank", "per-bank".
        rfm_threshold: activations of a bank after which RFM is due; None: as the standard says (RAAIMT).
        wck: for LPDDR5: the data clock runs always ("always-on"), or a command starts it when it has stopped
            ("need-sync").
        rck: for GDDR7: the clock of read data runs always ("always-on"), or stops and starts with a read
            ("start-with-read") or with a command ("start-with-rckstrt").
        rck_idle: clocks without a read after which it stops.
    """

    first = "scheduler row_policy row_cap refresh refresh_control read_buffer write_buffer rfm rfm_threshold"

    scheduler: str = option("FRFCFS", _SCHEDULER, f"Scheduling policy: {_SCHEDULER.allowed}.", _MEMORY)
    row_policy: str = option("open", _ROWS, f"Row policy: {_ROWS.allowed}.", _MEMORY)
    row_cap: int = option(
        4,
        Whole(1, MOST_ACCESSES),
        "Column accesses after which closed-cap closes a row.",
        _MEMORY,
        needs="row-policy=closed-cap",
    )
    refresh: str = option("all-bank", _REFRESH, f"Refreshes: {_REFRESH.allowed}.", _MEMORY)
    read_buffer: int = option(32, Whole(1, MOST_SLOTS), "Slots of the read queue.", _MEMORY)
    write_buffer: int = option(32, Whole(1, MOST_SLOTS), "Slots of the write queue.", _MEMORY)
    wck: str = option("need-sync", _WCK, f"Data clock of LPDDR5: {_WCK.allowed}.", _MEMORY)
    refresh_control: str | None = option(
        None,
        Choice(REFRESH_CONTROLS, "refresh control"),
        "While a refresh of single banks waits: own-bank: only requests for its banks wait; "
        "reference: all queued requests wait, as in Ramulator 2.1.",
        _MEMORY,
        otherwise="own-bank; reference with --rules reference",
    )
    rfm: str = option("off", _RFM, f"Refresh management by RFM commands: {_RFM.allowed}.", _MEMORY)
    rfm_threshold: int | None = option(
        None,
        Whole(1, MOST_ACTIVATIONS),
        "Activations of a bank after which RFM is due (RAAIMT).",
        _MEMORY,
        otherwise="as the standard says",
        needs="rfm",
    )
    rck: str = option("always-on", _RCK, f"Read clock of GDDR7: {_RCK.allowed}.", _MEMORY)
    rck_idle: int = option(
        32, Whole(0, MOST_IDLE), "Clocks without a read after which the read clock stops.", _MEMORY
    )


#: Parameters of the channels, for `Memory.named`.
CHANNEL = joined(
    table_of(ChannelSettings),
    table({_MEMORY: (RULE_SET,)}),
    first=("standard", "org", "timing", "ranks", "rules", "channels"),
)
#: Parameters of the controller, for `ControllerOptions`.
CONTROLLER = table_of(ControllerOptions)
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
            _TRACE: (
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
#: Threads of a trace.
JOBS = Parameter(
    "jobs", "Threads that run channels.", Whole(1, MOST_JOBS), otherwise="one for each core", short="j"
)
DRAM: Table = joined(
    MEMORY, table({_TRACE: (Parameter("wrap", "Take addresses beyond the memory modulo its size.", Flag()),)})
)


class TraceSettings(ChannelSettings, ControllerOptions):
    """A request trace, and the memory and the controller that serve it."""

    first = (
        "requests standard org timing ranks overrides mapper scheduler row_policy row_cap "
        "refresh read_buffer write_buffer channels wrap record_commands exact_check cache rules wck"
    )

    requests: Any = argument(
        NEEDED,
        "A trace file in any format of `read_requests`, `Requests`, or two integer arrays of one length: "
        "byte addresses, and 1 for a write or 0 for a read; or an iterator of blocks: `Requests`, or such "
        "arrays, or these and the earliest clocks. Files and blocks are read as they run, and need not fit "
        "into memory.",
        "str | PathLike[str] | Requests | tuple[ArrayLike, ArrayLike] | Iterator[Any]",
    )
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
    jobs: int | None = like(JOBS, _TRACE)


# ---- ``check``: a command trace, or a log of ``moe``, against rules


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
