"""A small model on the default hardware, with policies for tests, and runs with their layers."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np

from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import Gpu
from ndpsim.policies import Assignment, Placement, Policy, policies
from ndpsim.policies.example import MODEL as EXAMPLE
from ndpsim.simulate import simulate_expert
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.moe import MoeResult, PolicyRun
from ndpsim.workload.models import Attention
from ndpsim.workload.routing import Routing

MODEL = replace(
    EXAMPLE,
    name="small",
    hidden=512,
    expert_intermediate=256,
    layers=4,
    moe_layers=3,
    dense_intermediate=512,
    routed_experts=16,
    experts_per_token=2,
    shared_intermediate=256,
    attention=Attention(heads=4, kv_heads=4, head_size=64, value_size=64),
    vocabulary=1000,
)
# 500 operations a ns for products, 250 for attention, 50 B a ns.
GPU = Gpu(
    peak_tflops=1.0,
    compute_efficiency=0.5,
    tables=(),
    memory_gbps=100.0,
    memory_efficiency=0.5,
    attention_efficiency=0.25,
    expert_overhead_ns=40.0,
    kernel_overhead_ns=10.0,
    memory_bytes=100_000,
    reserved_bytes=1_000,
    expert_buffers=2,
)
EXPERT_BYTES = 3 * 512 * 256 * 2
CACHED_BYTES = 2 * 4 * 64 * 2  # of a token and layer: keys and values of 4 heads of 64 values
CACHE = ResultCache(disk_bytes=0)
GIVEN: dict[str, Any] = dict(model=MODEL, batch=32, steps=3, context=64, gpu_experts=2, cache=CACHE)


#: Tolerance of costs against `mean_ns`: a twentieth of the time of refreshes, here up to a fifth.
OFF = 0.01


def mean_ns(*args: Any, **options: Any) -> float:
    """The mean time of an expert on DIMMs over start times between two refreshes."""
    over = simulate_expert(*args, **options, refresh_phases=200, cache=CACHE).over_refresh
    assert over is not None
    return over.mean_ns


def once_each() -> list[str]:
    """All bundled policies, where those that rehearse improve nothing."""
    return [f"{name}:evaluations=0" if policy.rehearses else name for name, policy in policies().items()]


def moe(*asked: Any, **others: Any) -> MoeResult:
    return run_moe(policies=asked or ("trimoe",), **{**GIVEN, **others})


def recorded(policy: Any, **others: Any) -> tuple[PolicyRun, list[LayerRecord], RunRecord]:
    """A run and its layers."""
    layers: list[LayerRecord] = []
    runs: list[RunRecord] = []

    def observe(run: RunRecord, layer: LayerRecord) -> None:
        runs.append(run)
        layers.append(layer)

    return moe(policy, observer=observe, **others).runs[0], layers, runs[0]


class Everything(Policy):
    """Experts with an even number on the NDP unit of a DIMM, others in turn on GPU and CPU."""

    name = "everything"
    title = "all engines"

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        even = np.arange(0, 16, 2)
        placement.dimm[:, even] = even
        placement.resident[:, 1] = True
        return placement

    def assign(self, view: Any) -> Assignment:
        active = np.flatnonzero(view.loads).tolist()
        odd = [expert for expert in active if expert % 2]
        return Assignment(
            gpu=[expert for expert in odd if expert % 4 == 1],
            cpu=[expert for expert in odd if expert % 4 == 3],
            ndp=[expert for expert in active if expert % 2 == 0],
        )


def alone_on(engine: str) -> type[Policy]:
    """All experts on one engine; on NDP, expert e is on DIMM e."""

    class Alone(Everything):
        name = f"alone-{engine}"

        def place(self, view: Any) -> Placement:
            placement = Policy.place(self, view)
            if engine == "ndp":
                placement.dimm[:] = np.arange(16)
            return placement

        def assign(self, view: Any) -> Assignment:
            return Assignment(**{engine: np.flatnonzero(view.loads).tolist()})

    return Alone


def trace_of(experts: list[int], layers: tuple[int, ...] = (1,), steps: int = 1) -> Routing:
    """A trace in which every token chooses the next two of these experts, in turn."""
    pairs = (
        list(itertools.batched(experts, 2))
        if hasattr(itertools, "batched")
        else [tuple(experts[n : n + 2]) for n in range(0, len(experts), 2)]
    )
    ids = np.array(pairs, dtype=np.int16)
    return Routing(16, layers, np.broadcast_to(ids, (steps, len(layers), *ids.shape)).copy())


def of_kind(layer: LayerRecord, kind: str, resource: str = "") -> list[Any]:
    return [job for job in layer.jobs if job.kind == kind and job.resource.startswith(resource)]


def plain(result: MoeResult) -> dict[str, Any]:
    """A result without the duration of the call."""
    text = json.loads(json.dumps(result.to_dict()))
    for run in text["runs"]:
        del run["wall_s"], run["policy_wall_s"]
    return text
