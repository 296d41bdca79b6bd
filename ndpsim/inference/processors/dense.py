"""Operations of the GPU other than routed experts, and their times.

Each is a list of operations. An operation on the GPU takes

    together(operations / (efficiency x peak), bytes / (memory_efficiency x bandwidth))
    + kernels x kernel_overhead

with together as in `ndpsim.inference.processors.gpu`. All operations have compute_efficiency and
kernel_overhead, but those of queries with keys and values. These have attention_efficiency, attention_power
and attention_overhead; their activations move at attention_memory_efficiency; and each exponential of a
softmax takes as long as softmax_operations: a kernel makes exponentials with other units than products, which
are up to 256 times as fast (H100, arXiv 2407.08608). A product of a matrix of r rows and c columns with n
tokens makes 2 r c n operations and moves r c weights, n c inputs and n r results.
Activations have 16 bits.

A step has `sequences` sequences of `new_tokens` tokens each. The last token attends to `context` tokens,
including itself. Decode has one new token; in a prefill all tokens of the context are new. In a step of a
serving engine (`MixedStep`) sequences differ in both numbers; its attention is one operation, or two if
kernels for one new token differ from kernels for more. `ndpsim.inference.processors.attention` has the
operations of attention; each kind of attention has its own time.

Between blocks there are two norms a layer, one in a layer of a single block, or what
`ndpsim.workload.models.residual` has.

Not modelled: biases, the gate of a shared expert, the embedding of a token (a copy of its row), the sinks of
an attention (a number for each head), rotations and norms of queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ndpsim.base.arguments import choice, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.reported import Reported
from ndpsim.inference.processors.attention import attention_operations
from ndpsim.inference.processors.banks import AttentionDevices, BankAttention
from ndpsim.inference.processors.gpu import Gpu
from ndpsim.inference.processors.operations import (
    ACTIVATION_BYTES,
    AnyStep,
    DenseBits,
    Operation,
    OperationTime,
    bits_of_part,
    network,
    norms,
    product,
)
from ndpsim.workload.models import Expert, LayerAttention, Matrix, MoeShape


@dataclass(frozen=True)
class AttentionTime:
    """The time of one layer's attention, for one kind of attention.

    Attributes:
        kind: its title.
        layers: number of layers with this kind.
        time_ns: its time on the GPU.
        kv_read_bytes, kv_write_bytes: bytes that such a layer reads from the KV cache, and adds to it.
        host_read_bytes, host_write_bytes: the part of these bytes that is in the host's memory.
        in_banks: the part that devices with units in their banks compute; None: there is none.
    """

    kind: str
    layers: int
    time_ns: float
    kv_read_bytes: int
    kv_write_bytes: int
    host_read_bytes: int
    host_write_bytes: int
    in_banks: BankAttention | None = None

    @property
    def whole_ns(self) -> float:
        """Its time with that of devices, to which the GPU's link takes none."""
        if self.in_banks is None:
            return self.time_ns
        return self.time_ns + max(self.in_banks.time_ns - self.in_banks.beside_ns, 0.0)


@dataclass(frozen=True, repr=False, eq=False)
class DenseTime(Reported):
    """The GPU's time for the dense parts: everything except routed experts.

    If layers have different attention, `attention_ns` and the bytes are means over the model's layers, and
    bytes are rounded; `attention` has the values of each kind.

    Attributes:
        attention_ns, router_ns, shared_ns, dense_layer_ns: time of one layer that has this part; 0 if no
            layer has it.
        head_ns: time of the vocabulary's head, once a step.
        kv: location of the KV cache, "gpu", "host" or "ndp".
        kv_read_bytes, kv_write_bytes: bytes that a layer reads from the KV cache, and adds to it.
        host_read_bytes, host_write_bytes: the part of these bytes that is in the host's memory. Their
            transfer over the host's channels and PCIe is not part of `attention_ns`.
        operations: all operations of one layer of each kind, with their times.
        attention: the times and bytes of each kind of attention.
        kind_of_layer: for each layer the index of its kind in `attention`.
    """

    attention_ns: float
    router_ns: float
    shared_ns: float
    dense_layer_ns: float
    head_ns: float
    kv: str
    kv_read_bytes: int
    kv_write_bytes: int
    host_read_bytes: int
    host_write_bytes: int
    operations: tuple[OperationTime, ...]
    attention: tuple[AttentionTime, ...]
    kind_of_layer: tuple[int, ...]

    def of_layer(self, layer: int) -> AttentionTime:
        """The attention of a layer, from 0.

        Raises:
            InputError: there is no such layer.
        """
        return self.attention[
            self.kind_of_layer[whole_number(layer, "layer", 0, len(self.kind_of_layer) - 1)]
        ]


