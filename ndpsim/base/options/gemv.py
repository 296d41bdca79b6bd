"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ndpsim.base.arguments import Sets
from ndpsim.base.choices import LAYOUTS
from ndpsim.base.errors import InputError
from ndpsim.base.options.hardware import DEFAULT_MODEL, HW, WEIGHTS, model_of
from ndpsim.base.options.host import HOST_TRAFFIC, PATTERNS, TrafficSettings
from ndpsim.base.options.moe import SIMULATED
from ndpsim.base.options.settings import Settings, argument, like, option, table_of
from ndpsim.base.options.table import (
    TEXT,
    Choice,
    Flag,
    Kind,
    Output,
    Parameter,
    Real,
    Several,
    Whole,
    joined,
    refuse,
    table,
)

OFFERED = tuple(name.removesuffix("N") for name in LAYOUTS)  #: For completion of the part before N.
MAX_TOKENS = 16384  #: Maximum number of tokens of an expert.
LAST_RELEASE_NS = 1e9
LAST_START = 1 << 48  #: The last DRAM clock at which a run may begin.
MOST_PHASES = 1024

_MOST_EXPERTS = 4096

MODEL = model_of(DEFAULT_MODEL)
SHAPE = Parameter(
    "shape", "An expert of this shape, instead of an expert of a model.", Kind(form="HIDDEN,INTERMEDIATE")
)


class RunSettings(Settings):
    """Hardware on which something is simulated."""

    hw: Any = like(
        HW,
        SIMULATED,
        accepts="str | PathLike[str] | Mapping[str, Any] | Hardware",
        told="a bundled hardware name, a path of a hardware file, or a loaded `Hardware`",
    )
    sets: Sets = argument((), 'Changes to the hardware, "dimm.ranks=2", or {"dimm.ranks": 2}.', "Sets")
    record_commands: bool = argument(False, "Keep the command trace of every lane, or bus.", kind=Flag())


class StartSettings(Settings):
    """A run that may begin at any clock."""

    start_clock: int = option(
        1,
        Whole(1, LAST_START),
        "DRAM clock at which the run begins; refreshes are due at multiples of their interval.",
        SIMULATED,
        told="the DRAM clock at which the run begins. Refreshes are due at multiples of their interval from "
        "clock 0; refreshes that were due before the start are done, and all ranks are ready. Times, turns "
        'of the arbitration "slice" and clocks of units are relative to the start; clocks of commands are '
        "relative to clock 0",
    )


class WeightSettings(Settings):
    """The weights of an expert."""

    model: Any = like(
        MODEL,
        SIMULATED,
        accepts="str | PathLike[str] | MoeShape | Expert",
        told="a bundled model name, a path of a Hugging Face config.json, what `load_model` returns, or an "
        "`Expert`",
    )
    bits: Any = argument(
        16, "Bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.", "int | ExpertFormat"
    )


class CallSettings(WeightSettings, RunSettings):
    """An expert on hardware."""

    cache: Any = argument(
        False,
        "Whether to reuse the result of an equal simulation, or the `ResultCache` to use; if commands are "
        "recorded, or for an exact check, everything is simulated.",
        "bool | ResultCache",
    )


class CheckedSettings(CallSettings):
    """An expert whose run may be checked."""

    exact_check: bool = argument(
        False,
        "Run a second time, each lane or bus by itself, step by step on the plain controller, and compare.",
        kind=Flag(),
    )


class HostReadSettings(CheckedSettings):
    """An expert that the host reads."""

    first = "hw model layout bits sets record_commands exact_check"

    layout: str = argument(
        "striped", 'Layout of the weights: "localized", "striped" or "sharded:N".', kind=TEXT
    )


