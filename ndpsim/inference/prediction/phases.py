"""Simulates the prefill of a prompt and decode steps of one sequence, and splits the time into parts.

A program computes a prompt in chunks: each reads the experts of its tokens again. Chunks differ only in their
context, and the time of attention is linear in it. Therefore the first and the last whole chunk are
simulated, the chunks between them are interpolated, and the rest of the prompt is simulated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ndpsim.config import Hardware
from ndpsim.inference.layers.record import JobRecord, LayerRecord, RunRecord
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import Cpu, Processors
from ndpsim.simulate.results import MoeResult

_STEPS = 8  # simulated decode steps: enough for a mean over the tokens' choices

#: Parts of the time of experts on the CPU, by their limit.
READING, COMPUTING = "experts on the CPU: reading weights", "experts on the CPU: computing"

_DENSE = "attention and dense parts"
_PARTS = {
    ("gpu", "expert"): "experts on the GPU",
    ("gpu", "shared"): "shared experts",
    ("pcie-down", "copy"): "experts' copies to the GPU",
    ("pcie-up", "activations"): "activations over the link",
    ("pcie-down", "results"): "activations over the link",
    ("cpu", "hand-over"): "hand-over between GPU and CPU",
}


@dataclass(frozen=True)
class Workload:
    """The work: a model, its weights, a prompt, and a policy.

    `weights`: arguments of `run_moe` for the bits of weights. `chunk`: prompt tokens that are computed at
    once. `generated`: tokens after the prompt; a decoded token attends to the prompt and half of them.
    `attention`: of `run_moe`.
    """

    model: str
    policy: str
    prompt: int
    generated: int
    chunk: int
    weights: Mapping[str, Any]
    seed: int = 1
    attention: str = "gpu"


class _Parts:
    """Sums the parts of the critical path of each layer, by phase; `host_bytes`: bytes of experts."""

    def __init__(self) -> None:
        self.ns: dict[str, dict[str, float]] = {"prefill": defaultdict(float), "decode": defaultdict(float)}
        self.host_bytes = 0
        self._cpu: Cpu | None = None

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        self.host_bytes = int((~run.placement.resident).sum()) * run.machine.expert_bytes
        for place in layer.critical_path:
            job = layer.jobs[place]
            name = self._on_cpu(run, job) if (job.resource, job.kind) == ("cpu", "expert") else _part(job)
            self.ns[layer.phase][name] += job.end_ns - max(job.start_ns, layer.start_ns)

    def _on_cpu(self, run: RunRecord, job: JobRecord) -> str:
        """The part for an expert on the CPU, by its limit: computing, or reading weights."""
        if self._cpu is None:
            self._cpu = Processors(run.hardware).cpu
        if job.alone_ns > 1.001 * job.bytes / job.read_limit_gbps:  # held up by the channels
            return READING
        time = self._cpu.expert_time(run.machine.model.expert, job.tokens, run.machine.weights)
        return READING if time.bound == "memory" else COMPUTING

    def of(self, phase: str, time_ns: float) -> dict[str, float]:
        """The parts of a phase's time; time outside the layers' experts is attention and dense parts."""
        parts = dict(self.ns[phase])
        return parts | {_DENSE: time_ns - sum(parts.values())}


def _part(job: JobRecord) -> str:
    if job.resource.startswith("ndp"):
        return "experts on NDP units"
    return _PARTS.get((job.resource, job.kind), job.kind)


class Decoded(NamedTuple):
    """Time of a step in ns, its parts, the run's configuration, and bytes of experts in the host's memory."""

    step_ns: float
    parts_ns: dict[str, float]
    config: Mapping[str, Any]
    host_bytes: int


def decode(hardware: Hardware, work: Workload) -> Decoded:
    """Simulate decode steps after the prompt."""
    parts = _Parts()
    context = work.prompt + (work.generated + 1) // 2
    result = _run(hardware, work, _STEPS, None, context, 0, parts)
    total = parts.of("decode", result.runs[0].decode_ns)
    of_step = {name: ns / _STEPS for name, ns in total.items()}
    return Decoded(result.runs[0].decode_ns / _STEPS, of_step, result.config, parts.host_bytes)


def prefill(
    hardware: Hardware, work: Workload, progress: Callable[[float], None]
) -> tuple[float, dict[str, float]]:
    """Time of the whole prompt in ns, and its parts."""
    chunk = min(work.chunk, work.prompt)
    whole, rest = divmod(work.prompt, chunk)
    total: dict[str, float] = defaultdict(float)
    asked = [(chunk, 0, 1.0)]
    if whole > 1:
        asked = [(chunk, 0, whole / 2), (chunk, (whole - 1) * chunk, whole / 2)]
    if rest:
        asked.append((rest, whole * chunk, 1.0))
    for place, (tokens, prefix, times) in enumerate(asked):
        parts = _Parts()
        result = _run(hardware, work, 1, tokens, prefix + tokens, prefix, parts)
        for name, ns in parts.of("prefill", result.runs[0].prefill_ns).items():
            total[name] += times * ns
        progress((place + 1) / len(asked))
    return sum(total.values()), total


def _run(
    hardware: Hardware,
    work: Workload,
    steps: int,
    prompt: int | None,
    context: int,
    prefix: int,
    observer: _Parts,
) -> MoeResult:
    return run_moe(
        hardware,
        work.model,
        (work.policy,),
        batch=1,
        steps=steps,
        prompt=prompt,
        prefix=prefix,
        context=context,
        seed=work.seed,
        observer=observer,
        bounds=False,
        attention=work.attention,
        **work.weights,
    )
