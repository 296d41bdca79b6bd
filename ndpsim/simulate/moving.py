"""Bursts that move from one place in memory to another, lowered to `ndpsim.link.moving` and run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import state
from ndpsim.dram.masks import state as masks
from ndpsim.errors import InputError
from ndpsim.layout import Layout, Places, moves
from ndpsim.link import Network
from ndpsim.link.fabric import FAR, Fabric, Packets, check_ticks, make_fabric, make_packets
from ndpsim.link.moving import move
from ndpsim.link.packets import most_waiting
from ndpsim.link.packing import pack
from ndpsim.link.work import Lanes, Requests, Work, first_of, make_lanes, make_work
from ndpsim.simulate.lane import decode_commands
from ndpsim.spec import Tables
from ndpsim.traces import CommandTrace
from ndpsim.units import Timebase

__all__ = ["Bits", "Mover", "Moving", "Run", "run_moving"]

Ints = NDArray[np.int64]
Progress = Callable[[float], None]

_WINDOWS = 1 << 12  # between two reports of progress
_PATIENCE = 1 << 8  # reports without any progress
_SLOWEST = 1 << 10  # clocks that a burst takes, on average, by far at most
_ROOM = 1 << 12  # commands a lane's trace has room for at first


@dataclass(frozen=True, eq=False)
class Mover:
    """What moves bursts: relayout units with their lanes and the network between them, or a host.

    Attributes:
        tables, policy: of every lane.
        burst_bytes: bytes of a burst.
        write_latency: clocks from WR to the last beat of its data.
        lanes: lanes of each node.
        network: of the nodes.
        slots: bursts that a node's buffer holds between reading and sending.
        receive_bytes: what its buffer holds of what was sent to it.
        packet_bytes, header_bytes: of a packet.
        timebase: ticks of the DRAM clock, then of the unit's.
        place: (node, lane within it, rank on that lane) of bursts in memory.
    """

    tables: Tables
    policy: state.Policy
    burst_bytes: int
    write_latency: int
    lanes: int
    network: Network
    slots: int
    receive_bytes: int
    packet_bytes: int
    header_bytes: int
    timebase: Timebase
    place: Callable[[Places], tuple[Ints, Ints, Ints]]


class Moving(NamedTuple):
    """An expert on its way."""

    source: Layout
    target: Layout


class _Bursts(NamedTuple):
    """Bursts in memory, by node."""

    node: Ints
    requests: Requests


class Bits(NamedTuple):
    """Bits of weights that were read, came over links or within their node, and were written."""

    read: int
    sent: int
    kept: int
    written: int


@dataclass(frozen=True, eq=False)
class Run:
    """What happened, from the kernels' arrays. Clocks are DRAM clocks, the first is 1.

    Attributes:
        end: the clock at which the last data had been written.
        bits: that moved.
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
    read_node: Ints
    read_tick: Ints
    write_node: Ints
    write_tick: Ints
    reads: Ints
    writes: Ints
    busy: Ints
    most_waiting: Ints
    issued: Ints
    open_clocks: int
    traces: tuple[CommandTrace, ...]


def _bursts(mover: Mover, layouts: Sequence[Layout], write: int) -> tuple[_Bursts, Ints]:
    """All bursts of layouts, and where each layout's begin."""
    nodes, requests = [], []
    for layout in layouts:
        places = layout.places()
        node, lane, rank = mover.place(places)
        bankgroup, bank, row, column = layout.parts[0].dealing.coordinates(places.place)
        word = state.pack_place(rank, bankgroup, bank, row, np.full_like(row, write))
        nodes.append(node)
        address = places.place * (1 << 8) + rank
        requests.append(Requests(node * mover.lanes + lane, word, column, address))
    starts = np.append(0, np.cumsum([layout.bursts for layout in layouts])).astype(np.int64)
    joined = Requests(*(np.concatenate(columns) for columns in zip(*requests, strict=True)))
    return _Bursts(np.concatenate(nodes), joined), starts


def _reading_order(node: Ints, starts: Ints) -> Ints:
    """The bursts in the order of reading, node by node; a node reads one of each of its experts in turn."""
    turn = np.empty_like(node)
    for first, end in itertools.pairwise(starts):
        by_node = np.argsort(node[first:end], kind="stable")
        begins = first_of(node[first:end], int(node.max()) + 1)
        turn[first + by_node] = np.arange(end - first) - begins[node[first + by_node]]
    expert = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return np.argsort((node << 48) | (turn << 16) | expert, kind="stable")


