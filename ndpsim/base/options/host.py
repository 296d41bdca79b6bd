"""Parameters of host traffic beside the NDP unit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ndpsim.base.arguments import number
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.settings import Settings, like, option
from ndpsim.base.options.table import Choice, Kind, Parameter, Real, Whole
from ndpsim.base.plugins import option_names

PATTERNS = ("sequential", "random")  #: Anything else is a request trace.
MAX_SLICE = 1 << 30  #: Maximum number of clocks of a turn.
HOST_TRAFFIC = "Host traffic"  #: The section of the help.
_TRAFFIC = "host-traffic"


def share_of_rate(text: str) -> float | None:
    """The share that a text such as ``30%`` names, from 0 to 1; None: it is no such text."""
    found = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%\s*", text, re.ASCII)
    share = None if found is None else float(found[1]) / 100
    return share if share is not None and share <= 1 else None


def rate_gbps(gbps: Any, bus_gbps: float, key: str) -> float | None:
    """GB/s, from a number or a share of `bus_gbps` such as "30%"; None for "saturate".

    Raises:
        InputError: it is neither, or more than `bus_gbps`.
    """
    if isinstance(gbps, str) and gbps == "saturate":
        return None
    share = share_of_rate(gbps) if isinstance(gbps, str) else None
    if share is not None:
        return share * bus_gbps
    try:
        return number(gbps, key, 0, bus_gbps)
    except InputError:
        carried = f"the {bus_gbps:g} GB/s that the host can reach"
        problem = f"{shown(gbps)} is neither 'saturate', a share such as 30%, nor from 0 to {carried}"
        raise InputError(problem, "range", key=key) from None


@dataclass(frozen=True)
class _Rate(Real):
    """GB/s, a share of the bandwidth such as 30%, or, if it `saturates`, as many as possible."""

    saturates: bool = True

    @property
    def allowed(self) -> str:
        return ("saturate, " if self.saturates else "") + "a share up to 100%, or a number from 0"

    def check(self, value: Any, key: str) -> Any:
        text = value.strip() if isinstance(value, str) else ""
        if share_of_rate(text) is not None or (text == "saturate" and self.saturates):
            return text
        try:
            return super().check(value, key)
        except InputError:
            others = "'saturate', a share such as 30%," if self.saturates else "a share such as 30%"
            problem = f"{shown(value)} is neither {others} nor GB/s from 0"
            raise InputError(problem, key=key, code="form") from None


RATE = _Rate(form="GBPS|SHARE%|saturate")
_ARBITRATION = Choice(option_names("dimm/arbitrations", "host-first"), "arbitration", settings=True)
ARBITRATION = Parameter(
    "arbitration",
    f"Priority between host and NDP unit: {_ARBITRATION.allowed}; parameters follow a colon.",
    _ARBITRATION,
    "host-first",
)


class SharingSettings(Settings):
    """How a host and NDP units share DIMMs."""

    arbitration: str = like(
        replace(ARBITRATION, needs=_TRAFFIC),
        HOST_TRAFFIC,
        told='a module of `dimm.arbitrations`, "host-first", "ndp-first", "slice" or "batch"; with its '
        'parameters "batch:reads=4,clocks=500". Under each arbitration, a request that has waited for more '
        "than 16384 clocks in a lane gives its master priority",
    )
    slice_clocks: int = option(
        1000,
        Whole(1, MAX_SLICE),
        "DRAM clocks of a turn, for arbitration slice.",
        HOST_TRAFFIC,
        needs="arbitration=slice",
    )

    @property
    def own_slice_clocks(self) -> int | None:
        """The clocks of a turn; None: there are no turns."""
        return self.slice_clocks if self.arbitration == "slice" else None

    @property
    def arbiter(self) -> str:
        """The arbitration with its clocks of a turn."""
        clocks = self.own_slice_clocks
        return self.arbitration if clocks is None else f"slice:clocks={clocks}"


class RequestSettings(Settings):
    """Addresses and kinds of the requests of a host."""

    read_share: float = option(
        0.67,
        Real(0, 1, form="SHARE"),
        "Share of reads in --host-traffic.",
        HOST_TRAFFIC,
        told="the share of reads among its requests, 0 to 1",
        name="host-reads",
        needs=_TRAFFIC,
    )
    pattern: Any = option(
        "sequential",
        Kind(form="NAME|FILE"),
        "Addresses of the host traffic: sequential, random, or a request trace.",
        HOST_TRAFFIC,
        "str | PathLike[str]",
        told='"sequential", "random" (seeded, always the same), or a request trace (any format of '
        "`traces.read_requests`): its addresses and kinds are repeated at the rate of the traffic",
        name="host-pattern",
        names=PATTERNS,
        files=("",),
        needs=_TRAFFIC,
    )


#: Traffic on every DIMM of a machine, beside the layers of a model.
MACHINE_TRAFFIC = Parameter(
    _TRAFFIC,
    "Rate at which the host also reads and writes each DIMM during the run: GB/s, or a share of the DIMM's "
    "bandwidth to the host such as 30%.",
    _Rate(form="GBPS|SHARE%", saturates=False),
    otherwise="none",
)
MACHINE_TRAFFIC_TOLD = (
    "the host's own traffic on each DIMM during the run, in GB/s, or a share such as 30% of what the DIMM "
    "carries to the host"
)


class TrafficSettings(RequestSettings, SharingSettings):
    """A host that reads and writes a DIMM beside its NDP unit."""

    host_gbps: Any = option(
        "saturate",
        RATE,
        "Rate at which the host reads and writes the DIMM during the run: GB/s, or a share of its bandwidth "
        "such as 30%.",
        HOST_TRAFFIC,
        "float | str",
        told='the host\'s traffic on this DIMM in GB/s, 0 for none; "30%" of what it carries to the host; or '
        '"saturate": as much as possible',
        name=_TRAFFIC,
        stated=None,
        names=("saturate",),
    )
