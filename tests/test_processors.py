"""GPU and CPU: times of experts, attention and dense parts, and the GPU's memory, against figures from elsewhere.

Formulas are written out again here, from the published calibration and from the shapes; small cases are computed
by hand, pair by pair of query and key where there are pairs.
"""

from __future__ import annotations

import dataclasses
import doctest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ndpsim.inference.processors
from builders.small_moe import GPU
from calls import GIVEN
from mistakes import mistake_of, refused
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors import Cpu, Gpu, Step, load_processors, operations, read_table, table_names
from ndpsim.inference.processors.memory import dense_weight_bytes
from ndpsim.workload.models import (
    Attention,
    CompressedAttention,
    Expert,
    Index,
    LinearAttention,
    Matrix,
    MixedAttention,
    MoeShape,
    Network,
    Residual,
    load_model,
    model_names,
)
from ndpsim.workload.models.recurrent import (
    KimiDelta,
    Lightning,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)
from scripts import script

VALIDATION = Path(__file__).parents[1] / "validation"
TRIMOE = load_processors("trimoe")
PAPER = ("deepseek-v2", "qwen3-235b-a22b", "glm-4.5-air")

FULL = Attention(heads=4, kv_heads=2, head_size=3, value_size=3)
SMALL = load_model(GIVEN / "small.json")
WINDOW, CHUNK = dataclasses.replace(FULL, window=4), dataclasses.replace(FULL, chunk=4)
DELTA = LinearAttention(key_heads=2, value_heads=4, key_size=3, value_size=5, convolution=4)
LATENT = Attention(heads=4, kv_heads=4, head_size=3, value_size=2, query_rank=5, latent_rank=7, rope_size=1)


# ---- Experts: the roofline ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("tokens", [1, 100, 256, 369, 512, 4096])
def test_an_expert_on_the_gpu_takes_what_the_calibration_says(name: str, tokens: int) -> None:
    # max(W / (0.8 x 2.04 TB/s), F / (0.7 x 819.6 TFLOPS)) + 18 us, fitted to 30% at 256 tokens
    expert = load_model(name).expert
    weights = 3 * expert.hidden * expert.intermediate
    memory, compute = 2 * weights / (0.8 * 2.04e12), 2 * weights * tokens / (0.7 * 819.6e12)
    time = TRIMOE.gpu.expert_time(expert, tokens)
    assert time.time_ns == pytest.approx((max(memory, compute) + 18e-6) * 1e9)
    assert (time.weight_read_ns, time.compute_ns) == pytest.approx((memory * 1e9, compute * 1e9))
    assert time.bound == ("memory" if memory > compute else "compute")
    assert time.holds_weight_read
    assert time.tflops == pytest.approx(2 * weights * tokens / time.time_ns / 1e3)


@pytest.mark.parametrize("tokens", [1, 11, 64, 300])
def test_an_expert_on_the_cpu_takes_what_the_calibration_says(tokens: int) -> None:
    # 2 x params x (tokens + 12) / R with R = 21 TFLOPS
    expert = load_model("deepseek-v2").expert
    time = TRIMOE.cpu.expert_time(expert, tokens)
    assert time.time_ns == pytest.approx(2 * 23592960 * (tokens + 12) / 21e12 * 1e9, rel=5e-5)
    assert time.peak_fraction == pytest.approx(time.tflops / 90.1)
    # The channels of the host are simulated: reading is no part of the formula.
    assert (time.weight_read_ns, time.holds_weight_read, time.bound) == (None, False, "compute")


def test_a_small_expert_by_hand() -> None:
    expert = Expert(8, 6)  # 144 weights, 288 B
    for tokens, bits, time_ns, bound in (
        (1, 16, 45.76, "memory"),
        (10, 16, 45.76, "compute"),
        (1, 4, 41.44, "memory"),
    ):
        time = GPU.expert_time(expert, tokens, bits)
        assert (time.time_ns, time.bound) == (pytest.approx(time_ns), bound)
    cpu = Cpu(peak_tflops=0.1, compute_efficiency=0.5, tables=(), added_tokens=2)
    assert cpu.expert_time(expert, 3).time_ns == pytest.approx(288 * 5 / 50)


def test_scales_and_zero_points_are_read_too() -> None:
    form = ExpertFormat.of(4, group_size=4)
    # gate and up: 6 rows of 8 weights in 2 groups of 16 + 4 bits beside them; down: 8 rows of 6 in 2.
    size = (2 * 6 * (32 + 40) + 8 * (24 + 40)) // 8
    time = GPU.expert_time(Expert(8, 6), 1, form)
    assert time.weight_bytes == size == 172
    assert time.weight_read_ns == pytest.approx(172 / 50)


MIXTURES = [name for name in model_names() if load_model(name).has_experts]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GPU.expert_time(Expert(8, 6), 0), "range tokens"),
        (lambda: GPU.expert_time(Expert(8, 6), 2.0), "type tokens"),  # type: ignore[arg-type]
        (lambda: GPU.expert_time(Expert(8, 6), 1, 7), "range bits"),
        (lambda: GPU.expert_time("deepseek-v2", 1), "type expert"),  # type: ignore[arg-type]
        (lambda: load_processors("trimoe", ["gpu=null"]).gpu, "missing trimoe.yaml gpu"),
        (lambda: load_processors("cxl").cpu, "missing cxl.yaml host.cpu_tflops"),
        (
            lambda: load_processors("trimoe", ["gpu.memory_efficiency=null"]).gpu,
            "missing sets gpu.memory_efficiency",
        ),
    ],
)
def test_what_has_no_time_is_refused(call: Any, words: str) -> None:
    assert mistake_of(call) == words


# ---- Experts: tables -------------------------------------------------------------------------------------------

