"""The GPU: the time of an expert that is launched by itself, or in a fused call.

An expert of w weights in W bytes with t tokens, or n tokens rounded up to whole tiles, takes

    together(2 w n / (efficiency x peak), W / (memory_efficiency x bandwidth)) + overhead

- launched by itself: compute_efficiency, and expert_overhead;
- in a fused call: fused_efficiency, and slice for each expert or slice of one; call_overhead is added once
for
  the call.

together(c, m) is the longer of both. With a roofline_power p it is (c^p + m^p)^(1/p), which is between the
longer and the sum: reading and computing overlap partly, and least if both take equally long.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.inference.processors.devices import Processor
from ndpsim.workload.models import Expert


@dataclass(frozen=True)
class Gpu(Processor):
    """A GPU that computes from its own memory.

    Attributes:
        memory_gbps, memory_efficiency: peak of its memory, and the share that reads reach.
        attention_efficiency: share of the peak that queries with keys and values reach.
        expert_overhead_ns: additional time of an expert.
        kernel_overhead_ns: additional time of a kernel of the dense parts.
        attention_overhead_ns: the same for queries with keys and values; None: as other kernels.
        memory_bytes, reserved_bytes: capacity, and the part that the model cannot use.
        expert_buffers: number of arriving experts with space in the memory.
        fused: whether one call computes all experts of a layer.
        fused_efficiency: share of the peak in a fused call; None: as other products.
        call_overhead_ns, slice_ns: additional time of a fused call, and of each expert in it.
        tile_tokens: tokens of an expert are rounded up to multiples of this number.
        roofline_power: None: the longer of compute and memory.
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
    roofline_power: float | None = None
    attention_overhead_ns: float | None = None

    @property
    def call_ns(self) -> float:
        """Overhead of a call for experts, in ns; 0 if each expert is launched by itself."""
        return self.call_overhead_ns if self.fused else 0.0

    def read_ns(self, size: float) -> float:
        """The time of reading or writing this number of bytes of the GPU's memory."""
        return size / (self.memory_efficiency * self.memory_gbps)

    def together_ns(self, compute_ns: float, memory_ns: float) -> float:
        """The time of overlapping compute and memory: at least the longer of both, at most their sum."""
        longer, power = max(compute_ns, memory_ns), self.roofline_power
        if power is None or longer == 0:
            return longer
        shorter = min(compute_ns, memory_ns)
        return float(longer * (1 + (shorter / longer) ** power) ** (1 / power))

    def _roofline(self, expert: Expert, tokens: int, size: int) -> tuple[float, float | None, float]:
        tiles = -(-tokens // self.tile_tokens)
        flops = 2.0 * expert.weights * tiles * self.tile_tokens
        if self.fused:
            return self.compute_ns(flops, self.fused_efficiency), self.read_ns(size), self.slice_ns
        return self.compute_ns(flops), self.read_ns(size), self.expert_overhead_ns
