"""Networks of links: routes, times by hand, conservation, and the same as stepping every tick."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.packets_alone import simulate_packets
from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.dimm.link import Bridge, link_ticks, make_network, ports_needed
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
