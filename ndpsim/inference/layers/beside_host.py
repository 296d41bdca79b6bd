"""Times beside the host's own traffic: it reads and writes every DIMM while the layers of a model run.

The traffic is that of `simulate_contention`: the same requests, at the same rate, on each DIMM of a channel.
An expert, a host read and a move between DIMMs are simulated beside it in sessions of one channel. The host's
reads of weights take turns with the traffic, burst by burst, so that they have what it leaves of a channel.

An expert that takes longer than a millisecond alone has the mean slowdown of its first millisecond, measured
by the weights that the unit reads.

A session has the DIMMs of one channel only, and those of other channels move experts without delay. Therefore
moves are measured with and without the traffic, between DIMMs of this channel where there are two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ndpsim.base.arguments import number
from ndpsim.base.errors import InputError
from ndpsim.base.options.host import RequestSettings, share_of_rate
from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.location import Location
from ndpsim.simulate import Session
from ndpsim.simulate.host_traffic import HostTraffic
from ndpsim.simulate.machine import lower_machine, named_weights
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.expert import MeanExpert
from ndpsim.simulate.results.slowdown import BesideTraffic
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import Expert

_WINDOW_NS = 1e6  # in which the slowdown of a longer expert is measured


def checked_traffic(hardware: Hardware, gbps: float | str | None) -> HostTraffic | None:
    """The host's traffic on each DIMM; None: there is none.

    Args:
        gbps: GB/s, or a share of what a DIMM carries to the host.

    Raises:
        InputError: the rate makes no sense, a channel cannot carry it for all its DIMMs, or the machine has
            no DIMMs that host and NDP units share.
    """
    if gbps is None:
        return None
    peak_gbps, system = hardware.dimm_host_gbps, hardware.system
    share = share_of_rate(gbps) if isinstance(gbps, str) else None
    rate = number(gbps, "host_gbps", 0) if share is None else share * peak_gbps
    if not rate:
        return None
    with hardware.errors_at_origins():
        shared = system.ndp is not None and system.cxl is None and lower_machine(hardware).shares_ranks
    if not shared:
        problem = f"needs DIMMs whose ranks host and NDP units share in simulation; {system.name} has none"
        raise InputError(problem, "unsupported", key="host_gbps")
    on_channel = dimms_on_channel(hardware)
    if rate * on_channel > peak_gbps * (1 + 1e-9):
        most = f"allowed: at most {peak_gbps / on_channel:g} GB/s, or {100 / on_channel:g}%"
        dimms = "its DIMM" if on_channel == 1 else f"each of its {on_channel} DIMMs"
        problem = f"a channel carries {peak_gbps:g} GB/s, not {rate:g} GB/s for {dimms}; {most}"
        raise InputError(problem, "range", key="host_gbps")
    return HostTraffic.of(rate, RequestSettings.read_share, RequestSettings.pattern, peak_gbps)


def dimms_on_channel(hardware: Hardware) -> int:
    """The largest number of DIMMs of a channel."""
    return -(-hardware.system.dimm.count // hardware.system.host.channels)


def add_traffic(session: Session, traffic: HostTraffic | None) -> None:
    """Let the host read and write every DIMM of a session from now on."""
    if traffic is not None:
        for dimm in range(dimms_on_channel(session.hardware)):
            session.host(traffic.pattern, traffic.gbps, traffic.read_share, dimm)


class BesideHost:
    """Times of experts, host reads and moves beside the host's traffic, each simulated once.

    Args:
        memory, bits, arbitration, cache: as in `Costs`.
        traffic: the host's traffic on each DIMM.
    """

    def __init__(
        self,
        memory: Hardware,
        bits: int | ExpertFormat,
        arbitration: str,
        traffic: HostTraffic,
        cache: bool | ResultCache,
    ) -> None:
        self._memory, self._bits, self._arbitration = memory, bits, arbitration
        self._traffic, self._cache = traffic, cache

    def expert_ns(self, model: Expert, tokens: Sequence[int], dimms: int, alone: MeanExpert) -> float:
        """Mean time of an expert over the start clocks of its runs without traffic.

        Args:
            model: the part of the expert on a DIMM.
            tokens: those of its turns.
            dimms: the DIMMs of the channel that have such a part.
            alone: the part without traffic.
        """

        def simulate() -> float:
            if alone.mean_ns <= _WINDOW_NS:
                return sum(self._ends_ns(model, tokens, dimms, clock) for clock in clocks) / len(clocks)
            quiet, beside = (
                sum(self._expert(model, tokens, dimms, clocks[0], with_host, _WINDOW_NS).ndp_bytes)
                for with_host in (False, True)
            )
            return alone.mean_ns * quiet / beside

        clocks = alone.start_clocks
        return self._found("expert", model, (list(tokens), dimms, list(clocks)), simulate)

    def read_ns(self, model: Expert, layout: str) -> float:
        """Time of a host read of an expert in a layout."""

        def simulate() -> float:
            session = Session(self._memory, arbitration=self._arbitration)
            session.host_read(model, layout, bits=self._bits, behind=True)
            add_traffic(session, self._traffic)
            session.run()
            end_ns = session.hosts[0].end_ns
            assert end_ns is not None
            return end_ns

        return self._found("read", model, (layout,), simulate)

    def moving(self, model: Expert, source: Location, target: Location) -> float:
        """The factor by which a move of an expert takes longer."""
        ends = source.layout, target.layout

        def simulate() -> float:
            with_host, alone = (self._move_ns(model, *ends, each) for each in (self._traffic, None))
            return max(with_host / alone, 1.0)

        return self._found("move", model, ends, simulate)

    def _expert(
        self,
        model: Expert,
        tokens: Sequence[int],
        dimms: int,
        clock: int,
        with_host: bool,
        until_ns: float | None,
    ) -> Session:
        """A session with parts of an expert on the first DIMMs of a channel."""
        session = Session(self._memory, dimms, self._arbitration, start_clock=clock)
        for dimm in range(dimms):
            for of_turn in tokens:
                session.expert(model, of_turn, dimm, bits=self._bits)
        add_traffic(session, self._traffic if with_host else None)
        session.run(until_ns)
        return session

    def _ends_ns(self, model: Expert, tokens: Sequence[int], dimms: int, clock: int) -> float:
        """The time of the last result."""
        session = self._expert(model, tokens, dimms, clock, True, None)
        return max(job.end_ns or 0.0 for job in session.jobs)

    def _move_ns(self, model: Expert, source: str, target: str, traffic: HostTraffic | None) -> float:
        """The time of a move from the first DIMM of the channel, to its second where both have one layout."""
        system = self._memory.system
        other = system.host.channels if system.dimm.count > system.host.channels else 1
        session = Session(self._memory, arbitration=self._arbitration)
        session.relayout(model, 1, source, target, [0], [other if source == target else 0], bits=self._bits)
        add_traffic(session, traffic)
        session.run()
        end_ns = session.relayouts[0].end_ns
        assert end_ns is not None
        return end_ns

    def _found(self, what: str, model: Expert, asked: Sequence[Any], simulate: Callable[[], float]) -> float:
        """A value from the cache, or simulated."""
        weights, _ = named_weights(model, self._bits)
        inputs = (what, self._memory, weights, self._arbitration, self._traffic, *asked)
        lookup = Lookup(BesideTraffic, self._cache, False, inputs, {})
        found = lookup.find(Stopwatch(), lambda share: None)
        return (lookup.store(BesideTraffic(simulate())) if found is None else found).value
