"""Experts on their way from one layout to another, lowered to `ndpsim.link.engine` and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.arbitrations import make_arbitration
from ndpsim.dimm.engines import make_dimms
from ndpsim.dimm.relayout import LAST_SERVED as LAST_SERVED_AT
from ndpsim.dimm.relayout import UNSERVED as UNSERVED_REQUESTS
from ndpsim.dimm.sharing import Alone, Shared
from ndpsim.dimm.state import Setup
from ndpsim.dram import state
from ndpsim.errors import InputError, no_way_on
from ndpsim.layout import Layout, moves
from ndpsim.link import Network
from ndpsim.link.engine_state import Engine, Flows, make_engine
from ndpsim.link.events import FAR
from ndpsim.link.fabric import Fabric, check_ticks, make_fabric, make_packets, most_waiting
from ndpsim.link.packing import Packed, Pieces, number_by_node, pack_pieces
from ndpsim.link.requests import Bursts, DimmLanes, Requests, bits_by_stage, make_requests
from ndpsim.simulate.lane import decode_commands
from ndpsim.spec import Standard, Tables
from ndpsim.traces import CommandTrace
from ndpsim.units import Timebase

__all__ = [
    "Access",
    "Bits",
    "CommandBuses",
    "Job",
    "Lowered",
    "Run",
    "Transfer",
    "Wave",
    "make_wave",
    "run_relayout",
]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
Progress = Callable[[float], None]

_CLOCKS = 1 << 17  # between two reports of progress
_SLOWEST = 1 << 10  # clocks that a burst takes, on average, by far at most


@dataclass(frozen=True, eq=False)
class Access:
    """How bursts are read and written: by relayout units with lanes and links, or by a host.

    Attributes:
        standard, tables, policy: of every lane.
        burst_bytes: bytes of a burst.
        write_latency: clocks from a write command to the last beat of its data.
        lanes: lanes of each node.
        network: of the nodes.
        slots: bursts that a node's buffer holds between reading and sending.
        receive_bytes: what its buffer holds of what was sent to it.
        many_reads: reads of a lane under way for which its writes wait, see `ndpsim.link.offers`.
        packet_bytes, header_bytes: of a packet.
        timebase: ticks of the DRAM clock, then of the unit's.
        dimm_lanes: node, lane and rank of each DIMM's lanes, DIMM after DIMM.
        command_buses: those that lanes share; None: every lane has one of its own.
    """

    standard: Standard
    tables: Tables
    policy: state.Policy
    burst_bytes: int
    write_latency: int
    lanes: int
    network: Network
    slots: int
    receive_bytes: int
    many_reads: int
    packet_bytes: int
    header_bytes: int
    timebase: Timebase
    dimm_lanes: DimmLanes
    command_buses: CommandBuses | None = None


class CommandBuses(NamedTuple):
    """Command buses, one for the ranks of a DIMM on each sub-channel, as `dimm` has them."""

    buses: int  # sub-channels, of all channels
    channel_ranks: int  # of the DIMMs on a channel, at most
    dimm_ranks: int
    clocks: Ints  # [command]: for which it has its bus
    lane: Ints  # [lane]: its number where lanes are ordered by rank on the channel, then by sub-channel


def private_buses(access: Access) -> CommandBuses:
    """Buses that no two lanes share: commands never wait for them."""
    lanes, never = access.network.dimms * access.lanes, np.zeros(len(access.tables.commands), dtype=np.int64)
    return CommandBuses(lanes, 1, 1, never, np.arange(lanes))


class Transfer(NamedTuple):
    """An expert, where it lies and where it goes."""

    source: Layout
    target: Layout


class Wave(NamedTuple):
    """Experts that go at the same time; who accesses them makes no difference here."""

    bits: int
    reads: Bursts
    writes: Bursts
    first_read: Ints  # [expert + 1]
    first_write: Ints  # [expert + 1]
    pieces: list[Pieces]  # of each expert
    word: Ints  # [place]: see `link.requests.fill_requests`
    column: Narrow


class Bits(NamedTuple):
    """Bits of weights that were read, came over links, or within their node, and were written."""

    read: int
    sent: int
    local: int
    written: int


@dataclass(frozen=True, eq=False)
class Run:
    """What happened, from the kernels' arrays. Clocks are DRAM clocks, the first is 1.

    Attributes:
        end: the clock at which the last data had been written.
        bits: of what was read, sent and written.
        wire_bytes: sent over links, with headers, at the source.
        read_node, read_tick: of each read, its node, and when its data was in the buffer.
        write_node, write_tick: of each write, its node and when all of it had arrived.
        reads, writes: bursts by lane.
        busy: ticks by wire.
        most_waiting: bytes of transit by node.
        issued: commands by number.
        open_clocks: clocks for which banks were open, summed over all banks.
        traces: of every lane, where recorded.
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
    """All bursts of layouts, and where each layout's begin."""
    first = np.append(0, np.cumsum([layout.bursts for layout in layouts])).astype(np.int64)
    dimm_lane, place = (np.empty(first[-1], dtype=np.int32) for _ in range(2))
    begins: dict[str, tuple[int, int, slice]] = {}  # of the first of each name; others are shifted from it
    for layout, (begin, end) in zip(layouts, pairwise(first), strict=True):
        of, first_lane = slice(begin, end), layout.dimms[0] * layout.geometry.lanes
        if layout.name in begins:
            other_lane, other_base, other = begins[layout.name]
            np.add(dimm_lane[other], first_lane - other_lane, out=dimm_lane[of])
            np.add(place[other], layout.base - other_base, out=place[of])
            continue
        places = layout.places()
        np.add(places.dimm * layout.geometry.lanes, places.lane, out=dimm_lane[of], casting="same_kind")
        place[of] = places.place
        begins[layout.name] = first_lane, layout.base, of
    return Bursts(dimm_lane, place), first


