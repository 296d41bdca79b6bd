"""Weight files: bits of blocks, formats of tensors and sizes of files as published, and runs with them."""

from __future__ import annotations

import doctest
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import ndpsim.workload.models.weights
from builders.small_moe import EXPERT_BYTES, MODEL, moe
from calls import call
from mistakes import refused
from ndpsim.audit import check_schedule
from ndpsim.dimm.layout import MATRICES
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.processors import Step, operations
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.memory import dense_weight_bytes
from ndpsim.inference.processors.weights import dense_bits, expert_format_of
from ndpsim.studies.sweeps.commands.gemv import COMMAND as GEMV
from ndpsim.studies.sweeps.commands.moe import COMMAND
from ndpsim.workload.models import load_model, model_names
from ndpsim.workload.models.weights import BLOCKS, WeightFile, weight_file, weight_names
from scripts import script

VALIDATION = Path(__file__).parents[1] / "validation"

# Bits a weight as comments of ggml-common.h, names of llama.cpp and the descriptions of ik_llama.cpp's quants state.
STATED = {
    "q2_k": 2.625, "q3_k": 3.4375, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "q4_0": 4.5, "q8_0": 8.5,
    "iq1_s": 1.5625, "iq1_m": 1.75, "iq2_xxs": 2.0625, "iq2_xs": 2.3125, "iq2_s": 2.5625, "iq3_xxs": 3.0625,
    "iq3_s": 3.4375, "iq4_nl": 4.5, "iq4_xs": 4.25, "iq2_k": 2.375, "iq3_k": 3.4375, "iq4_k": 4.5, "iq5_k": 5.5,
    "iq6_k": 6.625, "iq2_ks": 2.1875, "iq3_ks": 3.1875, "iq4_kss": 4.0, "iq4_ks": 4.25, "iq5_ks": 5.25,
    "iq2_kl": 2.6875, "iq1_kt": 1.75, "iq2_kt": 2.125, "iq3_kt": 3.125, "iq4_kt": 4.0, "mxfp4": 4.25,
    "iq1_s_r4": 1.5, "iq1_m_r4": 1.75, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0, "q6_0": 6.5, "f32": 32.0,
    "f16": 16.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.125, "int4": 4.125,
    "nvfp4": 4.5, "q1_0": 1.125, "tq1_0": 1.6875, "tq2_0": 2.0625,
}  # fmt: skip


def file_of(name: str, model: str) -> WeightFile:
    return weight_file(name, load_model(model))


def formats(file: WeightFile, tensor: str) -> list[str]:
    return [one.block.name for one in file.tensors if one.name == tensor]


# ---- Blocks and recipes ---------------------------------------------------------------------------------------


def test_bits_of_blocks_are_those_that_are_stated() -> None:
    assert {name: float(block.bits) for name, block in BLOCKS.items()} == STATED


def test_a_row_scale_counts_once_a_row() -> None:
    assert BLOCKS["iq4_ks"].row_size(512) == 2 * 136 + 4


def test_q4_k_m_of_mixtral_is_as_llama_cpp_mixes_it() -> None:
    """Of 32 layers the first and last four have more bits, and 6, 9, ... 27; with 8 experts keys and values Q8_0."""
    file = file_of("q4_k_m", "mixtral-8x7b")
    more = {*range(4), *range(6, 28, 3), *range(28, 32)}
    expected = ["q6_k" if layer in more else "q4_k" for layer in range(32)]
    assert formats(file, "ffn_down_exps") == expected
    assert file.bits["down"] == (len(more) * Fraction(105, 16) + (32 - len(more)) * Fraction(9, 2)) / 32
    assert set(formats(file, "attn_v") + formats(file, "attn_k")) == {"q8_0"}
    assert set(formats(file, "attn_q") + formats(file, "ffn_gate_exps")) == {"q4_k"}
    assert set(formats(file, "attn_output")) == {"q5_k"}
    assert formats(file, "token_embd") + formats(file, "output") == ["q4_k", "q6_k"]
    assert set(formats(file, "ffn_gate_inp")) == {"f32"}


def test_q4_k_m_with_many_experts_gives_values_more_bits_in_some_layers() -> None:
    file = file_of("q4_k_m", "qwen3-30b-a3b")
    assert formats(file, "attn_v") == formats(file, "ffn_down_exps")
    assert Counter(formats(file, "attn_v")) == {"q6_k": 24, "q4_k": 24}
    assert set(formats(file, "attn_k") + formats(file, "attn_output")) == {"q4_k"}


