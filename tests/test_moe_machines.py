"""Machines without NDP units, and with a memory device behind a CXL link; and what fits which.

Times on the device's link are worked out from its rate and its headers, those of its arrays come from single
simulations, with a link that takes no time.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import (
    CACHE,
    EXPERT_BYTES,
    MODEL,
    Everything,
    alone_on,
    moe,
    of_kind,
    recorded,
    trace_of,
)
from mistakes import mistake_of, refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.inference.layers.contention import shared_bandwidth
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.layers.placement import Places
from ndpsim.policies import Assignment, Placement, Policy
from ndpsim.policies.views import STRIPED, Machine
from ndpsim.workload.models import load_model

FREE_LINK = ["cxl.gbps=1000000", "cxl.latency_ns=0", "cxl.header_bytes=0"]
PAYLOAD_GBPS = 31.508 * 64 / (64 + 21)


# ---- A device behind a CXL link -----------------------------------------------------------------------------


class OnDevice(Everything):
    """Experts 0 and 1 where `engine` says, all others on the arrays."""

    name = "on-device"
    copied: tuple[int, ...] = ()

    def place(self, view: Any) -> Placement:
        placement = Policy.place(self, view)
        placement.dimm[:] = 0
        return placement

    def assign(self, view: Any) -> Assignment:
        active = np.flatnonzero(view.loads).tolist()
        on_gpu = [expert for expert in active if expert in self.copied]
        return Assignment(gpu=on_gpu, ndp=[expert for expert in active if expert not in on_gpu])


def one_layer(*copied: int, experts: list[int], **others: Any) -> Any:
    policy = type("OnDevice", (OnDevice,), {"copied": copied})
    run, (layer,), record = recorded(
        policy,
        hw="cxl",
        routing=trace_of(experts),
        batch=len(experts) // 2,
        steps=1,
        layers=[1],
        gpu_experts=0,
        **others,
    )
    return run, layer, record


def test_a_copy_is_bound_by_the_link_and_the_device_reads_it_faster() -> None:
    run, layer, record = one_layer(0, 1, experts=[0, 1])
    first, second = of_kind(layer, "copy")
    # Two copies at once share the wire, which is never idle: the latency of one is hidden by the other.
    assert first.alone_ns == pytest.approx(EXPERT_BYTES / PAYLOAD_GBPS + 100, rel=1e-6)
    assert max(first.end_ns, second.end_ns) - layer.start_ns == pytest.approx(
        2 * EXPERT_BYTES / PAYLOAD_GBPS, rel=1e-6
    )
    read = Costs(record.hardware, MODEL, cache=CACHE).host_read(None)
    units = ndpsim.simulate_expert("cxl", MODEL, sets=FREE_LINK, cache=CACHE, refresh_phases=200)
    over = units.over_refresh
    assert over is not None
    assert over.mean_energy_nj is not None
    # What it reads while no refresh comes, and those that come.
    held_ns = over.mean_ns - units.time_ns
    assert read.time_ns == pytest.approx(EXPERT_BYTES / units.bandwidth_gbps + held_ns, rel=0.005)
    assert PAYLOAD_GBPS < units.bandwidth_gbps < 512
    busy = {name: share * run.time_ns for name, share in run.utilization.items()}
    assert busy["memory"] == pytest.approx(2 * read.time_ns, rel=1e-6)
    assert set(run.utilization) == {"gpu", "cpu", "ndp 0", "pcie-down", "pcie-up", "memory"}
    for name in ("activate", "io", "read", "write"):
        assert run.energy_nj[name] == pytest.approx(2 * over.mean_energy_nj[name], rel=0.05)
    assert {name for name, nj in run.energy_nj.items() if nj is None} == {
        *("link", "gpu", "cpu", "pcie"),
        "ndp_static",  # of units that do nothing here, but are there
    }


def test_experts_on_the_device_take_their_simulated_times_and_activations_go_over_the_link_once() -> None:
    _, layer, _ = one_layer(experts=[0, 1, 0, 2])
    up, down = of_kind(layer, "activations")[0], of_kind(layer, "results")[0]
    times = {
        tokens: Costs(load_hardware("cxl"), MODEL, cache=CACHE).expert(tokens).time_ns for tokens in (1, 2)
    }
    unlinked = ndpsim.simulate_expert("cxl", MODEL, 2, sets=FREE_LINK, cache=CACHE, refresh_phases=200)
    assert unlinked.over_refresh is not None
    assert times[2] == pytest.approx(unlinked.over_refresh.mean_ns, rel=0.005)
    with_link = ndpsim.simulate_expert("cxl", MODEL, 2, cache=CACHE).time_ns
    assert times[2] < with_link
    experts = of_kind(layer, "expert", "ndp 0")
    assert [job.end_ns - job.start_ns for job in experts] == pytest.approx([times[2], times[1], times[1]])
    assert up.bytes == down.bytes == 2 * MODEL.hidden * 2
    for way in (up, down):
        assert way.end_ns - way.start_ns == pytest.approx(way.bytes / PAYLOAD_GBPS + 100, rel=1e-3)
    assert (up.start_ns, up.end_ns) == (layer.start_ns, experts[0].start_ns)
    assert down.start_ns == experts[-1].end_ns


def test_an_expert_beside_a_copy_loses_the_share_of_bandwidth_that_the_copy_takes() -> None:
    _, layer, record = one_layer(0, experts=[0, 5])
    (copy,), (expert,) = of_kind(layer, "copy"), of_kind(layer, "expert", "ndp 0")
    bandwidth = Costs(record.hardware, MODEL, cache=CACHE).host_read(None).gbps_per_channel
    assert copy.end_ns > expert.end_ns  # it was beside the expert all the time
    taken = EXPERT_BYTES / copy.alone_ns / bandwidth
    slower = expert.alone_ns / (expert.end_ns - expert.start_ns)
    assert slower == pytest.approx(1 - taken, rel=1e-3)
    assert 0.9 < slower < 1


def test_a_device_that_is_read_in_full_leaves_nothing() -> None:
    table = shared_bandwidth(400.0)
    for of_streams in table.ndp_speed:
        assert np.interp([0, 100, 400], table.host_gbps, of_streams[0]).tolist() == [1, 0.75, 0]
    assert (table.host_speed == 1).all()


def test_what_a_device_behind_a_link_has_not_is_refused() -> None:
    words = "unsupported check_layer"
    assert mistake_of(moe, "klotski", hw="cxl", check_layer=(0, 1)) == words
    sets = ["host.cpu_tflops=1", "host.cpu_compute_efficiency=0.5"]
    assert mistake_of(moe, "klotski", hw="cxl", sets=sets) == "conflict sets host.cpu_tflops"
    assert mistake_of(moe, "klotski", hw="cxl", arbitration="ndp-first") == ("conflict arbitration")
    assert mistake_of(moe, "klotski", hw="cxl", sets=["dimm.count=2"]) == ("unsupported sets dimm.count")
    with refused("conflict"):
        moe("enhanced-ktransformers", hw="cxl")


# ---- A host with memory of its own --------------------------------------------------------------------------


def on_edge(*copied: int, experts: list[int], **others: Any) -> Any:
    policy = type("OnDimms", (OnDevice,), {"copied": copied})
    return recorded(
        policy, hw="edge", routing=trace_of(experts), batch=1, steps=1, layers=[1], gpu_experts=0, **others
    )


def test_a_host_reads_experts_from_its_own_memory_and_no_unit_is_slowed_down() -> None:
    run, (layer,), _ = on_edge(0, experts=[0, 1])
    (copy,), (expert,) = of_kind(layer, "copy"), of_kind(layer, "expert", "ndp 0")
    assert copy.end_ns > expert.start_ns
    assert expert.end_ns - expert.start_ns == pytest.approx(expert.alone_ns, rel=1e-9)
    plain = load_hardware("edge").host_memory
    read = ndpsim.simulate_host_read(plain, MODEL, "striped", cache=CACHE)
    busy_ns = run.utilization["host memory"] * run.time_ns
    assert busy_ns == pytest.approx(read.time_ns, rel=1e-9)
    assert EXPERT_BYTES / read.time_ns < 2 * 5.6 * 8  # two channels of DDR5-5600
    assert not [name for name in run.utilization if name.startswith("channel")]


def test_without_memory_of_its_own_the_host_reads_the_dimms_that_compute() -> None:
    run, (layer,), _ = on_edge(0, experts=[0, 1], sets=["host.memory=null"])
    (expert,) = of_kind(layer, "expert", "ndp 0")
    assert expert.end_ns - expert.start_ns > 1.01 * expert.alone_ns
    assert {"channel 0", "channel 1"} < set(run.utilization)
    assert "host memory" not in run.utilization


def test_schedules_beside_a_memory_of_the_hosts_own_are_sound_by_the_audit(tmp_path: Any) -> None:
    for number, policy in enumerate(("edge", "monde", "fiddler")):
        log = tmp_path / f"{number}.jsonl"
        with writing_log(log) as write:
            moe(policy, hw="edge", prompt=8, kv="host", observer=write)
        report = check_schedule(log)
        assert report.ok, report


def test_a_layer_beside_reads_of_the_hosts_own_memory_is_checked_without_them() -> None:
    run = on_edge(0, experts=[0, 1], check_layer=(0, 1))[0]
    assert [end.name for end in run.check.ends] == ["dimm 0"]
    assert run.check.ok


def test_a_host_memory_that_is_too_small_or_of_no_dimms_is_refused() -> None:
    small = ["host.memory.dimms=2", "host.memory.ranks=1", "host.memory.org=DDR5_8Gb_x16"]
    with refused("too-large sets host.memory") as caught:
        moe("trimoe", hw="edge", model=load_model("qwen3-30b-a3b"), batch=1, sets=small)
    # 48 layers of 128 experts of 9,437,184 B; two DIMMs of four 16-bit devices of 1 GiB.
    assert re.findall(r"[\d.]+ GB", caught.value.problem) == ["57.98 GB", "8.59 GB"]
    for sets, problem in (
        ("host.memory.dimms=3", "range sets host.memory.dimms"),
        ("host.memory.timing=DDR5_1", "unknown-name sets host.memory.timing"),
    ):
        with refused(problem):
            load_hardware("edge", [sets])


# ---- Memory that does not compute ---------------------------------------------------------------------------


def test_an_expert_on_a_cpu_with_measured_times_takes_them() -> None:
    phi = load_model("phi-3.5-moe")
    _, (layer,), _ = recorded(
        alone_on("cpu"), hw="cache-7960x-4090", model=phi, batch=1, steps=1, layers=[1], gpu_experts=0,
        routing=trace_of([0, 1]),
    )  # fmt: skip
    experts = of_kind(layer, "expert", "cpu")
    # Table III, 24 threads: 3.36 ms for two; 0.11 ms there and back.
    assert experts[-1].end_ns - experts[0].start_ns == pytest.approx(3.36e6, rel=1e-6)
    assert layer.end_ns - layer.start_ns == pytest.approx(3.47e6, rel=1e-4)


# ---- What fits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fits"),
    # N.S. in figure 9 of the paper on edge: Mixtral and Phi with two DIMMs.
    [
        ("mixtral-8x7b", {4, 6}),
        ("phi-3.5-moe", {4, 6}),
        ("qwen3-30b-a3b", {2, 4, 6}),
        ("deepseek-moe-16b", {2, 4, 6}),
    ],
)
def test_edge_supports_what_its_paper_says(name: str, fits: set[int]) -> None:
    model = load_model(name)
    layers = tuple(layer for layer in range(model.layers) if layer not in model.dense_layers)
    shape = (len(layers), model.routed_experts)
    striped = Placement(
        np.full(shape, STRIPED, np.int16), np.ones(shape, np.int16), np.zeros(shape, np.bool_)
    )
    found = set()
    for count in (2, 4, 6):
        hardware = load_hardware("edge", [f"dimm.count={count}"])
        machine = Machine(model, layers, model.expert.weight_bytes(16), count, (0, 1) * (count // 2), 0, 2)
        try:
            Places(striped, machine, count, hardware.dimm_bytes, 0)
            found.add(count)
        except InputError as error:
            assert f"{name} does not fit: DIMM 0 needs " in str(error)
    assert found == fits