def make_wave(transfers: Sequence[Transfer]) -> Wave:
    """Experts that go at the same time, each burst and each piece in its place."""
    reads, first_read = _bursts([transfer.source for transfer in transfers])
    writes, first_write = _bursts([transfer.target for transfer in transfers])
    found: dict[tuple[str, str], Pieces] = {}  # the same for all DIMMs
    pieces = []
    for source, target in transfers:
        names = source.name, target.name
        if names not in found:
            found[names] = Pieces(*moves(source, target))
        pieces.append(found[names])
    places = np.arange(max(max(layout.end for layout in transfer) for transfer in transfers))
    bankgroup, bank, row, column = transfers[0].source.parts[0].interleaving.coordinates(places)
    none = np.zeros_like(row)
    word = state.pack_place(none, bankgroup, bank, row, none)
    bits = sum(sum(transfer.source.weights.matrix_bits()) for transfer in transfers)
    return Wave(bits, reads, writes, first_read, first_write, pieces, word, column.astype(np.int32))


class Lowered:
    """A wave as a relayout engine and its requests, before anything has moved.

    Raises:
        InputError: packets or the buffer are too small.
    """

    def __init__(self, access: Access, wave: Wave) -> None:
        self.access, self.wave, nodes = access, wave, access.network.dimms
        largest = max(int(pieces.bits.max()) for pieces in wave.pieces)
        if -(-largest // 8) > access.packet_bytes:
            problem = f"{access.packet_bytes} is less than a burst, {-(-largest // 8)} bytes"
            raise InputError(problem, key="link.packet_bytes")
        node_of = access.dimm_lanes.node
        reads = number_by_node(node_of[wave.reads.dimm_lane], wave.first_read, nodes)
        # Writes of a packet are neighbours then, which spares processors cache misses.
        writes = number_by_node(
            node_of[wave.writes.dimm_lane], np.array([0, len(wave.writes.dimm_lane)]), nodes
        )
        self.read_node, self.write_node = (
            np.repeat(np.arange(nodes, dtype=np.int32), np.diff(numbers.node_first))
            for numbers in (reads, writes)
        )
        experts = [
            (pieces, reads.number[first_read:], writes.number[first_write:])
            for pieces, first_read, first_write in zip(
                wave.pieces, wave.first_read, wave.first_write, strict=False
            )
        ]
        self.packed, ends = pack_pieces(
            experts, reads.node_first, self.write_node, access.slots, access.packet_bytes
        )
        self.flows = [divmod(int(pair), nodes) for pair in ends]
        fabric = make_fabric(access.network, self.flows, access.timebase)
        self.engine: Engine = self._engine(fabric, self.packed)
        self.requests: Requests = make_requests(
            wave.reads, reads.number, wave.writes, writes.number, access.dimm_lanes, wave.word, wave.column
        )

    def _engine(self, fabric: Fabric, packed: Packed) -> Engine:
        access, count = self.access, len(packed.packet_flow)
        size = packed.packet_bytes + np.int32(access.header_bytes)
        longest = len(packed.piece_read) * _SLOWEST * access.timebase.ticks[0]
        check_ticks(fabric, int(size.sum(dtype=np.int64)), count, longest)
        leaves = len(self.flows) + len(fabric.byte_ticks)
        packets = make_packets(fabric, packed.packet_flow, size, np.full(count, FAR), leaves)
        flows = self._flows(fabric)
        return make_engine(
            packed, fabric, packets, flows, access.timebase, access.tables.read_latency, access.slots
        )

    def _flows(self, fabric: Fabric) -> Flows:
        access = self.access
        source, target = np.array(self.flows, dtype=np.int64).T.copy()
        into = np.bincount(target, minlength=access.network.dimms)[target]
        credits_ = access.receive_bytes // (into * access.packet_bytes)
        if credits_.min() < 1:
            problem = (
                f"the buffer is too small: half of it has to hold a packet of {access.packet_bytes} bytes "
                f"from each of {int(into.max())} DIMMs"
            )
            raise InputError(problem, key="ndp.relayout.buffer_kib")
        latency = np.append(0, np.cumsum(fabric.queue_latency[fabric.path]))
        back = latency[fabric.path_first[1:]] - latency[fabric.path_first[:-1]]
        return Flows(source, credits_, back)

    def end_after(self, last_served: int) -> int:
        """The clock by which all data is written after the last command for a request."""
        return last_served + self.access.write_latency

    def run_of(self, end: int, issued: Ints, open_clocks: int, recorded: Sequence[tuple[Ints, Ints]]) -> Run:
        """What happened, with what the lanes did.

        Args:
            end: see `end_after`.
            issued: int64[command], of all lanes.
            open_clocks: for which banks had an open row, summed.
            recorded: the commands of each lane, if any, and how many there are.
        """
        access, engine = self.access, self.engine
        reads, lanes = len(self.read_node), access.network.dimms * access.lanes
        counted = np.zeros(4, dtype=np.int64)
        bits_by_stage(engine, self.packed.piece_bits, counted)
        bits = Bits(*counted.tolist())
        if not self.wave.bits == bits.read == bits.sent + bits.local == bits.written:
            raise RuntimeError(f"{self.wave.bits} bits were to be moved, but of these {bits}")
        linked = (np.diff(engine.fabric.path_first) > 0)[engine.packets.flow]
        return Run(
            end=end,
            bits=bits,
            wire_bytes=int(engine.packets.size[linked].sum(dtype=np.int64)),
            read_node=self.read_node,
            read_tick=engine.read_tick,
            write_node=self.write_node,
            write_tick=engine.write_tick,
            reads=np.bincount(self.requests.lane[:reads], minlength=lanes),
            writes=np.bincount(self.requests.lane[reads:], minlength=lanes),
            busy=engine.packets.busy,
            most_waiting=most_waiting(access.network, engine.fabric, engine.packets),
            issued=issued,
            open_clocks=open_clocks,
            traces=tuple(
                decode_commands(state.Commands(entry, length), access.tables, access.standard)
                for entry, length in recorded
            ),
        )


class Job(Lowered):
    """A wave under way on lanes that nothing else uses; the channels of all DIMMs are run as one."""

    make_dimms = staticmethod(make_dimms)

    def __init__(self, access: Access, wave: Wave, record: bool) -> None:
        super().__init__(access, wave)
        self._buses = buses = access.command_buses or private_buses(access)
        ranks = buses.channel_ranks
        ticks = access.timebase.ticks
        setup = Setup(
            sharing=Alone() if access.command_buses is None else Shared(),
            lane_tables=access.tables,
            host_tables=access.tables._replace(ranks=ranks * access.tables.ranks),
            policy=access.policy,
            arbitration=make_arbitration("host-first"),
            starvation_clocks=1,
            read_latency=access.tables.read_latency - access.tables.burst,
            write_latency=access.write_latency - access.tables.burst,
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
        """Until all is written.

        Raises:
            InterruptedError: `stop` was set before.
        """
        total = left = len(self.requests.lane)
        while left:
            if stop.is_set():
                raise InterruptedError
            self.dimms.run_relayout(self.dimms.clock + _CLOCKS)
            before, left = left, int(self.dimms.agents.relayout.value[UNSERVED_REQUESTS])
            if before == left and self.engine.packets.times[1] == FAR:
                raise no_way_on("bursts of a relayout wait for what never comes")
            progress(1 - left / total)

    def outcome(self) -> Run:
        """What happened."""
        dimms, lanes = self.dimms, self._buses.lane
        end = self.end_after(int(dimms.agents.relayout.value[LAST_SERVED_AT]))
        entry, length = dimms.recorded[0]
        recorded = [(entry[lane], length[lane : lane + 1]) for lane in lanes] if entry.size else []
        open_clocks = int(dimms.open_clocks(end)[lanes].sum())
        return self.run_of(end, dimms.lane_issued[lanes].sum(axis=0), open_clocks, recorded)


def run_relayout(access: Access, wave: Wave, record: bool, progress: Progress, stop: Event) -> Run:
    """Relayout of a wave, from rest.

    Raises:
        InputError: the buffer or packets are too small.
    """
    job = Job(access, wave, record)
    job.run(progress, stop)
    return job.outcome()
