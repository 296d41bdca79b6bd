"""The number of blocks in an engine's KV cache, and of experts in the GPU's memory beside it.

A block has `block_tokens` tokens of every layer with keys and values, including layers with a window. States
of linear attention are stored for the maximum number of sequences of a step. In the GPU's memory:

- If all experts have room, the KV cache gets the remaining memory, as in vLLM.
- Otherwise, it gets the memory for the longest requests, up to the maximum number of sequences of a step, so
  that none is preempted; experts get the rest. "auto" puts the cache into the host's memory if the requests
  need more memory.

With "auto", both share their memory while the engine runs (`ndpsim.inference.serving.kv`), unless
the number of blocks or of experts is given, or the policy is not a `GivesRoom`. Room for the longest request
is always kept free of experts, so that it can be served; at first, experts have all other memory. The number
of blocks is the above, or if that is less, the number that the longest requests need or that have room
without experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import ServeSettings
from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.layers.weights import RunWeights
from ndpsim.inference.processors import GpuMemory, Processors
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.dense import attention_of
from ndpsim.inference.processors.memory import Cache, memory_with_cache
from ndpsim.inference.processors.operations import Step
from ndpsim.inference.serving.kv import SharedRoom, SharedSizes
from ndpsim.workload.models import MoeShape
from ndpsim.workload.requests import Requests

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KvRoom:
    """The blocks of a KV cache, and the initial contents of the GPU's memory.

    Attributes:
        state_bytes: bytes of a sequence's states of linear attention.
        shared: memory that blocks share with experts; None: it is not shared.
    """

    blocks: int
    block_tokens: int
    block_bytes: int
    state_bytes: int
    memory: GpuMemory
    shared: SharedSizes | None = None

    def shared_with(self, residents: Residents) -> SharedRoom | None:
        """The shared memory during a run; None if it is not shared."""
        return None if self.shared is None else SharedRoom(self.shared, self.blocks, residents)

    def kept_bytes(self, blocks: Sequence[int]) -> int:
        """Bytes of sequences, from the number of blocks of each."""
        return sum(blocks) * self.block_bytes + len(blocks) * self.state_bytes


def kv_room(
    settings: ServeSettings,
    processors: Processors,
    whole: MoeShape,
    shape: MoeShape,
    weights: RunWeights,
    requests: Requests,
    gives_room: bool | None,
    gpus: int = 1,
    devices: AttentionDevices | None = None,
) -> KvRoom:
    """The memory of requests.

    Args:
        whole: the model, of which the host has all of the cache.
        shape: the model, or a GPU's part of it.
        gives_room: whether the policy is a `GivesRoom`; None: there is no policy.
        gpus: the number of GPUs that share the experts.
        devices: those that have the cache in their banks, and compute attention there.

    Raises:
        InputError: a request or something else does not fit.
    """
    most, asked = settings.max_batch, settings.kv_blocks
    tokens = requests.prompt_tokens + requests.output_tokens
    _check_context(requests, tokens, shape)
    lengths = -(-tokens // settings.block_tokens)
    if devices is not None:
        return _room_in_banks(settings, processors, shape, weights, requests, lengths, devices)
    needed = int(np.sort(lengths)[-most:].sum())
    of_layers = _block_bytes(shape, settings)
    block = _block_size(of_layers)

    def memory(kv: str, blocks: int) -> GpuMemory:
        each = -(-settings.max_tokens // most)
        size = _cache_bytes(shape, settings, blocks)
        held = Cache(size, blocks * max(of_layers), kv, f"a KV cache of {blocks:,} blocks")
        step = Step(most, each, each)
        found = memory_with_cache(processors.gpu, shape, step, held, weights.expert, weights.dense)
        on_host = _cache_bytes(whole, settings, blocks) if found.kv == "host" else 0
        return replace(found, host_kv_bytes=on_host)

    kv = "gpu" if gives_room is None else settings.kv
    blocks = needed if asked is None else asked
    shares = kv == "auto" and asked is None and settings.gpu_experts is None and bool(gives_room)
    shared: SharedSizes | None = None
    at_first = blocks
    if kv != "host":
        bare = memory("gpu", 0)
        all_experts = shape.moe_layers * -(-shape.routed_experts // gpus)
        experts, all_fit = _expert_bytes(
            shape, bare, settings.gpu_experts, all_experts, int(lengths.max()) * block
        )
        left = max(bare.experts_bytes - experts, 0) // block
        if kv == "auto":
            kv = "gpu" if all_fit or blocks <= left else "host"
        if kv == "gpu" and asked is None:
            blocks = left if all_fit else min(needed, left)
        at_first = blocks
        if kv == "gpu" and shares:
            shared = SharedSizes(bare.experts_bytes, block, bare.expert_bytes)
            at_first = blocks if all_fit else int(lengths.max())
            blocks = max(blocks, min(needed, bare.experts_bytes // block))
    _check_lengths(requests, lengths, blocks, settings.block_tokens)
    return KvRoom(blocks, settings.block_tokens, block, _state_bytes(shape, 1), memory(kv, at_first), shared)


def _room_in_banks(
    settings: ServeSettings,
    processors: Processors,
    shape: MoeShape,
    weights: RunWeights,
    requests: Requests,
    lengths: Ints,
    devices: AttentionDevices,
) -> KvRoom:
    """The room of devices with units in their banks; the GPU's memory has the states of linear attention.

    Raises:
        InputError: a request or something else does not fit.
    """
    most, states = settings.max_batch, _state_bytes(shape, settings.max_batch)
    block = max(devices.block_bytes(settings.block_tokens), 1)
    blocks = devices.blocks(min(most, len(requests)), settings.block_tokens)
    if settings.kv_blocks is not None and settings.kv_blocks > blocks:
        problem = f"{settings.kv_blocks} are more than the {blocks:,} that the devices have room for"
        raise InputError(problem, "too-large", key="kv_blocks")
    if settings.kv_blocks is not None:
        blocks = settings.kv_blocks
    elif processors.hardware.experts_in_banks:  # experts have the rest
        blocks = min(blocks, int(np.sort(lengths)[-most:].sum()))
    alone = devices.blocks(1, settings.block_tokens)  # a sequence may have few parts
    _check_lengths(requests, lengths, min(blocks, alone), settings.block_tokens)
    devices.check_lengths(int((requests.prompt_tokens + requests.output_tokens).max()))
    each = -(-settings.max_tokens // most)
    held = Cache(states, 0, "ndp", f"the states of {most} sequences")
    memory = memory_with_cache(
        processors.gpu, shape, Step(most, each, each), held, weights.expert, weights.dense
    )
    return KvRoom(blocks, settings.block_tokens, block, _state_bytes(shape, 1), memory)


def _block_bytes(shape: MoeShape, settings: ServeSettings) -> list[int]:
    """Bytes of a block in each layer."""
    kinds = attention_of(shape)
    return [
        -(-settings.block_tokens * kinds[kind].cached_values * settings.kv_bits // 8)
        for kind in shape.kind_of_layer
    ]


def _block_size(of_layers: Sequence[int]) -> int:
    """Bytes of a block in all layers; 1 where no layer has keys and values."""
    return max(sum(of_layers), 1)


def _cache_bytes(shape: MoeShape, settings: ServeSettings, blocks: int) -> int:
    """Bytes of so many blocks, and of what the sequences of a step have at any length."""
    size = blocks * _block_size(_block_bytes(shape, settings))
    return size + _state_bytes(shape, settings.max_batch)


def _state_bytes(shape: MoeShape, sequences: int) -> int:
    """Bytes of what sequences have at any length: states of linear attention, windows of compressed one."""
    kinds = zip(attention_of(shape), shape.layers_of_kind, strict=True)
    return -(-sequences * sum(layers * kind.fixed_bits(16) for kind, layers in kinds) // 8)


def _expert_bytes(
    shape: MoeShape, bare: GpuMemory, gpu_experts: int | None, experts: int, least_cache: int
) -> tuple[int, bool]:
    """Bytes of experts in the GPU's memory, and whether these are all experts."""
    if gpu_experts is None:
        all_fit = bare.experts_bytes - experts * bare.expert_bytes >= least_cache
        return experts * bare.expert_bytes if all_fit else 0, all_fit
    asked = shape.moe_layers * whole_number(gpu_experts, "gpu_experts", 0, shape.routed_experts)
    return asked * bare.expert_bytes, asked == experts


def _check_context(requests: Requests, tokens: Ints, shape: MoeShape) -> None:
    """Check that no request is longer than the model's context, which is `max_model_len` in vLLM."""
    longest = int(np.argmax(tokens))
    if shape.context is not None and tokens[longest] > shape.context:
        problem = (
            f"request '{requests.ids[longest]}' has {tokens[longest]:,} tokens; "
            f"the context of {shape.name} is {shape.context:,}"
        )
        raise InputError(problem, "too-large", key="requests")


def _check_lengths(requests: Requests, lengths: Ints, blocks: int, block_tokens: int) -> None:
    """Check that each request has room when it is alone."""
    longest = int(np.argmax(lengths))
    if lengths[longest] > blocks:
        tokens = int(requests.prompt_tokens[longest] + requests.output_tokens[longest])
        problem = (
            f"request '{requests.ids[longest]}' has {tokens:,} tokens, which are {lengths[longest]:,} blocks "
            f"of the KV cache; it has {blocks:,} blocks of {block_tokens} tokens"
        )
        raise InputError(problem, "too-large", key="requests")
