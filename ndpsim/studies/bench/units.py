"""Rows with programs of units in banks, whose known results are those of the units' own simulators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ndpsim.config.banks import load_bank_hardware
from ndpsim.dimm.banks import aim, attacc
from ndpsim.dimm.banks.shapes import Attention, Gemv, Units
from ndpsim.dram.banks.programs import Program
from ndpsim.simulate.pim import run_pim
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, expect

_LAYOUT = frozenset(("A4", "A10", "A12"))


def attacc_bank() -> Program:
    """64 heads of 128 over 2,048 tokens on a stack, units at banks."""
    return attacc.attention(Attention(64, 1, 128, 2048), Units("bank", 16, 1, 32, 16384, 16, _LAYOUT))


def attacc_buffer() -> Program:
    """The same, units at pseudo-channels."""
    return attacc.attention(Attention(64, 1, 128, 2048), Units("buffer", 16, 1, 32, 16384, 16, _LAYOUT))


def aim_gemv() -> Program:
    """A matrix of 1,536 x 4,096 on 32 channels."""
    return aim.gemv(Gemv(4096, 1536), Units("bank", 16, 32, 64, 16384, 32))


def aim_attention() -> Program:
    """8 heads of 8 queries over 1,000 tokens on 8 channels."""
    return aim.attention(Attention(8, 8, 128, 1000), Units("bank", 16, 32, 64, 16384, 8))


@dataclass(frozen=True)
class UnitProgram(Benchmark):
    """A program of units in banks with all idealisations of their own simulator; its making is not measured.

    Attributes:
        hw: the device.
        lines: makes the program.
    """

    hw: str
    lines: Callable[[], Program]

    def run(self, repeat: int) -> BenchRow:
        hardware, lines = load_bank_hardware(self.hw, rules="reference"), self.lines()
        run_pim(lines, hardware)
        result = min((run_pim(lines, hardware) for _ in range(repeat)), key=lambda result: result.run_s)
        work = Results(result.requests, result.cycles, dict(result.commands))
        expect(self.name, work, self.pinned)
        return BenchRow(self.name, work, result.run_s, simulated_s=result.time_ns / 1e9)
