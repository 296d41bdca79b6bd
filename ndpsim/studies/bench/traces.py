"""Rows with whole request traces: from a file, or from arrays, to the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.base.run_files import temporary_folder
from ndpsim.dram.spec import Device
from ndpsim.dram.traces import Requests, stream_of
from ndpsim.simulate import Memory, TraceResult, run_requests
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