TABLE = """\
# what: one expert, by hand
# source: nobody's bench, commit 0
# hidden: 8
# intermediate: 6
# bits: 16
# weight_read: included
tokens,time_ns
2,100
4,300
8,301.5
"""


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Writes the table with some text replaced, and reads it."""

    def read(*changes: tuple[str, str]) -> Any:
        text = TABLE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "mine.csv").write_text(text, encoding="utf-8")
        return read_table("mine.csv", tmp_path)

    return read


EXTEND = ("# bits", "# outside: extend\n# bits")


@pytest.mark.parametrize(
    ("tokens", "time_ns"), [(2, 100), (3, 200), (4, 300), (5, 300.375), (7, 301.125), (8, 301.5)]
)
def test_times_between_measured_counts_lie_on_the_line_between_them(table, tokens, time_ns):
    gpu = dataclasses.replace(GPU, tables=(table(),))
    time = gpu.expert_time(Expert(8, 6), tokens)
    assert time.time_ns == pytest.approx(time_ns)
    assert (time.bound, time.compute_ns, time.weight_read_ns) == ("measured", None, None)
    assert time.source.endswith("mine.csv: nobody's bench, commit 0")
    assert time.tflops == pytest.approx(288 * tokens / time_ns / 1e3)


def test_a_table_ends_where_measuring_ended_unless_it_says_how_it_goes_on(table: Any) -> None:
    for tokens in (1, 9):
        assert mistake_of(lambda tokens=tokens: table().time_ns(tokens)) == "range mine.csv tokens"
    extended = table(EXTEND)
    assert [extended.time_ns(tokens) for tokens in (1, 2, 8, 12)] == [100, 100, 301.5, 303]


def test_a_table_says_whether_the_reading_of_weights_is_in_it(table: Any) -> None:
    for word, holds in (("included", True), ("excluded", False)):
        cpu = Cpu(0.1, 0.5, (table(("included", word)),), 0)
        assert cpu.expert_time(Expert(8, 6), 2).holds_weight_read is holds


@pytest.mark.parametrize(
    ("expert", "bits"),
    [
        (Expert(8, 7), 16),
        (Expert(8, 6), 8),
        (Expert(8, 6), ExpertFormat.of({"gate": 16, "up": 16, "down": 8})),
        (Expert(8, 6), ExpertFormat.of(8, group_size=2)),
    ],
)
def test_other_experts_than_those_of_tables_take_what_the_roofline_says(table, expert, bits):
    with_table, plain = dataclasses.replace(GPU, tables=(table(),)), GPU
    found, wanted = (gpu.expert_time(expert, 2, bits) for gpu in (with_table, plain))
    assert found.time_ns == wanted.time_ns != 100
    assert wanted.source == "roofline"
    assert found.source == f"roofline, as there is no table of 8 x {expert.intermediate} with these bits"


def test_of_several_tables_the_one_of_the_expert_counts(table: Any, tmp_path: Path) -> None:
    first = table()
    second = table(("intermediate: 6", "intermediate: 5"), ("2,100", "2,70"))
    gpu = dataclasses.replace(GPU, tables=(first, second))
    assert [gpu.expert_time(Expert(8, columns), 2).time_ns for columns in (6, 5)] == [100, 70]
    (tmp_path / "other.csv").write_text((tmp_path / "mine.csv").read_text())
    key = f"gpu.expert_times=[{tmp_path / 'mine.csv'}, {tmp_path / 'other.csv'}]"
    with refused("conflict sets gpu.expert_times") as caught:
        _ = load_processors("trimoe", [key]).gpu
    assert all(name in caught.value.problem for name in ("mine.csv", "other.csv"))


def test_a_share_of_an_expert_takes_that_share_of_its_columns(table: Any) -> None:
    gpu = dataclasses.replace(GPU, tables=(table(),))
    assert gpu.expert_time(Expert(8, 6), 4, share=0.5).time_ns == 150
    assert gpu.expert_time(Expert(8, 6), 4, share=0.4).time_ns == 100  # 2.4 columns are 2
    part, whole = GPU.expert_time(Expert(8, 6), 4, share=0.5), GPU.expert_time(Expert(8, 3), 4)
    assert part.to_dict() == whole.to_dict()
    assert mistake_of(lambda: GPU.expert_time(Expert(8, 6), 4, share=1.5)) == "range share"


# Times of two experts, by threads: half of each is one's.
BY_THREADS = (
    ("# weight_read: included", "# weight_read: included\n# experts_per_time: 2\n# outside: roofline"),
    (
        "tokens,time_ns\n2,100\n4,300\n8,301.5\n",
        "threads,tokens,time_ns\n1,1,900\n4,1,300\n4,2,320\n8,1,200\n",
    ),
)


def test_a_table_by_threads_has_those_asked_for_or_the_most(table: Any, tmp_path: Path) -> None:
    most = table(*BY_THREADS)
    assert (most.threads, most.tokens, most.times_ns) == (8, (1,), (100,))
    four = read_table("mine.csv", tmp_path, 4)
    assert (four.threads, four.tokens, four.times_ns) == (4, (1, 2), (150, 160))
    assert mistake_of(lambda: read_table("mine.csv", tmp_path, 3)) == "conflict mine.csv threads"
    plain = table()
    assert plain.threads is None
    assert read_table("mine.csv", tmp_path, 3) == plain


def test_beyond_what_was_measured_the_longer_of_measured_and_roofline_counts(table: Any) -> None:
    # 500 operations a ns: 288 a token are 0.576 ns. Neither reading nor what comes on top is counted again.
    gpu = dataclasses.replace(GPU, tables=(table(*BY_THREADS),))
    times = {tokens: gpu.expert_time(Expert(8, 6), tokens) for tokens in (1, 173, 174)}
    assert [(one.time_ns, one.bound) for one in times.values()] == [
        (100, "measured"),
        (100, "measured"),
        (pytest.approx(174 * 0.576), "compute"),
    ]
    assert times[174].holds_weight_read
    assert times[174].source.endswith("commit 0; by the roofline beyond 1 tokens")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("4,1,300", "0,1,300"), "range mine.csv:11 threads"),
        (("8,1,200", "2,1,200"), "conflict mine.csv:13 threads"),
        (("4,2,320", "4,1,320"), "conflict mine.csv:12 tokens"),
        (("1,1,900\n4,1,300\n4,2,320\n8,1,200\n", ""), "missing mine.csv"),
        (("# outside: roofline", "# outside: extend"), "missing mine.csv"),
    ],
)
def test_a_table_by_threads_with_a_mistake_is_refused(table, change, words):
    assert mistake_of(lambda: table(*BY_THREADS, change)) == words


def test_fewer_threads_than_cores_have_their_share_of_the_peak() -> None:
    expert = load_model("qwen3-235b-a22b").expert
    sets = ["host.cpu_cores=40"]
    whole = load_processors("trimoe", sets).cpu.expert_time(expert, 8).time_ns
    assert whole == TRIMOE.cpu.expert_time(expert, 8).time_ns
    for threads, share in ((10, 0.25), (40, 1), (80, 1)):
        some = load_processors("trimoe", [*sets, f"host.cpu_threads={threads}"]).cpu
        assert some.expert_time(expert, 8).time_ns == pytest.approx(whole / share)


def test_a_cpu_that_reads_slowly_waits_for_weights() -> None:
    cpu = Cpu(peak_tflops=0.1, compute_efficiency=0.5, tables=(), added_tokens=0, read_gbps=2)
    few, many = (cpu.expert_time(Expert(8, 6), tokens) for tokens in (24, 26))
    assert (few.time_ns, few.bound, few.holds_weight_read) == (144, "memory", True)  # 288 B at 2 B a ns
    assert (many.time_ns, many.bound) == (pytest.approx(26 * 288 / 50), "compute")


THREADS = (1, 2, 4, 8, 16, 24)
# Table III (ms, of a layer of two experts) and Table IV (W) of the paper.
TABLE_III = {
    "mixtral-8x7b": (0.25, (44.12, 25.53, 18.34, 15.76, 10.96, 7.34)),
    "phi-3.5-moe": (0.11, (22.73, 12.80, 8.58, 6.39, 3.92, 3.36)),
}
TABLE_IV = {
    "mixtral-8x7b": ((86.1, 91.7, 100.3, 111.0, 133.4, 147.5), (91.6, 92.8, 101.0, 103.4, 99.6, 97.9)),
    "phi-3.5-moe": ((84.4, 88.4, 92.0, 98.4, 110.1, 118.3), (97.4, 100.7, 105.9, 109.2, 106.0, 109.2)),
}


@pytest.mark.parametrize("name", TABLE_III)
def test_experts_of_cache_7960x_4090_take_half_of_what_table_iii_has_for_two(name: str) -> None:
    gpu_ms, cpu_ms = TABLE_III[name]
    expert, (cpu_w, gpu_w) = load_model(name).expert, TABLE_IV[name]
    for threads, ms, watts in zip(THREADS, cpu_ms, zip(cpu_w, gpu_w, strict=True), strict=True):
        processors = load_processors("cache-7960x-4090", [f"host.cpu_threads={threads}"])
        time = processors.cpu.expert_time(expert, 1)
        assert (time.time_ns, time.bound) == (pytest.approx(ms * 1e6 / 2), "measured")
        assert "Table III" in time.source
        assert processors.power_w(name) == dict(zip(("cpu", "gpu"), watts, strict=True))
    processors = load_processors("cache-7960x-4090")
    assert processors.gpu.expert_time(expert, 1).time_ns == pytest.approx(gpu_ms * 1e6 / 2)
    assert processors.cpu.expert_time(expert, 1).time_ns == pytest.approx(cpu_ms[-1] * 1e6 / 2)
    with refused("conflict cache-7960x-4090.yaml host.cpu_expert_times"):
        _ = load_processors("cache-7960x-4090", ["host.cpu_threads=3"]).cpu


POWER = """\
# what: by hand
# source: a meter
# hidden: 4096
# intermediate: 14336
threads,cpu_w,gpu_w
1,20,30
4,50,31.5
"""


def test_measured_power_is_that_of_the_model_and_the_threads(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(POWER)
    key = f"host.measured_power={tmp_path / 'mine.csv'}"
    power = load_processors("trimoe", [key])
    assert power.power_w("mixtral-8x7b") == {"cpu": 50, "gpu": 31.5}
    assert power.power_w("deepseek-v2") is None
    assert TRIMOE.power_w("mixtral-8x7b") is None
    one = load_processors("trimoe", [key, "host.cpu_threads=1"])
    assert one.power_w("mixtral-8x7b") == {"cpu": 20, "gpu": 30}
    three = load_processors("trimoe", [key, "host.cpu_threads=3"])
    assert mistake_of(lambda: three.power_w("mixtral-8x7b")) == "conflict sets host.measured_power"
    for old, new, words in (
        ("4,50,31.5", "1,50,31.5", "twice sets host.measured_power"),
        ("4,50,31.5", "4,-1,31.5", "range sets host.measured_power"),
        ("1,20,30\n4,50,31.5\n", "", "missing sets host.measured_power"),
        ("threads,", "tokens,", "form sets host.measured_power"),
    ):
        (tmp_path / "mine.csv").write_text(POWER.replace(old, new))
        assert mistake_of(lambda: power.power_w("mixtral-8x7b")) == words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("# source: nobody's bench, commit 0\n", ""), "missing mine.csv source"),
        (("# source: nobody's bench, commit 0", "# source:"), "range mine.csv:2 source"),
        (("# bits: 16", "# bits: 16\n# bits: 16"), "twice mine.csv:6 bits"),
        (("# bits: 16", "# bit: 16"), "unknown-name mine.csv:5 ? bits"),
        (("# bits: 16", "# bits: 1.5"), "range mine.csv:5 bits"),
        (("# hidden: 8", "# hidden: 0"), "range mine.csv:3 hidden"),
        (("included", "inside"), "range mine.csv:6 weight_read"),
        (("tokens,time_ns", "tokens,time_us"), "form mine.csv:7"),
        (("4,300", "4;300"), "form mine.csv:9"),
        (("4,300", "2,300"), "conflict mine.csv:9 tokens"),
        (("4,300", "x,300"), "range mine.csv:9 tokens"),
        (("4,300", "0,300"), "range mine.csv:9 tokens"),
        (("4,300", "4,-3"), "range mine.csv:9 time_ns"),
        (("4,300", "4,nan"), "range mine.csv:9 time_ns"),
        (("4,300", "4,inf"), "range mine.csv:9 time_ns"),
        (("4,300\n8,301.5\n", ""), "missing mine.csv"),
        (("8,301.5", "8,299"), None),
    ],
)
def test_a_table_with_a_mistake_is_refused_at_its_line(table, change, words):
    if words is None:  # times may fall, but a line that falls cannot be extended
        assert table(change).time_ns(8) == 299
        assert mistake_of(lambda: table(change, EXTEND)) == "form mine.csv:11 time_ns"
        return
    assert mistake_of(lambda: table(change)) == words


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "large.csv").write_bytes(b"#" * (2**20 + 1))
    for name, words in (
        ("empty.csv", "missing empty.csv what"),
        ("bytes.csv", "form bytes.csv:1"),
        ("folder.csv", "unreadable folder.csv"),
        ("none.csv", "unreadable none.csv"),
        ("large.csv", "too-large large.csv"),
        ("h100", "unknown-name ? h100_mixtral-8x7b"),
        ("a\0.csv", "unreadable a\u0000.csv"),
    ):
        assert mistake_of(lambda name=name: read_table(name, tmp_path)) == words


def test_a_table_is_found_beside_the_hardware_file_and_from_where_one_sets_it(table, tmp_path, monkeypatch):
    table(EXTEND)
    text = Path(load_hardware("trimoe").file).read_text(encoding="utf-8")
    beside = tmp_path / "mine.yaml"
    beside.write_text(
        text.replace("expert_buffers:", "expert_times: mine.csv\n  expert_buffers:"), encoding="utf-8"
    )
    assert load_processors(str(beside)).gpu.expert_time(Expert(8, 6), 4).time_ns == 300
    key = "host.cpu_expert_times=mine.csv"
    assert mistake_of(lambda: load_processors("trimoe", [key]).cpu) == "unreadable sets host.cpu_expert_times"
    monkeypatch.chdir(tmp_path)
    assert load_processors("trimoe", [key]).cpu.expert_time(Expert(8, 6), 8).time_ns == 301.5


def test_the_bundled_table_has_the_measured_times() -> None:
    assert "h100_mixtral-8x7b" in table_names()
    measured = read_table("h100_mixtral-8x7b", Path())
    assert measured.expert == load_model("mixtral-8x7b").expert
    assert (len(measured.tokens), measured.holds_weight_read, measured.outside) == (126, True, "refuse")
    # LLMServingSim, profiler/v0/perf_models: its first, a middle and its last row.
    assert [measured.time_ns(tokens) for tokens in (1, 544, 2048)] == [128967, 328283, 1019203]
    assert "commit 5daddb2" in measured.source
    processors = load_processors("cxl", ["gpu.expert_times=h100_mixtral-8x7b"])
    assert processors.gpu.expert_time(measured.expert, 1).time_ns == 128967


# ---- Attention and dense parts -----------------------------------------------------------------------------------


def found(model: MoeShape, step: Step) -> dict[tuple[str, str], tuple[int, int, int, int, int]]:
    return {(one.part, one.name): one[2:7] for one in operations(model, step)}


def test_operations_of_a_small_model_in_decode_by_hand() -> None:
    # 5 sequences of 7 tokens; q 12 x 8, k and v 6 x 8 each, o 8 x 12; a token caches 12 values.
    assert found(SMALL, Step(5, 7)) == {
        ("attention", "norms"): (0, 0, 2 * 5 * 4 * 8 * 2, 0, 2),
        ("attention", "qkv_proj"): (2 * 192 * 5, 384, 5 * 32 * 2, 0, 1),
        ("attention", "cache_entries"): (0, 0, 5 * 12 * 2, 5 * 12 * 2, 1),
        ("attention", "attend"): (2 * 35 * 4 * 6, 0, 5 * 24 * 2, 35 * 24, 1),
        ("attention", "o_proj"): (2 * 96 * 5, 192, 5 * 20 * 2, 0, 1),
        ("router", "gate_and_top_k"): (2 * 32 * 5, 64, 5 * 12 * 2, 0, 2),
        ("shared_experts", "gate_and_up"): (2 * 96 * 5, 192, 5 * 20 * 2, 0, 1),
        ("shared_experts", "activation"): (0, 0, 5 * 18 * 2, 0, 1),
        ("shared_experts", "down"): (2 * 48 * 5, 96, 5 * 14 * 2, 0, 1),
        ("dense_layer", "gate_and_up"): (2 * 160 * 5, 320, 5 * 28 * 2, 0, 1),
        ("dense_layer", "activation"): (0, 0, 5 * 30 * 2, 0, 1),
        ("dense_layer", "down"): (2 * 80 * 5, 160, 5 * 18 * 2, 0, 1),
        ("head", "norm"): (0, 0, 5 * 4 * 8 * 2, 0, 1),
        ("head", "lm_head"): (2 * 400 * 5, 800, 5 * 58 * 2, 0, 1),
    }


def test_layers_of_one_block_by_hand() -> None:
    # 5 tokens; layers of attention, of a network of 2 matrices of 9 x 8, and of experts; a shared expert of 6.
    kinds = MixedAttention((SMALL.attention_kinds[0], Network(9), Network()), (0, 1, 2))
    model = dataclasses.replace(
        SMALL, attention=kinds, layers=3, moe_layers=1, dense_layers=(0, 1), dense_intermediate=0,
        gated_experts=False, single_blocks=True,
    )  # fmt: skip
    step = Step(5, 7)
    done = [(one.kind, one.part, one.name, *one[2:7]) for one in operations(model, step)]
    norm = ("attention", "norms", 0, 0, 5 * 4 * 8 * 2, 0, 1)
    assert next(one[1:] for one in done if one[0] == 0 and one[1] == "attention") == norm
    assert [one[1:] for one in done if one[0] == 1] == [
        norm,
        ("attention", "up", 2 * 72 * 5, 144, 5 * 17 * 2, 0, 1),
        ("attention", "activation", 0, 0, 5 * 18 * 2, 0, 1),
        ("attention", "down", 2 * 72 * 5, 144, 5 * 17 * 2, 0, 1),
    ]
    assert [one[1:] for one in done if one[0] == 2] == [norm]
    assert [one[2:] for one in done if one[1] == "shared_experts"] == [
        ("up", 2 * 48 * 5, 96, 5 * 14 * 2, 0, 1),
        ("activation", 0, 0, 5 * 12 * 2, 0, 1),
        ("down", 2 * 48 * 5, 96, 5 * 14 * 2, 0, 1),
    ]
    assert not [one for one in done if one[1] == "dense_layer"]
    weights = dense_weight_bytes(model, 8)
    assert weights["attention"] == 192 + 96 + 2 * 72
    assert (weights["shared_experts"], weights["dense_layers"]) == (2 * 48, 0)
    zero = dataclasses.replace(SMALL, zero_experts=3)
    assert found(zero, step)["router", "gate_and_top_k"] == (2 * 56 * 5, 112, 5 * 15 * 2, 0, 2)


def test_a_prefill_makes_one_token_of_each_sequence() -> None:
    # 2 prompts of 3 tokens: all six go through the router, the last of each through the head of 50 x 8.
    prefill = found(SMALL, Step(2, 3, 3))
    assert prefill["router", "gate_and_top_k"] == (2 * 32 * 6, 64, 6 * 12 * 2, 0, 2)
    assert prefill["head", "norm"] == (0, 0, 2 * 4 * 8 * 2, 0, 1)
    assert prefill["head", "lm_head"] == (2 * 400 * 2, 800, 2 * 58 * 2, 0, 1)


def test_latent_attention_of_a_small_model_by_hand() -> None:
    # q_a 5 x 8, q_b 12 x 5, kv_a 8 x 8, kv_b (4 x (2 + 2)) x 7, o 8 x 8; a token caches 7 + 1 values.
    model = dataclasses.replace(SMALL, attention=LATENT)
    decode, prefill = found(model, Step(5, 7)), found(model, Step(5, 7, 7))
    assert decode["attention", "q_a_proj"] == (2 * 40 * 5, 80, 5 * 13 * 2, 0, 1)
    assert decode["attention", "q_b_proj"] == (2 * 60 * 5, 120, 5 * 17 * 2, 0, 1)
    assert decode["attention", "kv_a_proj_with_mqa"] == (2 * 64 * 5, 128, 5 * 16 * 2, 0, 1)
    assert decode["attention", "cache_entries"] == (0, 0, 5 * 8 * 2, 5 * 8 * 2, 1)
    # Two entries of a query become seven, seven of a result two, for each head.
    assert decode["attention", "kv_b_proj"] == (2 * 112 * 5, 224, 5 * 4 * (2 + 7 + 7 + 2) * 2, 0, 2)
    # Scores over 7 + 1 entries, sums of 7.
    assert decode["attention", "attend"] == (2 * 35 * 4 * 15, 0, 5 * 4 * 15 * 2, 35 * 16, 1)
    assert decode["attention", "o_proj"] == (2 * 64 * 5, 128, 5 * 16 * 2, 0, 1)
    # Keys and values of all 35 tokens are made, 16 entries each beside the common one.
    assert prefill["attention", "kv_b_proj"] == (2 * 112 * 35, 224, 35 * 16 * 2, 35 * 16, 1)
    assert prefill["attention", "attend"] == (2 * 5 * 28 * 4 * 5, 0, (35 * 20 + 35 * 17) * 2, 0, 1)


def test_latent_attention_with_an_index_by_hand() -> None:
    # The index has 2 heads of 6, and one key of 6 for each token; a token attends to at most 4 others.
    indexed = dataclasses.replace(LATENT, index=Index(4, heads=2, size=6))
    assert (indexed.cached_values, indexed.title) == (14, "mla index: top of 4")
    decode = found(dataclasses.replace(SMALL, attention=indexed), Step(5, 7))
    prefill = found(dataclasses.replace(SMALL, attention=indexed), Step(5, 7, 7))
    assert decode["attention", "indexer.wq_b"] == (2 * 12 * 5 * 5, 120, 5 * 17 * 2, 0, 1)
    assert decode["attention", "indexer.wk"] == (2 * 6 * 8 * 5, 96, 5 * 14 * 2, 0, 1)
    assert decode["attention", "indexer.weights_proj"] == (2 * 2 * 8 * 5, 32, 5 * 10 * 2, 0, 1)
    assert decode["attention", "indexer.scores"] == (2 * 35 * 2 * 7, 0, 5 * 14 * 2 + 35 * 4, 35 * 6 * 2, 1)
    assert decode["attention", "indexer.choice"] == (0, 0, 35 * 4 + 20 * 4, 0, 1)
    assert decode["attention", "cache_entries"] == (0, 0, 5 * 14 * 2, 5 * 14 * 2, 1)
    # Four latent vectors of 8 values for each sequence, and the latent vectors in a prefill, too: 1 + 2 + 3 + 4 x 4.
    assert decode["attention", "attend"] == (2 * 20 * 4 * 15, 0, 5 * 4 * 15 * 2, 20 * 16, 1)
    assert prefill["attention", "attend"] == (2 * 5 * 22 * 4 * 15, 0, 35 * 4 * 15 * 2, 35 * 16, 1)
    assert prefill["attention", "indexer.scores"][0] == 2 * 5 * 28 * 2 * 7
    # Of 6 tokens in the host's memory 4 latent vectors and 6 keys of the index are read.
    assert indexed.read_bits(7, 1, 16) == (4 * 8 + 6 * 6) * 16
    assert (indexed.kept_bits(7, 16), indexed.written_bits(7, 1, 16)) == (7 * 14 * 16, 14 * 16)
    # A layer that takes the choice of the layer before has no index.
    shared = dataclasses.replace(indexed, index=Index(4))
    assert (shared.cached_values, shared.title) == (8, "mla index: top of 4 of the layer before")
    assert not any(
        "indexer" in name for _, name in found(dataclasses.replace(SMALL, attention=shared), Step(5, 7))
    )


def test_keys_and_values_with_an_index_over_pools_by_hand() -> None:
    # Of 7 tokens two pools of 2 and the last one; scores of 3 whole pools, of which keys are made again.
    pools = dataclasses.replace(FULL, index=Index(4, heads=2, size=6, pool=2, weighted=False))
    decode = found(dataclasses.replace(SMALL, attention=pools), Step(5, 7))
    assert (pools.cached_values, pools.title) == (18, "gqa index: top of 4 in pools of 2")
    assert decode["attention", "indexer.wq_b"] == (2 * 12 * 8 * 5, 192, 5 * 20 * 2, 0, 1)
    assert decode["attention", "indexer.scores"] == (15 * 2 * 13, 0, 5 * 12 * 2 + 15 * 4, 35 * 6 * 2, 1)
    assert decode["attention", "indexer.choice"] == (0, 0, 15 * 4 + 13 * 4, 0, 1)
    assert decode["attention", "attend"] == (2 * 25 * 24, 0, 5 * 24 * 2, 25 * 12 * 2, 1)
    assert not any("weights_proj" in name for _, name in decode)
    # Each of two heads chooses two pools, its own among them: 7 tokens have 4 pools, and the last one has 1.
    heads = dataclasses.replace(FULL, index=Index(4, heads=2, size=6, pool=2, by_head=True, weighted=False))
    decode = found(dataclasses.replace(SMALL, attention=heads), Step(5, 7))
    assert decode["attention", "indexer.scores"] == (35 * 2 * 12, 0, 5 * 12 * 2 + 40 * 4, 35 * 6 * 2, 1)
    assert decode["attention", "indexer.choice"] == (0, 0, 40 * 4 + 8 * 2 * 4, 0, 1)
    assert decode["attention", "attend"][0] == 2 * 15 * 24
    # Gates of keys are cached, with a flag.
    gated = dataclasses.replace(LATENT, index=Index(4, heads=2, size=6, pool=2, gated=True))
    assert gated.cached_values == 8 + 13
    assert found(dataclasses.replace(SMALL, attention=gated), Step(5, 7))["attention", "indexer.gate_proj"]


@pytest.mark.parametrize("index", [Index(8, 2, 3, pool=4), Index(8, 2, 3), Index(8, 2, 3, 4, by_head=True)])
def test_sums_over_the_tokens_of_a_sequence_are_those_of_each_token(index: Index) -> None:
    def chosen(tokens: int) -> int:
        if index.by_head:
            own = (tokens - 1) % index.pool + 1
            return tokens if tokens <= index.top else index.top - index.pool + own
        whole = tokens // index.pool * index.pool
        return min(whole, index.top) + tokens - whole

    def ranked(tokens: int) -> int:
        return index.heads * -(-tokens // index.pool) if index.by_head else tokens // index.pool

    for tokens in range(40):
        assert index.pairs(tokens) == sum(map(chosen, range(1, tokens + 1)))
        assert index.ranked(tokens) == sum(map(ranked, range(1, tokens + 1)))


COMPRESSED = CompressedAttention(
    heads=4, head_size=3, query_rank=5, output_groups=2, output_rank=3, window=4, rate=2, index=Index(2, 2, 6)
)


def test_compressed_attention_of_a_small_model_by_hand() -> None:
    # A token has a vector of 3, and 2 of 3 and 2 of 6 for entries, each with weights; 7 tokens have 3 entries.
    decode = found(dataclasses.replace(SMALL, attention=COMPRESSED), Step(5, 7))
    prefill = found(dataclasses.replace(SMALL, attention=COMPRESSED), Step(5, 7, 7))
    assert COMPRESSED.title == "compressed 2 to 1, window of 4, index: top of 2"
    assert decode["attention", "kv_proj"] == (2 * 120 * 5, 240, 5 * 23 * 2, 0, 1)
    assert decode["attention", "indexer.kv_proj"] == (2 * 96 * 5, 192, 5 * 20 * 2, 0, 1)
    assert decode["attention", "indexer.q_b_proj"] == (2 * 60 * 5, 120, 5 * 17 * 2, 0, 1)
    assert decode["attention", "indexer.scores"] == (15 * 28, 0, 5 * 14 * 2 + 15 * 4, 15 * 6 * 2, 1)
    assert decode["attention", "indexer.choice"] == (0, 0, 15 * 4 + 10 * 4, 0, 1)
    # Four vectors and two entries; no new entry, but compressors keep the seventh token beside the last two.
    assert decode["attention", "attend"] == (4 * 30 * 12, 0, 2 * 5 * 12 * 2, 5 * 6 * 3 * 2, 1)
    assert decode["attention", "cache_entries"] == (0, 0, 5 * 39 * 2, 5 * (3 + 36 + 72) * 2, 1)
    assert decode["attention", "o_a_proj"] == (2 * 36 * 5, 72, 5 * 18 * 2, 0, 1)
    assert decode["attention", "o_b_proj"] == (2 * 48 * 5, 96, 5 * 14 * 2, 0, 1)
    # 1 + 2 + 3 + 4 x 4 vectors, and 0 + 1 + 1 + 2 x 4 entries; three new entries of two windows of 2 tokens.
    assert prefill["attention", "attend"] == (4 * 160 * 12, 0, 35 * 24 * 2, 5 * 10 * 3 * 2, 1)
    assert prefill["attention", "cache_entries"][0] == 3 * 15 * 2 * 2 * 9
    assert COMPRESSED.kept_bits(7, 16) == (4 * 3 + 3 * 9 + 72) * 16
    assert COMPRESSED.fixed_bits(16) == (4 * 3 + 72) * 16
    assert COMPRESSED.read_bits(7, 1, 16) == (3 * 3 + 2 * 3 + 3 * 6 + 36) * 16
    assert COMPRESSED.written_bits(7, 1, 16) == (3 + 36) * 16
    # Without an index all entries are met, and they do not overlap.
    plain = dataclasses.replace(COMPRESSED, index=None)
    assert (plain.pairs(7, 1), plain.pairs(7, 7)) == (4 + 3, 22 + 12)
    assert plain.kept_values(7) == 4 * 3 + 3 * 3
    assert plain.waiting_values(7) == 2 * 3


def test_streams_between_blocks_by_hand() -> None:
    # Two streams of 8: their sum with weights, the mixture by a matrix of 2 x 2, and the result of the block.
    block, end = (Matrix("fn", 8, 16),), (Matrix("hc_head", 2, 16),)
    streams = Residual(2, True, block, block, block, end)
    with_streams = found(dataclasses.replace(SMALL, residual=streams), Step(5, 7))
    for part in ("attention", "router", "dense_layer"):
        assert with_streams[part, "residual.fn"] == (2 * 128 * 5, 256, 5 * 24 * 2, 0, 1)
        assert with_streams[part, "residual"] == (5 * 16 * 8, 0, 5 * 6 * 8 * 2, 0, 2)
    assert with_streams["head", "residual.hc_head"] == (2 * 32 * 5, 64, 5 * 18 * 2, 0, 1)
    assert with_streams["head", "residual"] == (5 * 4 * 8, 0, 5 * 3 * 8 * 2, 0, 2)
    plain = dense_weight_bytes(SMALL)["attention"]
    assert dense_weight_bytes(dataclasses.replace(SMALL, residual=streams))["attention"] == plain + 2 * (
        2 * SMALL.layers * 128 + 32
    )
    # Gates of norms: a matrix to a rank and one back, before attention and experts alone.
    gate = (Matrix("fc1", 2, 8), Matrix("fc2", 8, 2))
    gated = found(dataclasses.replace(SMALL, residual=Residual(1, False, gate, gate)), Step(5, 7))
    assert gated["router", "residual"] == (5 * 8, 0, 5 * 3 * 8 * 2, 0, 2)
    assert ("dense_layer", "residual") not in gated
    assert ("head", "residual") not in gated


def test_state_space_layers_of_a_small_model_by_hand() -> None:
    # Mamba-2: 2 groups of B and C of 3, 4 heads of 5; a convolution of 4 tokens; chunks of 64 tokens.
    mamba = StateSpace(key_heads=2, value_heads=4, key_size=3, value_size=5, convolution=4, chunk=64)
    model = dataclasses.replace(SMALL, attention=mamba)
    decode, prefill = found(model, Step(5, 7)), found(model, Step(5, 70, 70))
    assert decode["attention", "in_proj"] == (2 * 56 * 8 * 5, 56 * 8 * 2, 5 * 64 * 2, 0, 1)
    assert decode["attention", "conv1d"] == (2 * 32 * 4 * 5, 256, 2 * 5 * 32 * 2, 2 * 5 * 3 * 32 * 2, 1)
    assert decode["attention", "state_space"] == (5 * 5 * 60, 0, 5 * 56 * 2, 2 * 5 * 60 * 4, 1)
    chunk = 2 * (2 * 4096 * 3) + 4 * (4096 + 2 * 4096 * 5 + 4 * 64 * 15 + 2 * 15)
    between = 2 * (2 * 4096 + 2 * 60) * 2
    assert prefill["attention", "state_space"] == (
        5 * 2 * chunk, 0, 350 * 56 * 2 + 5 * 2 * between, 5 * 60 * 4, 5,
    )  # fmt: skip
    # Mamba: 16 channels with 3 numbers each; a time step of rank 2.
    scan = SelectiveScan(key_heads=1, value_heads=16, key_size=3, value_size=1, convolution=4, rank=2)
    decode = found(dataclasses.replace(SMALL, attention=scan), Step(5, 7))
    assert decode["attention", "x_proj"] == (2 * 8 * 16 * 5, 8 * 16 * 2, 5 * 24 * 2, 0, 1)
    assert decode["attention", "state_space"] == (7 * 5 * 48, 0, 5 * (16 + 16 + 22) * 2, 2 * 5 * 48 * 4, 1)


def test_other_layers_without_keys_by_hand() -> None:
    lightning = Lightning(4, 4, 3, 3, 1, chunk=64)
    decode = found(dataclasses.replace(SMALL, attention=lightning), Step(5, 7))
    assert decode["attention", "qkv_proj"] == (2 * 36 * 8 * 5, 36 * 8 * 2, 5 * 44 * 2, 0, 1)
    assert decode["attention", "state_space"] == (5 * 5 * 36, 0, 5 * 48 * 2, 2 * 5 * 36 * 4, 1)
    assert lightning.kept_bits(9, 16) == 36 * 32
    short = ShortConvolution(0, 1, 0, 8, 3)
    decode = found(dataclasses.replace(SMALL, attention=short), Step(5, 7))
    assert {name for part, name in decode if part == "attention"} == {
        "norms",
        "in_proj",
        "conv1d",
        "gates",
        "out_proj",
    }
    assert decode["attention", "gates"] == (0, 0, 6 * 5 * 8 * 2, 0, 2)
    assert short.kept_bits(9, 16) == 2 * 8 * 16
    # Kimi's decay has an entry for each of a key; the products are those of the gated delta rule.
    kimi = KimiDelta(4, 4, 3, 3, 4, gate_rank=2)
    decode = found(dataclasses.replace(SMALL, attention=kimi), Step(5, 7))
    assert decode["attention", "f_b_proj"] == (2 * 12 * 2 * 5, 48, 5 * 14 * 2, 0, 1)
    assert decode["attention", "delta_rule"] == (7 * 5 * 36, 0, 5 * (36 + 12 + 16) * 2, 2 * 5 * 36 * 4, 1)


def test_a_window_and_a_chunk_of_a_small_model_by_hand() -> None:
    # Queries of 12, keys and values of 6 values each. The token at 6 meets 3 to 6, or its chunk of 4 and 5.
    for attention, keys in ((WINDOW, 4), (CHUNK, 3)):
        decode = found(dataclasses.replace(SMALL, attention=attention), Step(5, 7))
        assert decode["attention", "attend"] == (2 * 5 * keys * 24, 0, 5 * 24 * 2, 5 * keys * 12 * 2, 1)
        assert decode["attention", "cache_entries"] == (0, 0, 5 * 12 * 2, 5 * 12 * 2, 1)
    # A prefill of 7: 1 + 2 + 3 + 4 x 4 pairs, and 10 + 6; all keys are read.
    for attention, pairs in ((WINDOW, 22), (CHUNK, 16)):
        prefill = found(dataclasses.replace(SMALL, attention=attention), Step(5, 7, 7))
        assert prefill["attention", "attend"] == (2 * 5 * pairs * 24, 0, 35 * 24 * 2, 35 * 12 * 2, 1)


def test_gated_attention_of_a_small_model_by_hand() -> None:
    decode = found(dataclasses.replace(SMALL, attention=dataclasses.replace(FULL, gated=True)), Step(5, 7))
    # Twelve rows more, which make the gate; result and gate are read, their product is written.
    assert decode["attention", "qkv_proj"] == (2 * 36 * 8 * 5, 36 * 8 * 2, 5 * 44 * 2, 0, 1)
    assert decode["attention", "output_gate"] == (0, 0, 5 * 36 * 2, 0, 1)
    assert decode["attention", "o_proj"] == (2 * 96 * 5, 192, 5 * 20 * 2, 0, 1)


def test_linear_attention_of_a_small_model_by_hand() -> None:
    # Queries and keys of 6, values of 20 entries, and as many of the gate; a state of 3 x 5 for each of 4 heads.
    model = dataclasses.replace(SMALL, attention=DELTA)
    decode, prefill = found(model, Step(5, 7)), found(model, Step(5, 70, 70))
    state, kept = 5 * 60 * 4, 5 * 3 * 32 * 2  # 32 bits a number; of three tokens 16 bits a channel
    assert decode["attention", "in_proj_qkvz"] == (2 * 52 * 8 * 5, 52 * 8 * 2, 5 * 60 * 2, 0, 1)
    assert decode["attention", "in_proj_ba"] == (2 * 8 * 8 * 5, 8 * 8 * 2, 5 * 16 * 2, 0, 1)
    assert decode["attention", "conv1d"] == (2 * 32 * 4 * 5, 32 * 4 * 2, 2 * 5 * 32 * 2, 2 * kept, 1)
    # 7 operations for each number of a state; 32 and 20 values and 8 gates of a token.
    assert decode["attention", "delta_rule"] == (7 * 5 * 60, 0, 5 * 60 * 2, 2 * state, 1)
    assert decode["attention", "norm_and_gate"] == (0, 0, 3 * 5 * 20 * 2, 0, 1)
    assert decode["attention", "out_proj"] == (2 * 8 * 20 * 5, 8 * 20 * 2, 5 * 28 * 2, 0, 1)
    # 70 tokens are two chunks of 64. Of a head's chunk: three products of 64 x 64 x 3 and two of 64 x 64 x 5, the
    # rows of the triangular matrix (1 + 4 + ... + 63 x 63 products and sums), and with the state three products of
    # 64 x 3 x 5 and its decay.
    rows = 2 * sum(i * i for i in range(64))
    chunk = 2 * 4096 * (3 * 3 + 2 * 5) + rows + 3 * 2 * 64 * 15 + 15
    between = 2 * (4096 + 64 * (3 + 5 + 5) + 15) * 2
    assert prefill["attention", "delta_rule"] == (
        5 * 4 * 2 * chunk, 0, 350 * 60 * 2 + 5 * 4 * 2 * between, state, 6,
    )  # fmt: skip
    assert prefill["attention", "conv1d"] == (2 * 32 * 4 * 350, 32 * 4 * 2, 2 * 350 * 32 * 2, kept, 1)


MIX = dataclasses.replace(SMALL, attention=MixedAttention((WINDOW, FULL, DELTA), (0, 1, 2)))


def test_each_kind_of_a_model_has_its_own_time() -> None:
    time = timed(MIX, Step(5, 7))
    alone = [timed(dataclasses.replace(SMALL, attention=kind), Step(5, 7)) for kind in (WINDOW, FULL, DELTA)]
    assert [one.time_ns for one in time.attention] == [one.attention_ns for one in alone]
    assert [time.of_layer(layer).kind for layer in range(3)] == [
        "gqa window of 4", "gqa", "linear (gated delta net)",
    ]  # fmt: skip
    # 4 - 1 and 7 - 1 tokens of 24 B before the new one; states of 60 x 4 B and 3 x 32 x 2 B.
    assert [one.kv_read_bytes for one in time.attention] == [5 * 3 * 24, 5 * 6 * 24, 5 * 432]
    assert [one.kv_write_bytes for one in time.attention] == [5 * 24, 5 * 24, 5 * 432]
    assert time.kv_read_bytes == round((360 + 720 + 2160) / 3)
    assert time.attention_ns == pytest.approx(sum(one.time_ns for one in time.attention) / 3)
    assert (time.router_ns, time.head_ns) == (alone[0].router_ns, alone[0].head_ns)
    far = timed(MIX, Step(5, 7), kv="host")
    assert [one.host_read_bytes for one in far.attention] == [360, 720, 2160]


def test_a_context_beyond_the_window_takes_no_longer_in_a_layer_that_has_it() -> None:
    near, far = (TRIMOE.dense_time("gpt-oss-120b", 8, context) for context in (128, 131072))
    assert near.attention[0].time_ns == far.attention[0].time_ns
    assert near.attention[1].time_ns < far.attention[1].time_ns
    assert TRIMOE.dense_time("phi-3.5-moe", 1, 131073).kv_read_bytes == 131071 * 2048 * 2


def test_times_of_a_small_model_by_hand() -> None:
    times = {(one.part, one.name): one for one in timed(SMALL, Step(5, 7)).operations}
    # 1920 operations at 500 a ns; 704 B at 50 B a ns; and a kernel.
    assert times["attention", "qkv_proj"].time_ns == pytest.approx(704 / 50 + 10)
    # 1680 operations at 250 a ns against 240 + 840 B.
    assert times["attention", "attend"].time_ns == pytest.approx(1080 / 50 + 10)
    assert times["router", "gate_and_top_k"].time_ns == pytest.approx(184 / 50 + 20)
    assert {one.bound for one in times.values()} == {"memory"}
    fast = dataclasses.replace(GPU, memory_gbps=1e6)
    times = {(one.part, one.name): one for one in timed(SMALL, Step(5, 7), fast).operations}
    assert times["attention", "qkv_proj"].time_ns == pytest.approx(1920 / 500 + 10)
    assert times["attention", "attend"].time_ns == pytest.approx(1680 / 250 + 10)
    assert times["attention", "attend"].bound == "compute"


def timed(model: MoeShape, step: Step, gpu: Gpu = GPU, kv: str = "gpu") -> Any:
    return ndpsim.inference.processors.dense.timed(gpu, model, step, kv, 16)


def test_parts_add_up_to_their_operations() -> None:
    time = timed(SMALL, Step(5, 7))
    parts = {"attention": time.attention_ns, "router": time.router_ns, "shared_experts": time.shared_ns}
    parts |= {"dense_layer": time.dense_layer_ns, "head": time.head_ns}
    for part, time_ns in parts.items():
        assert time_ns == pytest.approx(sum(one.time_ns for one in time.operations if one.part == part))
    bare = dataclasses.replace(SMALL, shared_experts=0, shared_intermediate=0, dense_layers=(), moe_layers=3)
    time = timed(bare, Step(5, 7))
    assert (time.shared_ns, time.dense_layer_ns) == (0, 0)
    assert time.attention_ns == parts["attention"]


@given(st.integers(1, 5), st.integers(1, 30), st.data())
def test_pairs_of_query_and_key_counted_one_by_one(sequences: int, context: int, data: Any) -> None:
    new = data.draw(st.integers(1, context))
    counted = sum(1 for query in range(context - new, context) for key in range(context) if key <= query)
    assert Step(sequences, context, new).pairs(FULL) == sequences * counted


@given(st.integers(1, 12), st.integers(1, 30), st.data())
def test_keys_of_a_window_and_of_a_chunk_counted_one_by_one(limit: int, context: int, data: Any) -> None:
    new = data.draw(st.integers(1, context))
    step, queries = Step(3, context, new, kv_bits=8), range(context - new, context)
    for attention, meets in (
        (dataclasses.replace(FULL, window=limit), lambda query, key: key > query - limit),
        (dataclasses.replace(FULL, chunk=limit), lambda query, key: key // limit == query // limit),
    ):
        met = [(query, key) for query in queries for key in range(query + 1) if meets(query, key)]
        keys = {key for _, key in met}
        assert step.pairs(attention) == 3 * len(met)
        assert step.attended(attention) == 3 * len(keys)
        # A token takes 12 values, of a byte each.
        assert step.read_bytes(attention) == 3 * 12 * len([key for key in keys if key < context - new])
        last = {key for query, key in met if query == context - 1 and key >= context - new}
        assert step.written_bytes(attention) == 3 * 12 * len(last)
        assert step.kept_bytes(attention) == 3 * 12 * min(context, limit)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_prefill_in_pieces_makes_the_pairs_of_a_whole_one(pieces: list[int]) -> None:
    ends = [sum(pieces[: n + 1]) for n in range(len(pieces))]
    steps = [Step(3, end, new) for end, new in zip(ends, pieces, strict=True)]
    for attention in (FULL, WINDOW, CHUNK):
        pairs = [step.pairs(attention) for step in steps]
        assert sum(pairs) == Step(3, ends[-1], ends[-1]).pairs(attention)
    flops = [sum(one.flops for one in operations(SMALL, step) if one.part == "attention") for step in steps]
    whole = [one for one in operations(SMALL, Step(3, ends[-1], ends[-1])) if one.part == "attention"]
    assert sum(flops) == sum(one.flops for one in whole)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("step", [Step(512, 512), Step(1, 4096), Step(8, 512, 512), Step(4, 600, 100)])
def test_no_dense_part_is_faster_than_the_peaks_allow_nor_slower_than_all_in_turn(name, step):
    model = load_model(name)
    time = timed(model, step, TRIMOE.gpu)
    done = operations(model, step)
    for part, kind, time_ns in (
        *(("attention", kind, one.time_ns) for kind, one in enumerate(time.attention)),
        ("router", 0, time.router_ns),
        ("head", 0, time.head_ns),
    ):
        of_part = [one for one in done if (one.part, one.kind) == (part, kind)]
        flops, size = sum(one.flops for one in of_part), sum(one.bytes for one in of_part)
        assert time_ns >= max(flops / 819.6e3, size / 2040)
        kernels = sum(one.kernels for one in of_part)
        assert time_ns <= flops / (0.586 * 819.6e3) + size / (0.8 * 2040) + 3000 * kernels


@pytest.mark.parametrize("name", model_names())
def test_weights_that_are_read_are_those_that_the_memory_holds(name: str) -> None:
    model = load_model(name)
    read = dict.fromkeys(ndpsim.inference.processors.PARTS, 0)
    for one in operations(model, Step(2, 5)):
        read[one.part] += one.weight_bytes * (
            model.layers_of_kind[one.kind] if one.part == "attention" else 1
        )
    held = dense_weight_bytes(model)
    assert read["attention"] == held["attention"]
    assert model.moe_layers * read["router"] == held["router"]
    assert model.moe_layers * read["shared_experts"] == held["shared_experts"]
    assert len(model.dense_layers) * read["dense_layer"] == held["dense_layers"]
    assert read["head"] == held["head"] == held["embedding"]


@pytest.mark.parametrize("new", [1, 64])
def test_latent_attention_multiplies_once_by_its_projections_in_either_form(new: int) -> None:
    model = load_model("deepseek-v2")
    (attention,) = model.attention_kinds
    step = Step(3, 64, new)
    done = [one for one in operations(model, step) if one.part == "attention" and not one.attends]
    weights = sum(matrix.rows * matrix.columns for matrix in attention.matrices(model.hidden))
    assert sum(one.flops for one in done) == 2 * weights * step.tokens


@pytest.mark.parametrize(
    ("name", "of_token"),
    [
        ("deepseek-v2", 60 * (512 + 64) * 2),  # the DeepSeek-V2 paper: 93.3% less than the 67B model
        ("mixtral-8x7b", 128 << 10),  # 2 x 32 layers x 8 heads x 128 x 2 B
        ("qwen3-235b-a22b", 94 * 2 * 4 * 128 * 2),
    ],
)
def test_bytes_of_a_token_in_the_cache(name: str, of_token: int) -> None:
    model = load_model(name)
    time = TRIMOE.dense_time(name, 3, 11)
    assert model.layers * time.kv_write_bytes == 3 * of_token
    assert model.layers * time.kv_read_bytes == 3 * 10 * of_token
    assert (time.host_read_bytes, time.host_write_bytes) == (0, 0)
    prefill = TRIMOE.dense_time(name, 3, 11, 11, kv_bits=8)
    assert (model.layers * prefill.kv_write_bytes, prefill.kv_read_bytes) == (3 * 11 * of_token // 2, 0)


def test_a_cache_with_the_host_goes_over_its_channels() -> None:
    near, far = (TRIMOE.dense_time("glm-4.5-air", 4, 100, kv=kv) for kv in ("gpu", "host"))
    assert (far.host_read_bytes, far.host_write_bytes) == (near.kv_read_bytes, near.kv_write_bytes)
    assert far.attention_ns == near.attention_ns
    assert (near.kv, far.kv) == ("gpu", "host")


def test_low_bits_of_dense_weights_are_fewer_bytes() -> None:
    whole, half = (operations(SMALL, Step(5, 7), bits) for bits in (16, 8))
    assert [2 * one.weight_bytes for one in half] == [one.weight_bytes for one in whole]
    assert [one.flops for one in half] == [one.flops for one in whole]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Step(0, 1), "range sequences"),
        (lambda: Step(1, 0), "range context"),
        (lambda: Step(1, 4, 5), "conflict new_tokens"),
        (lambda: Step(1, 4, kv_bits=0), "range kv_bits"),
        (lambda: TRIMOE.dense_time("mixtral-8x7b", 1, 1, kv="disk"), "unknown-name kv"),
        (lambda: TRIMOE.dense_time("mixtral-8x7b", 1, 1, kv="auto"), "unknown-name kv"),
        (lambda: TRIMOE.dense_time("mixtral-8x7b", 1, 1, bits=0), "range bits"),
        (lambda: TRIMOE.dense_time("mixtral", 1, 1), "unknown-name model ? mixtral-8x7b"),
        (lambda: TRIMOE.dense_time(dataclasses.replace(SMALL, attention=None), 1, 1), "missing model"),
        (lambda: TRIMOE.dense_time(dataclasses.replace(SMALL, vocabulary=None), 1, 1), "missing model"),
    ],
)
def test_steps_that_make_no_sense_are_refused(call: Any, words: str) -> None:
    assert mistake_of(call) == words


# ---- The GPU's memory --------------------------------------------------------------------------------------------

# Attention 3 x (96 + 48 + 48 + 96) weights, router 2 x 32, shared 2 x 144, dense 240, tables 400 each: 2 B each.
HELD = {
    "reserved": 1000, "attention": 1728, "router": 128, "shared_experts": 576, "dense_layers": 480,
    "embedding": 800, "head": 800,
    "kv_cache": 3 * 35 * 24, "kv_staging": 0,
    # Of a token 2 x 8 + max(24 + 12, 3 x 10) values; of a sequence 50 logits.
    "workspace": 5 * 52 * 2 + 5 * 50 * 4, "expert_buffers": 2 * 288,
}  # fmt: skip


def held(
    gpu: Gpu = GPU, model: MoeShape = SMALL, step: Step | None = None, kv: str = "auto", bits: int = 16
) -> Any:
    return ndpsim.inference.processors.memory.gpu_memory(gpu, model, step or Step(5, 7), kv, bits, 16)


def test_what_the_memory_holds_by_hand() -> None:
    memory = held()
    assert memory.parts == HELD
    assert memory.experts_bytes == 100_000 - sum(HELD.values())
    assert (memory.expert_bytes, memory.experts) == (288, memory.experts_bytes // 288)
    assert (memory.kv, memory.host_kv_bytes) == ("gpu", 0)
    assert held(bits=4).parts["expert_buffers"] == 2 * 72
    assert held(model=dataclasses.replace(SMALL, tied_embeddings=True)).parts["head"] == 0


def test_in_work_are_all_new_tokens_and_the_logits_of_the_last_of_each_sequence() -> None:
    assert held(step=Step(5, 7, 3)).parts["workspace"] == 15 * 52 * 2 + 5 * 50 * 4


@pytest.mark.parametrize(
    ("attention", "values"),
    [
        (dataclasses.replace(FULL, gated=True), 24 + 12 + 4 * 3),
        (dataclasses.replace(FULL, head_gated=True), 24 + 12 + 4),
        (dataclasses.replace(FULL, index=Index(4, heads=2, size=5)), 24 + 12 + 2 * (5 + 1) + 5),
        (dataclasses.replace(FULL, index=Index(4, heads=2, size=5, weighted=False)), 24 + 12 + 2 * 5 + 5),
        (dataclasses.replace(FULL, index=Index(4, heads=2, size=5, gated=True)), 24 + 12 + 2 * (5 + 1) + 11),
        (dataclasses.replace(FULL, gated=True, index=Index(4, heads=2, size=5)), 24 + 12 + 12 + 12 + 5),
    ],
)  # fmt: skip
def test_in_work_are_gates_and_what_the_index_has(attention: Attention, values: int) -> None:
    model = dataclasses.replace(SMALL, attention=attention)
    assert held(model=model).parts["workspace"] == 5 * (16 + values) * 2 + 5 * 50 * 4


def test_a_cache_lies_with_the_host_when_it_does_not_fit() -> None:
    just = dataclasses.replace(GPU, memory_bytes=sum(HELD.values()))
    assert (held(just).kv, held(just).experts_bytes, held(just).experts) == ("gpu", 0, 0)
    less = dataclasses.replace(just, memory_bytes=just.memory_bytes - 1)
    memory = held(less)
    assert (memory.kv, memory.host_kv_bytes) == ("host", HELD["kv_cache"])
    assert (memory.parts["kv_cache"], memory.parts["kv_staging"]) == (0, 35 * 24)  # one layer's on its way
    assert memory.experts_bytes == HELD["kv_cache"] - 35 * 24 - 1
    assert held(just, kv="host").parts["kv_cache"] == 0
    with refused("too-large gpu.memory_gb") as caught:
        held(less, kv="gpu")
    words = caught.value.problem
    assert f"needs {just.memory_bytes:,} B and has {less.memory_bytes:,} B" in words
    assert "kv_cache 2,520" in words
    assert "kv_staging" not in words


def test_a_model_that_does_not_fit_is_named_with_its_bytes() -> None:
    with refused("too-large gpu.memory_gb") as caught:
        load_processors("trimoe", ["gpu.memory_gb=24"]).gpu_memory("deepseek-v2", 512, 512)
    for part in ("reserved 8,000,000,000", "attention 17,907,056,640", "kv_staging"):
        assert part in caught.value.problem
    assert "kv_cache" not in caught.value.problem


def test_layers_of_several_kinds_hold_what_each_keeps() -> None:
    memory = held(model=MIX)
    # Four tokens and seven of 24 B, and states, of five sequences; the weights of each layer.
    assert memory.parts["kv_cache"] == 5 * (4 * 24 + 7 * 24 + 432)
    weights = 2 * 288 + 52 * 8 + 8 * 8 + 32 * 4 + 8 * 20
    assert memory.parts["attention"] == 2 * weights
    # Of a token 2 x 8 values, and what the linear layer has in work: 2 x 32 + 2 x 20 + 8.
    assert memory.parts["workspace"] == 5 * (16 + 112) * 2 + 5 * 50 * 4
    assert held(model=MIX, kv="host").parts["kv_staging"] == 5 * 432
    # 1000 tokens more are in the one layer without a limit.
    longer = held(dataclasses.replace(GPU, memory_bytes=10**7), MIX, Step(5, 1007)).parts["kv_cache"]
    assert longer - memory.parts["kv_cache"] == 5 * 1000 * 24


@pytest.mark.parametrize("name", MIXTURES)
def test_what_is_held_and_what_is_left_make_the_memory(name: str) -> None:
    memory = TRIMOE.gpu_memory(name, 64, 512)
    assert sum(memory.parts.values()) + memory.experts_bytes == memory.memory_bytes == 80 * 2**30
    assert 0 <= memory.experts_bytes - memory.experts * memory.expert_bytes < memory.expert_bytes


# ---- All of it ---------------------------------------------------------------------------------------------------


def test_what_the_hardware_file_says_counts() -> None:
    gpu, cpu = TRIMOE.gpu, TRIMOE.cpu
    assert (gpu.peak_tflops, gpu.memory_gbps, gpu.memory_bytes) == (819.6, 2040, 80 * 2**30)
    assert (gpu.expert_overhead_ns, gpu.kernel_overhead_ns, gpu.reserved_bytes) == (18_000, 3_000, 8 * 10**9)
    assert (gpu.expert_buffers, cpu.added_tokens, cpu.peak_tflops) == (2, 12, 90.1)
    for key, value, found in (
        ("gpu.reserved_gb", "1.5", lambda p: p.gpu.reserved_bytes == 1_500_000_000),
        ("gpu.expert_buffers", "7", lambda p: p.gpu.expert_buffers == 7),
        ("gpu.attention_efficiency", "0.25", lambda p: p.gpu.attention_efficiency == 0.25),
        ("host.cpu_added_tokens", "0", lambda p: p.cpu.added_tokens == 0),
    ):
        assert found(load_processors("trimoe", [f"{key}={value}"]))
    assert load_processors(load_hardware("trimoe")).gpu == gpu


def test_the_example_of_the_package_is_true() -> None:
    assert doctest.testmod(ndpsim.inference.processors).attempted > 0
    assert doctest.testmod(ndpsim.inference.processors).failed == 0


def test_fitted_values_are_what_the_script_finds() -> None:
    fits, gpu = script("validation/processors.py"), TRIMOE.gpu
    measured = read_table(fits.TABLE, Path())
    assert round(fits.memory_efficiency(measured), 1) == gpu.memory_efficiency
    assert round(fits.compute_efficiency(measured), 1) == gpu.compute_efficiency
    overheads = [1e3 * fits.overhead_us(TRIMOE, model) for model in fits.MODELS]
    assert min(overheads) < gpu.expert_overhead_ns < max(overheads)
    assert gpu.kernel_overhead_ns == gpu.expert_overhead_ns / 6
    assert fits.cpu_tokens(TRIMOE) == 11


def test_the_committed_validation_is_current() -> None:
    words = (VALIDATION / "processors.md").read_text(encoding="utf-8")
    assert words == script("validation/processors.py").text(), "python validation/processors.py writes it"
