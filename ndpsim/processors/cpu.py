"""The CPU: how long an expert takes on it, how fast it multiplies, and how fast it reads memory.

An expert of w weights in W bytes takes, for t tokens,

    max(2 w (t + cpu_added_tokens) / (cpu_compute_efficiency x peak), W / read) + cpu_expert_overhead

- peak: sockets x cpu_tflops, or sockets x cores x clock x `PEAK_OPERATIONS`. Where fewer threads compute than
  there are cores, their share of the peak counts: each thread has a core to itself.
- read: the least of cpu_read_share x what the channels carry, sockets x cpu_fabric_gbps, threads x what a
  core reads, and cpu_read_gbps. Where neither the share nor cpu_read_gbps is given, programs reach
  `expert_read_share` of the least. What is not known does not count; where nothing is, W / read is left out,
  and the simulated channels alone limit the reading.

What the hardware leaves open follows from its cpu_isa and cpu_family by `fits/cpu.csv`, which
`validation/cpu.py` writes from measurements of kernels and of memory.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from ndpsim.moe import Expert
from ndpsim.processors.devices import Processor

#: Products and sums that a core starts in a clock, at most, by its widest instructions that multiply. Two
#: units a core: FP32 in 256 and in 512 bits (FMA), 8 bits in 512 (VPDPBUSD), BF16 in 512 (VDPBF16PS); AMX:
#: 1024 products of BF16 (Intel 64 and IA-32 Architectures Optimization Reference Manual). A core with one
#: unit, or with halves of 256 bits, starts half as many; the fitted efficiencies are shares of these figures.
PEAK_OPERATIONS = {"avx2": 32, "avx512": 64, "avx512-vnni": 256, "avx512-bf16": 128, "amx": 2048}

#: The fitted values, a line each.
FITS = Path(__file__).with_name("fits") / "cpu.csv"

#: The word in `FITS` for what nothing was measured of.
ANY = "any"


@dataclass(frozen=True)
class Cpu(Processor):
    """The host's CPU, which reads weights over the memory channels while it computes.

    `added_tokens`: tokens added to those of an expert when its time is computed; they represent the loss of
    few tokens in partly filled tiles of matrix units. `read_gbps`: what the CPU reads at most; None: as fast
    as the channels carry. `expert_overhead_ns` comes on top of every expert, `layer_overhead_ns` once of a
    layer with experts on the CPU.
    """

    name = "cpu"

    added_tokens: int
    read_gbps: float | None = None
    expert_overhead_ns: float = 0.0
    layer_overhead_ns: float = 0.0

    def _roofline(self, expert: Expert, tokens: int, size: int) -> tuple[float, float | None, float]:
        read_ns = None if self.read_gbps is None else size / self.read_gbps
        compute_ns = self.compute_ns(2.0 * expert.weights * (tokens + self.added_tokens))
        return compute_ns, read_ns, self.expert_overhead_ns


def peak_tflops(cores: float, clock_ghz: float, isa: str) -> float:
    """Peak rate of this many cores, in TFLOPS (see `PEAK_OPERATIONS`)."""
    return cores * clock_ghz * PEAK_OPERATIONS[isa] / 1e3


@functools.cache
def _table() -> dict[tuple[str, str], float]:
    with FITS.open(encoding="utf-8", newline="") as file:
        return {(row["quantity"], row["of"]): float(row["value"]) for row in csv.DictReader(file)}


def fitted(quantity: str, of: str) -> float:
    """A fitted value: "compute_efficiency" of an isa, or "read_share" or "core_read_gbps" of a family.

    Of a family that nothing was measured of: the mean of all.
    """
    table = _table()
    return table[quantity, of if (quantity, of) in table else ANY]
