"""Fast-forward through streams: the same as stepping through every read, in everything that is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dram import sink, state
from ndpsim.dram.engines import MaskController, ScanController
from ndpsim.simulate.lane import no_commands, run_channel
from ndpsim.spec import Device, lower, resolve

DEVICES = [
    ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_2400R"),
    ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_6400AN"),
]


def stream(device: Device, count: int, first: int, run: int) -> list[np.ndarray]:
    """Reads that rotate over the bank groups, `run` columns of a row, then the next bank, rank and row."""
    number = first + np.arange(count, dtype=np.int64)
    rest, bankgroup = np.divmod(number, device.bankgroups)
    rest, column = np.divmod(rest, run)
    rest, bank = np.divmod(rest, device.banks_per_group)
    row, rank = np.divmod(rest, device.ranks)
    return [rank, bankgroup, bank, row, column, np.zeros_like(number), number]


def outcome(make, device, options, places, period, servers, regions):
    """Everything that is counted when the regions are read one after the other."""
    tables, policy = lower(device), state.make_policy(options)
    source = state.make_source(tables, *places, period=period)
    data_sink = sink.nobody()
    if servers is not None:
        depth, count, ticks, row_bursts = servers
        last = np.arange(len(places[0]), dtype=np.int32)
        rows = sink.Rows(
            last // row_bursts,
            last // row_bursts,
            np.append(np.arange(row_bursts, len(last), row_bursts), len(last)).astype(np.int32) - 1,
        )
        data_sink = sink.make_sink(depth, count, *ticks, rows)
    channel = make(tables, policy)
    source.admitted[0] = 0
    for reads, release, service in regions:
        source.admitted[0] += reads
        if servers is not None:
            data_sink.value[sink.RELEASE], data_sink.value[sink.SERVICE] = release, service * ticks[1]
        run_channel(channel, source, data_sink, no_commands(), int(source.admitted[0]))
    counted = channel.value.tolist(), channel.issued.tolist(), channel.latencies.tolist()
    busy = [data_sink.value[place] for place in (sink.TAKEN, sink.LAST_START, sink.FINISHED, sink.BUSY)]
    return channel.skipped, (counted, data_sink.done.tolist(), busy)


@st.composite
def works(draw: st.DrawFn):
    device = resolve(
        *draw(st.sampled_from(DEVICES)),
        draw(st.sampled_from([1, 1, 2, 4])),
        draw(
            st.sampled_from([{}, {"nREFI": 3000}, {"nCCDL": 45}, {"nCCDS": 12, "nCCDL": 40, "nREFI": 2600}])
        ),
    )
    options = state.ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        refresh=draw(st.sampled_from(["none", "all-bank", "staggered"])),
        read_buffer=draw(st.sampled_from([1, 7, 16, 32])),
    )
    places = stream(device, 4000, draw(st.integers(0, 5000)), draw(st.sampled_from([16, 64, 128])))
    period = draw(st.sampled_from([1, 2, 3])) * device.bankgroups
    regions = [
        (2500, 0, draw(st.integers(1, 40))),
        (1500, draw(st.integers(0, 200_000)), draw(st.integers(1, 40))),
    ]
    servers = None
    if device.ranks == 1 and draw(st.booleans()):
        ticks = draw(st.sampled_from([(5, 12), (1, 1), (5, 4), (5, 8)]))
        servers = draw(st.integers(1, 40)), draw(st.integers(1, 9)), ticks, draw(st.sampled_from([1, 6, 17]))
    return device, options, places, period, servers, regions


@settings(max_examples=150, deadline=None)
@given(works())
def test_skipping_changes_nothing(work):
    device, options, places, _, servers, regions = work
    _, skipping = outcome(MaskController, *work)
    none, stepping = outcome(MaskController, device, options, places, 0, servers, regions)
    _, scanning = outcome(ScanController, device, options, places, 0, servers, regions)
    assert none == 0
    assert skipping == stepping == scanning


@pytest.mark.parametrize("ranks", [1, 4])
def test_most_of_a_long_stream_is_skipped(ranks):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks)
    places = stream(device, 50_000, 0, 64)
    skipped, _ = outcome(MaskController, device, state.ControllerOptions(), places, 8, None, [(50_000, 0, 0)])
    assert skipped > 40_000
