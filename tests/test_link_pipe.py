"""A point-to-point link: times by hand, order, conservation of time on the wire."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.dimm.link import Pcie, Pipe


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
    done = Pcie(1, 5, 10, 0, copy_engines=2).arrivals(ints(0, 0, 0), ints(30, 20, 10))
    assert done.tolist() == [55_000, 45_000, 65_000]


def test_one_engine_is_a_pipe():
    ready, size = ints(0, 700, 10_000_000), ints(1000, 256, 700)
    one = Pcie(3, 10, 256, 24, copy_engines=1).arrivals(ready, size)
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
        Pcie,
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