class ComputedSettings(CallSettings):
    """An expert that DIMMs compute, or several in turn."""

    tokens: int | Sequence[int] = option(
        1,
        Several(Whole(1, MAX_TOKENS)),
        "Number of tokens of the expert; 3,1,2: tokens of three experts in turn.",
        SIMULATED,
        told="tokens that go through the expert, 1 to `MAX_TOKENS`; or those of each expert in turn",
    )
    layout: str = option(
        "localized",
        Kind(form="NAME"),
        "localized, sharded:N or striped.",
        SIMULATED,
        told='layout of the weights: "localized", or "sharded:N" over N DIMMs',
        stated=None,
        otherwise="localized; host-read: striped",
        names=OFFERED,
    )
    release_ns: float | Sequence[float] = option(
        0.0,
        Several(Real(0, LAST_RELEASE_NS), form="NS,..."),
        "Earliest start of the expert; 0,100,200: starts of three experts.",
        SIMULATED,
        told="earliest start in ns after the first clock, of each expert in turn or of all; before it, no "
        "activations arrive and no weights are read ahead",
        stated=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        experts, times = len(self.of_experts), len(_each(self.release_ns))
        if not 1 <= experts <= _MOST_EXPERTS:
            raise InputError(f"{experts} experts are not from 1 to {_MOST_EXPERTS}", "range", key="tokens")
        if times not in (1, experts):
            problem = f"{times} times for {experts} experts; give one for each, or one for all"
            raise InputError(problem, "conflict", key="release_ns")

    @property
    def of_experts(self) -> tuple[int, ...]:
        """The tokens of each expert in turn."""
        return _each(self.tokens)

    @property
    def releases_ns(self) -> tuple[float, ...]:
        """The release of each expert in turn."""
        times = _each(self.release_ns)
        return times * (len(self.of_experts) // len(times))


class ExpertSettings(ComputedSettings, CheckedSettings, StartSettings):
    """An expert that DIMMs compute alone."""

    first = "hw model tokens layout bits sets record_commands exact_check cache release_ns"

    refresh_phases: int | None = option(
        None,
        Whole(1, MOST_PHASES),
        "Run from N start clocks in one refresh period; print mean, minimum and maximum time.",
        SIMULATED,
        told="also run from this number of clocks (at most 1024), evenly over one period of the refreshes "
        "from `start_clock` on; the result has `over_refresh`. None: run from `start_clock` only",
    )

    rtl: str | None = option(
        None,
        Kind(form="UNIT|FILE"),
        "Run this RTL in place of the unit's model: trimoe_gemv, a .v, .sv or .il file, or FILE.py:CLASS.",
        SIMULATED,
        told="a unit as hardware in place of the model: a bundled unit, a Verilog or RTLIL file, or "
        "FILE.py:CLASS of an Amaranth component; see docs/rtl.md. Needs the extra rtl. None: the model",
    )
    vcd: str | None = option(
        None,
        Output(),
        "Write the waveforms of the RTL unit into this file.",
        SIMULATED,
        needs="rtl",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vcd is not None and self.rtl is None:
            raise InputError("is of a unit in RTL, and rtl is not given", "conflict", key="vcd")


class ContentionSettings(ComputedSettings, TrafficSettings):
    """An expert that a DIMM computes while the host reads and writes it."""

    first = (
        "hw model tokens host_gbps read_share pattern arbitration slice_clocks layout bits sets "
        "record_commands cache"
    )


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


_ENGINE = Parameter(
    "engine", "ndp, or host-read: the host reads the weights.", Choice(("ndp", "host-read"), "engine"), "ndp"
)
GEMV = joined(
    table_of(ExpertSettings),
    table({SIMULATED: (SHAPE, _ENGINE), "Weights": WEIGHTS}),
    table_of(ContentionSettings),
    first=("hw", "model", "shape", "tokens", "release-ns", "start-clock", "refresh-phases", "engine"),
)

ALONE = ("start-clock", "refresh-phases", "rtl", "vcd")  #: Parameters that apply only without host traffic.
HOST = tuple(name for name, parameter in GEMV.items() if parameter.section == HOST_TRAFFIC)


def check_gemv(options: Mapping[str, Any], dashes: str = "") -> None:
    """Refuse options that have no effect together with other options.

    Args:
        dashes: as in `Table.check_needs`.

    Raises:
        InputError: such an option is given.
    """
    GEMV.check_needs(options, dashes)
    if options.get("engine") == "host-read":
        refuse(
            options, f"needs {dashes}engine ndp: the host only reads", "tokens", "release-ns", *ALONE, *HOST
        )
    if "host-traffic" in options:
        refuse(options, f"is not supported with {dashes}host-traffic", *ALONE)
    if "host-pattern" in options and options["host-pattern"] not in PATTERNS:
        pattern = f"needs {dashes}host-pattern sequential or random; a trace has its own reads and writes"
        refuse(options, pattern, "host-reads")
