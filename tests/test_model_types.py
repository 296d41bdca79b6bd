"""Types of models of Transformers: shapes by class defaults, keys that are not understood, aliases, layers that differ."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mistakes import refused
from ndpsim.inference.processors.memory import dense_weight_bytes
from ndpsim.workload.models import CompressedAttention, LayerAttention, MoeShape, load_model
from ndpsim.workload.models.known_keys import CLASS_DEFAULTS
from scripts import script

PAGE = script("docs/model_types.py")
RECORDED, BUILT = PAGE.recorded(), PAGE.built()


def shape_of(folder: Path, name: str, **changed: Any) -> MoeShape:
    """The shape of a type with its defaults; a key set to None is left out."""
    values = RECORDED[name]
    inner = values.get("text_config", values)
    changed = {key: value for key, value in (inner | changed).items() if value is not None}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(changed))
    return load_model(path)


def test_the_committed_page_is_current() -> None:
    assert PAGE.PAGE.read_text(encoding="utf-8") == PAGE.text(), "python docs/model_types.py writes it"


@pytest.fixture
def transformers() -> str:
    """NDPSIM_TRANSFORMERS: a Python with transformers and torch, which need not have ndpsim."""
    python = os.environ.get("NDPSIM_TRANSFORMERS", "")
    if not python:
        pytest.skip("needs NDPSIM_TRANSFORMERS, a Python with transformers and torch")
    return python


@pytest.mark.long
def test_the_packages_have_the_recorded_types(transformers: str) -> None:
    assert PAGE.types(transformers) == sorted(RECORDED)


# Each part is one process, whose time is limited: all types together take longer than a test may.
_PARTS = 20


@pytest.mark.long
@pytest.mark.parametrize("part", range(_PARTS))
def test_the_records_are_what_the_packages_make(part: int, transformers: str) -> None:
    names = sorted(RECORDED)[part::_PARTS]
    configurations, built = PAGE.made(transformers, names)
    assert configurations == {name: RECORDED[name] for name in names}
    assert built == {name: BUILT[name] for name in names}


# Experts of attention, too.
PADDED = ("jetmoe",)
# Classes of models without a head over the vocabulary.
WITHOUT_HEAD = (
    "openai_privacy_filter", "glm4v_moe_text", "glm5_next_text", "hy_v4_vl_text", "mistral_large4_text",
    "qwen3_vl_moe_text", "nemo_speechlm",
)  # fmt: skip
# The gate of a shared expert, which is not modelled: a number for each hidden value.
SHARED_GATES = ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text")


@pytest.mark.parametrize("name", sorted(BUILT))
def test_a_type_is_read_as_its_model_is_built(name: str, tmp_path: Path) -> None:
    """Weights of all matrices, shape, number and layers of experts, and the cache of a token in each layer."""
    built, shape = BUILT[name], PAGE.read(name, RECORDED[name], tmp_path)
    if isinstance(shape, str) or "not_built" in built:
        return
    plain = name.removesuffix("+")
    # The class has rows of gate and up also for experts without weights, which it never reads.
    unused = shape.moe_layers * shape.zero_experts * 2 * shape.hidden * shape.expert_intermediate
    if built["experts"] and plain not in PADDED:
        counts = {layers for tensor, layers in built["experts"].items() if "self_attention" not in tensor}
        assert counts == {shape.moe_layers}
        sizes = [json.loads(tensor.partition(" ")[2]) for tensor in built["experts"]]
        assert {size[0] for size in sizes} == {shape.routed_experts, shape.choices}
        assert sum(map(math.prod, sizes)) * shape.moe_layers == shape.expert_parameters + unused
    if shape.attention is None:
        return
    dense = dense_weight_bytes(shape, 8)
    gates = shape.moe_layers * shape.hidden if plain in SHARED_GATES else 0
    if plain in WITHOUT_HEAD:
        dense.pop("head")
    assert sum(dense.values()) + gates + shape.expert_parameters == built["matrices"] - unused
    if "cached" in built:
        kinds = [_kept(shape.attention_kinds[kind]) for kind in shape.kind_of_layer]
        known = len(built["cached"])  # some caches end with the last layer that has keys
        assert kinds == built["cached"] + [0] * (shape.layers - known)


def _kept(kind: LayerAttention) -> float:
    """Values of each of four tokens in the cache of Transformers.

    It has the vectors of compressed attention as keys and as values in layers without a compressor.
    """
    twice = isinstance(kind, CompressedAttention) and not kind.rate
    return (2 if twice else 1) * kind.kept_values(4) / 4


# By the classes: hidden and intermediate size of an expert, experts, for a token, layers with experts, shared size.
SHAPES = {
    "afmoe": (2048, 1408, 64, 6, 31, 2816),
    "aria_text": (4096, 4096, 8, 2, 32, 8192),
    "bailing_hybrid": (2560, 768, 512, 8, 40, 768),
    "beam": (5120, 2560, 256, 8, 49, 0),
    "cohere2_moe": (8192, 22528, 8, 2, 40, 0),
    "dbrx": (2048, 3584, 4, 1, 24, 0),
    "deepseek_v32": (7168, 2048, 256, 8, 58, 2048),
    "deepseek_v4": (4096, 2048, 256, 6, 43, 2048),
    "dots3_note_text": (5120, 1536, 256, 8, 45, 1536),
    "ernie4_5_moe": (2560, 1536, 64, 6, 27, 3072),
    "ernie4_5_vl_moe_text": (2560, 1536, 64, 6, 27, 3072),
    "exaone_moe": (4096, 1024, 64, 8, 31, 1024),
    "granitemoehybrid": (4096, 11008, 8, 2, 32, 1024),
    "hunyuan_v1_moe": (4096, 11008, 1, 1, 32, 11008),
    "hy_v3": (4096, 1536, 192, 8, 79, 1536),
    "jamba": (4096, 14336, 16, 2, 16, 0),
    "jetmoe": (2048, 5632, 8, 2, 12, 0),
    "kimi_linear": (2304, 1024, 256, 8, 26, 1024),
    "laguna": (2048, 512, 256, 8, 39, 512),
    "lfm2_moe": (2048, 1792, 32, 4, 30, 0),
    "longcat_flash": (6144, 2048, 512, 12, 28, 12288),
    "mimo_v2_flash": (4096, 2048, 256, 8, 47, 0),
    "minimax_m3_vl_text": (6144, 3072, 128, 4, 60, 3072),
    "muse_spark_text": (4096, 4096, 256, 8, 62, 0),
    "nemotron_h": (4096, 7688, 8, 2, 1, 7688),
    "step3p5": (4096, 1280, 288, 8, 42, 1280),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_experts_have_the_sizes_of_the_class(name: str, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, name)
    found = shape.expert.hidden, shape.expert.intermediate, shape.routed_experts, shape.experts_per_token
    assert (*found, shape.moe_layers, shape.shared_intermediate) == SHAPES[name]


# Bytes of a token in the cache of a layer, and the number of such layers.
CACHES = {
    "afmoe": {("gated mha window of 1024", 8192, 24), ("gated mha", 8192, 8)},
    "beam": {("gated gqa window of 512", 4096, 43), ("gated gqa", 4096, 9)},
    "laguna": {("gated gqa", 4096, 40)},
    "mimo_v2_flash": {("gqa", 2560, 9), ("gqa window of 129", 5120, 39)},
    "step3p5": {("gated gqa", 4096, 45)},
    "ernie4_5_moe": {("gqa", 2048, 28)},
    "deepseek_v32": {("mla index: top of 2048", 1408, 61)},
    "dots3_note_text": {
        ("gated mla index: top of 2048", 1408, 13), ("gated mla window of 512", 2176, 33),
    },
    "deepseek_v4": {
        ("compressed 128 to 1, window of 128", 8, 23),
        ("compressed 4 to 1, window of 128, index: top of 512", 320, 20),
    },
    "kimi_linear": {("linear (Kimi delta attention)", 0, 21), ("mla", 1152, 6)},
    "bailing_hybrid": {("linear (Kimi delta attention)", 0, 35), ("gated mla", 1152, 7)},
    "granitemoehybrid": {("linear (Mamba-2)", 0, 32)},
    "jamba": {("linear (Mamba)", 0, 28), ("gqa", 4096, 4)},
    "minimax": {("linear (lightning)", 0, 16), ("gqa", 4096, 16)},
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_attention_is_that_of_the_class(name: str, tmp_path: Path) -> None:
    layers = shape_of(tmp_path, name).to_dict()["attention_layers"]
    assert {(kind["kind"], kind["kv_bytes_per_token"], kind["layers"]) for kind in layers} == CACHES[name]


@pytest.mark.parametrize(
    "name",
    [
        "jetmoe",
        "muse_spark_text",
        "ernie4_5_vl_moe_text",
    ],
)
def test_attention_that_is_not_modelled_is_said(name: str, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, name)
    assert shape.attention is None
    assert "not modelled" in shape.attention_problem


def test_types_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    for name in ("doge", "nllb-moe", "switch_transformers"):
        with refused(f"unsupported {name}.json:1 model_type"):
            shape_of(tmp_path, name)


# Bits of the state of a sequence in a layer; of a convolution all tokens but the newest are kept.
STATES = {
    "kimi_linear": 32 * 128 * 128 * 32 + 3 * 3 * 4096 * 16,
    "granitemoehybrid": 128 * 64 * 256 * 32 + 3 * 8704 * 16,
    "jamba": 8192 * 16 * 32 + 3 * 8192 * 16,
    "minimax": 32 * 128 * 128 * 32,
}


@pytest.mark.parametrize("name", STATES)
def test_states_have_the_sizes_of_the_class(name: str, tmp_path: Path) -> None:
    states = [kind for kind in shape_of(tmp_path, name).attention_kinds if not kind.cached_values]
    assert [kind.kept_bits(1000, 8) for kind in states] == [STATES[name]]


def test_layers_with_a_state_are_those_of_published_files(tmp_path: Path) -> None:
    kimi = {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "head_dim": 64, "num_heads": 16,
            "short_conv_kernel_size": 4}  # fmt: skip
    few = {"num_hidden_layers": 8, "layer_types": None, "mlp_layer_types": None, "first_k_dense_replace": 1}
    saved = {"linear_head_dim": None, "linear_num_heads": None, "linear_conv_kernel_dim": None}
    shape = shape_of(tmp_path, "kimi_linear", **few, **saved, linear_attn_config=kimi)
    assert shape.kind_of_layer == (0, 0, 0, 1, 0, 0, 0, 1)
    assert (shape.attention_kinds[0].value_heads, shape.attention_kinds[0].key_size) == (16, 64)
    with refused("conflict kimi_linear.json:1 linear_attn_config.kda_layers"):
        shape_of(tmp_path, "kimi_linear", **few, linear_attn_config={**kimi, "full_attn_layers": [4]})
    for changed in ({"layer_types": ["conv", "conv", "full_attention", "conv"]}, {"full_attn_idxs": [2]}):
        shape = shape_of(tmp_path, "lfm2_moe", num_hidden_layers=4, **changed)
        assert (shape.kind_of_layer, shape.attention_kinds[0].title) == ((0, 0, 1, 0), "short convolution")
        assert shape.attention_kinds[0].kept_bits(1, 16) == 2 * 2048 * 16
    kinds = ["mamba"] * 3 + ["attention"]
    shape = shape_of(tmp_path, "granitemoehybrid", num_hidden_layers=4, layer_types=kinds)
    assert shape.kind_of_layer == (0, 0, 0, 1)
    shape = shape_of(tmp_path, "minimax", num_hidden_layers=4, layer_types=None, attn_type_list=[0, 0, 1, 0])
    assert shape.kind_of_layer == (0, 0, 1, 0)
    assert "attn_type_list" in shape_of(tmp_path, "minimax", layer_types=None).attention_problem
    with refused("conflict granitemoehybrid.json:1 mamba_n_heads"):
        shape_of(tmp_path, "granitemoehybrid", mamba_n_heads=96)


def test_layers_without_an_index_use_the_choice_of_the_layer_before(tmp_path: Path) -> None:
    few = {"num_hidden_layers": 6, "layer_types": None, "mlp_layer_types": None, "first_k_dense_replace": 1}
    for changed in (
        {"indexer_types": ["full", "full", "full", "shared", "full", "shared"]},
        {"indexer_types": None, "index_topk_freq": 2, "index_skip_topk_offset": 3},
        {"indexer_types": None, "index_topk_pattern": "FFFSFS"},
    ):
        shape = shape_of(tmp_path, "glm_moe_dsa", **few, **changed)
        assert shape.kind_of_layer == (0, 0, 0, 1, 0, 1)
        assert [2 * kind.cached_values for kind in shape.attention_kinds] == [1408, 1152]
    for changed, key in (
        ({"indexer_types": ["full"] * 5 + ["some"]}, "indexer_types"),
        ({"indexer_types": None, "index_topk_pattern": "FF"}, "index_topk_pattern"),
    ):
        with refused(f"form glm_moe_dsa.json:1 {key}"):
            shape_of(tmp_path, "glm_moe_dsa", **few, **changed)
    with refused("missing deepseek_v32.json q_lora_rank"):
        shape_of(tmp_path, "deepseek_v32", q_lora_rank=None)


def test_a_wrapper_says_whether_the_head_is_the_embedding(tmp_path: Path) -> None:
    for name in ("nemotron_h", "kimi_linear", "bailing_hybrid"):  # whose classes never tie them
        assert not shape_of(tmp_path, name, tie_word_embeddings=True).tied_embeddings
    for name, tied in (("qwen3_vl_moe", False), ("kimi_k25", True)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(RECORDED[name]))
        assert load_model(path).tied_embeddings is tied


def test_a_part_without_a_type_has_that_of_the_wrapper(tmp_path: Path) -> None:
    wrapper = dict(RECORDED["minimax_m3_vl"])
    wrapper["text_config"] = {
        key: value for key, value in wrapper["text_config"].items() if key != "model_type"
    }
    path = tmp_path / "m3.json"
    path.write_text(json.dumps(wrapper))
    assert load_model(path).family == "minimax_m3_vl_text"


def test_a_dense_hybrid_has_the_sizes_of_its_card(tmp_path: Path) -> None:
    """Qwen3.5-27B: 64 layers, every fourth with keys and values."""
    values = {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": True,
        "vocab_size": 248320,
    }  # fmt: skip
    path = tmp_path / "dense.json"
    path.write_text(json.dumps(values))
    shape = load_model(path)
    assert (shape.layers_of_kind, shape.has_experts) == ((48, 16), False)
    assert sum(dense_weight_bytes(shape, 8).values()) == pytest.approx(26.9e9, rel=1e-3)


# ---- Sizes that differ by layer ---------------------------------------------------------------------------------


def test_layers_with_a_window_may_have_other_heads(tmp_path: Path) -> None:
    """Step 3.5 as published: 96 heads in layers with a window; also as 5.24 saves it."""
    kinds = (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"]
    named = shape_of(
        tmp_path, "step3p5", layer_types=kinds, sliding_window=512, num_sliding_attention_heads=96
    )
    layers = {
        str(number): {"num_attention_heads": 96} for number, kind in enumerate(kinds) if "sliding" in kind
    }
    saved = shape_of(
        tmp_path, "step3p5", layer_types=kinds, sliding_window=512, num_sliding_attention_heads=None, per_layer_config=layers
    )  # fmt: skip
    assert named.attention_kinds == saved.attention_kinds
    assert [(kind.heads, kind.most_tokens) for kind in saved.attention_kinds] == [(64, None), (96, 512)]
    assert named.layers_of_kind == saved.layers_of_kind == (12, 33)


def test_each_layer_may_have_its_own_heads(tmp_path: Path) -> None:
    heads = [48, 64] * 20
    shape = shape_of(tmp_path, "laguna", num_attention_heads_per_layer=heads)
    assert [kind.heads for kind in shape.attention_kinds] == [48, 64]
    assert shape.layers_of_kind == (20, 20)
    with refused("conflict laguna.json:1 num_attention_heads_per_layer"):
        shape_of(tmp_path, "laguna", num_attention_heads_per_layer=heads[:-1])


def test_mimo_as_published_has_a_pattern_and_sizes_of_its_own(tmp_path: Path) -> None:
    pattern = [0 if layer in (0, 5) else 1 for layer in range(48)]
    shape = shape_of(
        tmp_path, "mimo_v2_flash", layer_types=None, hybrid_layer_pattern=pattern, swa_num_attention_heads=64,
        swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128,
    )  # fmt: skip
    assert [2 * kind.cached_values for kind in shape.attention_kinds] == [2560, 5120]
    assert shape.layers_of_kind == (2, 46)


def test_blocks_of_nemotron_are_read_in_both_spellings(tmp_path: Path) -> None:
    """An expert is up and down alone; a latent size replaces the hidden one."""
    listed = {"layers_block_type": ["mamba", "moe", "linear_attention", "moe", "attention", "moe"]}
    text = {"layers_block_type": None, "hybrid_override_pattern": "MEME*E", "num_hidden_layers": 6}
    shapes = [shape_of(tmp_path, "nemotron_h", **form, moe_latent_size=1024) for form in (listed, text)]
    assert shapes[0] == shapes[1]
    assert (shapes[0].layers, shapes[0].dense_layers, shapes[0].dense_intermediate) == (6, (0, 2, 4), 0)
    assert shapes[0].expert.weights == 2 * 1024 * 7688
    plain = shape_of(tmp_path, "nemotron_h")  # Mamba, experts, attention, and a network
    assert [kind.title for kind in plain.attention_kinds] == ["linear (Mamba-2)", "none", "gqa", "network"]
    assert (plain.kind_of_layer, plain.dense_layers, plain.dense_intermediate) == ((0, 1, 2, 3), (0, 2, 3), 0)
    assert [kind.kept_bits(100, 8) for kind in plain.attention_kinds] == [
        128 * 64 * 128 * 32 + 3 * (128 * 64 + 2 * 8 * 128) * 16, 0, 100 * 2 * 8 * 128 * 8, 0,
    ]  # fmt: skip
    assert "moe_latent_size" in shapes[0].attention_problem
    for form, problem in (
        ({"layers_block_type": ["moe", "conv"]}, "unknown-name nemotron_h.json:1 layers_block_type"),
        ({"num_hidden_layers": 5}, "conflict nemotron_h.json:1 layers_block_type"),
        ({"layers_block_type": None}, "missing nemotron_h.json layers_block_type"),
        ({"layers_block_type": []}, "missing nemotron_h.json:1 layers_block_type"),
        ({"layers_block_type": ["mlp"]}, "conflict nemotron_h.json:1 layers_block_type"),
        ({"n_groups": 3}, "conflict nemotron_h.json:1 mamba_num_heads"),
        ({"mamba_ssm_cache_dtype": "int8"}, "unknown-name nemotron_h.json:1 mamba_ssm_cache_dtype"),
    ):
        with refused(problem):
            shape_of(tmp_path, "nemotron_h", **form)


def test_gemma_has_a_dense_network_beside_the_experts(tmp_path: Path) -> None:
    """Gemma 4 26B-A4B: full layers of head size 512, and 2112 beside 128 experts of 704."""
    changed = {
        "hidden_size": 2816, "intermediate_size": 2112, "moe_intermediate_size": 704, "num_experts": 128,
        "top_k_experts": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "enable_moe_block": True,
        "hidden_size_per_layer_input": 0,
    }  # fmt: skip
    shape = shape_of(tmp_path, "gemma4_text", **changed)
    assert (shape.routed_experts, shape.experts_per_token, shape.shared_intermediate) == (128, 8, 2112)
    assert [kind.head_size for kind in shape.attention_kinds] == [256, 512]
    own = {"attention_k_eq_v": True, "num_global_key_value_heads": 2, "per_layer_config": None}
    full = shape_of(tmp_path, "gemma4_text", **changed, **own, global_head_dim=512).attention_kinds[1]
    assert [matrix.name for matrix in full.matrices(2816)] == ["q_proj", "k_proj", "o_proj"]
    assert (full.kv_heads, full.cached_values) == (2, 2 * 2 * 512)
    own["attention_k_eq_v"] = False  # then heads of keys are those of the other layers
    full = shape_of(tmp_path, "gemma4_text", **changed, **own, global_head_dim=512).attention_kinds[1]
    assert full.kv_heads == 8


def test_what_a_layer_cannot_change_is_refused(tmp_path: Path) -> None:
    for layers, words in (
        ({"3": {"num_experts": 4}}, "unknown-key"),
        ({"99": {"head_dim": 64}}, "form"),
        ({"x": {"head_dim": 64}}, "form"),
        ({"²": {"head_dim": 64}}, "form"),
        ({"3": 64}, "form"),
        ({"3": {"head_dim": [64]}}, "form"),
        ({"3": {"head_dim": 0}}, "form"),
    ):
        with refused(f"{words} beam.json:1 per_layer_config"):
            shape_of(tmp_path, "beam", per_layer_config=layers)


def test_two_blocks_of_a_layer_are_two_layers(tmp_path: Path) -> None:
    """LongCat-Flash: 560 G weights of the card, of which 27 G on average for a token."""
    shape = shape_of(tmp_path, "longcat_flash", zero_expert_type="identity", num_hidden_layers=28)
    assert (shape.layers, shape.dense_layers[:2], shape.dense_intermediate) == (56, (1, 3), 12288)
    dense = sum(dense_weight_bytes(shape, 8).values())
    assert dense + shape.expert_parameters == pytest.approx(560e9, rel=0.01)
    for_token = 12 * 512 / 768 * shape.expert.weights * shape.moe_layers
    assert dense - 131072 * 6144 + for_token == pytest.approx(27e9, rel=0.02)
    assert shape == shape_of(tmp_path, "longcat_flash", num_hidden_layers=56)
    for changed, problem in (
        ({"num_hidden_layers": 30}, "conflict longcat_flash.json:1 num_hidden_layers"),
        ({"num_layers": None, "num_hidden_layers": 28}, "missing longcat_flash.json num_layers"),
        ({"zero_expert_type": "copy"}, "unsupported longcat_flash.json:1 zero_expert_type"),
        ({"zero_expert_num": -1}, "range longcat_flash.json:1 zero_expert_num"),
    ):
        with refused(problem):
            shape_of(tmp_path, "longcat_flash", **changed)


def test_experts_for_text_are_the_first_of_two(tmp_path: Path) -> None:
    """ERNIE-4.5-VL as published lists a number for text and one for images."""
    published = {
        "model_type": "ernie4_5_moe_vl", "mlp_layer_types": None, "moe_num_experts": [64, 32],
        "moe_layer_start_index": [1, 2], "moe_layer_end_index": [29, 28], "moe_layer_interval": 1,
    }  # fmt: skip
    shape = shape_of(tmp_path, "ernie4_5_vl_moe_text", **published)
    saved = shape_of(tmp_path, "ernie4_5_vl_moe_text")
    assert (shape.expert, shape.dense_layers) == (saved.expert, saved.dense_layers)
    assert shape.routed_experts == 64
    with refused("form ernie4_5_vl_moe_text.json:1 moe_num_experts"):
        shape_of(tmp_path, "ernie4_5_vl_moe_text", moe_num_experts=[64])


def test_experts_of_kimi_k3_work_on_a_size_of_their_own(tmp_path: Path) -> None:
    changed = {
        "hidden_size": 7168, "hidden_act": "situ", "moe_intermediate_size": 3072,
        "routed_expert_hidden_size": 3584, "num_experts": 896, "num_experts_per_token": 16,
    }  # fmt: skip
    shape = shape_of(tmp_path, "kimi_linear", **changed)
    assert (shape.expert.hidden, shape.expert.intermediate, shape.hidden) == (3584, 3072, 7168)
    assert "routed_expert_hidden_size" in shape.attention_problem
    assert shape.attention is None


@pytest.mark.parametrize(
    ("key", "changed", "says"),
    [
        ("linear_attn_config", {"use_full_rank_gate": True}, "linear_attn_config.use_full_rank_gate"),
        ("linear_attn_config", {"num_value_heads": 4}, "linear_attn_config.num_value_heads"),
        ("mla_use_output_gate", None, "mla_use_output_gate"),
    ],
)
def test_keys_inside_of_an_object_are_not_passed_over(
    key: str, changed: dict[str, Any] | None, says: str, tmp_path: Path
) -> None:
    own = RECORDED["kimi_linear+"]["linear_attn_config"]
    value = True if changed is None else own | changed
    shape = shape_of(tmp_path, "kimi_linear+", **{key: value})
    assert says in shape.attention_problem
    assert shape.attention is None
    assert shape_of(tmp_path, "kimi_linear+", linear_attn_config=own).attention is not None


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"sparse_init_block": 1}, "unsupported"),
        ({"use_sparse_attention": False}, "conflict"),
        ({"sparse_disable_index_value": [0] * 60}, "unsupported"),
    ],
)
def test_an_index_that_the_class_has_not_is_refused(changed: Any, code: str, tmp_path: Path) -> None:
    sparse = {
        "sparse_num_index_heads": 4, "sparse_index_dim": 64, "sparse_block_size": 64, "sparse_topk_blocks": 8,
        "sparse_local_block": 1, "sparse_attention_freq": [0] * 3 + [1] * 57,
    }  # fmt: skip
    own = {"layer_types": None, "sparse_attention_config": {**sparse, **changed}}
    with refused(f"{code} minimax_m3_vl_text.json:1 sparse_attention_config.{next(iter(changed))}"):
        shape_of(tmp_path, "minimax_m3_vl_text", **own)


# ---- Layers with experts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changed", "dense"),
    [
        ("lfm2_moe", {"num_hidden_layers": 24}, (0, 1)),
        (
            "ernie4_5_moe",
            {"num_hidden_layers": 6, "moe_layer_interval": 2, "moe_layer_end_index": 3},
            (0, 2, 4, 5),
        ),
        ("ernie4_5_moe", {"num_hidden_layers": 4, "moe_layer_end_index": -1}, (0,)),
        ("jamba", {"num_hidden_layers": 4}, (0, 2)),
        ("jamba", {"num_hidden_layers": 4, "expert_layer_offset": 0}, (1, 3)),
    ],
)
def test_rules_of_layers(name: str, changed: dict[str, Any], dense: tuple[int, ...], tmp_path: Path) -> None:
    assert shape_of(tmp_path, name, **changed).dense_layers == dense


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("glm_moe_dsa", {"index_share_for_mtp_iteration": True, "qk_head_dim": 256}),
        ("mimo_v2_flash", {"sliding_window_size": 129, "add_swa_attention_sink_bias": True}),
        ("step3p5", {"n_shared_experts": 1}),
    ],
)
def test_keys_of_published_files_that_classes_do_not_have(name: str, changed: Any, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, name, **changed)
    assert shape.attention is not None
    assert shape.expert == shape_of(tmp_path, name).expert


def test_published_files_of_sparse_attention(tmp_path: Path) -> None:
    ratios = {"compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "layer_types": None, "compress_rates": None}
    shape = shape_of(tmp_path, "deepseek_v4", num_hash_layers=3, mlp_layer_types=None, **ratios)
    assert (shape.moe_layers, shape.layers_of_kind) == (43, (2, 21, 20))
    assert [kind.rate for kind in shape.attention_kinds] == [0, 4, 128]
    plain = shape_of(tmp_path, "deepseek_v4", layer_types=None, compress_rates=None)
    assert plain.attention == shape_of(tmp_path, "deepseek_v4").attention
    for changed, key in (
        ({"compress_ratios": [4, 128]}, "compress_ratios"),
        ({"compress_ratios": [8] * 43}, "compress_ratios"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"o_groups": 7}, "o_groups"),
        ({"layer_types": ["full_attention"] * 43}, "layer_types"),
    ):
        code = "conflict" if key != "layer_types" and changed != {"compress_ratios": [8] * 43} else "form"
        with refused(f"{code} deepseek_v4.json:1 {key}"):
            shape_of(tmp_path, "deepseek_v4", **({"layer_types": None} | changed))
    own = {"model_type": "minimax_m3", "hidden_act": "swigluoai", "moe_intermediate_size": 3072}
    layers = {"mlp_layer_types": None, "moe_layer_freq": [0] * 3 + [1] * 57, "n_shared_experts": 1}
    shape = shape_of(tmp_path, "minimax_m3_vl_text", **own, **layers)
    assert (shape.expert_intermediate, shape.dense_layers) == (3072, (0, 1, 2))
    sparse = {"sparse_num_index_heads": 4, "sparse_index_dim": 64, "sparse_block_size": 64,
              "sparse_topk_blocks": 8, "sparse_local_block": 1, "sparse_attention_freq": [0] * 3 + [1] * 57}  # fmt: skip
    layers |= {"layer_types": None, "sparse_attention_config": sparse}
    shape = shape_of(tmp_path, "minimax_m3_vl_text", **own, **layers)
    assert [kind.title for kind in shape.attention_kinds] == ["gqa", "gqa index: top of 512 in pools of 64"]
    assert shape.layers_of_kind == (3, 57)
    layers["sparse_attention_config"] = {**sparse, "sparse_num_index_heads": 8}
    with refused("conflict minimax_m3_vl_text.json:1 index_n_heads"):
        shape_of(tmp_path, "minimax_m3_vl_text", **own, **layers)
    with refused("conflict mimo_v2_flash.json:1 sliding_window_size"):
        shape_of(tmp_path, "mimo_v2_flash", sliding_window_size=256)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("mixtral", {"moe_layer_freq": 2}),
        ("aria_text", {"mlp_only_layers": [1]}),
        ("glm4_moe", {"decoder_sparse_step": 3}),
        ("qwen3_moe", {"num_dense_layers": 2}),
        ("sarvam_mla", {"decoder_sparse_step": 2}),
        ("afmoe", {"mlp_only_layers": [0, 2]}),
        ("olmoe", {"mlp_layer_types": ["dense"] * 15 + ["sparse"]}),
        ("deepseek_v4", {"n_shared_experts": 2}),
        ("longcat_flash", {"qk_head_dim": 576}),
    ],
)
def test_rules_that_a_class_does_not_know_are_refused(name: str, changed: Any, tmp_path: Path) -> None:
    with refused(f"conflict {name}.json:1 {next(iter(changed))}"):
        shape_of(tmp_path, name, **changed)


def test_rules_of_other_classes_without_effect_are_not_asked_for(tmp_path: Path) -> None:
    for name, changed in (("mixtral", {"moe_layer_freq": 1}), ("deepseek_v3", {"moe_layer_freq": 1})):
        assert shape_of(tmp_path, name, **changed) == shape_of(tmp_path, name)


# ---- Keys that a file leaves out ----


@pytest.mark.parametrize("name", sorted(CLASS_DEFAULTS))
def test_a_key_that_is_left_out_has_the_default_of_its_class(name: str, tmp_path: Path) -> None:
    """The classes make the same model without these keys; lists of layers are asked for."""
    values = RECORDED[name]
    whole = PAGE.read(name, values, tmp_path)
    for key, value in CLASS_DEFAULTS[name]["defaults"].items():
        assert values[key] == value
        without = PAGE.read(name, {one: values[one] for one in values if one != key}, tmp_path)
        assert replace(without, attention_problem="") == replace(whole, attention_problem="")
        null = PAGE.read(name, values | {key: None}, tmp_path)  # says that there is none
        assert isinstance(null, str) or null != whole
    for key in CLASS_DEFAULTS[name]["lists"]:
        other = PAGE.read(name, {one: values[one] for one in values if one != key}, tmp_path)
        problem = other if isinstance(other, str) else other.attention_problem
        assert f"{key}: missing" in problem


def test_an_alias_counts_in_place_of_a_default(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, "solar_open", n_shared_experts=None, num_shared_experts=2)
    assert shape.shared_experts == 2
    assert shape_of(tmp_path, "qwen3_next", head_dim=None).attention_kinds[1].head_size == 256


@pytest.mark.long
def test_no_further_key_may_be_left_out() -> None:
    assert PAGE.class_defaults() == CLASS_DEFAULTS


# ---- Keys that are not understood -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_width_factor_num", 2),
        ("moe_chunk_size", 4),
        ("num_memory_experts", 8),
        ("ffn_kind", [1, 2]),
        ("layers_with_memory", [1]),
        ("enable_expert_pairs", True),
    ],
)
def test_a_key_that_may_change_the_shape_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    for name in ("mixtral", "solar_open"):
        with refused(f"unknown-name {name}.json:1 {key}"):
            shape_of(tmp_path, name, **{key: value})


@pytest.mark.parametrize(("key", "value"), [("num_summary_heads", 2), ("kv_groups", 4), ("mamba_width", 2)])
def test_a_key_that_may_change_attention_leaves_the_experts(key: str, value: Any, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, "mixtral", **{key: value})
    assert key in shape.attention_problem
    assert shape.attention is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_memory_experts", 0), ("expert_dropout", 0.1), ("moe_kind", "none"), ("seed", 3), ("num_beams", 4)],
)
def test_values_without_a_size_are_not_asked_for(key: str, value: Any, tmp_path: Path) -> None:
    assert shape_of(tmp_path, "mixtral", **{key: value}) == shape_of(tmp_path, "mixtral")


@pytest.mark.parametrize(
    ("name", "changed", "key"),
    [
        ("deepseek_v3", {"num_local_experts": 64}, "num_local_experts"),
        ("qwen3_moe", {"num_experts": 64}, "num_experts"),
        ("kimi_linear", {"num_experts_per_tok": 4}, "num_experts_per_tok"),
        ("deepseek_v4", {"intermediate_size": 4096}, "moe_intermediate_size"),
        ("dbrx", {"num_attention_heads": 8}, "num_attention_heads"),
    ],
)
def test_a_key_and_its_alias_must_agree(name: str, changed: dict[str, Any], key: str, tmp_path: Path) -> None:
    with refused(f"conflict {name}.json:1 {key}"):
        shape_of(tmp_path, name, **changed)
    (name_of_alias,) = changed
    same = {
        "num_local_experts": 256,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "intermediate_size": 2048,
        "num_attention_heads": 16,
    }
    assert shape_of(tmp_path, name, **{name_of_alias: same[name_of_alias]}).routed_experts