class _Pieces(NamedTuple):
    """What goes from reads to writes, flow by flow in order; numbers of reads as they are read."""

    read: Ints
    write: Ints
    bits: Ints
    flow: Ints
    ends: Ints  # [flow]: source node x nodes + target node


def _pieces(
    moving: Sequence[Moving],
    reads: _Bursts,
    writes: _Bursts,
    starts: tuple[Ints, Ints],
    order: Ints,
    nodes: int,
) -> _Pieces:
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    known: dict[tuple[str, str], tuple[Ints, Ints, Ints]] = {}  # the same for all DIMMs
    columns = []
    for expert, (source, target) in enumerate(moving):
        key = source.name, target.name
        if key not in known:
            known[key] = moves(source, target)
        of_source, of_target, bits = known[key]
        columns.append((number[starts[0][expert] + of_source], starts[1][expert] + of_target, bits))
    read, write, bits = (np.concatenate(column) for column in zip(*columns, strict=True))
    between = reads.node[order[read]] * nodes + writes.node[write]
    present = np.bincount(between, minlength=nodes * nodes) > 0
    flow = (np.cumsum(present) - 1)[between]
    by_flow = np.argsort(flow * len(order) + read, kind="stable")
    return _Pieces(read[by_flow], write[by_flow], bits[by_flow], flow[by_flow], np.flatnonzero(present))


