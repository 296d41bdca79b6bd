"""A relayout under way, as arrays: what is read, sent and written (`Work`), and by which lanes (`Lanes`).

Reads are bursts of source layouts, writes bursts of target layouts. A *piece* is what of a read goes into
a write; a *packet* holds pieces of one flow. A *node* is a relayout unit with its buffer. Times are ticks,
or DRAM clocks where the name says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import sink
from ndpsim.dram.masks.state import make_state
from ndpsim.dram.masks.transition_table import no_table
from ndpsim.dram.state import LATENCIES, RECORD_FIELDS
from ndpsim.link.fabric import FAR
from ndpsim.spec import Tables

__all__ = ["Lanes", "Requests", "Work", "first_of", "listed", "make_lanes", "make_work"]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

_DEPTH = 1024  # more reads than can be between their command and their data


class Requests(NamedTuple):
    """Bursts to be read or written, one array element each."""

    lane: Ints  # counted over all nodes
    place: Ints  # as `dram.state.pack_place` makes it
    column: Ints
    address: Ints  # equal for equal bursts of a lane only


class Lanes(NamedTuple):
    """The channels, and the requests that each was given, in order."""

    first: Ints  # [lane + 1]: where its requests begin in the arrays by request
    place: Ints  # [request]
    column: Narrow  # [request]
    address: Ints  # [request]
    cycle: Ints  # [request]: the clock before which it is not offered
    item: Narrow  # [request]: number of the read, or -1 - number of the write
    done: Ints  # [request]: of a read, the tick at which its data is in the unit's buffer, 0 before
    each: Narrow  # [request of a lane]: itself
    admitted: Ints  # [lane]: requests given to it
    noted: Ints  # [lane]: reads before this request are known to be done
    accepted: Ints  # [lane]: requests before this one are known to be taken
    state: Ints  # [lane, word]: see `dram.masks.state`
    latencies: Ints  # of the lanes together
    credit: Ints  # [lane, n], free [lane, 1], value [lane, n]: see `dram.sink.Sink`
    free: Ints
    value: Ints
    commands: Ints  # [lane, n, field]: recorded; n is 0 where nothing is
    recorded: Ints  # [lane, 1]
    known: Ints  # an empty transition table: timed requests are not fast-forwarded


class Work(NamedTuple):
    """Reads of a node are neighbours, in the order of reading; packets of a flow too, in order of sending."""

    reads: Requests
    writes: Requests
    node_read: Ints  # [node + 1]: its first read
    slots: Ints  # [node]: bursts its buffer holds between reading and sending
    admitted: Ints  # [node]: its reads before this one have a slot
    freed: Ints  # [node, n]: ticks at which slots become free, ascending
    freed_count: Ints  # [node]
    read_first: Ints  # [read + 1], packets of a read
    read_packet: Narrow
    packet_first: Ints  # [packet + 1], reads of a packet
    packet_read: Narrow
    write_first: Ints  # [packet + 1], writes of a packet
    packet_write: Narrow
    packets_left: Ints  # [read]: packets with pieces of it that have not been sent
    sent_until: Ints  # [read]: the tick by which those that have were
    reads_left: Ints  # [packet]: reads of it that are not done
    read_until: Ints  # [packet]: the tick by which those that are were
    gate: Ints  # [packet]: the tick from which its target has a place for it, FAR while that is not known
    pieces_left: Ints  # [write]: packets with pieces of it that have not arrived
    write_from: Ints  # [write]: the tick by which those that have were there
    holder: Narrow  # [write]: the packet that brought the last of them
    held: Ints  # [packet]: writes that have all pieces by it and were not taken by their lane
    flow_packet: Ints  # [flow + 1]: its first packet
    flow_window: Ints  # [flow]: packets its target has places for
    flow_return: Ints  # [flow]: ticks until its source knows of a place
    flow_hops: Ints  # [flow]: 0: within a node
    sent: Ints  # [flow]: the first packet not known to be sent
    arrived: Ints  # [flow]: the first packet not known to have arrived
    event_clock: Ints  # [n]: requests to be given to lanes: their clock,
    event_item: Ints  # [n]: as `Lanes.item`
    clock: Ints  # [1]: where the window under way begins
    step: Ints  # [1]: 1: it ended when a command trace was full, and its lanes have to go on


def first_of(owner: Ints, count: int) -> Ints:
    """Where each of `count` owners' members begin, and the last one's end; `owner` is sorted."""
    return np.append(0, np.cumsum(np.bincount(owner, minlength=count))).astype(np.int64)


def listed(owner: Ints, member: Ints, owners: int, members: int) -> tuple[Ints, Narrow]:
    """The different members of every owner, ascending: (where each owner's begin, the members)."""
    pairs = np.sort(owner * members + member, kind="stable")
    pairs = pairs[np.flatnonzero(np.diff(pairs, prepend=-1))]
    of, numbers = np.divmod(pairs, members)
    return first_of(of, owners), numbers.astype(np.int32)


def make_lanes(tables: Tables, reads: Requests, writes: Requests, lanes: int, room: int) -> Lanes:
    """Lanes at rest; `room`: commands that each can record, 0 for none."""
    count = np.bincount(reads.lane, minlength=lanes) + np.bincount(writes.lane, minlength=lanes)
    first = np.append(0, np.cumsum(count)).astype(np.int64)
    total, most = int(first[-1]), int(count.max())

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Lanes(
        first=first,
        place=zeros(total),
        column=np.zeros(total, dtype=np.int32),
        address=zeros(total),
        cycle=zeros(total),
        item=np.zeros(total, dtype=np.int32),
        done=zeros(total),
        each=np.arange(most, dtype=np.int32),
        admitted=zeros(lanes),
        noted=zeros(lanes),
        accepted=zeros(lanes),
        state=np.tile(make_state(tables), (lanes, 1)),
        latencies=zeros(LATENCIES),
        credit=zeros(lanes, _DEPTH),
        free=zeros(lanes, 1),
        value=zeros(lanes, len(sink.nobody().value)),
        commands=zeros(lanes, room, RECORD_FIELDS),
        recorded=zeros(lanes, 1),
        known=no_table(),
    )


def make_work(
    reads: Requests,
    writes: Requests,
    node_read: Ints,
    pieces: tuple[Ints, Ints, Ints],
    flow: Ints,
    windows: tuple[Ints, Ints, Ints],
    slots: int,
) -> Work:
    """A relayout before it begins.

    Args:
        reads, writes, node_read: see `Work`.
        pieces: of each, its packet, its read and its write.
        flow: of each packet, ascending.
        windows: of each flow `flow_window`, `flow_return` and `flow_hops`.
        slots: of every node.
    """
    packet, read, write = pieces
    flow_packet = first_of(flow, len(windows[0]))
    read_first, read_packet = listed(read, packet, len(reads.lane), len(flow))
    packet_first, packet_read = listed(packet, read, len(flow), len(reads.lane))
    write_first, packet_write = listed(packet, write, len(flow), len(writes.lane))
    in_flow = np.arange(len(flow)) - flow_packet[flow]
    brought = np.diff(write_first).max(initial=1)
    events = slots * (len(node_read) - 1) + int(windows[0].sum() * brought) + 1
    return Work(
        reads=reads,
        writes=writes,
        node_read=node_read,
        slots=np.full(len(node_read) - 1, slots),
        admitted=node_read[:-1].copy(),
        freed=np.zeros((len(node_read) - 1, slots), dtype=np.int64),  # all from the beginning
        freed_count=np.full(len(node_read) - 1, slots),
        read_first=read_first,
        read_packet=read_packet,
        packet_first=packet_first,
        packet_read=packet_read,
        write_first=write_first,
        packet_write=packet_write,
        packets_left=np.diff(read_first),
        sent_until=np.zeros(len(reads.lane), dtype=np.int64),
        reads_left=np.diff(packet_first),
        read_until=np.zeros(len(flow), dtype=np.int64),
        gate=np.where(in_flow < windows[0][flow], 0, FAR),
        pieces_left=np.bincount(packet_write, minlength=len(writes.lane)),
        write_from=np.zeros(len(writes.lane), dtype=np.int64),
        holder=np.zeros(len(writes.lane), dtype=np.int32),
        held=np.zeros(len(flow), dtype=np.int64),
        flow_packet=flow_packet,
        flow_window=windows[0],
        flow_return=windows[1],
        flow_hops=windows[2],
        sent=flow_packet[:-1].copy(),
        arrived=flow_packet[:-1].copy(),
        event_clock=np.zeros(events, dtype=np.int64),
        event_item=np.zeros(events, dtype=np.int64),
        clock=np.ones(1, dtype=np.int64),
        step=np.zeros(1, dtype=np.int64),
    )
