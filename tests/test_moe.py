"""Model shapes: against published figures first, then every family's keys, then every mistake in a file."""

from __future__ import annotations

import csv
import dataclasses
import doctest
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ndpsim
import ndpsim.workload.models
from calls import GIVEN
from mistakes import mistake_of, refused
from ndpsim.base.errors import InputError
from ndpsim.workload.models import (
    Attention,
    Expert,
    LinearAttention,
    MoeShape,
    load_model,
    model_names,
    parse_shape,
)

Write = Callable[..., Path]

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3 = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a config.json of `base` with some keys changed; a key set to ... is left out."""

    def write_config(base: dict[str, Any], **changes: Any) -> Path:
        values = {key: value for key, value in (base | changes).items() if value is not ...}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values, indent=2), encoding="utf-8")
        return path

    return write_config


# What the model cards state: hidden, expert size, layers, dense ones, experts, top-k, shared.
CARDS = {
    "deepseek-moe-16b": (2048, 1408, 28, (0,), 64, 6, 2),
    "deepseek-v2": (5120, 1536, 60, (0,), 160, 6, 2),
    "deepseek-v2-lite": (2048, 1408, 27, (0,), 64, 6, 2),
    "deepseek-v3": (7168, 2048, 61, (0, 1, 2), 256, 8, 1),
    "glm-4.5-air": (4096, 1408, 46, (0,), 128, 8, 1),
    "gpt-oss-120b": (2880, 2880, 36, (), 128, 4, 0),
    "kimi-k2": (7168, 2048, 61, (0,), 384, 8, 1),
    "llama-3.1-8b": (4096, 0, 32, tuple(range(32)), 0, 0, 0),
    "llama-4-maverick": (5120, 8192, 48, tuple(range(0, 48, 2)), 128, 1, 1),
    "llama-4-scout": (5120, 8192, 48, (), 16, 1, 1),
    "minimax-m2": (3072, 1536, 62, (), 256, 8, 0),
    "mixtral-8x22b": (6144, 16384, 56, (), 8, 2, 0),
    "mixtral-8x7b": (4096, 14336, 32, (), 8, 2, 0),
    "phi-3.5-moe": (4096, 6400, 32, (), 16, 2, 0),
    "qwen3-235b-a22b": (4096, 1536, 94, (), 128, 8, 0),
    "qwen3-30b-a3b": (2048, 768, 48, (), 128, 8, 0),
    "qwen3-32b": (5120, 0, 64, tuple(range(64)), 0, 0, 0),
    "qwen3-next-80b-a3b": (2048, 512, 48, (), 512, 10, 1),
    "qwen3.5-122b-a10b": (3072, 1024, 48, (), 256, 8, 1),
    "qwen3.5-35b-a3b": (2048, 512, 40, (), 256, 8, 1),
}
# Names of models that have another's shape.
SAME = {"deepseek-r1": "deepseek-v3", "qwen3-coder-next": "qwen3-next-80b-a3b"}


def test_names_are_sorted_and_complete() -> None:
    assert model_names() == sorted(CARDS | SAME)


@pytest.mark.parametrize("name", SAME)
def test_models_of_the_same_shape_have_names_of_their_own(name: str) -> None:
    m = load_model(name)
    assert (m.name, m.source) == (name, SAME[name])
    assert dataclasses.replace(m, name=SAME[name]) == load_model(SAME[name])


@pytest.mark.parametrize("name", CARDS)
def test_bundled_models_match_their_cards(name: str) -> None:
    m = load_model(name)
    assert CARDS[name] == (
        m.hidden,
        m.expert_intermediate,
        m.layers,
        m.dense_layers,
        m.routed_experts,
        m.experts_per_token,
        m.shared_experts,
    )
    assert (m.name, m.source, m.hidden_act) == (name, name, "silu")
    assert m.moe_layers == m.layers - len(m.dense_layers)
    assert m.shared_intermediate == m.shared_experts * m.expert_intermediate


# Attention and vocabulary

# Kind, heads, heads of keys, size of a key and of a value, values of a token in the cache, vocabulary.
with (GIVEN / "attention.csv").open(encoding="utf-8") as opened:
    ATTENTION = {
        name: (kind, *map(int, rest)) for name, kind, *rest in itertools.islice(csv.reader(opened), 1, None)
    }
# All parameters, as the index of each repository's safetensors counts them, without the layer that predicts one token
# more (GLM-4.5-Air, Qwen3-Next, Qwen3.5) and without the part that sees (Llama 4, Qwen3.5), whose sizes follow from the
# same config.json; gpt-oss-120b's as its GGUF counts them, of which MXFP4 packs several in a byte.
VISION = 871_932_416  # of Llama 4: 34 layers of 1408, patches of 14 x 14, a projector to 5120
PARAMETERS = {
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "glm-4.5-air": 110_468_824_832 - 3_616_573_568,
    "gpt-oss-120b": 116_829_156_672,
    "llama-3.1-8b": 8_030_261_248,
    "llama-4-maverick": 401_583_781_376 - VISION,
    "llama-4-scout": 108_641_793_536 - VISION,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "phi-3.5-moe": 41_873_153_344,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-next-80b-a3b": 81_324_862_720 - 1_650_471_424,
    "qwen3.5-122b-a10b": 125_086_497_008 - 2_523_679_232 - 451_290_864,
    "qwen3.5-35b-a3b": 35_951_822_704 - 844_640_768 - 446_571_248,
}


# What model cards say of others, in billions: all parameters, rounded as there, and those that a token uses.
BILLIONS = {"deepseek-v3": (671, 0, 37), "kimi-k2": (1000, -3, 32), "minimax-m2": (230, -1, 10)}


def norms_and_biases(m: MoeShape) -> int:
    """What the matrices leave out: the norms of all, and those, biases and gates that families have of their own."""
    count = (2 * m.layers + 1) * m.hidden
    if m.family in ("qwen3_next", "qwen3_5_moe_text"):
        count += m.moe_layers * m.hidden  # the gate of the shared expert
    for attention, layers in zip(m.attention_kinds, m.layers_of_kind, strict=True):
        if isinstance(attention, LinearAttention):
            # What the state decays with, the step's bias, and the norm of the result.
            count += layers * (2 * attention.value_heads + attention.value_size)
            continue
        count += layers * (attention.query_rank + attention.latent_rank)
        projected = (attention.heads + 2 * attention.kv_heads) * attention.head_size
        if m.family in ("qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text"):
            count += 2 * layers * attention.head_size  # norms of queries and of keys
        if m.family == "glm4_moe":
            count += layers * projected + m.moe_layers * m.routed_experts
        if m.family == "phimoe":
            count += (2 * m.layers + 1) * m.hidden + layers * (projected + m.hidden) + (m.vocabulary or 0)
        if m.family == "gpt_oss":  # biases everywhere, of experts as well, and a sink for each head
            of_expert = 2 * m.expert_intermediate + m.hidden
            count += layers * (projected + m.hidden + attention.heads + m.routed_experts * (1 + of_expert))
    return count


def parameters_of_matrices(m: MoeShape) -> int:
    assert m.vocabulary is not None
    attention = sum(
        layers * matrix.rows * matrix.columns
        for kind, layers in zip(m.attention_kinds, m.layers_of_kind, strict=True)
        for matrix in kind.matrices(m.hidden)
    )
    routers = m.moe_layers * m.routed_experts * m.hidden
    shared = m.moe_layers * 3 * m.hidden * m.shared_intermediate
    dense = len(m.dense_layers) * 3 * m.hidden * m.dense_intermediate
    tables = 2 * m.vocabulary * m.hidden
    return attention + routers + shared + dense + tables + m.expert_parameters


@pytest.mark.parametrize("name", PARAMETERS)
def test_all_parameters_of_the_bundled_models_are_those_of_their_repositories(name: str) -> None:
    m = load_model(name)
    assert parameters_of_matrices(m) + norms_and_biases(m) == PARAMETERS[name]


# Billions of all parameters and of those that a token uses, as the cards say, of the language model; and which of
# embedding and head are among the latter: gpt-oss's card counts the head alone, the others do not say.
@pytest.mark.parametrize(
    ("name", "total", "active", "tables"),
    [
        ("gpt-oss-120b", 117, 5, 1),
        ("llama-4-maverick", 401, 17, 2),  # the card: 400B
        ("llama-4-scout", 108, 17, 2),  # the card: 109B, with the 0.9B that see
        ("qwen3-next-80b-a3b", 80, 3, 0),
        ("qwen3.5-122b-a10b", 122, 10, 2),
        ("qwen3.5-35b-a3b", 35, 3, 2),
    ],
)
def test_parameters_of_models_of_several_kinds_are_what_their_cards_say(name, total, active, tables):
    m = load_model(name)
    matrices = parameters_of_matrices(m)
    idle = m.expert_parameters * (1 - m.experts_per_token / m.routed_experts)
    assert round(matrices / 1e9) == total
    assert round((matrices - idle - (2 - tables) * (m.vocabulary or 0) * m.hidden) / 1e9) == active


def test_states_of_a_sequence_of_qwen3_5() -> None:
    # alibaba/InferSim, pull request 11: 146.53 MB of states a request, in units of 2**20.
    m = load_model("qwen3.5-122b-a10b")
    linear = m.attention_kinds[0]
    assert m.layers_of_kind == (36, 12)
    assert round(36 * linear.kept_bits(1, 16) / 8 / 2**20, 2) == 146.53
    assert linear.kept_bits(10**6, 8) == linear.kept_bits(1, 16)


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_of_other_bundled_models_are_what_their_cards_say(name: str) -> None:
    m, (total, digits, active) = load_model(name), BILLIONS[name]
    matrices = parameters_of_matrices(m)
    assert round(matrices / 1e9, digits) == total
    experts = m.expert_parameters * (1 - m.experts_per_token / m.routed_experts)
    assert round((matrices - experts - (m.vocabulary or 0) * m.hidden) / 1e9) == active


def test_bundled_models_have_their_parameters_checked() -> None:
    assert sorted(PARAMETERS | BILLIONS | SAME) == model_names()


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_the_bundled_models(name: str) -> None:
    m = load_model(name)
    (a,) = m.attention_kinds
    assert isinstance(a, Attention)
    assert m.attention == a
    found = (a.kind, a.heads, a.kv_heads, a.head_size, a.value_size, a.cached_values, m.vocabulary)
    assert found == ATTENTION[name]
    assert not m.tied_embeddings
    assert a.window == (131072 if name == "phi-3.5-moe" else 0)


def test_latent_ranks_of_deepseek() -> None:
    assert load_model("deepseek-v2").attention == Attention(128, 128, 192, 128, 1536, 512, 64)
    assert load_model("deepseek-v2-lite").attention == Attention(16, 16, 192, 128, 0, 512, 64)


def test_matrices_of_attention_have_the_names_and_sizes_of_the_repositories() -> None:
    names = {
        "mixtral-8x7b": {"q_proj": (4096, 4096), "k_proj": (1024, 4096), "v_proj": (1024, 4096), "o_proj": (4096, 4096)},
        "qwen3-30b-a3b": {"q_proj": (4096, 2048), "k_proj": (512, 2048), "v_proj": (512, 2048), "o_proj": (2048, 4096)},
        "deepseek-v2": {
            "q_a_proj": (1536, 5120), "q_b_proj": (24576, 1536), "kv_a_proj_with_mqa": (576, 5120),
            "kv_b_proj": (32768, 512), "o_proj": (5120, 16384),
        },
        "deepseek-v2-lite": {
            "q_proj": (3072, 2048), "kv_a_proj_with_mqa": (576, 2048), "kv_b_proj": (4096, 512), "o_proj": (2048, 2048),
        },
    }  # fmt: skip
    for name, sizes in names.items():
        m = load_model(name)
        (attention,) = m.attention_kinds
        found = {matrix.name: (matrix.rows, matrix.columns) for matrix in attention.matrices(m.hidden)}
        assert found == sizes


GQA_OSS = Attention(64, 8, 64, 64)
GQA_LLAMA = Attention(40, 8, 128, 128)
SEVERAL = {
    "gpt-oss-120b": (18 * (0, 1), (dataclasses.replace(GQA_OSS, window=128), GQA_OSS)),
    "llama-4-maverick": (12 * (0, 0, 0, 1), (dataclasses.replace(GQA_LLAMA, chunk=8192), GQA_LLAMA)),
    "llama-4-scout": (12 * (0, 0, 0, 1), (dataclasses.replace(GQA_LLAMA, chunk=8192), GQA_LLAMA)),
    "qwen3-next-80b-a3b": (
        12 * (0, 0, 0, 1),
        (LinearAttention(16, 32, 128, 128, 4), Attention(16, 2, 256, 256, gated=True)),
    ),
    "qwen3.5-122b-a10b": (
        12 * (0, 0, 0, 1),
        (LinearAttention(16, 64, 128, 128, 4), Attention(32, 2, 256, 256, gated=True)),
    ),
    "qwen3.5-35b-a3b": (
        10 * (0, 0, 0, 1),
        (LinearAttention(16, 32, 128, 128, 4), Attention(16, 2, 256, 256, gated=True)),
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_bundled_models_whose_layers_attend_differently(name: str) -> None:
    m = load_model(name)
    assert (m.kind_of_layer, m.attention_kinds) == SEVERAL[name]
    assert sorted(ATTENTION | SEVERAL | SAME) == model_names()


def test_matrices_of_a_gated_delta_net_and_of_gated_attention() -> None:
    # The sizes of Qwen3-Next's tensors: linear_attn of layer 0 and self_attn of layer 3.
    linear, full = load_model("qwen3-next-80b-a3b").attention_kinds
    assert [(x.name, x.rows, x.columns) for x in linear.matrices(2048)] == [
        ("in_proj_qkvz", 12288, 2048),
        ("in_proj_ba", 64, 2048),
        ("conv1d", 8192, 4),
        ("out_proj", 2048, 4096),
    ]
    assert [(x.name, x.rows, x.columns) for x in full.matrices(2048)] == [
        ("q_proj", 8192, 2048),
        ("k_proj", 512, 2048),
        ("v_proj", 512, 2048),
        ("o_proj", 2048, 4096),
    ]


HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ("gqa", 8, 2, 512, 0)),
        ({"num_key_value_heads": 1}, ("mqa", 8, 1, 512, 0)),
        ({"num_key_value_heads": None}, ("mha", 8, 8, 512, 0)),
        ({"head_dim": 64}, ("gqa", 8, 2, 64, 0)),
        ({"sliding_window": 4096}, ("gqa", 8, 2, 512, 4096)),
        ({"sliding_window": 4096, "use_sliding_window": False}, ("gqa", 8, 2, 512, 0)),
        (
            {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16},
            ("mla", 8, 8, 24, 0),
        ),
    ],
)
def test_kinds_of_attention(changes: dict[str, Any], found: tuple[Any, ...], write: Write) -> None:
    a = load_model(write(MIXTRAL | HEADS, **changes)).attention
    assert isinstance(a, Attention)
    assert (a.kind, a.heads, a.kv_heads, a.head_size, a.window) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": ...},
        {"linear_attn_config": {"num_heads": 32}},
        {"index_topk": 2048},
        {"mamba_d_state": 16},
        {"attn_type_list": [0, 1]},
    ],
)
def test_attention_that_is_not_described_or_of_another_kind_is_none(changes, write):
    path = write(MIXTRAL | HEADS, **changes)
    m = load_model(path)
    assert m.attention is None
    assert m.vocabulary == 1000
    if changes == {"num_attention_heads": ...}:
        assert m.attention_problem == ""
        return
    (key,) = changes
    line = path.read_text(encoding="utf-8").split(f'"{key}"')[0].count("\n") + 1
    assert m.attention_problem == f"{path}:{line}: {key}: describes attention that is not modelled"
    with refused("missing model"):
        ndpsim.load_processors().dense_time(m, 1, 1)


def test_a_list_of_layers_that_all_have_keys_and_values_is_nothing_special(write: Write) -> None:
    listed = load_model(write(MIXTRAL | HEADS, attn_type_list=[1] * 32))
    assert listed == load_model(write(MIXTRAL | HEADS))


def test_a_file_without_attention_still_has_experts(write: Write) -> None:
    m = load_model(write(MIXTRAL))
    assert (m.attention, m.vocabulary, m.tied_embeddings) == (
        None,
        32000,
        False,
    )  # the vocabulary of the class
    assert load_model(write(MIXTRAL, model_type="somebodys_moe")).vocabulary is None
    assert load_model(write(MIXTRAL, tie_word_embeddings=True)).tied_embeddings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "range config.json:9 num_attention_heads"),
        ({"num_key_value_heads": 3}, "conflict config.json:10 num_key_value_heads"),
        ({"num_key_value_heads": 16}, "conflict config.json:10 num_key_value_heads"),
        ({"num_attention_heads": 6}, "conflict config.json:9 num_attention_heads"),
        ({"head_dim": 0}, "range config.json:12 head_dim"),
        ({"kv_lora_rank": 512}, "missing config.json qk_rope_head_dim"),
        ({"vocab_size": 0}, "range config.json:11 vocab_size"),
        ({"vocab_size": 2.5}, "range config.json:11 vocab_size"),
        ({"tie_word_embeddings": 1}, "type config.json:12 tie_word_embeddings"),
        ({"sliding_window": -1}, "range config.json:12 sliding_window"),
    ],
)
def test_malformed_attention(changes: dict[str, Any], words: str, write: Write) -> None:
    assert mistake_of(load_model, write(MIXTRAL | HEADS, **changes)) == words


LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
MIXED = MIXTRAL | HEADS | LINEAR | {"num_hidden_layers": 4, "sliding_window": 64, "attention_chunk_size": 32}
SLIDING, FULL, CHUNKED, DELTA = "sliding_attention", "full_attention", "chunked_attention", "linear_attention"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"layer_types": [SLIDING, FULL, SLIDING, FULL]}, ["gqa window of 64", "gqa"] * 2),
        ({"layer_types": [FULL] * 4}, ["gqa"] * 4),
        ({"layer_types": [FULL, CHUNKED, DELTA, SLIDING]},
         ["gqa", "gqa chunk of 32", "linear (gated delta net)", "gqa window of 64"]),
        ({"full_attention_interval": 2}, ["linear (gated delta net)", "gqa"] * 2),
        ({"full_attention_interval": 1, "attn_output_gate": True}, ["gated gqa"] * 4),
        ({}, ["gqa chunk of 32"] * 3 + ["gqa"]),
        ({"no_rope_layer_interval": 2}, ["gqa chunk of 32", "gqa"] * 2),
        ({"no_rope_layers": [0, 1, 1, 1]}, ["gqa"] + ["gqa chunk of 32"] * 3),
        ({"attention_chunk_size": None}, ["gqa window of 64"] * 4),
        ({"attention_chunk_size": None, "use_sliding_window": False, "max_window_layers": 2}, ["gqa"] * 4),
    ],
)  # fmt: skip
def test_which_layers_attend_how(changes: dict[str, Any], found: list[str], write: Write) -> None:
    m = load_model(write(MIXED, **changes))
    assert [m.attention_kinds[index].title for index in m.kind_of_layer] == found
    assert sum(m.layers_of_kind) == m.layers
    assert m.to_dict() == json.loads(json.dumps(m.to_dict()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": [FULL, SLIDING, "slidding_attention", FULL]},
         "form config.json:19 layer_types ? sliding_attention"),
        ({"layer_types": [FULL] * 3}, "conflict config.json:19 layer_types"),
        ({"layer_types": [SLIDING] * 4, "sliding_window": None}, "missing config.json:17 sliding_window"),
        ({"full_attention_interval": 0}, "range config.json:19 full_attention_interval"),
        ({"full_attention_interval": 2, "linear_key_head_dim": ...}, "missing config.json linear_key_head_dim"),
        ({"full_attention_interval": 2, "linear_num_value_heads": 3},
         "conflict config.json:13 linear_num_value_heads"),
        ({"full_attention_interval": 2, "mamba_ssm_dtype": "float8"}, "unknown-name config.json:20 mamba_ssm_dtype ? float32"),
        ({"no_rope_layers": [1, 1, 1]}, "conflict config.json:19 no_rope_layers"),
        ({"no_rope_layers": [1, 1, 1, 2]}, "form config.json:19 no_rope_layers"),
        ({"attention_chunk_size": 0}, "range config.json:18 attention_chunk_size"),
        ({"attention_chunk_size": None, "max_window_layers": 2}, "unsupported config.json:19 max_window_layers"),
        ({"attention_chunk_size": None, "sliding_window_pattern": 6}, "unsupported config.json:19 sliding_window_pattern"),
        ({"model_type": "gpt_oss"}, "missing config.json layer_types"),
    ],
)  # fmt: skip
def test_layers_that_are_not_understood(changes: dict[str, Any], words: str, write: Write) -> None:
    path = write(MIXED, **changes)
    assert mistake_of(load_model, path) == words


LLAMA = {
    "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_hidden_layers": 6, "num_local_experts": 16, "num_experts_per_tok": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "dense"),
    [
        ({"interleave_moe_layer_step": 1}, ()),
        ({"interleave_moe_layer_step": 2}, (0, 2, 4)),
        ({"interleave_moe_layer_step": 2, "moe_layers": [1, 2]}, (0, 3, 4, 5)),
        ({"moe_layers": [0, 1, 2, 3, 4, 5]}, ()),
    ],
)
def test_layers_of_llama_4(pattern: dict[str, Any], dense: tuple[int, ...], write: Write) -> None:
    m = load_model(write({"model_type": "llama4", "text_config": LLAMA | pattern}))
    assert (m.dense_layers, m.dense_intermediate) == (dense, 16384 if dense else 0)
    assert (m.shared_experts, m.shared_intermediate, m.expert) == (1, 8192, Expert(5120, 8192))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ({}, "missing config.json moe_layers"),
        ({"interleave_moe_layer_step": 7}, "conflict config.json:9 interleave_moe_layer_step"),
        ({"moe_layers": [6]}, "range config.json:9 moe_layers"),
        ({"moe_layers": []}, "conflict config.json:9 moe_layers"),
    ],
)
def test_layers_of_llama_4_that_make_no_sense(pattern: dict[str, Any], words: str, write: Write) -> None:
    assert mistake_of(load_model, write(LLAMA | pattern)) == words


# Experts


def test_matrices_are_gate_up_down_with_rows_of_outputs() -> None:
    assert Expert(8, 3).matrices() == (("gate", 3, 8), ("up", 3, 8), ("down", 8, 3))


def test_each_matrix_rounds_up_to_whole_bytes() -> None:
    assert Expert(5, 1).weight_bytes(bits=3) == 3 * 2  # 15 bits each; 45 together would fit in 6 as well
    assert Expert(3, 1).weight_bytes(bits=3) == 3 * 2  # 9 bits each; 27 together would fit in 4
    assert Expert(3, 1).weight_bytes(bits=1) == 3


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 64))
def test_bytes_never_fall_below_the_bits_and_waste_under_three(hidden: int, size: int, bits: int) -> None:
    expert = Expert(hidden, size)
    assert expert.weights == sum(m.rows * m.columns for m in expert.matrices())
    assert 0 <= 8 * expert.weight_bytes(bits) - expert.weights * bits <= 3 * 7


@pytest.mark.parametrize("size", [0, -1, True, 8.0, float("nan"), "8", None, 2**24 + 1])
def test_an_expert_refuses_what_is_no_size(size: Any) -> None:
    code = "range" if type(size) is int else "type"
    with refused(f"{code} hidden"):
        Expert(size, 4)
    with refused(f"{code} intermediate"):
        Expert(4, size)


@pytest.mark.parametrize("bits", [0, -4, 65, 4.0, True])
def test_weight_bytes_refuses_what_is_no_bit_width(bits: Any) -> None:
    with refused("range bits" if type(bits) is int else "type bits"):
        Expert(4, 4).weight_bytes(bits)


# Families, by snippets of their configuration


def test_phi_and_olmoe_and_gpt_oss_use_the_plain_intermediate_size(write: Write) -> None:
    phi = load_model(write(MIXTRAL, model_type="phimoe", intermediate_size=6400, num_local_experts=16))
    assert (phi.family, phi.expert, phi.routed_experts) == ("phimoe", Expert(4096, 6400), 16)

    olmoe = {"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16}
    m = load_model(write(olmoe, num_experts=64, num_experts_per_tok=8))
    assert (m.expert, m.routed_experts, m.experts_per_token) == (Expert(2048, 1024), 64, 8)

    oss = {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24}
    m = load_model(write(oss, num_local_experts=32, experts_per_token=4))
    assert (m.expert, m.routed_experts, m.experts_per_token) == (Expert(2880, 2880), 32, 4)


def test_qwen2_moe_states_the_size_of_its_shared_expert(write: Write) -> None:
    changes = {"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4}
    m = load_model(write(QWEN3, **changes, shared_expert_intermediate_size=5632))
    assert (m.shared_experts, m.shared_intermediate, m.expert_intermediate) == (1, 5632, 768)
    m = load_model(write(QWEN3, **changes, shared_expert_intermediate_size=0))
    assert (m.shared_experts, m.shared_intermediate) == (0, 0)


def test_qwen3_moe_under_either_name_of_its_experts(write: Write) -> None:
    m = load_model(write(QWEN3))
    assert (m.expert, m.routed_experts, m.shared_experts) == (Expert(2048, 768), 128, 0)
    assert load_model(write(QWEN3, num_experts=..., num_local_experts=128)).routed_experts == 128


@pytest.mark.parametrize("model_type", ["deepseek", "deepseek_v2", "glm4_moe"])
def test_deepseek_kin_multiply_the_shared_experts(model_type: str, write: Write) -> None:
    m = load_model(write(DEEPSEEK, model_type=model_type, n_shared_experts=2))
    assert (m.family, m.shared_experts, m.shared_intermediate) == (model_type, 2, 4096)
    assert load_model(write(DEEPSEEK, model_type=model_type, n_shared_experts=None)).shared_experts == 0


@pytest.mark.parametrize("base", [MIXTRAL, QWEN3, DEEPSEEK])
@pytest.mark.parametrize("model_type", ["somebodys_moe", ...])
def test_an_unknown_family_is_read_by_all_known_keys(base, model_type, write):
    known = load_model(write(base)).to_dict()
    unknown = load_model(write(base, model_type=model_type)).to_dict()
    assert unknown.pop("family") == ("unknown" if model_type is ... else model_type)
    assert unknown.pop("vocabulary") is None
    for of_class in ("family", "vocabulary"):
        del known[of_class]
    assert unknown == known


def test_text_config_of_a_multimodal_wrapper_is_read(write: Write) -> None:
    wrapper = {"model_type": "wrapper", "text_config": DEEPSEEK, "vision_config": {"hidden_size": 1152}}
    m = load_model(write(wrapper))
    assert (m.family, m.hidden, m.moe_layers) == ("deepseek_v3", 7168, 58)
    assert load_model(write(MIXTRAL, text_config=None)).hidden == 4096


def test_to_dict_is_json_with_the_derived_numbers(write: Write) -> None:
    m = load_model(write(DEEPSEEK))
    again = json.loads(json.dumps(m.to_dict()))
    assert again == m.to_dict()
    assert again["dense_layers"] == [0, 1, 2]
    assert again["expert_weights"] == 3 * 7168 * 2048
    assert again["expert_parameters"] == 58 * 256 * 3 * 7168 * 2048


def test_activation_is_read_and_silu_by_default(write: Write) -> None:
    assert load_model(write(MIXTRAL, hidden_act="gelu")).hidden_act == "gelu"
    assert load_model(write(MIXTRAL, hidden_act=...)).hidden_act == "silu"


# Which layers have experts


@pytest.mark.parametrize(
    ("pattern", "dense"),
    [
        ({}, ()),
        ({"first_k_dense_replace": 2}, (0, 1)),
        ({"first_k_dense_replace": None, "moe_layer_freq": None}, ()),
        ({"moe_layer_freq": 2}, (1, 3, 5)),  # DeepSeek: layer % freq == 0
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, (0, 1, 3, 5)),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 1]}, (0, 3)),
        ({"decoder_sparse_step": 2}, (0, 2, 4)),  # Qwen: (layer + 1) % step == 0
        ({"mlp_only_layers": [4, 0]}, (0, 4)),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [2]}, (0, 1, 2, 3, 4)),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 3}, (0, 1, 2)),
        ({"mlp_layer_types": ["dense"] + ["sparse"] * 5, "first_k_dense_replace": 3}, (0,)),
    ],
)
def test_layer_patterns(pattern: dict[str, Any], dense: tuple[int, ...], write: Write) -> None:
    m = load_model(write(QWEN3, model_type="somebodys_moe", **pattern))
    assert m.dense_layers == dense
    assert m.moe_layers == 6 - len(dense)
    assert m.dense_intermediate == (6144 if dense else 0)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ({"first_k_dense_replace": 7}, "range config.json:9 first_k_dense_replace"),
        ({"first_k_dense_replace": -1}, "range config.json:9 first_k_dense_replace"),
        ({"first_k_dense_replace": 6}, "conflict config.json:9 first_k_dense_replace"),
        ({"decoder_sparse_step": 0}, "range config.json:9 decoder_sparse_step"),
        ({"decoder_sparse_step": 7}, "conflict config.json:9 decoder_sparse_step"),
        ({"moe_layer_freq": 0}, "range config.json:9 moe_layer_freq"),
        ({"moe_layer_freq": "2"}, "range config.json:9 moe_layer_freq"),
        ({"moe_layer_freq": [1, 1]}, "conflict config.json:9 moe_layer_freq"),
        ({"moe_layer_freq": [1, 1, 2, 1, 1, 1]}, "form config.json:9 moe_layer_freq"),
        ({"moe_layer_freq": [True] * 6}, "form config.json:9 moe_layer_freq"),
        ({"moe_layer_freq": []}, "conflict config.json:9 moe_layer_freq"),
        ({"mlp_only_layers": 3}, "type config.json:9 mlp_only_layers"),
        ({"mlp_only_layers": [6]}, "range config.json:9 mlp_only_layers"),
        ({"mlp_only_layers": ["0"]}, "range config.json:9 mlp_only_layers"),
        ({"mlp_layer_types": "sparse"}, "type config.json:9 mlp_layer_types"),
        ({"mlp_layer_types": ["dense"] * 6}, "conflict config.json:9 mlp_layer_types"),
        ({"mlp_layer_types": ["sparse"] * 5 + [1]}, "form config.json:9 mlp_layer_types"),
        ({"mlp_layer_types": ["sparse"]}, "conflict config.json:9 mlp_layer_types"),
    ],
)
def test_malformed_layer_patterns(pattern: dict[str, Any], words: str, write: Write) -> None:
    assert mistake_of(load_model, write(QWEN3, **pattern)) == words


# Where a model is found


def test_names_are_taken_in_any_case() -> None:
    assert load_model("Qwen3-235B-A22B") == load_model("qwen3-235b-a22b")


def test_a_file_a_folder_and_another_file_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MIXTRAL), encoding="utf-8-sig")
    by_folder, by_file = load_model(folder), load_model(str(folder / "config.json"))
    assert by_folder == by_file
    assert (by_file.name, by_file.source) == ("my-model", str(folder / "config.json"))
    (tmp_path / "tiny.json").write_text(json.dumps(MIXTRAL), encoding="utf-8")
    assert load_model(tmp_path / "tiny.json").name == "tiny"


def test_a_bundled_name_comes_before_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixtral-8x7b").mkdir()
    (tmp_path / "mixtral-8x7b" / "config.json").write_text(json.dumps(MIXTRAL | {"hidden_size": 64}))
    assert load_model("mixtral-8x7b").hidden == 4096
    assert load_model("./mixtral-8x7b").hidden == 64


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert mistake_of(load_model, "deepseek-v2-lit") == "unknown-name model ? deepseek-v2-lite"
    for nonsense in ("", "x" * 5000, "a\0b"):
        assert mistake_of(load_model, nonsense) in ("unknown-name model", "unreadable model")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    assert mistake_of(load_model, tmp_path / "none.json") == "unreadable none.json"
    assert mistake_of(load_model, tmp_path / "nowhere" / "model") == "unreadable model"
    assert mistake_of(load_model, tmp_path) == "unreadable test_missing_files_and_folders0"
    (tmp_path / "config.json").mkdir()
    assert mistake_of(load_model, tmp_path) == "unreadable config.json"
    assert mistake_of(load_model, "/dev/null") == "unreadable null"


# What is wrong inside a file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "form config.json:1"),
        (b'{\n  "a": 1,\n  oops\n}', "form config.json:3"),
        (b'{"a": \xff}', "form config.json"),
        (b"[1, 2]", "form config.json"),
        (b"null", "form config.json"),
        (b"[" * 200_000, "form config.json"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "form config.json"),
        (b" " * (2**24 + 1), "too-large config.json"),
        (b'{"text_config": [1]}', "type config.json:1 text_config"),
    ],
)
def test_files_that_are_no_configuration(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text)
    assert mistake_of(load_model, path) == words


@pytest.mark.parametrize(
    "base",
    [
        {"model_type": "opt", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
        {},
        MIXTRAL | {"num_local_experts": None},
        MIXTRAL | {"num_local_experts": 0},
        DEEPSEEK | {"n_routed_experts": None},
    ],
)
def test_a_dense_model_is_said_to_be_dense(base: dict[str, Any], write: Write) -> None:
    code, place, key = mistake_of(load_model, write(base)).split()
    assert (code, place.partition(":")[0], key.endswith("experts")) == ("unsupported", "config.json", True)


def test_a_model_of_a_family_without_experts_has_none(write: Write) -> None:
    llama = MIXTRAL | {"model_type": "llama", "num_local_experts": ..., "num_experts_per_tok": ...}
    m = load_model(write(llama))
    assert (m.has_experts, m.dense_layers, m.dense_intermediate) == (False, tuple(range(32)), 14336)
    with refused("unsupported model"):
        m.expert  # noqa: B018
    assert mistake_of(load_model, write(llama, num_experts=8)) == "conflict config.json:7 num_experts"


@pytest.mark.parametrize(
    ("base", "key"),
    [
        *((MIXTRAL, key) for key in MIXTRAL if key not in ("model_type", "hidden_act")),
        *((QWEN3, key) for key in QWEN3 if key not in ("model_type", "intermediate_size")),
        *(
            (DEEPSEEK, key)
            for key in DEEPSEEK
            if key not in ("model_type", "moe_layer_freq", "num_nextn_predict_layers")
        ),
        (
            QWEN3 | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 0},
            "shared_expert_intermediate_size",
        ),
        (QWEN3 | {"decoder_sparse_step": 2}, "intermediate_size"),  # its dense layers need it
    ],
)
def test_a_missing_key_is_named(base: dict[str, Any], key: str, write: Write) -> None:
    dense = key in ("num_local_experts", "num_experts", "n_routed_experts")
    code = "unsupported" if dense else "missing"  # without them it is no mixture of experts
    assert mistake_of(load_model, write(base, **{key: ...})) == f"{code} config.json {key}"


def test_a_key_missing_from_an_unknown_family_names_all_it_may_be_called(write: Write) -> None:
    with refused("missing config.json num_experts_per_tok") as caught:
        load_model(write(MIXTRAL, model_type="other", num_experts_per_tok=...))
    assert "experts_per_token" in caught.value.problem


SIZES = ("hidden_size", "moe_intermediate_size", "intermediate_size")
COUNTS = ("num_hidden_layers", "n_routed_experts", "num_experts_per_tok")


@pytest.mark.parametrize("key", [*SIZES, *COUNTS])
@pytest.mark.parametrize(
    "value", [-1, True, 1.5, 8.0, float("nan"), float("inf"), "8", [8], {}, 2**24 + 1, 10**30]
)
def test_a_value_that_is_no_size_is_named(key: str, value: Any, write: Write) -> None:
    path = write(DEEPSEEK, **{key: value})
    line = path.read_text(encoding="utf-8").split(f'"{key}"')[0].count("\n") + 1
    assert mistake_of(load_model, path) == f"range config.json:{line} {key}"


@pytest.mark.parametrize("key", [*SIZES, "num_hidden_layers", "num_experts_per_tok"])
def test_zero_is_no_size(key: str, write: Write) -> None:
    line = 2 + list(DEEPSEEK).index(key)
    assert mistake_of(load_model, write(DEEPSEEK, **{key: 0})) == f"range config.json:{line} {key}"


def test_sizes_up_to_the_limit_are_taken(write: Write) -> None:
    assert load_model(write(MIXTRAL, hidden_size=2**24)).hidden == 2**24


def test_shared_experts_must_be_whole_numbers_too(write: Write) -> None:
    assert (
        mistake_of(load_model, write(DEEPSEEK, n_shared_experts=-1)) == "range config.json:8 n_shared_experts"
    )
    qwen2 = QWEN3 | {"model_type": "qwen2_moe"}
    wrong = mistake_of(load_model, write(qwen2, shared_expert_intermediate_size=True))
    assert wrong == "range config.json:9 shared_expert_intermediate_size"


def test_more_experts_for_a_token_than_there_are(write: Write) -> None:
    assert load_model(write(MIXTRAL, num_experts_per_tok=8)).experts_per_token == 8
    assert (
        mistake_of(load_model, write(MIXTRAL, num_experts_per_tok=9))
        == "conflict config.json:8 num_experts_per_tok"
    )


@pytest.mark.parametrize(("key", "line"), [("model_type", 2), ("hidden_act", 3)])
@pytest.mark.parametrize("value", [1, True, ["silu"], "", {}])
def test_names_must_be_text(key: str, line: int, value: Any, write: Write) -> None:
    assert mistake_of(load_model, write(MIXTRAL, **{key: value})) == f"type config.json:{line} {key}"


def test_an_error_inside_text_config_says_so(write: Write) -> None:
    path = write({"hidden_size": 1, "text_config": MIXTRAL | {"hidden_size": 0}})
    # The key stands twice in the file: better no line than the wrong one.
    assert mistake_of(load_model, path) == "range config.json text_config.hidden_size"


@pytest.mark.parametrize(
    "key",
    [
        "interleave_moe_layer_step",
        "expert_layer_period",
        "moe_num_shared_experts",
        "shared_intermediate_size",
    ],
)
def test_an_unknown_family_with_rules_of_its_own_is_not_guessed(key: str, write: Write) -> None:
    wrong = mistake_of(load_model, write(MIXTRAL, model_type="mixtrel", **{key: 2}))
    assert wrong == f"unknown-name config.json:9 {key} ? mixtral"
    assert load_model(write(MIXTRAL, model_type="mixtrel", **{key: 0})).layers == 32


# --shape


@pytest.mark.parametrize(
    ("text", "expert"),
    [
        ("4096,1536", Expert(4096, 1536)),
        (" 4096 , 1536 ", Expert(4096, 1536)),
        ("1,1", Expert(1, 1)),
        ("0064,1048576", Expert(64, 2**20)),
    ],
)
def test_shapes_on_the_command_line(text: str, expert: Expert) -> None:
    assert parse_shape(text) == expert


@given(st.text(max_size=20))
def test_no_text_makes_parse_shape_fail_otherwise(text: str) -> None:
    try:
        expert = parse_shape(text)
    except InputError:
        return
    assert 1 <= expert.hidden <= 2**20


KEYS = {
    *MIXTRAL,
    *QWEN3,
    *DEEPSEEK,
    *HEADS,
    *LINEAR,
    "full_attention_interval",
    "layer_types",
    "no_rope_layers",
}
KEYS |= {"attention_chunk_size", "kv_lora_rank", "mlp_only_layers", "text_config"}
ANYTHING = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3)
ANYTHING |= st.lists(st.integers(-1, 9), max_size=4)


@given(st.dictionaries(st.sampled_from(sorted(KEYS)), ANYTHING))
def test_any_values_under_the_known_keys_give_a_shape_or_an_input_error(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    try:
        m = load_model(path)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert m.moe_layers >= 1
    assert m.experts_per_token <= m.routed_experts


def test_the_example_of_the_package_is_true() -> None:
    assert doctest.testmod(ndpsim.workload.models).failed == 0
    assert doctest.testmod(ndpsim.workload.models).attempted > 0
