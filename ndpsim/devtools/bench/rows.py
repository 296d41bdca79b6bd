"""All rows, in their order, and the work that each is pinned to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ndpsim.arguments import choice, progress_function, several, whole_number
from ndpsim.devtools.bench.channels import ChannelCall, beside_host, relayout_of_four
from ndpsim.devtools.bench.experts import ExpertCall, UnlikeCalls
from ndpsim.devtools.bench.layers import PolicyLayers
from ndpsim.devtools.bench.processes import FreshProcess
from ndpsim.devtools.bench.row import Benchmark, Row, Work
from ndpsim.devtools.bench.traffic import Traffic
from ndpsim.dram.state import ControllerOptions

# The pinned numbers are the plain controller's (`dram.engines.ScanController`).
_STREAM_R1 = Work(200000, 1746920, {"ACT": 4716, "PREab": 186, "RD": 200000, "REFab": 186})
_STREAM_R4 = Work(200000, 1748260, {"ACT": 4702, "PREab": 288, "RD": 200000, "REFab": 744})
_RANDOM_R1 = Work(200000, 2624375, {"ACT": 199997, "PREpb": 195567, "PREab": 279, "RD": 200000, "REFab": 279})
_RANDOM_R4 = Work(200000, 1763552, {"ACT": 200000, "PREpb": 176833, "PREab": 752, "RD": 200000, "REFab": 752})
_MIXED_R1 = Work(
    200000, 2684156, {"ACT": 199996, "PREpb": 195095, "PREab": 286, "RD": 133969, "WR": 66031, "REFab": 286}
)
_MIXED_R4 = Work(
    200000, 1817581, {"ACT": 199999, "PREpb": 176687, "PREab": 772, "RD": 133969, "WR": 66031, "REFab": 772}
)
_CAPPED_STREAM_R4 = Work(
    200000, 1753070, {"ACT": 51158, "PREpb": 46743, "PREab": 285, "RD": 198578, "RDA": 1422, "REFab": 744}
)
_QUEUE65_R4 = Work(
    200000, 1806884, {"ACT": 199999, "PREpb": 176832, "PREab": 768, "RD": 133969, "WR": 66031, "REFab": 768}
)
_QUEUE256_R1 = Work(
    200000, 2633869, {"ACT": 199982, "PREpb": 197504, "PREab": 280, "RD": 133969, "WR": 66031, "REFab": 280}
)
_QUEUE256_R4 = Work(
    200000, 1793890, {"ACT": 199997, "PREpb": 176771, "PREab": 764, "RD": 133969, "WR": 66031, "REFab": 764}
)
_CAPPED = ControllerOptions(row_policy="closed-cap")
_QUEUE65, _QUEUE256 = (ControllerOptions(read_buffer=slots, write_buffer=slots) for slots in (65, 256))
_STREAM_FF_R1 = Work(589824, 5152122, {"ACT": 13896, "PREab": 549, "RD": 589824, "REFab": 549})
_STREAM_FF_R8 = Work(589824, 5158235, {"ACT": 13875, "PREab": 849, "RD": 589824, "REFab": 4400})
_TRIMOE = Work(589824, 664965, {"ACT": 14008, "PREab": 560, "RD": 589824, "REFab": 560})
_EDGE = Work(5505024, 5797189, {"ACT": 50796, "PREpb": 21160, "PREab": 1856, "RD": 5505024, "REFab": 1856})
# These would take the plain controller minutes; they are what the fast one makes of them.
_UNLIKE_TRIMOE = Work(72548352, 737820478, {"ACT": 6474560, "PREab": 629344, "RD": 72548352, "REFab": 629344})
_UNLIKE_EDGE = Work(
    1789132800,
    9176712486,
    {"ACT": 26511724, "PREpb": 29800, "PREab": 2941116, "RD": 1789132800, "REFab": 2941116},
)
_UNLIKE_CXL = Work(
    2994733056, 846013208, {"ACT": 76376864, "PREab": 3469920, "RD": 2994733056, "REFab": 3469856}
)
_QUEUE = Work(9437184, 10649831, {"ACT": 224856, "PREab": 9080, "RD": 9437184, "REFab": 9080})
_UNLIKE = range(1, 65)  # tokens
_BESIDE = Work(
    860347, 1314577, {"ACT": 136073, "PREpb": 113282, "PREab": 1120, "RD": 771070, "WR": 89277, "REFab": 1120}
)
_RELAYOUT = Work(
    4718592,
    2888720,
    {"ACT": 1638956, "PREpb": 378752, "PREab": 39424, "RD": 2359296, "WR": 2359296, "REFab": 39424},
)
_LAYER_TRIMOE = Work(1024, 797693, {})
_LAYER_BALANCE = Work(1024, 540100, {})
_FIRST_CALL = Work(1, _TRIMOE.cycles, _TRIMOE.commands)

# The other memories: their presets, then streams, random reads, and these with writes.
_LPDDR5 = "LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400"
_HBM3 = "HBM3", "HBM3_16Gb_8hi", "HBM3_6400Mbps"
_GDDR6 = "GDDR6", "GDDR6_16Gb_x16", "GDDR6_14000_1250mV_double"
_MEMORIES = {
    "lpddr5": (
        _LPDDR5,
        Work(
            200000,
            436596,
            {
                "ACT1": 3734,
                "ACT2": 3734,
                "PREpb": 1506,
                "PREab": 139,
                "CAS_RD": 140,
                "RD": 200000,
                "REFab": 139,
            },
        ),
        Work(
            200000,
            916394,
            {
                "ACT1": 199994,
                "ACT2": 199994,
                "PREpb": 196935,
                "PREab": 293,
                "CAS_RD": 298,
                "RD": 200000,
                "REFab": 293,
            },
        ),
        Work(
            200000,
            1110956,
            {
                "ACT1": 199995,
                "ACT2": 199995,
                "PREpb": 196097,
                "PREab": 355,
                "CAS_RD": 3456,
                "CAS_WR": 5695,
                "RD": 133969,
                "WR": 66031,
                "REFab": 355,
            },
        ),
    ),
    "hbm3": (
        _HBM3,
        Work(200000, 481119, {"ACT": 6557, "PREpb": 4088, "PREab": 76, "RD": 200000, "REFab": 76}),
        Work(200000, 1387525, {"ACT": 199987, "PREpb": 194746, "PREab": 222, "RD": 200000, "REFab": 222}),
        Work(
            200000,
            1506093,
            {"ACT": 199992, "PREpb": 194340, "PREab": 240, "RD": 133969, "WR": 66031, "REFab": 240},
        ),
    ),
    "gddr6": (
        _GDDR6,
        Work(200000, 436445, {"ACT": 2095, "PREpb": 1, "PREab": 130, "RD": 200000, "REFab": 130}),
        Work(200000, 2409175, {"ACT": 199975, "PREpb": 194859, "PREab": 722, "RD": 200000, "REFab": 722}),
        Work(
            200000,
            2429634,
            {"ACT": 199977, "PREpb": 194432, "PREab": 728, "RD": 133969, "WR": 66031, "REFab": 728},
        ),
    ),
}


def _of_memory(
    name: str, presets: tuple[str, str, str], stream: Work, random: Work, mixed: Work
) -> list[Traffic]:
    """The rows of one of the other memories."""
    return [
        Traffic(f"stream_{name}", f"contiguous reads, {presets[2]}", 1, stream, presets=presets),
        Traffic(f"random_{name}", f"random reads, {presets[2]}", 1, random, True, presets=presets),
        Traffic(f"mixed_{name}", f"random, 33% writes, {presets[2]}", 1, mixed, True, True, presets=presets),
    ]


_ALL: Sequence[Benchmark] = (
    Traffic("stream_r1", "contiguous reads, bank groups in turn, 1 rank", 1, _STREAM_R1),
    Traffic("stream_r4", "contiguous reads, bank groups in turn, 4 ranks", 4, _STREAM_R4),
    Traffic("random_r1", "random reads, 1 rank", 1, _RANDOM_R1, random=True),
    Traffic("random_r4", "random reads, 4 ranks", 4, _RANDOM_R4, random=True),
    Traffic("mixed_r1", "random, 33% writes, 1 rank", 1, _MIXED_R1, random=True, writes=True),
    Traffic("mixed_r4", "random, 33% writes, 4 ranks", 4, _MIXED_R4, random=True, writes=True),
    Traffic(
        "capped_stream_r4", "contiguous reads, closed-cap, 4 ranks", 4, _CAPPED_STREAM_R4, options=_CAPPED
    ),
    Traffic(
        "capped_mixed_r4", "as mixed_r4, closed-cap", 4, _MIXED_R4, random=True, writes=True, options=_CAPPED
    ),
    Traffic(
        "queue65_r4", "as mixed_r4, queues of 65", 4, _QUEUE65_R4, random=True, writes=True, options=_QUEUE65
    ),
    Traffic(
        "queue256_r1",
        "as mixed_r1, queues of 256",
        1,
        _QUEUE256_R1,
        random=True,
        writes=True,
        options=_QUEUE256,
    ),
    Traffic(
        "queue256_r4",
        "as mixed_r4, queues of 256",
        4,
        _QUEUE256_R4,
        random=True,
        writes=True,
        options=_QUEUE256,
    ),
    *(row for name, facts in _MEMORIES.items() for row in _of_memory(name, *facts)),
    Traffic("stream_ff_r1", "contiguous reads, fast-forward, 1 rank", 1, _STREAM_FF_R1, fast_forward=True),
    Traffic("stream_ff_r8", "contiguous reads, fast-forward, 8 ranks", 8, _STREAM_FF_R8, fast_forward=True),
    ExpertCall(
        "expert_trimoe",
        "an expert of qwen3-235b-a22b on trimoe, 1 token",
        "trimoe",
        "qwen3-235b-a22b",
        _TRIMOE,
    ),
    ExpertCall("expert_edge", "an expert of mixtral-8x7b on edge, 1 token", "edge", "mixtral-8x7b", _EDGE),
    UnlikeCalls(
        "unlike_trimoe",
        "experts of qwen3-235b-a22b on trimoe, 1 to 64 tokens",
        "trimoe",
        "qwen3-235b-a22b",
        _UNLIKE,
        _UNLIKE_TRIMOE,
    ),
    UnlikeCalls(
        "unlike_edge",
        "experts of mixtral-8x7b on edge, 1 to 64 tokens",
        "edge",
        "mixtral-8x7b",
        _UNLIKE,
        _UNLIKE_EDGE,
    ),
    UnlikeCalls(
        "unlike_cxl",
        "experts of mixtral-8x7b on cxl, 1 to 64 tokens",
        "cxl",
        "mixtral-8x7b",
        _UNLIKE,
        _UNLIKE_CXL,
    ),
    UnlikeCalls(
        "queue_trimoe",
        "16 experts of qwen3-235b-a22b in turn on trimoe, 1 token each",
        "trimoe",
        "qwen3-235b-a22b",
        [(1,) * 16],
        _QUEUE,
    ),
    ChannelCall(
        "beside_host",
        "an expert of qwen3-235b-a22b on trimoe beside all that the host can ask for",
        "trimoe",
        "qwen3-235b-a22b",
        beside_host,
        _BESIDE,
    ),
    ChannelCall(
        "relayout_four",
        "4 experts of qwen3-235b-a22b on trimoe, localized to striped, and by the host",
        "trimoe",
        "qwen3-235b-a22b",
        relayout_of_four,
        _RELAYOUT,
    ),
    PolicyLayers(
        "layer_trimoe",
        "a layer of qwen3-30b-a3b on trimoe under trimoe, batch 128",
        "trimoe",
        "qwen3-30b-a3b",
        "trimoe",
        _LAYER_TRIMOE,
    ),
    PolicyLayers(
        "layer_balance",
        "the same under balance",
        "trimoe",
        "qwen3-30b-a3b",
        "balance",
        _LAYER_BALANCE,
    ),
    FreshProcess("import", "a new process to its first result, kernels compiled before", _FIRST_CALL),
    FreshProcess(
        "compile", "a new process to its first result, nothing compiled", _FIRST_CALL, compiles=True
    ),
)

_MOST_RUNS = 10_000

#: What can be measured, by name, in the order of the table.
ROWS = {row.name: row for row in _ALL}


def run_rows(
    rows: Sequence[str] = (), repeat: int = 5, progress: Callable[[float], None] | None = None
) -> list[Row]:
    """Measure rows, one after the other.

    Args:
        rows: names in `ROWS`, in any order; none: all.
        repeat: runs, of which the fastest counts, 1 to 10,000.
        progress: called with the share of rows done, from 0; None: nothing is called.

    Raises:
        InputError: there is no such row, or `repeat` is not positive.
        MismatchError: a row did not come out as it must.
    """
    names = several(rows, "row", lambda name, key: choice(name, key, ROWS, "row"))
    repeat, progress = whole_number(repeat, "repeat", 1, _MOST_RUNS), progress_function(progress)
    chosen = [row for name, row in ROWS.items() if not names or name in names]
    measured = []
    for number, row in enumerate(chosen):
        progress(number / len(chosen))
        measured.append(row.run(repeat))
    return measured
