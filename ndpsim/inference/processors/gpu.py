"""The GPU: the time of an expert that is launched by itself, or in a fused call.

An expert of w weights in W bytes with t tokens, or n tokens rounded up to whole tiles, takes

    together(2 w n / (efficiency x peak), W / (memory efficiency x bandwidth)) + overhead

- launched by itself: compute_efficiency, memory_efficiency, and expert_overhead;
- in a fused call: fused_efficiency, fused_memory_efficiency, slice for each expert or slice of one, and the
  time in which the call's kernels write and read the activations of t tokens (`activation_bytes`);
  call_overhead is added once for the call.

Weights of 8 or 4 bits are multiplied as 16 bits, unless the GPU multiplies narrower numbers (fp8_tflops,
fp4_tflops).

together(c, m) is the longer of both. With a roofline_power p it is (c^p + m^p)^(1/p), which is between the
longer and the sum: reading and computing overlap partly, and least if both take equally long.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.inference.processors.devices import Processor
from ndpsim.workload.models import Expert


def activation_bytes(hidden: int, columns: int, matrices: int = 3) -> int:
    """Bytes that the kernels of a fused call write and read for one token of an expert, at 16 bits a value.

    Each kernel reads what the one before wrote: the token (hidden), the results of gate and up (2 x columns,
    written and read), their product (columns, written and read), the result of down (hidden, written), and
    its part in the sum over experts (hidden, read). With `matrices` of 2 there is no gate; 1 is one product.
    """
    between = {3: 6, 2: 4, 1: 1}[matrices]
    return 2 * ((3 if matrices > 1 else 1) * hidden + between * columns)


@dataclass(frozen=True)
class Gpu(Processor):
    """A GPU that computes from its own memory.

    Attributes:
        memory_gbps, memory_efficiency: peak of its memory, and the share that reads reach.
        attention_efficiency: share of the peak that queries with keys and values reach.
        latent_efficiency: the same of queries with cached latent vectors; None: as with keys and values.
        attention_memory_efficiency: share of the memory's peak at which attention reads its queries and
            writes its results; None: as other reads.
        attention_power: how attention combines computing and reading; None: as `roofline_power`.
        softmax_operations: operations that the peak makes in the time of one exponential.
        expert_overhead_ns: additional time of an expert.
        kernel_overhead_ns: additional time of a kernel of the dense parts.
        attention_overhead_ns: the same for queries with keys and values; None: as other kernels.
        memory_bytes, reserved_bytes: capacity, and the part that the model cannot use.
        expert_buffers: number of arriving experts with space in the memory.
        fused: whether one call computes all experts of a layer.
        fused_efficiency: share of the peak in a fused call; None: as other products.
        fused_memory_efficiency: the same of the memory; None: as other reads.
        fp8_tflops, fp4_tflops: peaks for numbers of 8 and 4 bits; None: they are multiplied as wider ones.
        fp8_efficiency, fp4_efficiency: shares of these peaks that experts reach; None: as with 16 bits.
        call_overhead_ns, slice_ns: additional time of a fused call, and of each expert in it.
        tile_tokens: tokens of an expert are rounded up to multiples of this number.
    """

    name = "gpu"

    memory_gbps: float
    memory_efficiency: float
    attention_efficiency: float
    expert_overhead_ns: float
    kernel_overhead_ns: float
    memory_bytes: int
    reserved_bytes: int
    expert_buffers: int
    fused: bool = False
    fused_efficiency: float | None = None
    call_overhead_ns: float = 0.0
    slice_ns: float = 0.0
    tile_tokens: int = 1
    attention_overhead_ns: float | None = None
    attention_memory_efficiency: float | None = None
    attention_power: float | None = None
    softmax_operations: float = 0.0
    latent_efficiency: float | None = None
    fused_memory_efficiency: float | None = None
    fp8_tflops: float | None = None
    fp8_efficiency: float | None = None
    fp4_tflops: float | None = None
    fp4_efficiency: float | None = None

    @property
    def call_ns(self) -> float:
        """Overhead of a call for experts, in ns; 0 if each expert is launched by itself."""
        return self.call_overhead_ns if self.fused else 0.0

    def read_ns(self, size: float) -> float:
        """The time of reading or writing this number of bytes of the GPU's memory."""
        return size / (self.memory_efficiency * self.memory_gbps)

    def _roofline(
        self, expert: Expert, tokens: int, size: int, bits: int
    ) -> tuple[float, float | None, float]:
        flops = 2.0 * expert.weights * -(-tokens // self.tile_tokens) * self.tile_tokens
        compute_ns = flops / self._reached_tflops(bits) / 1e3
        read_ns = self.read_ns(size)
        if not self.fused:
            return compute_ns, read_ns, self.expert_overhead_ns
        slower = self.memory_efficiency / (self.fused_memory_efficiency or self.memory_efficiency)
        passed = tokens * activation_bytes(expert.hidden, expert.intermediate, expert.matrix_count)
        return compute_ns, read_ns * slower, self.slice_ns + self.read_ns(passed) * slower

    def _reached_tflops(self, bits: int) -> float:
        """The rate of products with weights of so many bits."""
        usual = (self.fused_efficiency if self.fused else None) or self.compute_efficiency
        if bits <= 4 and self.fp4_tflops is not None:
            return self.fp4_tflops * (self.fp4_efficiency or usual)
        if bits <= 8 and self.fp8_tflops is not None:
            return self.fp8_tflops * (self.fp8_efficiency or usual)
        return self.peak_tflops * usual
