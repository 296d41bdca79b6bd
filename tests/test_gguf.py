"""GGUF files: shapes and formats from the header, split files, headers that lie, and runs with them."""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from builders import gguf_file as gguf
from builders.gguf_file import Stored
from calls import call
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.workload.models import Attention, load_model
from ndpsim.workload.models.gguf.header import FORMATS, read_header
from ndpsim.workload.models.weights import own_weight_file


def model(tmp_path: Path, tensors: list[Stored] | None = None, **changed: Any) -> Path:
    """A file of the small model with some metadata changed; None leaves a key out."""
    named = {key.replace("__", "."): value for key, value in changed.items()}
    metadata = {
        f"qwen3moe.{key}" if f"qwen3moe.{key}" in gguf.METADATA else key: content
        for key, content in named.items()
    }
    kept = {key: content for key, content in (gguf.METADATA | metadata).items() if content is not None}
    return gguf.write(tmp_path / "m.gguf", kept, gguf.small() if tensors is None else tensors)


def test_a_shape_is_that_of_the_tensors(tmp_path: Path) -> None:
    shape = load_model(model(tmp_path))
    assert (shape.name, shape.family) == ("m", "qwen3moe")
    assert (shape.expert.hidden, shape.expert.intermediate) == (512, 256)
    assert (shape.layers, shape.moe_layers, shape.dense_layers, shape.dense_intermediate) == (
        3,
        2,
        (0,),
        1024,
    )
    assert (shape.routed_experts, shape.experts_per_token, shape.shared_experts) == (4, 2, 0)
    assert shape.attention == Attention(8, 2, 128, 128)
    assert (shape.vocabulary, shape.context, shape.tied_embeddings) == (100, 4096, False)


def test_bits_are_those_of_each_tensor_and_bytes_those_of_the_data(tmp_path: Path) -> None:
    """down: Q6_K in one layer and Q4_K in the other."""
    file = own_weight_file(load_model(model(tmp_path)))
    assert file is not None
    assert file.bits["gate"] == file.bits["up"] == Fraction(9, 2)
    assert file.bits["down"] == (Fraction(105, 16) + Fraction(9, 2)) / 2
    assert (file.bits["attention"], file.bits["router"], file.bits["dense_layers"]) == (
        Fraction(17, 2),
        32,
        Fraction(9, 2),
    )
    assert (file.bits["embedding"], file.bits["head"]) == (Fraction(9, 2), Fraction(105, 16))
    assert file.bytes == sum(tensor.bytes for tensor in gguf.small())
    assert str(expert_format_of(file).gate) == "4 bits, scale of 8 and zero point of 8 bits a group of 32"


