"""Simulates the prefill of a prompt and decode steps of one sequence, and splits the time into parts.

A program computes a prompt in chunks: each reads the experts of its tokens again. Chunks differ only in their
context, and the time of attention is linear in it. Therefore the first and the last whole chunk are
simulated, the chunks between them are interpolated, and the rest of the prompt is simulated. All layers of a
model without experts are computed by the GPU, or by the CPU if there is none.
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
from ndpsim.inference.processors.weights import dense_bits
from ndpsim.simulate.results import MoeResult
from ndpsim.workload.models import load_model
from ndpsim.workload.models.weights import weight_file

_STEPS = 8  # simulated decode steps: enough for a mean over the tokens' choices

#: Parts of the time of experts on the CPU, by their limit.
READING, COMPUTING = "experts on the CPU: reading weights", "experts on the CPU: computing"

_DENSE = "attention and dense parts"
_ALL_LAYERS = "all layers on the GPU"  # of a model without experts
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
    if not load_model(work.model).has_experts:
        return _decode_dense(hardware, work, context)
    result = _run(hardware, work, _STEPS, None, context, 0, parts)
    total = parts.of("decode", result.runs[0].decode_ns)
    of_step = {name: ns / _STEPS for name, ns in total.items()}
    return Decoded(result.runs[0].decode_ns / _STEPS, of_step, result.config, parts.host_bytes)


def prefill(
    hardware: Hardware, work: Workload, progress: Callable[[float], None]
) -> tuple[float, dict[str, float]]:
    """Time of the whole prompt in ns, and its parts."""
    dense = not load_model(work.model).has_experts
    chunk = min(work.chunk, work.prompt)
    whole, rest = divmod(work.prompt, chunk)
    total: dict[str, float] = defaultdict(float)
    asked = [(chunk, 0, 1.0)]
    if whole > 1:
        asked = [(chunk, 0, whole / 2), (chunk, (whole - 1) * chunk, whole / 2)]
    if rest:
        asked.append((rest, whole * chunk, 1.0))
    for number, (tokens, prefix, times) in enumerate(asked, 1):
        if dense:
            total[_ALL_LAYERS] += times * _dense_ns(hardware, work, prefix + tokens, tokens)
        else:
            parts = _Parts()
            result = _run(hardware, work, 1, tokens, prefix + tokens, prefix, parts)
            for name, ns in parts.of("prefill", result.runs[0].prefill_ns).items():
                total[name] += times * ns
        progress(number / len(asked))
    return sum(total.values()), total


def _decode_dense(hardware: Hardware, work: Workload, context: int) -> Decoded:
    """Decode of a model without experts, whose layers are all computed by one processor."""
    processors, shape = Processors(hardware), load_model(work.model)
    bits, kv_bits = dense_bits(weight_file(work.weights["weights"], shape)), work.weights["kv_bits"]
    memory = processors.gpu_memory(shape, 1, context, kv="gpu", kv_bits=kv_bits, dense_bits=bits)
    step_ns = _dense_ns(hardware, work, context, 1)
    config = {"hardware": hardware.to_dict(), "gpu_bytes": dict(memory.parts)}
    return Decoded(step_ns, {_ALL_LAYERS: step_ns}, config, 0)


def _dense_ns(hardware: Hardware, work: Workload, context: int, new_tokens: int) -> float:
    """Time of a step of a model without experts."""
    shape = load_model(work.model)
    bits, kv_bits = dense_bits(weight_file(work.weights["weights"], shape)), work.weights["kv_bits"]
    time = Processors(hardware).dense_time(shape, 1, context, new_tokens, kv_bits=kv_bits, bits=bits)
    return shape.layers * (time.attention_ns + time.dense_layer_ns) + time.head_ns


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
