"""Rows with whole request traces: from a file, or from arrays, to the result.

Rows with programs of units in banks have the known results of the units' own simulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.base.run_files import temporary_folder
from ndpsim.config.banks import load_bank_hardware
from ndpsim.dimm.banks import aim, attacc
from ndpsim.dimm.banks.shapes import Attention, Gemv, Units
from ndpsim.dram.banks.programs import Program
from ndpsim.dram.spec import Device
from ndpsim.dram.traces import Requests, stream_of
from ndpsim.simulate import Memory, TraceResult, run_requests
from ndpsim.simulate.pim import run_pim
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, best_seconds, expect
from ndpsim.studies.bench.traffic import random_bursts


@dataclass(frozen=True)
class WholeTrace(Benchmark):
    """Reads of DDR5 under Ramulator's rules, from the call to the result, with channels on all cores.

    Attributes:
        source: "arrays"; "text" or "records", a file of lines or of NumPy.
        channels: number of channels.
        random: reads are random instead of one contiguous stream.
    """

    source: str = "arrays"
    channels: int = 1
    random: bool = False

    def memory(self) -> Memory:
        """The channels."""
        return Memory.named(channels=self.channels, rules="reference")

    def requests(self, device: Device) -> Requests:
        """The reads."""
        count = self.pinned.requests
        address = np.arange(count, dtype=np.int64) * device.burst_bytes
        if self.random:
            address = random_bursts(device, count)[0]
        return Requests.of(address, np.zeros(count, dtype=np.int8))

    def run(self, repeat: int) -> BenchRow:
        """See `Benchmark`.

        Raises:
            MismatchError: the pinned work differs.
        """
        memory = self.memory()
        with self._made(self.requests(memory.device)) as source:
            result: TraceResult = run_requests(stream_of(source), memory)
            work = Results(result.requests, result.cycles, dict(result.commands))
            expect(self.name, work, self.pinned)
            seconds = best_seconds(lambda: run_requests(stream_of(source), memory), repeat)
        return BenchRow(self.name, work, seconds, fast_forwarded=result.fast_forwarded)

    @contextmanager
    def _made(self, requests: Requests) -> Iterator[Any]:
        """The requests, or the file that has them."""
        if self.source == "arrays":
            yield requests
            return
        assert requests.address is not None
        with temporary_folder() as folder:
            yield _write(folder / "trace", requests, self.source)


def _write(path: Path, requests: Requests, source: str) -> Path:
    assert requests.address is not None
    if source == "text":
        path.write_text(
            "".join(f"LD {address:#x}\n" for address in requests.address.tolist()), encoding="utf-8"
        )
        return path
    records = np.zeros(len(requests), dtype=[("address", "<i8"), ("write", "i1")])
    records["address"] = requests.address
    with path.open("wb") as file:
        np.save(file, records)
    return path


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
