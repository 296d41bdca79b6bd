"""Links between DIMMs: times by hand, conservation, networks, and requests that relayout units offer."""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from builders.packets_alone import simulate_packets
from mistakes import refused
from ndpsim.base.jit import by_reference, kernel
from ndpsim.config import load_hardware
from ndpsim.dimm.link import Bridge, PcieLink, Pipe, link_ticks, make_network, ports_needed
from ndpsim.dimm.link.offers import (
    Offers,
    enqueue_offered,
    is_due,
    make_offers,
    next_change,
    next_offer,
    record_issued,
    record_taken,
)
from oracles.sending import step_packets

HOST = Bridge(group_dimms=2, channels=2, gbps=4, latency_ns=5)


def network(topology, dimms, gbps=1, latency_ns=2, bridge=HOST):
    return make_network(topology, dimms, 1023, gbps, latency_ns, bridge if topology == "groups" else None)


def send(net, packets):
    """Simulate packets (source, target, size, ready in ns); times in ns."""
    ticks = link_ticks(net, Fraction(1000))
    source, target, size, ready = np.array(packets, dtype=np.int64).T
    done = simulate_packets(net, source, target, size, ready * ticks.ticks[0], ticks)
    return done, [tick / ticks.ticks[0] for tick in done.arrived.tolist()]


def test_one_packet_takes_its_bytes_and_a_latency_at_every_hop():
    # 10 B at 1 GB/s are 10 ns, and 2 ns: 12 ns a hop; ready at 3 ns.
    for target, hops in ((0, 0), (1, 1), (2, 2), (4, 4), (7, 1)):
        assert send(network("ring", 8), [(0, target, 10, 3)])[1] == [3 + 12 * hops]


def test_over_the_host_both_channels_and_its_latency_count():
    # DIMM 0 is on channel 0, DIMM 3 on channel 1: 10 B at 4 GB/s twice, and 5 ns in the host.
    assert send(network("groups", 4), [(0, 3, 10, 0)])[1] == [2.5 + 5 + 2.5]


def test_a_channel_carries_one_packet_at_a_time_in_whichever_direction():
    # Both use channels 0 and 1. Up: 0-2.5 ns on each channel, then 5 ns in the host, then down.
    assert send(network("groups", 4), [(0, 3, 10, 0), (3, 0, 10, 0)])[1] == [10, 10]
    # Of two from DIMM 0 the second waits 2.5 ns for the channel; they go down on channels of their own.
    assert send(network("groups", 4), [(0, 3, 10, 0), (0, 2, 10, 0)])[1] == [12.5, 10]
    # DIMMs 0 and 2 share channel 0, and it is taken upwards from 6 to 8.5 ns: what is in the host from 7.5 ns
    # on waits for it, and what goes up next is in the host at 13.5.
    assert send(network("groups", 4), [(0, 2, 10, 0), (2, 0, 10, 6)])[1] == [11, 16]


def test_a_bus_carries_one_packet_at_a_time_of_whichever_two_dimms():
    # 10 B at 1 GB/s are 10 ns, and 2 ns until the packet is there; the bus is free at once. DIMMs have their
    # turns one after the other, and so have the flows of a DIMM: 0 to 1, 1 to 2, 3 to 0, 0 to 2, 0 to 1.
    packets = [(0, 1, 10, 0), (0, 1, 10, 0), (0, 2, 10, 0), (1, 2, 10, 0), (3, 0, 10, 0)]
    net = network("bus", 4)
    done, arrived = send(net, packets)
    assert arrived == [12, 52, 42, 22, 32]
    assert (net.wire_names, done.busy.tolist()) == (("bus",), [50 * link_ticks(net, Fraction(1000)).ticks[0]])
    assert done.most_waiting.tolist() == [0, 0, 0, 0]  # none passes through a DIMM
    assert send(network("full", 4), packets)[1] == [12, 22, 12, 12, 12]
    # One that comes when the bus is busy waits for it; one that stays in its DIMM does not.
    assert send(net, [(2, 0, 10, 0), (1, 3, 5, 4), (3, 3, 5, 1)])[1] == [12, 17, 1]


