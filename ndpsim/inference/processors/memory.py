"""The contents of the GPU's memory in bytes by name, and the number of experts that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ndpsim.base.arguments import choice, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.reported import Reported
from ndpsim.base.units import shortfall
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors.dense import attention_of, vocabulary_of
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.gpu import Gpu
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, DenseBits, Step, bits_of_part
from ndpsim.workload.models import Attention, MoeShape

_LOGIT_BYTES = 4


@dataclass(frozen=True, repr=False, eq=False)
class GpuMemory(Reported):
    """The contents of the GPU's memory.

    Attributes:
        memory_bytes: its capacity.
        parts: bytes by name: "reserved", the dense weights ("attention", "router", "shared_experts",
            "dense_layers", "embedding", "head"), "kv_cache", "kv_staging", "workspace" and "expert_buffers".
            If the KV cache is in the host's memory, "kv_cache" is 0, and "kv_staging" has room for the
            largest cache of a layer. With "ndp", "kv_cache" has the states of linear attention alone.
        experts_bytes: bytes left for resident experts.
        expert_bytes: size of an expert; 0 for a dense model.
        experts: number of experts that fit; 0 for a dense model.
        kv: location of the KV cache: "gpu", "host", or "ndp": devices with units in their banks.
        host_kv_bytes: its size in the host's memory.
    """

    memory_bytes: int
    parts: Mapping[str, int]
    experts_bytes: int
    expert_bytes: int
    experts: int
    kv: str
    host_kv_bytes: int


def dense_weight_bytes(model: MoeShape, bits: DenseBits = 16) -> dict[str, int]:
    """Bytes of all weights except routed experts, by name, over all layers; without norms and biases.

    Matrices of the residual count as attention.

    Raises:
        InputError: the model's file lacks values for attention or vocabulary.
    """
    table = vocabulary_of(model) * model.hidden
    of_layers = (
        layers * sum(matrix.rows * matrix.columns for matrix in kind.matrices(model.hidden))
        for kind, layers in zip(attention_of(model), model.layers_of_kind, strict=True)
    )
    between = 0 if model.residual is None else model.residual.weights(model.layers, model.moe_layers)
    matrices = 3 if model.gated_experts else 2
    weights = {
        "attention": sum(of_layers) + between,
        "router": model.moe_layers * model.choices * model.hidden,
        "shared_experts": model.moe_layers * matrices * model.hidden * model.shared_intermediate,
        "dense_layers": len(model.dense_layers) * 3 * model.hidden * model.dense_intermediate,
        "embedding": table,
        "head": 0 if model.tied_embeddings else table,
    }
    return {name: -(-count * bits_of_part(bits, name) // 8) for name, count in weights.items()}


def _workspace_bytes(model: MoeShape, step: Step) -> int:
    """Maximum bytes of a step's intermediate results.

    For every token: the residual and its norm, and the larger of two terms. One is queries, keys, values and
    the result of attention, in the layer with the most; the other the three vectors inside a feed-forward
    network. For every sequence: the logits, of 4 bytes each.
    """
    attending = max(kind.values_in_work for kind in attention_of(model))
    inside = 3 * max(model.expert_intermediate, model.shared_intermediate, model.dense_intermediate)
    of_token = (2 * model.hidden + max(attending, inside)) * ACTIVATION_BYTES
    return step.tokens * of_token + step.sequences * vocabulary_of(model) * _LOGIT_BYTES


def gpu_memory(
    gpu: Gpu, model: MoeShape, step: Step, kv: str, bits: int | ExpertFormat, dense_bits: DenseBits
) -> GpuMemory:
    """Contents of the memory of `gpu` for `model` in `step`; `kv`: location of the cache: gpu, host or auto.

    "auto" is the GPU if the cache fits its memory, and the host otherwise.

    Raises:
        InputError: not supported: something does not fit; or an argument is wrong.
    """
    kv = choice(kv, "kv", ("auto", "gpu", "host", "ndp"), "place of the cache")
    if not isinstance(dense_bits, Mapping):
        dense_bits = whole_number(dense_bits, "dense_bits", 1, 32)
    return memory_with_cache(gpu, model, step, cache_of(model, step, kv), bits, dense_bits)


@dataclass(frozen=True)
class Cache:
    """A KV cache: its bytes, the bytes of its largest layer, its location, and its contents in words."""

    bytes: int
    layer_bytes: int
    kv: str
    what: str


def cache_of(model: MoeShape, step: Step, kv: str) -> Cache:
    """The KV cache of a step at the location `kv`: without what devices have, with "ndp"."""
    of_layer = [
        0 if kv == "ndp" and isinstance(kind, Attention) else step.kept_bytes(kind)
        for kind in attention_of(model)
    ]
    cache = sum(layers * size for layers, size in zip(model.layers_of_kind, of_layer, strict=True))
    return Cache(cache, max(of_layer), kv, f"{step.sequences} sequences of {step.context} tokens")


def memory_with_cache(
    gpu: Gpu, model: MoeShape, step: Step, held: Cache, bits: int | ExpertFormat, dense_bits: DenseBits
) -> GpuMemory:
    """The contents with a given cache and a step's intermediate results.

    Raises:
        InputError: as `gpu_memory`.
    """
    kv, cache = held.kv, held.bytes
    expert = weight_bytes(model.expert, bits) if model.has_experts else 0
    others = {"reserved": gpu.reserved_bytes, **dense_weight_bytes(model, dense_bits)}
    work = {"workspace": _workspace_bytes(model, step), "expert_buffers": gpu.expert_buffers * expert}
    room = gpu.memory_bytes - sum(others.values()) - sum(work.values())
    if kv == "auto":
        kv = "gpu" if cache <= room else "host"
    in_gpu = 0 if kv == "host" else cache
    staged = held.layer_bytes if kv == "host" else 0
    parts = {**others, "kv_cache": in_gpu, "kv_staging": staged, **work}
    left = room - in_gpu - staged
    if left < 0:
        listed = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
        problem = (
            f"{model.name} with {held.what} does not fit: the GPU's memory "
            f"{shortfall(sum(parts.values()), gpu.memory_bytes)} ({listed} B)"
        )
        raise InputError(problem, "too-large", key="gpu.memory_gb")
    fit = left // expert if expert else 0
    return GpuMemory(gpu.memory_bytes, parts, left, expert, fit, kv, cache if kv == "host" else 0)