def test_rows_of_no_whole_blocks_fall_back() -> None:
    """1408 columns are 5.5 blocks of 256: Q4_K becomes Q5_0 and Q6_K becomes Q8_0; 2816 are 11."""
    file = file_of("q4_k_m", "deepseek-v2-lite")
    assert set(formats(file, "ffn_down_exps")) == {"q5_0", "q8_0"}
    assert set(formats(file, "ffn_down_shexp")) == {"q4_k", "q6_k"}


@pytest.mark.parametrize(
    ("model", "name", "printed"),
    [
        ("deepseek-v3", "q8_0", {"q8_0": 664}),
        ("deepseek-v3", "ud-q2_k_xl", {"q2_k": 171, "q3_k": 3, "q4_k": 306, "q6_k": 184}),
        ("deepseek-v3", "iq4_k", {"q8_0": 612, "iq4_k": 116, "iq5_k": 58}),
        ("deepseek-v3", "iq2_k", {"q8_0": 612, "iq2_k": 116, "iq3_k": 58}),
        ("kimi-k2", "iq4_ks", {"q8_0": 613 - 1, "iq4_ks": 120, "iq5_ks": 60}),
        ("qwen3-235b-a22b", "mix-iq3_k", {"q8_0": 2, "iq3_k": 188, "iq4_k": 94, "iq6_k": 376}),
        ("qwen3-235b-a22b", "mix-iq6_k", {"q8_0": 96, "iq6_k": 564}),
    ],
)
def test_files_have_as_many_tensors_of_each_format_as_llama_cpp_prints(model, name, printed):
    """ik_llama.cpp@8337e4c github-data/discussions 258 and 357; Kimi-K2: 61 layers, one of them dense."""
    counted = Counter(tensor.block.name for tensor in file_of(name, model).tensors)
    counted.pop("f32")  # norms are counted together here
    assert counted == printed


def test_sizes_of_files_are_the_published_ones_within_two_percent() -> None:
    for one in script("validation/weights.py").published():
        assert abs(one.error) < 0.02, (one.file.model, one.file.name)


def test_the_committed_page_is_current() -> None:
    words = (VALIDATION / "weights.md").read_text(encoding="utf-8")
    assert words == script("validation/weights.py").text(), "python validation/weights.py writes it"


def test_names_are_found_as_files_are_called() -> None:
    assert weight_file("IQ4_K_R4", MODEL).name == "iq4_k"
    assert weight_file(" UD-Q2_K_XL", MODEL).name == "ud-q2_k_xl"
    assert doctest.testmod(ndpsim.workload.models.weights).failed == 0
    with refused("unknown-name weights ? q4_k_m"):
        weight_file("q4_km", MODEL)


# ---- What the simulation has of them ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("q4_k_s", "4 bits, scale of 8 and zero point of 8 bits a group of 32"),
        ("q8_0", "8 bits, scale of 16 bits a group of 32"),
        ("q6_k", "6 bits, scale of 9 bits a group of 16"),
        ("q5_k_s", "5 bits, scale of 8 and zero point of 8 bits a group of 32"),
        ("q2_k", "2 bits, scale of 5 and zero point of 5 bits a group of 16"),
        ("q3_k_s", "3 bits, scale of 7 bits a group of 16"),
        ("int4", "4 bits, scale of 16 bits a group of 128"),
        ("bf16", "16 bits"),
    ],
)
def test_an_expert_has_the_structure_of_its_blocks(name: str, words: str) -> None:
    assert str(expert_format_of(file_of(name, "qwen3-235b-a22b")).gate) == words


MODELS = [name for name in model_names() if load_model(name).has_experts]
LARGE = ("deepseek-r1", "deepseek-v3", "kimi-k2")  # of the architecture of deepseek-v2


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[pytest.mark.long] if name in LARGE else []) for name in MODELS]
)
def test_bytes_of_an_expert_are_the_mean_of_the_file(model: str) -> None:
    """Exact where all layers have one format without scales of rows, else within whole bits of a group."""
    shape = load_model(model)
    if shape.attention is None:
        pytest.skip("no recipe without attention")
    for name in weight_names():
        if name == "f32":  # of more bits than are simulated
            continue
        file = weight_file(name, shape)
        tensors = [one for group in MATRICES for one in file.of_class(group)]
        mean = Fraction(sum(one.bytes for one in tensors), shape.moe_layers * shape.routed_experts)
        alike = all(len(file.blocks(group)) == 1 for group in MATRICES)
        exact = alike and not any(one.block.row_bytes for one in tensors)
        error = weight_bytes(shape.expert, expert_format_of(file)) / mean - 1
        assert abs(error) <= (0 if exact else 0.001), (name, float(error))