def test_two_flows_that_cross_in_a_ring_share_the_common_wire_in_turn():
    # Ring of four, 10 B packets of 10 ns, 2 ns a hop. Flow A: 0 -> 2 (up, by 1), flow B: 1 -> 2.
    # On the wire 1 -> 2: B's first at 0-10. A's first is at 1 at 12, but B's second has begun at 10-20; then in
    # turn A 20-30, B 30-40, A 40-50.
    packets = [(0, 2, 10, 0), (0, 2, 10, 0), (1, 2, 10, 0), (1, 2, 10, 0), (1, 2, 10, 0)]
    done, arrived = send(network("ring", 4), packets)
    assert arrived == [32, 52, 12, 22, 42]
    ticks = link_ticks(network("ring", 4), Fraction(1000))
    assert (done.sent / ticks.ticks[0]).tolist() == [10, 20, 10, 20, 40]
    busy = dict(zip(network("ring", 4).wire_names, done.busy / ticks.ticks[0], strict=True))
    assert {name: ns for name, ns in busy.items() if ns} == {"dimm 0 to 1": 20, "dimm 1 to 2": 50}
    # A's first has a place at node 1 from 0 to 20, its second from 10 to 40.
    assert done.most_waiting.tolist() == [0, 20, 0, 0]


@pytest.mark.parametrize(
    ("topology", "dimms", "source", "target", "nodes"),
    [
        ("chain", 4, 3, 0, [2, 1, 0]),
        ("ring", 6, 0, 4, [5, 4]),
        ("ring", 6, 0, 3, [1, 2, 3]),
        ("ring", 6, 1, 4, [0, 5, 4]),
        ("mesh", 16, 0, 6, [1, 2, 6]),
        ("mesh", 16, 6, 0, [5, 4, 0]),
        ("mesh", 7, 0, 2, [1, 2]),
        ("full", 5, 4, 1, [1]),
        ("bus", 5, 4, 1, [1]),
        ("groups", 4, 0, 1, [1]),
        ("groups", 4, 0, 2, [4, 2]),
    ],
)
def test_routes(topology, dimms, source, target, nodes):
    net = network(topology, dimms)
    assert [net.hops[hop].target for hop in net.route(source, target)] == nodes


@pytest.mark.parametrize(
    ("topology", "dimms", "ports"),
    [
        ("chain", 2, 1),
        ("chain", 16, 2),
        ("ring", 2, 1),
        ("ring", 16, 2),
        ("mesh", 4, 2),
        ("mesh", 6, 3),
        ("mesh", 16, 4),
        ("full", 16, 15),
        ("chain", 1, 0),
        ("bus", 16, 1),
        ("bus", 1, 0),
    ],
)
def test_ports_needed(topology, dimms, ports):
    assert ports_needed(topology, dimms) == ports


def test_groups_need_the_ports_of_their_chains():
    assert [ports_needed("groups", 8, size) for size in (1, 2, 3, 8)] == [0, 1, 2, 2]


def test_too_few_ports_say_how_many_are_needed():
    with refused("range link.ports"):
        make_network("full", 16, 2, 25, 10)


def test_an_unknown_topology_is_named_with_the_nearest():
    with refused("unknown-name sets link.topology ? ring"):
        load_hardware("trimoe", ["link.topology=rings"])


def test_rates_with_too_many_digits_are_an_error():
    net = make_network("chain", 3, 2, 1.000000007, 10)
    with refused("too-large link"):
        send(net, [(0, 2, 1 << 20, 5 * 10**9)])