class _Job:
    """A set of experts that move at the same time, under way."""

    def __init__(self, mover: Mover, moving: Sequence[Moving], record: bool) -> None:
        self.mover, nodes = mover, mover.network.dimms
        self.bits = sum(sum(expert.source.weights.matrix_bits()) for expert in moving)
        reads, read_starts = _bursts(mover, [expert.source for expert in moving], 0)
        writes, write_starts = _bursts(mover, [expert.target for expert in moving], 1)
        order = _reading_order(reads.node, read_starts)
        pieces = _pieces(moving, reads, writes, (read_starts, write_starts), order, nodes)
        self.read_node, self.write_node = reads.node[order], writes.node
        node_read = np.searchsorted(self.read_node, np.arange(nodes + 1)).astype(np.int64)
        self.pieces = pieces
        self.fabric, self.packets = self._packets(pieces, node_read)
        in_order = Requests(*(column[order] for column in reads.requests))
        windows = self._windows(pieces.ends)
        self.work: Work = make_work(
            in_order,
            writes.requests,
            node_read,
            (self.packet, pieces.read, pieces.write),
            self.packets.flow,
            windows,
            mover.slots,
        )
        room = _ROOM if record else 0
        self.lanes: Lanes = make_lanes(mover.tables, in_order, writes.requests, nodes * mover.lanes, room)
        self.node_of = pieces.ends // nodes

    def _packets(self, pieces: _Pieces, node_read: Ints) -> tuple[Fabric, Packets]:
        mover = self.mover
        size = -(-pieces.bits // 8)
        if int(size.max()) > mover.packet_bytes:
            problem = f"{mover.packet_bytes} is less than a burst, {int(size.max())} bytes"
            raise InputError(problem, key="link.packet_bytes")
        chunk = (pieces.read - node_read[self.read_node[pieces.read]]) // mover.slots
        self.packet = np.empty_like(pieces.read)
        count = int(pack(pieces.flow, chunk, size, mover.packet_bytes, self.packet))
        flow = np.empty(count, dtype=np.int64)
        flow[self.packet] = pieces.flow
        self.size = np.bincount(self.packet, size, count).astype(np.int64) + mover.header_bytes
        nodes = mover.network.dimms
        flows = [divmod(int(ends), nodes) for ends in pieces.ends]
        fabric = make_fabric(mover.network, flows, mover.timebase)
        longest = len(pieces.read) * _SLOWEST * mover.timebase.ticks[0]
        check_ticks(fabric, int(self.size.sum()), count, longest)
        return fabric, make_packets(fabric, flow, self.size, np.full(count, FAR))

    def _windows(self, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Packets on their way at once, ticks until their places are known to be free, and hops of flows."""
        mover, nodes = self.mover, self.mover.network.dimms
        into = np.bincount(ends % nodes, minlength=nodes)[ends % nodes]
        windows = mover.receive_bytes // (into * mover.packet_bytes)
        if windows.min() < 1:
            problem = (
                f"the buffer is too small: half of it has to hold a packet of {mover.packet_bytes} bytes "
                f"from each of {int(into.max())} DIMMs"
            )
            raise InputError(problem, key="ndp.relayout.buffer_kib")
        fabric = self.fabric
        hops = np.diff(fabric.path_first)
        latency = np.append(0, np.cumsum(fabric.queue_latency[fabric.path]))
        back = latency[fabric.path_first[1:]] - latency[fabric.path_first[:-1]]
        return windows, back, hops

    def run(self, progress: Progress) -> None:
        """Until all is written."""
        mover, served, idle = self.mover, 0, 0
        shape = masks.make_shape(mover.tables)
        kernel: Any = move
        dram_ticks, unit_ticks = mover.timebase.ticks[:2]
        total = len(self.lanes.place)
        while not kernel(
            mover.policy,
            shape,
            self.work,
            self.lanes,
            self.fabric,
            self.packets,
            self.node_of,
            unit_ticks,
            dram_ticks,
            _WINDOWS,
        ):
            if self.work.step[0]:
                commands = self.lanes.commands
                self.lanes = self.lanes._replace(
                    commands=np.concatenate((commands, np.zeros_like(commands)), axis=1)
                )
            before, served = served, int(self.lanes.state[:, state.SERVED].sum())
            idle = 0 if served > before or self.work.step[0] else idle + 1
            if idle > _PATIENCE:
                raise RuntimeError("a relayout cannot go on: bursts wait for something that never comes")
            progress(served / total)

    def outcome(self) -> Run:
        """What happened."""
        mover, lanes, pieces = self.mover, self.lanes, self.pieces
        linked = np.diff(self.fabric.path_first) > 0
        writing = np.bincount(self.work.writes.lane, minlength=len(lanes.admitted))
        last = lanes.state[:, state.COUNTED_UNTIL][writing > 0].max()
        is_read = lanes.item >= 0
        read_tick = np.zeros(len(self.read_node), dtype=np.int64)
        read_tick[lanes.item[is_read]] = -lanes.done[is_read]
        written = np.zeros(len(self.write_node), dtype=bool)
        written[-1 - lanes.item[~is_read]] = True
        arrived = self.packets.arrived[self.packet] < FAR
        bits = Bits(
            int(pieces.bits[read_tick[pieces.read] > 0].sum()),
            int(pieces.bits[arrived & linked[pieces.flow]].sum()),
            int(pieces.bits[arrived & ~linked[pieces.flow]].sum()),
            int(pieces.bits[written[pieces.write]].sum()),
        )
        if not self.bits == bits.read == bits.sent + bits.kept == bits.written:
            raise RuntimeError(f"{self.bits} bits were to move, but of these {bits}")
        end = int(last) + mover.write_latency
        return Run(
            end=end,
            bits=bits,
            wire_bytes=int(self.size[linked[self.packets.flow]].sum()),
            read_node=self.read_node,
            read_tick=read_tick,
            write_node=self.write_node,
            write_tick=self.work.write_from,
            reads=np.bincount(self.work.reads.lane, minlength=len(lanes.admitted)),
            writes=writing,
            busy=self.packets.busy,
            most_waiting=most_waiting(mover.network, self.fabric, self.packets),
            issued=np.sum([masks.issued_commands(of_lane) for of_lane in lanes.state], axis=0),
            open_clocks=int(lanes.state[:, state.OPEN_CLOCKS].sum())
            + end * sum(masks.open_banks(of_lane) for of_lane in lanes.state),
            traces=tuple(
                decode_commands(state.Commands(entry, length), mover.tables)
                for entry, length in zip(lanes.commands, lanes.recorded, strict=True)
            )
            if lanes.commands.size
            else (),
        )


def run_moving(mover: Mover, moving: Sequence[Moving], record: bool, progress: Progress) -> Run:
    """Move experts at the same time, from rest.

    Raises:
        InputError: the mover's buffer or packets are too small.
    """
    job = _Job(mover, moving, record)
    job.run(progress)
    return job.outcome()
