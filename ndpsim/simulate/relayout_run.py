"""Runs relayouts of experts by `ndpsim.dimm.link.engine`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import Progress
from ndpsim.base.arrays import product_sum
from ndpsim.base.errors import no_way_on
from ndpsim.base.units import Timebase
from ndpsim.dimm.alone import Alone
from ndpsim.dimm.arbitrations import make_arbitration
from ndpsim.dimm.concurrent import Shared
from ndpsim.dimm.engines import make_dimms
from ndpsim.dimm.layout import Layout, moves
from ndpsim.dimm.link import Network
from ndpsim.dimm.link.engine_state import Bits, bits_by_stage, make_engine
from ndpsim.dimm.link.fabric import FAR, most_waiting
from ndpsim.dimm.link.packing import (
    BurstRequests,
    Bursts,
    LanesOfDimms,
    Pieces,
    make_requests,
    number_by_node,
    pack_pieces,
)
from ndpsim.dimm.relayout import LAST_SERVED, UNSERVED, Relayout
from ndpsim.dimm.state import NDP, DimmSetup
from ndpsim.dram import state
from ndpsim.dram.spec import Device, Tables, lower
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate.lane import Ints, channel_commands, decode_commands

Narrow = NDArray[np.int32]

_CLOCKS = 1 << 17  # between two reports of progress


@dataclass(frozen=True, eq=False)
class Access:
    """The way in which bursts are read and written: relayout units with lanes and links, or a host.

    Attributes:
        device: the DRAM of each lane, which is a channel.
        policy: the policy of its controller.
        lanes: lanes of each node.
        network: the network of the nodes.
        slots: bursts between reading and sending for which a node's buffer has room.
        receive_bytes: room of a node's buffer for received data.
        many_reads: number of current reads of a lane with which its writes wait, see
        `ndpsim.dimm.link.offers`. packet_bytes, header_bytes: the bytes of data and of the header of a
        packet. timebase: ticks of the DRAM clock, then of the unit's. dimm_lanes: node, lane and rank of each
        DIMM's lanes, DIMM after DIMM. command_buses: shared command buses; None: every lane has its own.
    """

    device: Device
    policy: state.Policy
    lanes: int
    network: Network
    slots: int
    receive_bytes: int
    many_reads: int
    packet_bytes: int
    header_bytes: int
    timebase: Timebase
    dimm_lanes: LanesOfDimms
    command_buses: CommandBuses | None = None

    @property
    def tables(self) -> Tables:
        """The tables of every lane."""
        return lower(self.device)


class CommandBuses(NamedTuple):
    """Command buses, one for the ranks of a DIMM on each sub-channel, as in `dimm`."""

    buses: int  # sub-channels, of all channels
    channel_ranks: int  # maximum DIMMs on a channel
    dimm_ranks: int
    clocks: Ints  # [command]: clocks on its bus
    lane: Ints  # [lane]: its number in the order of ranks on the channel, then sub-channels


def private_buses(access: Access) -> CommandBuses:
    """Buses that are not shared, so that commands never wait."""
    lanes, never = access.network.dimms * access.lanes, np.zeros(len(access.tables.commands), dtype=np.int64)
    return CommandBuses(lanes, 1, 1, never, np.arange(lanes))


class Transfer(NamedTuple):
    """An expert with its source and its target."""

    source: Layout
    target: Layout


@dataclass(frozen=True, eq=False)
class RelayoutRun:
    """A finished relayout, from the kernels' arrays. Clocks are DRAM clocks, of which the first is 1.

    Attributes:
        end: the clock at which the last data had been written.
        bits: bits read, sent and written.
        wire_bytes: bytes sent over links, with headers, at the source.
        read_node, read_tick: node of each read, and the tick at which its data was in the buffer.
        write_node, write_tick: node of each write, and the tick at which all its data had arrived.
        reads, writes: bursts by lane.
        busy: ticks by wire.
        most_waiting: maximum bytes in transit by node.
        issued: commands by number.
        open_clocks: clocks for which banks were open, summed over all banks.
        traces: command traces of every lane, if recorded.
    """

    end: int
    bits: Bits
    wire_bytes: int
    read_node: Narrow
    read_tick: Ints
    write_node: Narrow
    write_tick: Ints
    reads: Ints
    writes: Ints
    busy: Ints
    most_waiting: Ints
    issued: Ints
    open_clocks: int
    traces: tuple[CommandTrace, ...]


def _bursts(layouts: Sequence[Layout]) -> tuple[Bursts, Ints]:
    """All bursts of layouts, and the beginnings of those of each layout."""
    first = np.append(0, np.cumsum([layout.bursts for layout in layouts])).astype(np.int64)
    dimm_lane, place = (np.empty(first[-1], dtype=np.int32) for _ in range(2))
    begins: dict[str, tuple[int, int, slice]] = {}  # of the first layout of a name; others are shifted
    for layout, (begin, end) in zip(layouts, pairwise(first), strict=True):
        chosen, first_lane = slice(begin, end), layout.dimms[0] * layout.geometry.lanes
        if layout.name in begins:
            other_lane, other_base, other = begins[layout.name]
            np.add(dimm_lane[other], first_lane - other_lane, out=dimm_lane[chosen])
            np.add(place[other], layout.base - other_base, out=place[chosen])
            continue
        places = layout.places()
        np.add(places.dimm * layout.geometry.lanes, places.lane, out=dimm_lane[chosen], casting="same_kind")
        place[chosen] = places.place
        begins[layout.name] = first_lane, layout.base, chosen
    return Bursts(dimm_lane, place), first


def _pieces(transfers: Sequence[Transfer]) -> Iterator[Pieces]:
    """The pieces of each expert, which are equal for all DIMMs."""
    found: dict[tuple[str, str], Pieces] = {}
    for source, target in transfers:
        names = source.name, target.name
        if names not in found:
            found[names] = Pieces(*moves(source, target))
        yield found[names]


class Wave:
    """Experts that move at the same time, as a relayout engine and its requests, before the start.

    Raises:
        InputError: the buffer is too small.
    """

    def __init__(self, access: Access, transfers: Sequence[Transfer]) -> None:
        self.access, nodes, node_of = access, access.network.dimms, access.dimm_lanes.node
        self.bits = sum(sum(transfer.source.weights.matrix_bits()) for transfer in transfers)
        reads, first_read = _bursts([transfer.source for transfer in transfers])
        writes, first_write = _bursts([transfer.target for transfer in transfers])
        read = number_by_node(node_of[reads.dimm_lane], first_read, nodes)
        # This makes writes of a packet neighbours, which saves processors cache misses.
        write = number_by_node(node_of[writes.dimm_lane], first_write[[0, -1]], nodes)
        self.read_node, self.write_node = (
            np.repeat(np.arange(nodes, dtype=np.int32), np.diff(numbers.node_first))
            for numbers in (read, write)
        )
        experts = [
            (pieces, read.number[of_reads:], write.number[of_writes:])
            for pieces, of_reads, of_writes in zip(_pieces(transfers), first_read, first_write, strict=False)
        ]
        packed, self.flows = pack_pieces(
            experts, read.node_first, self.write_node, access.slots, access.packet_bytes
        )
        self.engine = make_engine(
            packed,
            access.network,
            self.flows,
            access.timebase,
            access.tables.read_latency,
            access.slots,
            access.receive_bytes,
            access.packet_bytes,
            access.header_bytes,
        )
        places = np.arange(max(max(layout.end for layout in transfer) for transfer in transfers))
        rank, bankgroup, bank, row, column = transfers[0].source.parts[0].interleaving.coordinates(places)
        word = state.pack_place(rank, bankgroup, bank, row, np.zeros_like(row))
        self.requests: BurstRequests = make_requests(
            reads, read.number, writes, write.number, access.dimm_lanes, word, column.astype(np.int32)
        )


class Job(Wave):
    """A running wave on lanes without other users; the channels of all DIMMs are run as one."""

    make_dimms = staticmethod(make_dimms)

    def __init__(self, access: Access, transfers: Sequence[Transfer], record: bool) -> None:
        super().__init__(access, transfers)
        self._buses = buses = access.command_buses or private_buses(access)
        ranks, device, ticks = buses.channel_ranks, access.device, access.timebase.ticks
        setup = DimmSetup(
            sharing=Alone() if access.command_buses is None else Shared(),
            lane_tables=access.tables,
            host_tables=access.tables._replace(ranks=ranks * device.ranks),
            policy=access.policy,
            arbitration=make_arbitration("host-first"),
            starvation_clocks=1,
            read_latency=device.read_latency,
            write_latency=device.write_latency,
            dram_ticks=ticks[0],
            unit_ticks=ticks[-1],
            fifo_bursts=1,
            dimm_ranks=buses.dimm_ranks,
            dimm_of_rank=np.arange(ranks) // buses.dimm_ranks,
            refresh_shift=0,
            command_clocks=buses.clocks,
        )
        self.dimms = self.make_dimms(setup, ranks * buses.buses, buses.buses, 1, record)
        lane = buses.lane[self.requests.lane].astype(np.int32)
        self.dimms.add_relayout(self.engine, self.requests, lane, access.many_reads, 0)

    def run(self, progress: Progress, stop: Event) -> None:
        """Run until all data is written.

        Raises:
            InterruptedError: `stop` was set before.
        """
        total = left = len(self.requests.lane)
        while left:
            if stop.is_set():
                raise InterruptedError
            self.dimms.run_relayout(self.dimms.clock + _CLOCKS)
            before, left = left, int(self.dimms.agents.relayout.value[UNSERVED])
            if before == left and self.engine.packets.times[1] == FAR:
                raise no_way_on("bursts of a relayout wait for what never comes")
            progress(1 - left / total)

    def outcome(self) -> RelayoutRun:
        """The results of the run."""
        access, engine, dimms, lanes = self.access, self.engine, self.dimms, self._buses.lane
        bits = bits_by_stage(engine)
        if not self.bits == bits.read == bits.sent + bits.local == bits.written:
            raise RuntimeError(f"{self.bits} bits were to be moved, but of these {bits}")
        reads, linked = len(self.read_node), (np.diff(engine.fabric.path_first) > 0)[engine.packets.flow]
        end, standard = last_data(access.device, dimms.agents.relayout), access.device.standard
        by_lane, _ = dimms.recorded
        recorded = [channel_commands(by_lane, lane) for lane in lanes] if by_lane.entry.size else []
        return RelayoutRun(
            end=end,
            bits=bits,
            wire_bytes=int(engine.packets.size[linked].sum(dtype=np.int64)),
            read_node=self.read_node,
            read_tick=engine.read_tick,
            write_node=self.write_node,
            write_tick=engine.write_tick,
            reads=np.bincount(self.requests.lane[:reads], minlength=len(lanes)),
            writes=np.bincount(self.requests.lane[reads:], minlength=len(lanes)),
            busy=engine.packets.busy,
            most_waiting=most_waiting(access.network, engine.fabric, engine.packets),
            issued=dimms.issued(NDP)[lanes].sum(axis=0),
            open_clocks=int(dimms.open_clocks(end)[lanes].sum()),
            traces=tuple(decode_commands(of_lane, access.tables, standard) for of_lane in recorded),
        )


def last_data(device: Device, relayout: Relayout) -> int:
    """The clock by which all data of a finished relayout have been written."""
    return int(relayout.value[LAST_SERVED]) + device.write_latency + device.burst_clocks


def run_relayout(
    access: Access, transfers: Sequence[Transfer], record: bool, progress: Progress, stop: Event
) -> RelayoutRun:
    """Run the relayout of a wave from the start.

    Raises:
        InputError: the buffer is too small.
    """
    job = Job(access, transfers, record)
    job.run(progress, stop)
    return job.outcome()


# ---- Waves of experts of a relayout, if not all can move at the same time
#
# Experts that share a link or a lane wait for each other, so each wave should use links and lanes evenly.
# A wave takes at least the time of its busiest link or lane; waves are chosen for a small sum of these times.
# The order of the given experts makes no difference.


Floats = NDArray[np.float64]
Waves = list[list[int]]

_BETTER = 1 - 1e-9  # A time below this share of another is shorter by more than rounding.


def _uses_ns(access: Access, transfer: Transfer) -> Floats:
    """The time for which an expert uses each lane, then each wire, as if spread evenly over its DIMMs."""
    network, (source, target) = access.network, transfer
    lane_ns = np.zeros(access.network.dimms * access.lanes)
    burst_ns = access.timebase.to_ns(access.tables.burst * access.timebase.ticks[0])
    node = access.dimm_lanes.node.reshape(-1, source.geometry.lanes)[:, 0]
    lane = access.dimm_lanes.lane.reshape(-1, source.geometry.lanes)
    for layout in transfer:
        lanes = lane[list(layout.dimms)].ravel()
        np.add.at(lane_ns, lanes, layout.bursts * burst_ns / len(lanes))
    wire_ns = np.zeros(len(network.wire_names))
    between = len(source.dimms) * len(target.dimms)
    flow_bytes = sum(source.weights.matrix_bits()) / 8 / between
    for dimm in source.dimms:
        for other in target.dimms:
            for hop in network.route(int(node[dimm]), int(node[other])):
                wire_ns[network.hops[hop].wire] += flow_bytes / network.hops[hop].gbps
    return np.concatenate((lane_ns, wire_ns))


def _time_ns(uses_ns: Floats, wave: Sequence[int]) -> tuple[float, float]:
    """The least time of a wave, and for ties, the imbalance in its use of links and DRAM."""
    total = uses_ns[list(wave)].sum(axis=0)
    return float(total.max()), product_sum(total, total)


def _is_less(pair: tuple[float, float], than: tuple[float, float]) -> bool:
    return pair[0] < than[0] * _BETTER or (pair[0] * _BETTER <= than[0] and pair[1] < than[1] * _BETTER)


def _sum(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return first[0] + second[0], first[1] + second[1]


def _exchange(uses_ns: Floats, waves: Waves) -> None:
    """Exchange experts, or free places, of two waves as long as this improves their sum.

    The last expert of `uses_ns` represents a free place.
    """
    times = [_time_ns(uses_ns, wave) for wave in waves]
    changed = True
    while changed:
        changed = False
        for first, second in ((a, b) for b in range(len(waves)) for a in range(b)):
            for m in range(len(waves[first])):
                for n in range(len(waves[second])):
                    left, right = waves[first].copy(), waves[second].copy()
                    left[m], right[n] = right[n], left[m]
                    after = _time_ns(uses_ns, left), _time_ns(uses_ns, right)
                    if _is_less(_sum(*after), _sum(times[first], times[second])):
                        waves[first], waves[second] = left, right
                        times[first], times[second] = after
                        changed = True


def choose_waves(access: Access, transfers: Sequence[Transfer], at_once: int) -> Waves:
    """The numbers of the experts in consecutive waves.

    Args:
        access: the way in which experts are moved.
        transfers: sorted transfers, as from `relayout_plan.plan_transfers`.
        at_once: maximum experts of a wave.

    Returns:
        The fewest possible waves. Two initial choices, with neighbours in the same or in different waves, are
        improved by exchanges, and the one with the lower bound of times is taken.
    """
    count = -(-len(transfers) // at_once)
    if count < 2:
        return [list(range(len(transfers)))] if transfers else []
    uses_ns = np.array([_uses_ns(access, transfer) for transfer in transfers])
    uses_ns = np.vstack((uses_ns, np.zeros_like(uses_ns[0])))
    none = len(transfers)
    experts = list(range(none)) + [none] * (count * at_once - none)
    dealt = [experts[n::count] for n in range(count)]
    other = [experts[n : n + at_once] for n in range(0, len(experts), at_once)]
    for waves in (dealt, other):
        _exchange(uses_ns, waves)
    times = [reduce(_sum, (_time_ns(uses_ns, wave) for wave in waves)) for waves in (dealt, other)]
    best = other if _is_less(times[1], times[0]) else dealt
    return [sorted(expert for expert in wave if expert < none) for wave in best]