def attention_of(model: MoeShape) -> tuple[LayerAttention, ...]:
    """The kinds of attention of a model's layers.

    Raises:
        InputError: its file lacks a key.
    """
    if not model.attention_kinds:
        missing = "has no sizes of attention: num_attention_heads and the keys beside it"
        raise InputError(model.attention_problem or f"{model.name} {missing}", "missing", key="model")
    return model.attention_kinds


def vocabulary_of(model: MoeShape) -> int:
    """The tokens of a model's vocabulary.

    Raises:
        InputError: its file does not give it.
    """
    if model.vocabulary is None:
        raise InputError(f"{model.name} has no vocab_size", "missing", key="model")
    return model.vocabulary


def operations(
    model: MoeShape, step: AnyStep, bits: DenseBits = 16, devices: AttentionDevices | None = None
) -> tuple[Operation, ...]:
    """Operations of the GPU in one layer of each kind, and once a step (part "head"); `bits`: of weights.

    devices: those that compute the attention of decoded tokens; None: the GPU does.

    Raises:
        InputError: the model's file lacks a value.
    """
    hidden, tokens = model.hidden, step.tokens
    done: list[Operation] = []
    for index, kind in enumerate(attention_of(model)):
        of_kind = [norms("attention", "norms", hidden, tokens, 1 if model.single_blocks else 2)]
        attending = step if devices is None else devices.on_gpu(index, step)
        of_kind += _between(model, "attention", tokens, bits_of_part(bits, "attention"))
        of_kind += attention_operations(kind, hidden, step, bits_of_part(bits, "attention"), attending)
        done += [one._replace(kind=index) for one in of_kind]
    if model.has_experts:
        router, of_router = Matrix("gate", model.choices, hidden), bits_of_part(bits, "router")
        done += _between(model, "experts", tokens, of_router)
        done.append(product("router", "gate_and_top_k", [router], tokens, of_router, kernels=2))
    if model.shared_intermediate:
        of_shared = bits_of_part(bits, "shared_experts")
        shared = Expert(hidden, model.shared_intermediate, model.gated_experts)
        done += network("shared_experts", shared.matrices(), tokens, of_shared)
    if model.dense_layers and model.dense_intermediate:
        of_layer = bits_of_part(bits, "dense_layers")
        done += _between(model, "dense", tokens, of_layer)
        dense = Expert(hidden, model.dense_intermediate)
        done += network("dense_layer", dense.matrices(), tokens, of_layer)
    head = Matrix("lm_head", vocabulary_of(model), hidden)
    done += _between(model, "end", step.sequences, bits_of_part(bits, "head"))
    done.append(norms("head", "norm", hidden, step.sequences, 1))
    done.append(product("head", "lm_head", [head], step.sequences, bits_of_part(bits, "head")))
    return tuple(done)


