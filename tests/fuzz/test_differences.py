"""The fast controller, the plain one and, where it is installed, Ramulator 2.1 with the same drawn work, for hours.

`test_controller` and `test_fast_forward` compare the first two with fewer examples. ``FUZZ_EXAMPLES=300 pytest -m long
tests/fuzz`` ends sooner.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from builders.one_channel import run_on
from fuzz.outcomes import COUNTED, examples
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram import state
from ndpsim.dram.engines import ScanController, compare_channels, make_controller
from ndpsim.dram.spec import lower, resolve, standards
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory
from ndpsim.studies import ramulator
from test_controller import workloads
from test_fast_forward import assert_fast_forwarded_stepped_and_scanned_agree, channels, works

_LONG = settings(max_examples=examples(5_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.long
@_LONG
@given(work=workloads())
def test_fast_and_plain(work):
    (fast, one), (slow, other) = (run_on(make, *work) for make in (make_controller, ScanController))
    COUNTED["equal"] += np.array_equal(one.columns(), other.columns()) and not compare_channels(fast, slow)
    assert np.array_equal(one.columns(), other.columns())
    assert compare_channels(fast, slow) == []


@pytest.mark.long
@_LONG
@given(st.data())
def test_fast_forward_and_plain(data):
    device, options = data.draw(channels([1, 2, 4]))
    work = data.draw(works(device))
    assert_fast_forwarded_stepped_and_scanned_agree(lower(device), state.make_policy(options), work, None)
    COUNTED["equal"] += 1


@st.composite
def _memories(draw: st.DrawFn) -> tuple[Requests, Memory]:
    """Random requests on any preset that Ramulator may have, with the options that both know."""
    page = standards()[draw(st.sampled_from(sorted(ramulator.STANDARDS)))].under("reference")
    names = draw(st.sampled_from(sorted(page.organisations))), draw(st.sampled_from(sorted(page.speeds)))
    options = ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        refresh=draw(st.sampled_from(["none", "all-bank", "staggered", "per-bank"])),
        refresh_control="reference",
    )
    try:
        device = resolve(page.name, *names, draw(st.sampled_from([1, 2, 4])), rules="reference")
        memory = Memory(device, options=options)
    except InputError:
        reject()
    rng, count = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.integers(1, 3000))
    most = draw(st.sampled_from([1 << 12, 1 << 20, device.capacity_bytes]))
    address = rng.integers(0, most // device.burst_bytes, count) * device.burst_bytes
    write = (rng.random(count) < draw(st.sampled_from([0.0, 0.3, 1.0]))).astype(np.int64)
    return Requests.of(address, write), memory


@pytest.mark.long
@pytest.mark.skipif(
    not ramulator.is_available(), reason="the Python package of Ramulator 2.1 is not installed"
)
@_LONG
@given(_memories())
def test_ours_and_ramulator(work: Any):
    try:
        found = ramulator.compare(*work)
    except InputError as error:
        assert error.code == "unsupported"
        COUNTED["not in both"] += 1
        return
    COUNTED["equal" if found.identical else "different"] += 1
    assert found.first_difference is None