NETWORKS = st.builds(
    network,
    st.sampled_from(["chain", "ring", "mesh", "full", "bus", "groups"]),
    st.integers(2, 9),
    gbps=st.sampled_from([1, 0.5, 2]),
    latency_ns=st.sampled_from([0, 1, 3]),
)
PACKETS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(1, 6), st.integers(0, 10)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(NETWORKS, PACKETS)
def test_the_same_as_stepping_every_tick(net, packets):
    packets = [(a % net.dimms, b % net.dimms, size, ready) for a, b, size, ready in packets]
    ticks = link_ticks(net, Fraction(1000))
    columns = [list(column) for column in zip(*packets, strict=True)]
    columns[3] = [ready * ticks.ticks[0] for ready in columns[3]]
    done = simulate_packets(net, *(np.array(column, dtype=np.int64) for column in columns), ticks)
    sent, arrived, busy = step_packets(net, *columns, ticks)
    assert (done.sent.tolist(), done.arrived.tolist(), done.busy.tolist()) == (sent, arrived, busy)


@settings(max_examples=100, deadline=None)
@given(NETWORKS, PACKETS)
def test_nothing_is_lost_and_no_wire_beats_its_rate(net, packets):
    packets = [(a % net.dimms, b % net.dimms, size, ready) for a, b, size, ready in packets]
    done, arrived = send(net, packets)
    ticks = link_ticks(net, Fraction(1000))
    rates = {hop.wire: hop.gbps for hop in net.hops}
    carried = dict.fromkeys(rates, 0)
    order = {}
    for (source, target, size, ready), at in zip(packets, arrived, strict=True):
        hops = [net.hops[hop] for hop in net.route(source, target)]
        assert at >= ready + sum(size / hop.gbps + hop.latency_ns for hop in hops)
        for hop in hops:
            carried[hop.wire] += size
        if hops:
            assert order.get((source, target), -1) < at
            order[source, target] = at
    for wire, size in carried.items():
        assert done.busy[wire] / ticks.ticks[0] == size / rates[wire] <= max(arrived)


# ---- A point-to-point link: times by hand, order, conservation of time on the wire


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_one_message_takes_its_bytes_its_headers_and_the_latency():
    # 100 B in packets of 64 B are two packets, 116 B with headers of 8 B; at 2 GB/s 58 ns, then 10 ns.
    assert Pipe(2, 10, 64, 8).arrivals(ints(5000), ints(100)).tolist() == [5000 + 58_000 + 10_000]


def test_messages_queue_behind_one_another_and_the_wire_idles_when_none_is_ready():
    # 1 GB/s, no headers: 64 B take 64 ns. The third is ready after the wire has gone idle.
    arrivals = Pipe(1, 0, 64, 0).arrivals(ints(0, 10_000, 500_000), ints(64, 64, 128))
    assert arrivals.tolist() == [64_000, 128_000, 628_000]


def test_a_fraction_of_a_ps_is_rounded_up_once_not_per_message():
    # 3 GB/s: a byte takes 333 1/3 ps. Three of them take 1000 ps, not 3 x 334.
    assert Pipe(3, 0, 1, 0).arrivals(ints(0, 0, 0), ints(1, 1, 1)).tolist() == [334, 667, 1000]


def test_nothing_arrives_when_nothing_is_sent():
    assert Pipe(1, 0, 64, 0).arrivals(ints(), ints()).tolist() == []


MESSAGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 5000)), min_size=1, max_size=40)
PIPES = st.builds(
    Pipe,
    gbps=st.sampled_from([0.5, 1.6, 3, 25, 64]),
    latency_ns=st.sampled_from([0, 0.25, 100]),
    packet_bytes=st.sampled_from([1, 64, 256]),
    header_bytes=st.sampled_from([0, 8]),
)


