"""The CPU: the time of an expert, the rate of multiplications, and the read rate of memory.

An expert of w weights in W bytes takes, for t tokens,

    together(2 w (t + cpu_added_tokens) / (cpu_compute_efficiency x peak), W / read) + cpu_expert_overhead

- together(c, r) is the longer of both, or with cpu_roofline_power p (c^p + r^p)^(1/p). Measured kernels add
  (p = 1): a core does not multiply while it waits for weights (validation/cpu.md).
- peak: sockets x cpu_tflops, or sockets x cores x clock x `PEAK_OPERATIONS`. With fewer threads than cores,
  each thread has its own core, and the peak is proportional to the threads.
- read: cpu_read_gbps and cpu_read_share x the channels' peak are what the program reads. If neither is given,
  it is `expert_read_share` of what the memory gives, see `memory_gbps`. If all values are unknown, W / read
  is left out, and only the simulated channels limit reads.

A layer takes cpu_layer_overhead and, for each thread, cpu_thread_overhead longer: threads wait for each other
after every operation.

Values that the hardware file does not give are the fitted values of its cpu_isa and cpu_family in
`fits/cpu.csv`, which `validation/cpu.py` writes from measurements of kernels and of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ndpsim.inference.processors.devices import Processor
from ndpsim.workload.models import Expert

#: Maximum number of operations that a core starts in a clock, by its widest instructions. With two units:
#: FP32 in 256 and in 512 bits (FMA), 8 bits in 512 (VPDPBUSD), BF16 in 512 (VDPBF16PS); AMX: 1024 products of
#: BF16 (Intel 64 and IA-32 Architectures Optimization Reference Manual). A core with one unit, or with halves
#: of 256 bits, starts half as many; the fitted efficiencies are shares of these figures.
PEAK_OPERATIONS = {"avx2": 32, "avx512": 64, "avx512-vnni": 256, "avx512-bf16": 128, "amx": 2048}


@dataclass(frozen=True)
class Cpu(Processor):
    """The host's CPU, which reads weights over the memory channels while it computes.

    `added_tokens`: tokens added to an expert's tokens in its time: unpacking of its weights, or partly filled
    tiles of matrix units. `read_gbps`: maximum read rate; None: only the channels limit it.
    `expert_overhead_ns` is added to each expert, `layer_overhead_ns` once to a layer with experts on the CPU.
    """

    name = "cpu"

    added_tokens: float
    read_gbps: float | None = None
    expert_overhead_ns: float = 0.0
    layer_overhead_ns: float = 0.0

    def _roofline(
        self, expert: Expert, tokens: int, size: int, bits: int
    ) -> tuple[float, float | None, float]:
        read_ns = None if self.read_gbps is None else size / self.read_gbps
        compute_ns = self.compute_ns(2.0 * expert.weights * (tokens + self.added_tokens))
        return compute_ns, read_ns, self.expert_overhead_ns


def peak_tflops(cores: float, clock_ghz: float, isa: str) -> float:
    """Peak rate of this many cores, in TFLOPS (see `PEAK_OPERATIONS`)."""
    return cores * clock_ghz * PEAK_OPERATIONS[isa] / 1e3


def memory_gbps(
    limits_gbps: Sequence[float | None], threads: int | None, all_threads: int | None, core_gbps: float
) -> float | None:
    """What the memory gives to `threads` of `all_threads`; None: not known. A thread alone reads `core_gbps`.

    n threads read no more than n core_gbps. All N read R, the least of `limits_gbps`, and n of them R g(n) /
    g(N) with g(n) = (1 + (R / (n core_gbps))^2)^(-1/2): some wait for the same channels before all channels
    are busy (validation/cpu.md).
    """
    known = [limit for limit in limits_gbps if limit is not None]
    if not known or not threads or not all_threads:
        return min(known, default=threads and threads * core_gbps)
    least = min(known)
    waiting = math.hypot(1, least / (all_threads * core_gbps)) / math.hypot(1, least / (threads * core_gbps))
    return min(threads * core_gbps, least * waiting)
