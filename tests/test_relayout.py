"""The relayout engine: the same as stepping every clock, nothing lost, nothing faster than its slowest part."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dram import state
from ndpsim.layout import ExpertFormat, ExpertWeights, Geometry, make_layout
from ndpsim.link import Bridge, link_ticks, make_network
from ndpsim.link.plain_moving import PlainMove
from ndpsim.simulate.moving import Mover, Moving, _Job
from ndpsim.spec import lower, resolve

#: DDR4-3200: a clock of 625 ps. Links of 1.6 GB/s, or half of that, take a clock, or two, a byte.
DEVICE = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", overrides={"nREFI": 900, "nRFC": 120})
CLOCK_NS = 0.625
CLOCK_PS = Fraction(625)


@st.composite
def jobs(draw):
    dimms, lanes = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    geometry = Geometry(draw(st.integers(1, dimms)), dimms, lanes, 1, DEVICE)
    bits = draw(st.sampled_from([16, 3]))
    weights = ExpertWeights(
        draw(st.sampled_from([64, 96])), draw(st.sampled_from([8, 13])), ExpertFormat.of(bits)
    )
    names = ["localized", "striped", f"sharded:{draw(st.integers(2, dimms))}"]
    moving, base = [], 0
    for _ in range(draw(st.integers(1, 2))):
        pair = []
        for _ in range(2):
            name = draw(st.sampled_from(names))
            dimm = draw(st.integers(0, dimms - 1)) if name == "localized" else 0
            pair.append(make_layout(name, geometry, weights, dimm, base))
            base = pair[-1].end
        moving.append(Moving(*pair))
    bridge = Bridge(2, geometry.channels, 1.6, 5 * CLOCK_NS)
    topology = draw(st.sampled_from(["chain", "ring", "mesh", "full", "groups"]))
    latency = draw(st.sampled_from([0, 1, 7])) * CLOCK_NS
    network = make_network(topology, dimms, 9, draw(st.sampled_from([1.6, 0.8])), latency, bridge)
    mover = Mover(
        tables=lower(DEVICE),
        policy=state.make_policy(
            state.ControllerOptions(write_buffer=8, read_buffer=draw(st.sampled_from([4, 16])))
        ),
        burst_bytes=64,
        write_latency=DEVICE.timings["nCWL"] + DEVICE.timings["nBL"],
        lanes=lanes,
        network=network,
        slots=draw(st.sampled_from([4, 16, 64])),
        receive_bytes=draw(st.sampled_from([1024, 4096])),
        packet_bytes=draw(st.sampled_from([64, 128])),
        header_bytes=draw(st.sampled_from([0, 8])),
        timebase=link_ticks(network, CLOCK_PS, CLOCK_PS * draw(st.sampled_from([1, 2, 3]))),
        place=lambda places: (places.dimm, places.lane, np.zeros_like(places.lane)),
    )
    return mover, moving


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_the_same_as_stepping_every_clock(work):
    mover, moving = work
    job = _Job(mover, moving, record=True)
    ends = [divmod(int(pair), mover.network.dimms) for pair in job.pieces.ends]
    plain = PlainMove(
        mover.tables,
        mover.policy,
        mover.lanes * mover.network.dimms,
        mover.network,
        ends,
        job.work,
        job.packets.flow.tolist(),
        job.size.tolist(),
        mover.timebase,
    )
    plain.run()
    job.run(lambda share: None)
    run = job.outcome()
    assert job.packets.sent.tolist() == [plain.sent[packet] for packet in range(len(job.size))]
    assert job.packets.arrived.tolist() == [plain.arrived[packet] for packet in range(len(job.size))]
    for trace, channel in zip(run.traces, plain.channels, strict=True):
        columns = (
            trace.clock,
            trace.command,
            trace.rank,
            trace.bankgroup,
            trace.bank,
            trace.row,
            trace.column,
        )
        recorded = [*zip(*(column.tolist() for column in columns), strict=True)]
        # Beyond its last request a lane is not simulated; the plain one goes on to refresh.
        end = recorded[-1][0] if recorded else 0
        assert recorded == [entry for entry in channel.trace if entry[0] <= end]