def timed(
    gpu: Gpu,
    model: MoeShape,
    step: AnyStep,
    kv: str,
    bits: DenseBits,
    devices: AttentionDevices | None = None,
) -> DenseTime:
    """Times of `operations` on `gpu`; the KV cache is in its memory or the host's (`kv`), or on `devices`.

    Raises:
        InputError: as `operations`, or `kv` is neither "gpu" nor "host".
    """
    if devices is None:
        kv = choice(kv, "kv", ("gpu", "host"), "place of the cache")
    done = tuple(_operation_time(gpu, one) for one in operations(model, step, bits, devices))
    layers = model.layers_of_kind

    def together(part: str, kind: int = 0) -> float:
        return sum((one.time_ns for one in done if one.part == part and one.kind == kind), 0.0)

    def of_kind(index: int, attention: LayerAttention) -> AttentionTime:
        read, written = step.read_bytes(attention), step.written_bytes(attention)
        host = (read, written) if kv == "host" else (0, 0)
        time_ns, in_banks = together("attention", index), None
        if devices is not None and devices.holds(index):
            times_ns = {
                one.name: one.time_ns for one in done if one.part == "attention" and one.kind == index
            }
            beside_ns = times_ns.get("attend", 0.0)
            after_ns = times_ns["o_proj"] + times_ns.get("output_gate", 0.0)
            in_banks = devices.attention(index, step, time_ns - beside_ns - after_ns, beside_ns)
        return AttentionTime(attention.title, layers[index], time_ns, read, written, *host, in_banks)

    attention = tuple(of_kind(index, kind) for index, kind in enumerate(attention_of(model)))

    def mean(of: Callable[[AttentionTime], float]) -> float:
        return _mean([of(one) for one in attention], layers)

    return DenseTime(
        attention_ns=mean(lambda one: one.whole_ns),
        router_ns=together("router"),
        shared_ns=together("shared_experts"),
        dense_layer_ns=together("dense_layer"),
        head_ns=together("head"),
        kv=kv,
        kv_read_bytes=round(mean(lambda one: one.kv_read_bytes)),
        kv_write_bytes=round(mean(lambda one: one.kv_write_bytes)),
        host_read_bytes=round(mean(lambda one: one.host_read_bytes)),
        host_write_bytes=round(mean(lambda one: one.host_write_bytes)),
        operations=done,
        attention=attention,
        kind_of_layer=model.kind_of_layer,
    )


def _mean(values: Sequence[float], layers: Sequence[int]) -> float:
    """The mean over layers, weighted by the number of layers of each kind; exact for a single kind."""
    first, total = values[0], sum(layers)
    return first + sum(count * (one - first) for one, count in zip(values, layers, strict=True)) / total


def _operation_time(gpu: Gpu, one: Operation) -> OperationTime:
    memory_ns, kernel_ns = gpu.read_ns(one.bytes), gpu.kernel_overhead_ns
    efficiency = power = None
    if one.attends:
        efficiency = min(gpu.attention_efficiency, gpu.compute_efficiency)
        kernel_ns = kernel_ns if gpu.attention_overhead_ns is None else gpu.attention_overhead_ns
    if one.exponentials:
        efficiency, power = gpu.attention_efficiency, gpu.attention_power
        if one.latent and gpu.latent_efficiency is not None:
            efficiency = gpu.latent_efficiency
        slower = gpu.memory_efficiency / (gpu.attention_memory_efficiency or gpu.memory_efficiency)
        memory_ns += (slower - 1) * gpu.read_ns(one.activation_bytes)
    operations = one.flops + gpu.softmax_operations * one.exponentials
    compute_ns = gpu.compute_ns(operations, efficiency)
    time_ns = gpu.together_ns(compute_ns, memory_ns, power) + one.kernels * kernel_ns
    bound = "compute" if compute_ns >= memory_ns else "memory"
    return OperationTime(one.part, one.name, time_ns, bound, one.flops, one.bytes, one.kind)


_PART_BEFORE = {"attention": "attention", "experts": "router", "dense": "dense_layer", "end": "head"}


def _between(model: MoeShape, block: str, tokens: int, bits: int | Fraction) -> list[Operation]:
    """What stands between blocks, before a kind of block in `Residual`, if the model has more than norms.

    With n streams: their sum with weights, n vectors read and one written; behind the block its result and n
    streams read and n written. Of these `norms` counts two. With one: a gate on the norm's result.
    """
    residual = model.residual
    matrices: tuple[Matrix, ...] = () if residual is None else getattr(residual, block)
    if residual is None or (not matrices and block != "end"):
        return []
    part, streams = _PART_BEFORE[block], residual.streams
    vectors, sums = (3, 1) if streams == 1 else (3 * streams, 4 * streams)
    if block == "end":
        vectors, sums = streams + 1, 2 * streams
    elif residual.mixed:
        sums += 2 * streams * streams
    moved = tokens * vectors * model.hidden * ACTIVATION_BYTES
    done = [product(part, f"residual.{matrix.name}", [matrix], tokens, bits) for matrix in matrices]
    if block == "end" and streams == 1:
        return done
    return [*done, Operation(part, "residual", tokens * sums * model.hidden, 0, moved, kernels=2)]
