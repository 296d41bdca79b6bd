"""A controller that gets later requests only after a pause issues the commands of a run without a pause."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dram import controller, sink, state
from ndpsim.dram.engines import FastController, ScanController
from ndpsim.dram.spec import lower, resolve
from ndpsim.simulate.lane import command_room

DEVICES = {
    ranks: resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=ranks, overrides={"nREFI": 3000})
    for ranks in (1, 3)
}


def requests(device, seed, count):
    """Reads and writes, some to the same burst, in order of their cycles."""
    rng = np.random.default_rng(seed)
    rank, group, bank = (rng.integers(n, size=count) for n in (device.ranks, device.bankgroups, 2))
    row, column, write = rng.integers(3, size=count), rng.integers(8, size=count), rng.integers(2, size=count)
    address = np.ravel_multi_index(
        (rank, group, bank, row, column), (device.ranks, device.bankgroups, 2, 3, 8)
    )
    cycle = np.sort(rng.integers(0, 12 * count, size=count))
    return rank, group, bank, row, column, write, address, cycle


def run(make, device, load, pauses):
    """All that happens; `pauses`: when the controller learns of the requests up to the next pause."""
    tables = lower(device)
    channel = make(tables, state.make_policy(state.ControllerOptions(write_buffer=8)))
    source = state.make_source(load[:7], *load[7:])
    count, cycle = len(source.place), source.cycle
    data = sink.make_sink(64, 1, 5, 12, sink.a_group_each(count))
    commands = command_room()
    for pause in [*pauses, state.FAR]:
        source.admitted[0] = np.searchsorted(cycle, pause)
        channel.value[state.PAUSE] = pause
        outcome = channel.run(source, data, commands, count, state.FAR)
        assert outcome in (controller.DONE, controller.PAUSED)
    recorded = commands.entry[: commands.length[0]].tolist()
    return (
        channel.value.tolist(),
        channel.issued.tolist(),
        channel.latencies.tolist(),
        data.done.tolist(),
        recorded,
    )


@pytest.mark.parametrize("make", [ScanController, FastController])
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(DEVICES)), st.integers(0, 10**6), st.lists(st.integers(1, 6000), max_size=60))
def test_pauses_change_nothing(make, ranks, seed, pauses):
    load = requests(DEVICES[ranks], seed, 400)
    assert run(make, DEVICES[ranks], load, sorted(pauses)) == run(make, DEVICES[ranks], load, [])