def one_by_one(pipe, ready_ps, size_bytes):
    """The same a message at a time, in fractions."""
    free, arrivals = 0, []
    for ready, size in zip(ready_ps, size_bytes, strict=True):
        packets = -(-size // pipe.packet_bytes)
        free = max(free, ready) + (size + packets * pipe.header_bytes) * pipe.byte_ps
        arrivals.append(-(-(free + int(pipe.latency_ns * 1000)) // 1))
    return arrivals


@given(PIPES, MESSAGES)
def test_all_at_once_is_what_one_by_one_gives(pipe, messages):
    ready, size = (ints(*column) for column in zip(*messages, strict=True))
    assert pipe.arrivals(ready, size).tolist() == one_by_one(pipe, ready.tolist(), size.tolist())


@given(PIPES, MESSAGES)
def test_in_order_never_above_the_rate_and_faster_links_are_never_later(pipe, messages):
    ready, size = (ints(*column) for column in zip(*messages, strict=True))
    arrivals = pipe.arrivals(ready, size)
    assert np.all(np.diff(arrivals) > 0)
    assert arrivals[-1] >= ready.min() + pipe.busy_ps(size) + int(pipe.latency_ns * 1000)
    twice = Pipe(2 * pipe.gbps, pipe.latency_ns, pipe.packet_bytes, pipe.header_bytes)
    assert np.all(twice.arrivals(ready, size) <= arrivals)


def test_times_beyond_64_bits_are_an_error():
    with refused("too-large gbps"):
        Pipe(1.000000007, 0, 64, 0).arrivals(ints(10**12), ints(64))


def test_copies_of_two_engines_take_turns_packet_by_packet():
    # 1 GB/s, packets of 10 B without header. Two engines: A sends at 0-10, 20-30, 40-50; B at 10-20, 30-40;
    # C is taken up at 40, when B is done, and sends at 50-60. All arrive 5 ns later.
    done = PcieLink(1, 5, 10, 0, copy_engines=2).arrivals(ints(0, 0, 0), ints(30, 20, 10))
    assert done.tolist() == [55_000, 45_000, 65_000]


def test_one_engine_is_a_pipe():
    ready, size = ints(0, 700, 10_000_000), ints(1000, 256, 700)
    one = PcieLink(3, 10, 256, 24, copy_engines=1).arrivals(ready, size)
    assert one.tolist() == Pipe(3, 10, 256, 24).arrivals(ready, size).tolist()


def engine_by_engine(link, ready_ps, size_bytes):
    """The same in fractions, with a queue of packets for every engine."""
    waiting = deque(enumerate(zip(ready_ps, size_bytes, strict=True)))
    packets, since = [deque() for _ in range(link.copy_engines)], [0] * link.copy_engines
    done, free, last = [0] * len(ready_ps), Fraction(0), -1
    while waiting or any(packets):
        for engine, queue in enumerate(packets):
            if not queue and waiting:
                number, (ready, size) = waiting.popleft()
                queue.extend(
                    (number, min(link.packet_bytes, size - at)) for at in range(0, size, link.packet_bytes)
                )
                since[engine] = max(since[engine], ready)
        tick = max(free, min(since[engine] for engine, queue in enumerate(packets) if queue))
        order = [(last + 1 + n) % link.copy_engines for n in range(link.copy_engines)]
        last = next(engine for engine in order if packets[engine] and since[engine] <= tick)
        number, payload = packets[last].popleft()
        free = tick + (payload + link.header_bytes) * link.byte_ps
        if not packets[last]:
            since[last], done[number] = free, -(-(free + int(link.latency_ns * 1000)) // 1)
    return done


@given(
    st.builds(
        PcieLink,
        gbps=st.sampled_from([1, 3, 64]),
        latency_ns=st.sampled_from([0, 500]),
        copy_engines=st.integers(1, 4),
        packet_bytes=st.sampled_from([64, 256]),
        header_bytes=st.sampled_from([0, 24]),
    ),
    MESSAGES,
)
def test_copies_are_what_engine_by_engine_gives_and_the_link_never_idles_for_nothing(link, messages):
    ready, size = (ints(*column) for column in zip(*messages, strict=True))
    done = link.arrivals(ready, size)
    assert done.tolist() == engine_by_engine(link, ready.tolist(), size.tolist())
    if not ready.any():
        pipe = Pipe(link.gbps, link.latency_ns, link.packet_bytes, link.header_bytes)
        assert done.max() == pipe.arrivals(ready, size).max()


# ---- The requests that a relayout unit offers to a lane, against a plain implementation of the rules

LANES, CLOCKS, NEVER = 2, 160, 1 << 40
AHEAD = 8  # clocks for which the engine knows what it offers


@by_reference
class Handed(NamedTuple):
    """What a relayout's engine offers."""

    offered_requests: NDArray[np.int32]
    offered_count: NDArray[np.int64]
    offered_at: NDArray[np.int64]


class Events(NamedTuple):
    """What happens: by clock, and where it matters by lane.

    Attributes:
        number: of requests that the engine offers.
        read_room, write_room: whether the lane's queue has a slot.
        issued: reads that the lane may issue.
    """

    number: NDArray[np.int64]
    read_room: NDArray[np.bool_]
    write_room: NDArray[np.bool_]
    issued: NDArray[np.int64]


@kernel
def play(handed, offers, due, order, events, waiting, taken, was_due, at_every_clock):
    """Let lanes take what they are offered; writes `taken` and `was_due` by clock and lane.

    If not at every clock, a lane looks only when it is due, or when its rooms differ or a read has issued.
    """
    begin = 0
    for clock in range(taken.shape[0]):
        for lane in range(taken.shape[1]):
            rooms = events.read_room[clock, lane], events.write_room[clock, lane]
            others = events.read_room[clock - 1, lane], events.write_room[clock - 1, lane]
            looks = at_every_clock or due[lane] <= clock or rooms != others
            was_due[clock, lane] = is_due(handed, offers, lane, rooms[0], rooms[1], clock)
            if looks:
                request = next_offer(handed, offers, lane, rooms[0], rooms[1], clock)
                taken[clock, lane] = request
                if request >= 0:
                    record_taken(offers, lane, request)
                    if request < offers.reads:
                        waiting[lane] += 1
            issued = min(waiting[lane], events.issued[clock, lane])
            for _ in range(issued):
                record_issued(handed, offers, lane, clock)
                waiting[lane] -= 1
            if looks or issued > 0:
                due[lane] = next_change(handed, offers, lane, clock + 1)
                if is_due(handed, offers, lane, rooms[0], rooms[1], clock + 1):
                    due[lane] = clock + 1
                elif due[lane] == clock + 1:  # no request is known that will be offered
                    due[lane] = NEVER
        if clock % AHEAD == 0:
            for later in range(clock, clock + AHEAD):
                end = min(len(order), begin + events.number[later])
                for place in range(begin, end):
                    handed.offered_requests[handed.offered_count[0]] = order[place]
                    handed.offered_at[order[place]] = later
                    handed.offered_count[0] += 1
                begin = end
            enqueue_offered(handed, offers, due)


class Lane:
    """The rules as the docstring of `ndpsim.dimm.link.offers` has them, with plain lists."""

    def __init__(self, many_reads: int, reads: int, writes: int) -> None:
        self.many_reads, self.many_writes, self.early_writes = many_reads, 2 * many_reads, many_reads // 4
        self.reads_left, self.writes_left = reads, writes
        self.reads: list[tuple[int, int]] = []  # offered and not taken: the clock, and the request
        self.writes: list[tuple[int, int]] = []
        self.read_clocks: list[int] = []  # of all that were offered
        self.issued, self.mode = 0, "both"
        self.allowed: int | None = None  # writes in this mode; None: no read has issued in it

    def offer(self, clock: int, request: int, is_write: bool) -> None:
        (self.writes if is_write else self.reads).append((clock, request))
        if not is_write:
            self.read_clocks.append(clock)

    def next(self, clock: int, read_room: bool, write_room: bool) -> int:
        pending = sum(at < clock for at in self.read_clocks) - self.issued
        reads = [request for at, request in self.reads if at < clock]
        writes = [request for at, request in self.writes if at < clock]
        if self.mode == "drain" and (self.allowed == 0 or not writes):
            self.mode, self.allowed = ("hold" if pending else "both"), None
        if (
            self.mode != "drain"
            and len(writes) >= self.many_writes
            and self.reads_left > 2 * self.writes_left
        ):
            self.mode, self.allowed = "drain", self.many_writes
        if self.mode == "hold" and not pending:
            self.mode = "both"
        if self.mode == "both" and pending >= self.many_reads:
            self.mode, self.allowed = "hold", None
        if read_room and reads:
            del self.reads[0]
            return reads[0]
        if write_room and writes and (self.mode != "hold" or self.allowed):
            del self.writes[0]
            self.writes_left -= 1
            if self.allowed is not None:
                self.allowed -= 1
            return writes[0]
        return -1

    def issue(self) -> None:
        self.issued += 1
        self.reads_left -= 1
        if self.mode == "hold" and self.allowed is None:
            self.allowed = self.early_writes


def played(
    offers: Offers, order: NDArray[np.int32], events: Events, at_every_clock: bool
) -> tuple[list[list[int]], list[list[bool]]]:
    """What the lanes have taken, and whether they were due, by clock and lane."""
    handed = Handed(np.zeros(len(order), np.int32), np.zeros(1, np.int64), np.zeros(len(order), np.int64))
    taken, was_due = np.full((CLOCKS, LANES), -1, np.int64), np.zeros((CLOCKS, LANES), np.bool_)
    due, waiting = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    play(handed, offers, due, order, events, waiting, taken, was_due, at_every_clock)
    return taken.tolist(), was_due.tolist()


def expected(offers: Offers, order: NDArray[np.int32], events: Events) -> list[list[int]]:
    """The same as `played`, without whether they were due, by the plain rules."""
    of_lane = [np.flatnonzero(offers.lane == lane) for lane in range(LANES)]
    lanes = [
        Lane(offers.many_reads, int((own < offers.reads).sum()), int((own >= offers.reads).sum()))
        for own in of_lane
    ]
    taken, waiting, offered = [], [0] * LANES, iter(order.tolist())
    for clock in range(CLOCKS):
        row = []
        for number, lane in enumerate(lanes):
            request = lane.next(clock, events.read_room[clock, number], events.write_room[clock, number])
            row.append(request)
            waiting[number] += 0 <= request < offers.reads
            for _ in range(min(waiting[number], events.issued[clock, number])):
                lane.issue()
                waiting[number] -= 1
        taken.append(row)
        for _, request in zip(range(events.number[clock]), offered, strict=False):
            lanes[offers.lane[request]].offer(clock, request, request >= offers.reads)
    return taken


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), many_reads=st.sampled_from([1, 2, 4, 8]))
def test_a_lane_is_offered_what_the_rules_say_also_when_it_looks_only_when_it_is_due(seed, many_reads):
    random = np.random.default_rng(seed)
    reads, writes = random.integers(1, 200), random.integers(0, 80)
    lane = random.integers(0, LANES, reads + writes).astype(np.int32)
    order = random.permutation(reads + writes).astype(np.int32)
    read_room, write_room, issued, offered = random.uniform(0.1, 1, 4)
    events = Events(
        random.poisson(3 * offered**2, CLOCKS),
        *(
            (random.random((CLOCKS // 20, LANES)) < room).repeat(20, axis=0)
            for room in (read_room, write_room)
        ),
        random.poisson(2 * issued**3, (CLOCKS, LANES)),
    )

    def offers() -> Offers:
        return make_offers(lane, reads, LANES, many_reads)

    taken, was_due = played(offers(), order, events, True)
    assert taken == expected(offers(), order, events)
    for clock in range(CLOCKS):
        for one in range(LANES):
            assert was_due[clock][one] or taken[clock][one] < 0
    assert played(offers(), order, events, False)[0] == taken