def test_all_parts_of_a_split_file_are_read(tmp_path: Path) -> None:
    tensors, names = gguf.small(), [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    split = {"split.count": 2, "split.tensors.count": len(tensors)}
    gguf.write(names[0], gguf.METADATA | split | {"split.no": 0}, tensors[:9])
    with refused("unreadable m-00002-of-00002.gguf"):
        load_model(names[0])
    gguf.write(names[1], {"split.no": 1}, tensors[9:])
    whole = own_weight_file(load_model(model(tmp_path)))
    for name in names:
        found = own_weight_file(load_model(name))
        assert found is not None
        assert whole is not None
        assert found.tensors == whole.tensors
    gguf.write(names[1], {"split.no": 1}, tensors[9:-1])
    with refused("conflict m-00001-of-00002.gguf split.tensors.count"):
        load_model(names[0])


def test_experts_in_tensors_of_their_own_and_fused_ones(tmp_path: Path) -> None:
    """Files of 2024 have ffn_gate.0; newer ones may have gate and up in one tensor."""
    plain = load_model(model(tmp_path))
    single = [
        Stored(tensor.name.replace("_exps", f".{number}"), tensor.format, tensor.sizes[:2])
        for tensor in gguf.small()
        if "exps" in tensor.name
        for number in range(gguf.EXPERTS)
    ]
    kept = [tensor for tensor in gguf.small() if "exps" not in tensor.name]
    old = load_model(gguf.write(tmp_path / "old.gguf", gguf.METADATA, kept + single))
    gates = [tensor for tensor in gguf.small() if "gate_exps" in tensor.name]
    fused = [
        Stored(
            gate.name.replace("gate_exps", "gate_up_exps"),
            gate.format,
            (gguf.HIDDEN, 2 * gguf.INTER, gguf.EXPERTS),
        )
        for gate in gates
    ]
    others = [
        tensor for tensor in gguf.small() if "gate_exps" not in tensor.name and "up_exps" not in tensor.name
    ]
    new = load_model(gguf.write(tmp_path / "new.gguf", gguf.METADATA, others + fused))
    for shape in (old, new):
        assert (shape.expert, shape.routed_experts) == (plain.expert, plain.routed_experts)
        found, right = own_weight_file(shape), own_weight_file(plain)
        assert found is not None
        assert right is not None
        assert (found.bits, found.bytes) == (right.bits, right.bytes)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    more = [*gguf.small(), *gguf.layer(3), Stored("blk.3.nextn.eh_proj.weight", gguf.F16, (1024, 512))]
    shape = load_model(model(tmp_path, more, block_count=4))
    assert (shape.layers, shape.moe_layers) == (3, 2)
    file = own_weight_file(shape)
    assert file is not None
    assert sum(tensor.bytes for tensor in file.of_class("others")) > sum(
        tensor.bytes for tensor in gguf.layer(3)
    )


def test_latent_attention_with_absorbed_keys(tmp_path: Path) -> None:
    """DeepSeek-V3 in small: 8 heads of 24 (8 of them position), values of 16, ranks 64 and 96."""
    latent = {
        "q_a": (512, 96),
        "q_b": (96, 8 * 24),
        "kv_a_mqa": (512, 72),
        "k_b": (16, 64, 8),
        "v_b": (64, 16, 8),
        "output": (128, 512),
    }
    tensors = [tensor for tensor in gguf.small() if "attn" not in tensor.name]
    tensors += [
        Stored(f"blk.{number}.attn_{name}.weight", gguf.F16, sizes)
        for number in range(3)
        for name, sizes in latent.items()
    ]
    metadata = {key.replace("qwen3moe", "deepseek2"): content for key, content in gguf.METADATA.items()} | {
        "general.architecture": "deepseek2",
        "deepseek2.attention.kv_lora_rank": 64,
        "deepseek2.attention.q_lora_rank": 96,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": 72,
        "deepseek2.attention.value_length": 64,
        "deepseek2.attention.key_length_mla": 24,
        "deepseek2.attention.value_length_mla": 16,
        "deepseek2.rope.dimension_count": 8,
    }  # fmt: skip
    shape = load_model(gguf.write(tmp_path / "d.gguf", metadata, tensors))
    assert shape.attention == Attention(8, 8, 24, 16, query_rank=96, latent_rank=64, rope_size=8)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"attention__sliding_window": 128}, "which layers have the window is not known"),
        ({"attention.head_count_kv": 4}, "do not have 8 heads of 64"),
    ],
)
def test_attention_that_is_not_understood_leaves_the_experts(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    named = {f"qwen3moe.{key.replace('__', '.')}": value for key, value in changed.items()}
    shape = load_model(gguf.write(tmp_path / "m.gguf", gguf.METADATA | named, gguf.small()))
    assert shape.attention is None
    assert problem in shape.attention_problem
    assert shape.expert.intermediate == 256


def test_windows_by_layer(tmp_path: Path) -> None:
    window = {
        "qwen3moe.attention.sliding_window": 64,
        "qwen3moe.attention.sliding_window_pattern": [True, False, True],
    }
    shape = load_model(gguf.write(tmp_path / "m.gguf", gguf.METADATA | window, gguf.small()))
    assert [kind.most_tokens for kind in shape.attention_kinds] == [64, None]
    assert shape.kind_of_layer == (0, 1, 0)


# ---- Headers that lie ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"expert_count": 8}, "conflict m.gguf qwen3moe.expert_count"),
        ({"expert_used_count": 5}, "range m.gguf qwen3moe.expert_used_count"),
        ({"embedding_length": None}, "missing m.gguf qwen3moe.embedding_length"),
        ({"embedding_length": 256}, "conflict m.gguf blk.1.ffn_gate_exps.weight"),
        ({"block_count": 2}, "conflict m.gguf blk.2.attn_norm.weight"),
        ({"block_count": "3"}, "range m.gguf qwen3moe.block_count"),
        ({"general__architecture": None}, "missing m.gguf general.architecture"),
        ({"general__alignment": 0}, "range m.gguf general.alignment"),
        ({"split__count": 2}, "form m.gguf split.count"),
    ],
)
def test_metadata_that_contradict_the_tensors_are_refused(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with refused(words):
        load_model(model(tmp_path, **changed))


@pytest.mark.parametrize(
    ("position", "number", "words"),
    [
        (0, 0x21212121, "form m.gguf"),
        (4, 9, "unsupported m.gguf"),
        (8, (1 << 62), "range m.gguf"),
        (16, (1 << 62), "range m.gguf"),
        (24, (1 << 40), "range m.gguf"),
        (24, 4000, "form m.gguf"),
    ],
)
def test_lengths_are_checked_before_they_are_used(
    tmp_path: Path, position: int, number: int, words: str
) -> None:
    """The first word, the version, the numbers of tensors and keys, and the length of the first key."""
    path = model(tmp_path, [])
    written = bytearray(path.read_bytes())
    struct.pack_into("<I" if position < 8 else "<Q", written, position, number)
    path.write_bytes(written)
    with refused(words):
        load_model(path)


def test_a_file_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path)
    whole = path.read_bytes()
    for length in (*range(0, 400, 7), *range(400, len(whole), 9973), len(whole) - 40):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_model(path)


