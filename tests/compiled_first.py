"""The largest kernels, compiled before the tests that need them.

A process compiles a part that two kernels share once. So kernels that are alike are compiled one after the
other, each group by one worker of pytest-xdist, and all workers find them in the cache. Otherwise both workers
would compile many of them at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dimm.engines import FastDimms, ReadableDimms
from ndpsim.dram import sink, state
from ndpsim.dram.engines import FastController, ScanController
from ndpsim.dram.spec import lower, resolve
from ndpsim.simulate import Session, channel, simulate_relayout
from ndpsim.simulate.lane import command_room, run_channel
from ndpsim.workload.models import Expert

_SMALL = Expert(64, 64)
_CHANNEL = ["dimm.count=2", "host.channels=1", "dimm.ranks=2", "link.ports=2"]


def compile_arbiters() -> None:
    """Two DIMMs beside their host, with a relayout; the readable arbiter where tests need it."""
    _run_session(FastDimms)
    simulate_relayout("trimoe", _SMALL, sets=_CHANNEL, host=False)
    _run_session(ReadableDimms)
    _run_session(ReadableDimms, ["dram.row_policy=closed-cap"])


def compile_controllers() -> None:
    """Channels of every controller: rows open or not, short queues and long ones."""
    ddr5 = "DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2
    hbm3 = "HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps"
    for row_policy, slots in itertools.product(("open", "closed-cap"), (32, 65)):
        _run_channel(ddr5, row_policy, slots)
    for device in (
        ("LPDDR5", "LPDDR5_8Gb_x16", "LPDDR5_6400", 2),
        hbm3,
        ("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3"),
    ):
        _run_channel(device)


#: By worker.
GROUPS = compile_arbiters, compile_controllers


def _run_session(kind: Any, sets: Sequence[str] = ()) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "make_dimms", kind)
        session = Session("trimoe", sets=[*_CHANNEL, *sets])
    session.expert(_SMALL, 1, 0)
    session.host("random", gbps=6)
    session.relayout(_SMALL)
    session.run()


def _run_channel(named: tuple[Any, ...], row_policy: str = "open", slots: int = 32) -> None:
    device = resolve(*named)
    options = ControllerOptions(row_policy=row_policy, read_buffer=slots)
    tables, policy = (
        lower(device),
        state.make_policy(options, device.standard.controller, device.standard.choices),
    )
    number = np.arange(100)
    same, writes = np.zeros_like(number), number % 2
    for make in (FastController, ScanController):
        source = state.make_source((same, same, same, number // 4, same, writes, number))
        run_channel(make(tables, policy), source, sink.null_sink(), command_room(), len(number))
