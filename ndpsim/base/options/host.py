"""Parameters of host traffic beside the NDP unit."""

from __future__ import annotations

from typing import Any

from ndpsim.base.arguments import shown
from ndpsim.base.errors import InputError
from ndpsim.base.options.kinds import Choice, Kind, Own, Real, Whole
from ndpsim.base.options.table import Parameter
from ndpsim.base.plugins import option_names

PATTERNS = ("sequential", "random")
MAX_SLICE = 1 << 30  #: Maximum number of clocks of a turn.
_TRAFFIC = "host-traffic"


def _rate(value: Any, key: str) -> float | str:
    if isinstance(value, str) and value.strip() == "saturate":
        return "saturate"
    try:
        return float(Real().take(value, key))
    except InputError:
        problem = f"{shown(value)} is neither 'saturate' nor a number of GB/s from 0"
        raise InputError(problem, key=key, code="form") from None


_ARBITRATION = Choice(option_names("dimm/arbitrations", "host-first"), "arbitration", settings=True)
ARBITRATION = Parameter(
    "arbitration",
    f"Priority between host and NDP unit: {_ARBITRATION.allowed}; parameters follow a colon.",
    _ARBITRATION,
    "host-first",
)
TRAFFIC = Parameter(
    _TRAFFIC,
    "Rate in GB/s at which the host reads and writes the DIMM during the run.",
    Own(_rate, form="GBPS|saturate", allowed="saturate, or a number from 0"),
    argument="host_gbps",
    names=("saturate",),
)
READS = Parameter(
    "host-reads",
    "Share of reads in --host-traffic.",
    Real(0, 1, form="SHARE"),
    0.67,
    argument="read_share",
    needs=_TRAFFIC,
)
PATTERN = Parameter(
    "host-pattern",
    "Addresses of the host traffic: sequential, random, or a request trace.",
    Kind(form="NAME|FILE"),
    "sequential",
    argument="pattern",
    names=PATTERNS,
    files=("",),
    needs=_TRAFFIC,
)
SLICE_CLOCKS = Parameter(
    "slice-clocks",
    "DRAM clocks of a turn, for arbitration slice.",
    Whole(1, MAX_SLICE),
    1000,
    needs="arbitration=slice",
)
