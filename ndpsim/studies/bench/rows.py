"""All rows, in their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ndpsim.base.arguments import choice, progress_function, several, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import Hardware
from ndpsim.dram.banks.programs import Program
from ndpsim.studies.bench.experts import (
    ExpertCall,
    FreshProcess,
    PolicyLayers,
    ServedLayers,
    UnitInLoop,
    UnlikeCalls,
    WholeRun,
)
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results
from ndpsim.studies.bench.traces import (
    UnitProgram,
    WholeTrace,
    aim_attention,
    aim_gemv,
    attacc_bank,
    attacc_buffer,
)
from ndpsim.studies.bench.traffic import ChannelCall, Outcome, Traffic, beside_host, relayout_of_four
from ndpsim.workload.models import Expert

#: The known results of each row. They are from the plain controller (`dram.engines.ScanController`), and
#: from `unlike_trimoe` on from the fast one, because the plain one would take minutes.
_PINNED = {
    name: Results(*numbers)
    for name, numbers in json.loads(Path(__file__).with_name("pinned.json").read_bytes()).items()
}
_CAPPED = ControllerOptions(row_policy="closed-cap")
_QUEUE65, _QUEUE256 = (ControllerOptions(read_buffer=slots, write_buffer=slots) for slots in (65, 256))
_MEMORIES = {
    "lpddr5": ("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400"),
    "lpddr6": ("LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24"),
    "hbm3": ("HBM3", "HBM3_16Gb_8hi", "HBM3_6400Mbps"),
    "hbm4": ("HBM4", "HBM4_32Gb_8Hi", "HBM4_8000Mbps"),
    "gddr6": ("GDDR6", "GDDR6_16Gb_x16", "GDDR6_14000_1250mV_double"),
    "gddr7": ("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3"),
}
_MIXED: dict[str, Any] = {"random": True, "writes": True}
_QWEN3, _QWEN3_30B, _MIXTRAL = "qwen3-235b-a22b", "qwen3-30b-a3b", "mixtral-8x7b"


def _traffic(name: str, about: str, ranks: int = 1, **more: Any) -> Traffic:
    return Traffic(name, about, _PINNED[name], ranks, **more)


def _memory_rows(name: str, presets: tuple[str, str, str]) -> list[Traffic]:
    """The rows of one of the other memories."""
    return [
        _traffic(f"stream_{name}", f"contiguous reads, {presets[2]}", presets=presets),
        _traffic(f"random_{name}", f"random reads, {presets[2]}", random=True, presets=presets),
        _traffic(f"mixed_{name}", f"random, 33% writes, {presets[2]}", **_MIXED, presets=presets),
    ]


def _trace(name: str, about: str, **more: Any) -> WholeTrace:
    return WholeTrace(name, about, _PINNED[name], **more)


def _unlike(hw: str, model: str) -> UnlikeCalls:
    name, about = f"unlike_{hw}", f"experts of {model} on {hw}, 1 to 64 tokens"
    return UnlikeCalls(name, about, _PINNED[name], hw, model, range(1, 65))


def _in_turn(name: str, about: str, experts: int) -> UnlikeCalls:
    return UnlikeCalls(name, about, _PINNED[name], "trimoe", _QWEN3, [(1,) * experts])


def _expert(hw: str, model: str) -> ExpertCall:
    name = f"expert_{hw}"
    return ExpertCall(name, f"an expert of {model} on {hw}, 1 token", _PINNED[name], hw, model)


def _channel(name: str, about: str, call: Callable[[Hardware, Expert], Outcome]) -> ChannelCall:
    return ChannelCall(name, about, _PINNED[name], "trimoe", _QWEN3, call)


def _layer(name: str, about: str, policy: str) -> PolicyLayers:
    return PolicyLayers(name, about, _PINNED[name], "trimoe", _QWEN3_30B, policy)


def _whole(name: str, about: str, policy: str, is_cold: bool) -> WholeRun:
    return WholeRun(name, about, _PINNED[name], "trimoe", "deepseek-v2", policy, is_cold)


def _served(name: str, about: str, policy: str, gpu_experts: int) -> ServedLayers:
    return ServedLayers(name, about, _PINNED[name], "trimoe", _QWEN3_30B, policy, gpu_experts)


def _units(name: str, about: str, hw: str, lines: Callable[[], Program]) -> UnitProgram:
    return UnitProgram(name, about, _PINNED[name], hw, lines)


_ALL: Sequence[Benchmark] = (
    _traffic("stream_r1", "contiguous reads, bank groups in turn, 1 rank"),
    _traffic("stream_r4", "contiguous reads, bank groups in turn, 4 ranks", 4),
    _traffic("random_r1", "random reads, 1 rank", random=True),
    _traffic("random_r4", "random reads, 4 ranks", 4, random=True),
    _traffic("mixed_r1", "random, 33% writes, 1 rank", **_MIXED),
    _traffic("mixed_r4", "random, 33% writes, 4 ranks", 4, **_MIXED),
    _traffic("capped_stream_r4", "contiguous reads, closed-cap, 4 ranks", 4, options=_CAPPED),
    _traffic("capped_mixed_r4", "as mixed_r4, closed-cap", 4, **_MIXED, options=_CAPPED),
    _traffic("queue65_r4", "as mixed_r4, queues of 65", 4, **_MIXED, options=_QUEUE65),
    _traffic("queue256_r1", "as mixed_r1, queues of 256", **_MIXED, options=_QUEUE256),
    _traffic("queue256_r4", "as mixed_r4, queues of 256", 4, **_MIXED, options=_QUEUE256),
    *(row for name, presets in _MEMORIES.items() for row in _memory_rows(name, presets)),
    _traffic("stream_ff_r1", "contiguous reads, fast-forward, 1 rank", fast_forward=True),
    _traffic("stream_ff_r8", "contiguous reads, fast-forward, 8 ranks", 8, fast_forward=True),
    _trace("trace_arrays", "contiguous reads of DDR5 from arrays to the result"),
    _trace("trace_records", "the same from a file of NumPy", source="records"),
    _trace("trace_text", "the same from a file of lines", source="text"),
    _trace("trace_random", "random reads of DDR5 from arrays to the result", random=True),
    _trace("trace_channels", "the same over 8 channels", channels=8, random=True),
    _expert("trimoe", _QWEN3),
    _expert("edge", _MIXTRAL),
    _unlike("trimoe", _QWEN3),
    _unlike("edge", _MIXTRAL),
    _unlike("cxl", _MIXTRAL),
    _in_turn("queue_trimoe", f"16 experts of {_QWEN3} in turn on trimoe, 1 token each", 16),
    _channel(
        "beside_host", f"an expert of {_QWEN3} on trimoe beside all that the host can ask for", beside_host
    ),
    _channel(
        "relayout_four",
        f"4 experts of {_QWEN3} on trimoe, localized to striped, and by the host",
        relayout_of_four,
    ),
    _layer("layer_trimoe", f"a layer of {_QWEN3_30B} on trimoe under trimoe, batch 128", "trimoe"),
    _layer("layer_balance", "the same under balance", "balance"),
    _whole("moe_warm", "moe of deepseek-v2 on trimoe under trimoe, simulated before", "trimoe", False),
    _whole("moe_cold", "the same with nothing simulated before", "trimoe", True),
    _whole("moe_cold_balance", "the same under balance", "balance", True),
    _served("serve_trimoe", f"a layer of {_QWEN3_30B} served on trimoe under trimoe", "trimoe", 16),
    _served("serve_balance", "the same under balance", "balance", 16),
    _served("serve_gpu", "the same with all experts in the GPU's memory", "balance", 128),
    _units(
        "units_attacc_bank",
        "attention of 64 heads, 2,048 tokens, on AttAcc's bank units",
        "attacc",
        attacc_bank,
    ),
    _units("units_attacc_buffer", "the same on units at pseudo-channels", "attacc", attacc_buffer),
    _units("units_aim_gemv", "a matrix of 1,536 x 4,096 on AiM", "aim", aim_gemv),
    _units("units_aim_attention", "attention of 8 x 8 queries, 1,000 tokens, on AiM", "aim", aim_attention),
    UnitInLoop(
        "rtl_loop",
        "an expert of 512 x 256 on the hardware of trimoe_gemv, 2 lanes",
        _PINNED["rtl_loop"],
        "trimoe",
        "trimoe_gemv",
        ("dimm.ranks=1",),
        Expert(512, 256),
    ),
    FreshProcess("import", "a new process to its first result, kernels compiled before", _PINNED["import"]),
    FreshProcess(
        "compile", "a new process to its first result, nothing compiled", _PINNED["compile"], compiles=True
    ),
)

_MOST_RUNS = 10_000

#: What can be measured, by name, in the order of the table.
ROWS = {row.name: row for row in _ALL}


def run_rows(
    rows: Sequence[str] = (), repeat: int = 5, progress: Callable[[float], None] | bool | None = None
) -> list[BenchRow]:
    """Measure rows, one after the other.

    Args:
        rows: names in `ROWS`, in any order; none: all that can run here.
        repeat: runs, of which the fastest counts, 1 to 10,000.
        progress: called with the share of rows done, from 0; None: no calls.

    Raises:
        InputError: there is no such row, or it cannot run here, or `repeat` is not positive.
        MismatchError: the results of a row differ from the known ones.
    """
    names = several(rows, "row", lambda name, key: choice(name, key, ROWS, "row"))
    repeat, progress = whole_number(repeat, "repeat", 1, _MOST_RUNS), progress_function(progress)
    chosen = [row for name, row in ROWS.items() if name in names or not (names or row.missing)]
    for row in chosen:
        if row.missing:
            raise InputError(f"{row.name} needs {row.missing}", "not-installed", key="row")
    measured = []
    for number, row in enumerate(chosen):
        progress(number / len(chosen))
        measured.append(row.run(repeat))
    return measured