@pytest.mark.parametrize("name", ["q4_k_m", "ud-q2_k_xl", "iq4_k"])
def test_dense_parts_have_their_bytes_by_class(name: str) -> None:
    shape = load_model("deepseek-v3")
    file = weight_file(name, shape)
    held = dense_weight_bytes(shape, dense_bits(file))
    for part, size in held.items():
        assert size == sum(tensor.bytes for tensor in file.of_class(part)), part


def test_operations_read_weights_in_the_bits_of_their_part() -> None:
    bits = {name: Fraction(n) for n, name in enumerate(dense_weight_bytes(MODEL), 2)}
    read: Counter[str] = Counter()
    for one in operations(MODEL, Step(2, 8), bits):
        read[one.part] += one.weight_bytes
    held = dense_weight_bytes(MODEL, bits)
    assert read == {
        "attention": held["attention"] // 4,
        "router": held["router"] // 3,
        "shared_experts": held["shared_experts"] // 3,
        "dense_layer": held["dense_layers"],
        "head": held["head"],
    }


# ---- Runs ------------------------------------------------------------------------------------------------------


def test_a_run_reads_experts_in_the_bits_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with writing_log(str(log)) as observer:
        run = moe("trimoe", "llama-cpp", weights="Q8_0", observer=observer).runs[0]
    assert {bits for bits in run.weight_bits.values() if bits is not None} == {8.5}
    machine = json.loads(log.read_text().splitlines()[0])
    assert machine["expert_bytes"] == EXPERT_BYTES * 8.5 / 16
    assert check_schedule(str(log)).ok


def test_plain_formats_are_plain_bits() -> None:
    """F16 is 16 bits for everything but the router, which is F32."""
    plain, named = moe(), moe(weights="f16")
    assert named.runs[0].moe_ns == pytest.approx(plain.runs[0].moe_ns, rel=1e-3)
    assert named.config["dense_bits"]["router"] == 32
    assert (named.config["weights"], named.config["bits"]["down"]) == ("f16", 16)
    assert "weights" not in plain.config
    assert (plain.config["bits"], plain.config["dense_bits"]) == (16, 16)


def test_a_layer_of_a_run_with_a_file_stands_the_cycle_level_session() -> None:
    """Ends of so small experts are up to 16% of the layer off with plain bits as well."""
    check = moe(weights="q4_k_m", check_layer=(0, 1), check_limit=0.16).runs[0].check
    assert check is not None
    assert check.ok


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"weights": "q4_k_m", "bits": 4}, "conflict bits"),
        ({"weights": "q4_k_m", "dense_bits": 16}, "conflict dense_bits"),
        ({"weights": "q4_11"}, "unknown-name weights ? q4_1"),
        ({"weights": 4}, "type weights"),
    ],
)
def test_what_makes_no_sense_is_refused(others: dict[str, Any], words: str) -> None:
    with refused(words):
        moe(**others)


def test_sweeps_take_a_file_and_keep_their_digests_without() -> None:
    plain, named = (COMMAND.resolve(given) for given in ({}, {"weights": "q4_k_m"}))
    assert "weights" not in plain.config
    assert named.config["weights"] == "q4_k_m"
    assert plain.key != named.key


def test_sweeps_of_one_expert_take_a_file() -> None:
    """Q8_0 of 3 x 4096 x 1536 weights."""
    given = {"weights": "q8_0", "engine": "host-read", "hw": "trimoe"}
    assert GEMV.measure(given)["weight_bytes"] == 3 * 4096 * 1536 * 17 // 16
    with refused("conflict shape"):
        GEMV.resolve({"weights": "q8_0", "shape": "512,256"})


# ---- Commands --------------------------------------------------------------------------------------------------


def test_files_are_listed_and_shown() -> None:
    assert call("list", "weights")[1].split() == weight_names()
    status, out, _ = call("show", "weights", "q4_k_m", "--model", "deepseek-v3")
    assert status == 0
    assert "376.77 GiB" in out
    assert "4 bits, scale of 8 and zero point of 8 bits a group of 32" in out
    assert (
        "4 bits, scale of 8 bits a group of 32" in call("show", "layout", "striped", "--weights", "iq4_xs")[1]
    )
    shown = json.loads(call("show", "weights", "q4_k_m", "--json", "-")[1])
    assert (shown["model"], shown["classes"]["gate"]["bits"]) == ("qwen3-235b-a22b", 4.5)
    assert shown["bytes"] == sum(one["bytes"] for one in shown["classes"].values())
