"""The CPU: the time of an expert, the rate of multiplications, and the read rate of memory.

An expert of w weights in W bytes takes, for t tokens,

    max(2 w (t + cpu_added_tokens) / (cpu_compute_efficiency x peak), W / read) + cpu_expert_overhead

- peak: sockets x cpu_tflops, or sockets x cores x clock x `PEAK_OPERATIONS`. With fewer threads than cores,
  each thread has its own core, and the peak is proportional to the threads.
- read: the minimum of cpu_read_share x the channels' peak, sockets x cpu_fabric_gbps, threads x the read rate
  of a core, and cpu_read_gbps. If neither the share nor cpu_read_gbps is given, programs reach
  `expert_read_share` of the minimum. Unknown terms are left out; if all are unknown, W / read is left out,
  and only the simulated channels limit reads.

Values that the hardware file does not give are the fitted values of its cpu_isa and cpu_family in
`fits/cpu.csv`, which `validation/cpu.py` writes from measurements of kernels and of memory.
"""

from __future__ import annotations

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

    `added_tokens`: tokens added to an expert's tokens in its time; they represent partly filled tiles of
    matrix units. `read_gbps`: maximum read rate; None: only the channels limit it. `expert_overhead_ns` is
    added to each expert, `layer_overhead_ns` once to a layer with experts on the CPU.
    """

    name = "cpu"

    added_tokens: int
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
