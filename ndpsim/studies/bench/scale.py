"""Long and large work, each kind in a process of its own: its processor time and the most memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ndpsim
from ndpsim.base.arguments import number, progress_function
from ndpsim.base.errors import MismatchError
from ndpsim.base.run_files import temporary_folder
from ndpsim.studies.bench.row import rows_named

_TRACE = """
import numpy, ndpsim
block = 1 << 16
def blocks():
    for first in range(0, {count}, block):
        address = numpy.arange(first, min(first + block, {count}), dtype=numpy.int64) * 64 % (1 << 32)
        yield address, numpy.zeros(len(address), numpy.int8)
"""
_TEXT = """
with open("reads.trace", "w") as file:
    for address, _ in blocks():
        file.writelines(f"LD {{one:#x}}\\n" for one in address.tolist())
"""
_RECORDS = """
record = numpy.dtype([("address", numpy.int64), ("write", numpy.int8)])
with open("reads.npy", "wb") as file:
    header = {{"descr": numpy.lib.format.dtype_to_descr(record), "fortran_order": False, "shape": ({count},)}}
    numpy.lib.format.write_array_header_1_0(file, header)
    for address, write in blocks():
        part = numpy.empty(len(address), record)
        part["address"], part["write"] = address, write
        file.write(part.tobytes())
"""
_RECORDING = """
import json
with open("r.jsonl", "w") as file:
    for number in range({count}):
        print(json.dumps({{"input_toks": 9, "output_toks": 9, "arrival_time_ns": number}}), file=file)
"""
_SWEEP = """
import ndpsim
tokens, bits = [*range(1, 1001)], [16, 8, 4, 2]
sizes = [f"{{64 * (n + 1)}},64" for n in range(max(1, {count} // 4000))]
vary = {{"shape": sizes, "bits": bits, "tokens": tokens[:max(1, {count} // (4 * len(sizes)))]}}
result = ndpsim.sweep("gemv", vary, out="sweep")
assert not result.failed, result.failed
"""
_SERVE = """
import ndpsim
requests = "poisson:rate=2000,requests={count},input_tokens=16,output_tokens=2"
result = ndpsim.run_serving("trimoe", "qwen3-30b-a3b", requests, "balance", gpu_experts=128, max_batch=256)
assert result.requests == {count}
"""
_SERVE_ON_GPU = """
import ndpsim
requests = "poisson:rate=2000,requests={count},input_tokens=16,output_tokens=2"
result = ndpsim.run_serving("trimoe", "llama-3.1-8b", requests, max_batch=256)
assert result.requests == {count}
"""
_CONTEXT = """
import ndpsim
work = {{"batch": 1, "steps": 1, "layers": [0, 1], "context": {count}, "kv": "host"}}
ndpsim.run_moe("trimoe", "qwen3-30b-a3b", ["balance"], **work)
"""
_EXPERTS = """
import dataclasses, ndpsim
model = ndpsim.load_model("qwen3-30b-a3b")
model = dataclasses.replace(model, name="wide", hidden=256, routed_experts={count}, layers=4, moe_layers=4)
ndpsim.run_moe("trimoe", model, ["balance"], batch=64, steps=2)
"""


@dataclass(frozen=True)
class ScaleRow:
    """Work of a size.

    Attributes:
        name: the name of the row.
        about: the work, in a few words.
        count: how many of what `about` names, in the full size.
        prepare: a program that runs before and is not measured; empty: none.
        program: the measured program.
    """

    name: str
    about: str
    count: int
    program: str
    prepare: str = ""


@dataclass(frozen=True)
class ScaleResult:
    """A measured row.

    Attributes:
        name, about: as in `ScaleRow`.
        count: the size.
        cpu_s: processor time of the process and of its children.
        wall_s: duration.
        peak_bytes: most memory of the process.
    """

    name: str
    about: str
    count: int
    cpu_s: float
    wall_s: float
    peak_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


SCALE_ROWS: Sequence[ScaleRow] = (
    ScaleRow(
        "trace_iterator", "requests of a trace from an iterator", 10**8, f"{_TRACE}ndpsim.run_trace(blocks())"
    ),
    ScaleRow(
        "trace_text",
        "requests of a trace from a file of lines",
        10**8,
        "import ndpsim\nndpsim.run_trace('reads.trace')",
        _TRACE + _TEXT,
    ),
    ScaleRow(
        "trace_binary",
        "requests of a trace from a file of NumPy",
        10**8,
        "import ndpsim\nndpsim.run_trace('reads.npy')",
        _TRACE + _RECORDS,
    ),
    ScaleRow(
        "requests",
        "requests of a recording that are imported",
        10**7,
        "from ndpsim.cli.main import main\nmain(['requests', 'import', 'r.jsonl', '-o', 'r.csv'])",
        _RECORDING,
    ),
    ScaleRow("serve", "requests that are served", 10**6, _SERVE),
    ScaleRow("serve_on_gpu", "requests that a GPU with all weights serves", 10**6, _SERVE_ON_GPU),
    ScaleRow("sweep", "points of a sweep", 10**5, _SWEEP),
    ScaleRow("resume", "points of a finished sweep, run again", 10**5, _SWEEP, _SWEEP),
    ScaleRow("context", "tokens of context", 10**6, _CONTEXT),
    ScaleRow("experts", "experts of a layer", 10**4, _EXPERTS),
)


def run_scale(
    rows: Sequence[str] = (), share: float = 1.0, progress: Callable[[float], None] | bool | None = None
) -> list[ScaleResult]:
    """Measure rows of `SCALE_ROWS`.

    Args:
        rows: names; none: all.
        share: the size, as a share of the full size, above 0 to 1.
        progress: called with the share of rows done.

    Raises:
        InputError: `share` is invalid, or there is no such row.
        MismatchError: a process failed.
    """
    share, progress = number(share, "share", 1e-6, 1.0), progress_function(progress)
    chosen = rows_named(rows, SCALE_ROWS)
    measured = []
    for index, row in enumerate(chosen):
        progress(index / len(chosen))
        measured.append(_measured(row, max(1, round(row.count * share))))
    return measured


def _measured(row: ScaleRow, count: int) -> ScaleResult:
    with temporary_folder() as folder:
        if row.prepare:
            _run(row, row.prepare.format(count=count), folder)
        began = time.perf_counter()
        cpu_s, peak_bytes = _run(row, row.program.format(count=count), folder)
        return ScaleResult(row.name, row.about, count, cpu_s, time.perf_counter() - began, peak_bytes)


def _run(row: ScaleRow, program: str, folder: Path) -> tuple[float, int]:
    """Processor time and most memory of a program in a process of its own.

    Raises:
        MismatchError: it failed.
    """
    package = str(Path(ndpsim.__file__).parents[1])  # this ndpsim and no other
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with open(folder / "errors", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        reason = ((folder / "errors").read_text(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise MismatchError(f"{row.name}: the process ended with status {process.returncode}: {reason}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
