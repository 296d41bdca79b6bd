"""Rates of experts on a DIMM, host reads and relayouts beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported


@dataclass(frozen=True, eq=False, repr=False)
class SharedDimmResult(Reported):
    """Rates of an expert on a DIMM, and of what reads or writes that DIMM concurrently.

    Attributes:
        tokens: the numbers of tokens of the experts.
        offered_gbps: the bandwidths that a host read of the DIMM asks for, ascending; the last is all that
            it gets.
        host_alone_gbps: what the last of these reads without an expert.
        streams: so many reads go on at once, on as many DIMMs as they can. They ask for rates together, which
            are `offered_gbps` where there is one read.
        host_gbps: by streams and tokens, what is read of each of these.
        host_rate: by streams and tokens, of the host that gets all it can, the time apart that the vectors of
            experts take; 1: alone.
        ndp_rate: by streams and tokens, the rate of the experts concurrent with each of these, on average of
            the DIMMs that are read; 1: alone.
        vector_tokens: of the short experts whose activations and results take the bus.
        bus_ns, pause_ns: by these, what a read of another DIMM loses with each expert: one that takes all it
            gets, and one of half of that.
        relayout_tokens: of the experts beside relayouts.
        read_gbps, ndp_rate_beside_reads: by these, then by relayout: what the DIMM reads for it, and the rate
            of the expert.
        written_gbps, ndp_rate_beside_writes: likewise what it writes.
        crowded_gbps: those of `offered_gbps` that were tried beside a relayout as well.
        ndp_rate_crowded, relayout_rate_crowded: where the relayout reads the DIMM, and where it writes it: by
            tokens, then by these, what is left of the rates of the expert beside either, and of the relayout
            beside the expert.
        config: everything that was used.
        wall_s, compile_s: as in all results.
    """

    tokens: tuple[int, ...]
    offered_gbps: tuple[float, ...]
    host_alone_gbps: float
    streams: tuple[int, ...]
    host_gbps: tuple[tuple[tuple[float, ...], ...], ...]
    host_rate: tuple[tuple[float, ...], ...]
    ndp_rate: tuple[tuple[tuple[float, ...], ...], ...]
    vector_tokens: tuple[int, ...]
    bus_ns: tuple[float, ...]
    pause_ns: tuple[float, ...]
    relayout_tokens: tuple[int, ...]
    read_gbps: tuple[tuple[float, ...], ...]
    ndp_rate_beside_reads: tuple[tuple[float, ...], ...]
    written_gbps: tuple[tuple[float, ...], ...]
    ndp_rate_beside_writes: tuple[tuple[float, ...], ...]
    crowded_gbps: tuple[float, ...]
    ndp_rate_crowded: tuple[tuple[tuple[float, ...], ...], ...]
    relayout_rate_crowded: tuple[tuple[tuple[float, ...], ...], ...]
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