def test_formats_that_are_unknown_and_rows_of_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    for stored, words in (
        (Stored("odd.weight", (99, 1, 1), (32,)), "unsupported m.gguf odd.weight"),
        (Stored("odd.weight", gguf.Q4_K, (100,)), "form m.gguf odd.weight"),
        (Stored("token_embd.weight", gguf.F16, (512, 100)), "twice m.gguf token_embd.weight"),
    ):
        with refused(words):
            load_model(model(tmp_path, [*gguf.small(), stored]))


def test_ends_of_tensors_are_within_the_file(tmp_path: Path) -> None:
    path = model(tmp_path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 4096)
    with refused("form m.gguf blk.2.ffn_down_exps.weight"):
        read_header(path)


def test_repacked_formats_have_the_bits_of_the_plain_ones() -> None:
    """Numbers of ik_llama.cpp: 339 is IQ4_K_R4, 212 Q4_K_R4; IQ1_S_R4 has blocks of its own."""
    assert (FORMATS[139].name, FORMATS[339].name, FORMATS[212].name, FORMATS[219].name) == (
        "iq4_k",
        "iq4_k",
        "q4_k",
        "iq1_s_r4",
    )


# ---- Runs ------------------------------------------------------------------------------------------------------


def test_one_expert_of_a_file_runs_in_its_bits_and_options_override(tmp_path: Path) -> None:
    path = model(tmp_path)
    expert = 3 * 512 * 256
    for options, size in (
        ((), expert // 3 * (2 * Fraction(9, 2) + (Fraction(105, 16) + Fraction(9, 2)) / 2) / 8),
        (("--bits", 8), expert),
    ):
        status, out, err = call("gemv", "--engine", "host-read", "--model", path, "--json", "-", *options)
        assert status == 0, err
        assert ("gate 4.5" in err) == (not options)
        assert json.loads(out)["weight_bytes"] == pytest.approx(float(size), rel=0.001)
    assert call("show", "weights", "own", "--model", path).out.count("q4_k") >= 2
    assert call("show", "weights", "Own", "--model", path).out.count("q4_k") >= 2
