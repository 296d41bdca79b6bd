"""Model families as data: the key of `config.json` that holds each field of a shape.

A new family is one entry of `FAMILIES`. Key names follow the configuration classes of Hugging Face
Transformers and, for DeepSeek, the configuration code in the model repositories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Family:
    """For every field the keys that may have it; the first existing one counts.

    If a family has no key for a field, its models do not have the part, for example shared experts. A key of
    the family must be in the file; `shared_experts` may be null, which means none.

    Attributes:
        shared_experts: keys of the number of shared experts, each of the size of a routed one.
        shared_intermediate: keys of the size of the shared expert, if it differs.
        layer_pattern: keys that list the dense layers; the file must have one of them; empty: every layer
            has experts unless the file says otherwise.
        attention_pattern: keys that give the attention of each layer; the file must have one of them.
        always_shared: number of shared experts, of the size of a routed one, that the file does not mention.
        gated_attention: attention with keys and values has a gate on its result.
        head_gates: the gate is one number for each head.
        sliding_kv_heads: heads of keys in layers with a window, as a multiple of those in other layers.
        gated_experts: experts have a gate beside up.
        blocks: keys that list blocks, each either attention, a state, a dense network or experts.
        expert_hidden: keys of the size that experts work on, if it is not the hidden size.
        zero_experts: keys of the number of experts without weights.
        two_blocks: a layer has two blocks of attention and a dense network; its experts have the input of the
            first of these networks, beside which they count as a layer's routed and shared experts.
        never_tied: embedding and head are two matrices, also if the file says that they are one.
        of_text: keys that may list a value for text and one for images.
        equal_keys: with `attention_k_eq_v` layers without a window have their keys as values, and heads of
            keys of their own.
        gate_of_queries: with latent vectors, one matrix makes queries and gates.
        rounds_head_size: without `head_dim`, heads have the hidden size over their number, rounded down.
        index: the kind of the index that chooses tokens, by the names of `_read_index`; "": there is none.
        some_without_rope: some layers do not rotate queries and keys by position, which `no_rope_layers` or
            `no_rope_layer_interval` says.
        compressed: attention is the compressed one of DeepSeek-V4.
        residual: what stands between blocks, by the names of `residual`; "": norms.
        attention_problem: why attention is not modelled.
        state: the kind of layers that have a state in place of keys and values, by the names of
            `_read_state`.
        answered: further keys that are accounted for, such as those of parts that `attention_problem` names.
        unsupported: why no part is modelled.
    """

    routed_experts: tuple[str, ...]
    expert_intermediate: tuple[str, ...]
    experts_per_token: tuple[str, ...] = ("num_experts_per_tok",)
    hidden: tuple[str, ...] = ("hidden_size",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    dense_intermediate: tuple[str, ...] = ("intermediate_size",)
    shared_experts: tuple[str, ...] = ()
    shared_intermediate: tuple[str, ...] = ()
    layer_pattern: tuple[str, ...] = ()
    attention_pattern: tuple[str, ...] = ()
    always_shared: int = 0
    gated_attention: bool = False
    head_gates: bool = False
    sliding_kv_heads: int = 1
    gated_experts: bool = True
    blocks: tuple[str, ...] = ()
    expert_hidden: tuple[str, ...] = ()
    zero_experts: tuple[str, ...] = ()
    two_blocks: bool = False
    never_tied: bool = False
    of_text: tuple[str, ...] = ()
    equal_keys: bool = False
    gate_of_queries: bool = False
    rounds_head_size: bool = False
    index: str = ""
    some_without_rope: bool = False
    compressed: bool = False
    residual: str = ""
    attention_problem: str = ""
    state: str = "gated-delta"
    answered: tuple[str, ...] = ()
    unsupported: str = ""


# Without experts: every layer has one gated feed-forward network.
_DENSE = Family(routed_experts=(), expert_intermediate=(), experts_per_token=())

# All feed-forward layers are equal, and experts have `intermediate_size`.
_MIXTRAL = Family(routed_experts=("num_local_experts",), expert_intermediate=("intermediate_size",))

# Small experts and shared experts, after one or more dense layers.
_DEEPSEEK = Family(
    routed_experts=("n_routed_experts",),
    expert_intermediate=("moe_intermediate_size",),
    shared_experts=("n_shared_experts",),
    layer_pattern=("first_k_dense_replace", "mlp_layer_types"),
)

# Small experts and a shared one; layers have linear attention (gated delta rule) or keys and values.
_QWEN3_NEXT = Family(
    routed_experts=("num_experts",),
    expert_intermediate=("moe_intermediate_size",),
    shared_intermediate=("shared_expert_intermediate_size",),
    attention_pattern=("layer_types", "full_attention_interval"),
    gated_attention=True,
)

# As DeepSeek, with the key names of Transformers 5, which may also count dense layers or list kinds.
_MODERN = Family(
    routed_experts=("num_experts",),
    expert_intermediate=("moe_intermediate_size",),
    shared_experts=("num_shared_experts",),
)

_ERNIE = Family(
    routed_experts=("moe_num_experts",),
    expert_intermediate=("moe_intermediate_size",),
    experts_per_token=("moe_k",),
    shared_experts=("moe_num_shared_experts",),
)

_ERNIE_VL = replace(
    _ERNIE,
    of_text=("moe_intermediate_size", "moe_num_experts", "moe_layer_start_index", "moe_layer_end_index"),
    attention_problem="experts for images beside those for text are not modelled",
)

_GRANITE_SHARED = Family(
    routed_experts=("num_local_experts",),
    expert_intermediate=("intermediate_size",),
    shared_intermediate=("shared_intermediate_size",),
)

_STEP = Family(
    routed_experts=("n_routed_experts", "moe_num_experts"),
    expert_intermediate=("moe_intermediate_size",),
    shared_intermediate=("share_expert_dim", "share_expert_dims"),
    head_gates=True,
)

# Keys of an index over the tokens of latent attention.
_INDEX = (
    "index_head_dim", "index_n_heads", "index_topk", "indexer_types", "index_topk_freq",
    "index_skip_topk_offset", "index_topk_pattern", "index_share_for_mtp_iteration",
    "indexer_rope_interleave",
)  # fmt: skip

_MAMBA = (
    "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_dt_rank", "mamba_n_heads", "mamba_n_groups",
    "mamba_d_head", "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "use_mamba_kernels",
)  # fmt: skip
_DEEPSEEK_4 = replace(
    _DEEPSEEK,
    layer_pattern=(),
    compressed=True,
    residual="mixed",
    answered=(
        *_INDEX,
        "num_hash_layers",
        "compress_ratios",
        "compress_rate_csa",
        "compress_rate_hca",
        "qk_rope_head_dim",
        "layer_types",
        "hc_sinkhorn_iters",
    ),
)
_HUNYUAN_4 = replace(
    _DEEPSEEK, gated_attention=True, index="latent", residual="apart", answered=(*_INDEX, "head_dim")
)
_MINIMAX_M3 = Family(
    routed_experts=("num_local_experts",),
    expert_intermediate=("moe_intermediate_size", "intermediate_size"),
    dense_intermediate=("dense_intermediate_size",),
    shared_intermediate=("shared_intermediate_size",),
    index="blocks",
    answered=(
        "intermediate_size",
        "index_n_heads",
        "index_head_dim",
        "index_block_size",
        "index_topk_blocks",
        "index_local_blocks",
        "sparse_attention_config",
    ),
)
_ENCODER = "models of encoder and decoder are not modelled"

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "mixtral": _MIXTRAL,
        "phimoe": _MIXTRAL,
        "minimax_m2": _MIXTRAL,
        "olmoe": Family(
            routed_experts=("num_experts", "num_local_experts"), expert_intermediate=("intermediate_size",)
        ),
        "gpt_oss": Family(
            routed_experts=("num_local_experts", "num_experts"),
            expert_intermediate=("intermediate_size",),
            experts_per_token=("num_experts_per_tok", "experts_per_token"),
            attention_pattern=("layer_types",),
        ),
        "qwen2_moe": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            shared_intermediate=("shared_expert_intermediate_size",),
        ),
        "qwen3_moe": Family(
            routed_experts=("num_experts", "num_local_experts"),
            expert_intermediate=("moe_intermediate_size",),
        ),
        "qwen3_next": _QWEN3_NEXT,
        "qwen3_5_moe_text": _QWEN3_NEXT,
        "qwen4_exp_text": replace(
            _QWEN3_NEXT,
            index="pools",
            residual="gated-residual",
            answered=(
                "indexer_n_heads",
                "indexer_kv_heads",
                "indexer_head_dim",
                "indexer_budget",
                "indexer_compress_ratio",
                "heads_per_ngram",
                "ngram_size",
                "ngram_vocab_size_base",
                "make_ngram_vocab_size_divisible_by",
                "number_of_conv_states",
                "ple_conv_kernel_size",
                "ple_embed_dim",
                "split_ngram_parts",
            ),
        ),
        "llama4_text": Family(
            routed_experts=("num_local_experts",),
            expert_intermediate=("intermediate_size",),
            dense_intermediate=("intermediate_size_mlp",),
            layer_pattern=("moe_layers", "interleave_moe_layer_step"),
            attention_pattern=("layer_types", "attention_chunk_size"),
            always_shared=1,
        ),
        "deepseek": _DEEPSEEK,
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "deepseek_v32": replace(_DEEPSEEK, index="latent", answered=_INDEX),
        "glm_moe_dsa": replace(_DEEPSEEK, index="latent", answered=_INDEX),
        "glm5_next_text": replace(
            _DEEPSEEK,
            state="kimi-delta-low-rank",
            attention_pattern=("layer_types",),
            index="gated-pools",
            residual="mixed-mean",
            answered=(
                *_INDEX,
                "head_dim",
                "index_kpool",
                "index_kpool_always_select_tail",
                "linear_attn_config",
                "linear_num_heads",
                "linear_head_dim",
                "hc_sinkhorn_iters",
            ),
        ),
        "hy_v4": _HUNYUAN_4,
        "hy_v4_vl_text": _HUNYUAN_4,
        "mistral_large4_text": replace(
            _DEEPSEEK,
            index="tokens",
            some_without_rope=True,
            answered=(*_INDEX, "head_dim"),
        ),
        "axk2": replace(
            _DEEPSEEK,
            gated_attention=True,
            gate_of_queries=True,
            index="latent",
            residual="gated-norms",
            answered=(*_INDEX, "head_dim"),
        ),
        "kimi_k2": _DEEPSEEK,
        "glm4_moe": replace(_DEEPSEEK, rounds_head_size=True),
        "afmoe": replace(_MODERN, gated_attention=True),
        "aria_text": Family(
            routed_experts=("moe_num_experts",),
            expert_intermediate=("intermediate_size",),
            experts_per_token=("moe_topk",),
            shared_experts=("moe_num_shared_experts",),
        ),
        "bailing_hybrid": replace(
            _MODERN,
            head_gates=True,
            state="kimi-delta",
            never_tied=True,
            attention_pattern=("layer_types", "layer_group_size"),
            answered=("short_conv_kernel_size", "layer_group_size", "linear_head_dim", "linear_num_heads"),
        ),
        "beam": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            gated_attention=True,
        ),
        "cohere2_moe": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("intermediate_size",),
            dense_intermediate=("prefix_dense_intermediate_size",),
            shared_experts=("num_shared_experts",),
        ),
        "dbrx": Family(
            routed_experts=("moe_num_experts",),
            expert_intermediate=("ffn_hidden_size",),
            experts_per_token=("moe_top_k",),
            hidden=("d_model",),
            layers=("n_layers",),
        ),
        "deepseek_v4": _DEEPSEEK_4,
        "deepseek_ref": _DEEPSEEK_4,  # as SGLang publishes it
        "doge": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("intermediate_size",),
            unsupported="experts of single rows, and attention with a dynamic mask, are not modelled",
        ),
        "dots3_note_text": Family(
            routed_experts=("n_routed_experts",),
            expert_intermediate=("moe_intermediate_size",),
            shared_experts=("n_shared_experts",),
            shared_intermediate=("shared_experts_intermediate_size",),
            head_gates=True,
            index="latent",
            answered=(*_INDEX, "head_dim"),
        ),
        "ernie4_5_moe": _ERNIE,
        "ernie4_5_vl_moe_text": _ERNIE_VL,
        "ernie4_5_moe_vl": _ERNIE_VL,  # as published
        "exaone_moe": _MODERN,
        "gemma4_text": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            experts_per_token=("top_k_experts",),
            shared_intermediate=("intermediate_size",),
            attention_pattern=("per_layer_config", "global_head_dim"),
            equal_keys=True,
            answered=("enable_moe_block",),
        ),
        "granitemoeshared": _GRANITE_SHARED,
        "granitemoe_swa": _GRANITE_SHARED,
        "granitemoehybrid": replace(_GRANITE_SHARED, state="mamba-2", answered=_MAMBA),
        "hunyuan_v1_moe": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("intermediate_size",),
            experts_per_token=("moe_topk",),
            always_shared=1,
        ),
        "hy_v3": _MODERN,
        "jamba": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("intermediate_size",),
            state="mamba",
            answered=(*_MAMBA, "attn_layer_period", "attn_layer_offset", "layers_block_type"),
        ),
        "jetmoe": Family(
            routed_experts=("num_local_experts",),
            expert_intermediate=("intermediate_size",),
            attention_problem="experts of attention are not modelled",
        ),
        "kimi_linear": replace(
            _MODERN,
            state="kimi-delta-low-rank",
            attention_pattern=("layer_types", "linear_attn_config"),
            expert_hidden=("routed_expert_hidden_size",),
            never_tied=True,
            answered=("linear_attn_config", "linear_head_dim", "linear_num_heads"),
        ),
        "laguna": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            shared_intermediate=("shared_expert_intermediate_size",),
        ),
        "lfm2_moe": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            attention_pattern=("layer_types", "full_attn_idxs"),
            state="short-convolution",
            answered=("conv_L_cache", "conv_dim", "conv_dim_out"),
        ),
        "longcat_flash": Family(
            routed_experts=("n_routed_experts",),
            expert_intermediate=("expert_ffn_hidden_size",),
            experts_per_token=("moe_topk",),
            layers=("num_layers",),
            dense_intermediate=("ffn_hidden_size",),
            zero_experts=("zero_expert_num",),
            two_blocks=True,
            answered=("head_dim",),
        ),
        "mimo_v2_flash": Family(
            routed_experts=("n_routed_experts",),
            expert_intermediate=("moe_intermediate_size",),
            attention_pattern=("layer_types", "hybrid_layer_pattern"),
            sliding_kv_heads=2,
        ),
        "minimax": Family(
            routed_experts=("num_local_experts",),
            expert_intermediate=("intermediate_size",),
            attention_pattern=("layer_types", "attn_type_list"),
            state="lightning",
            answered=(
                "block_size",
                "attn_type_list",
                "full_attn_alpha_factor",
                "full_attn_beta_factor",
                "linear_attn_alpha_factor",
                "linear_attn_beta_factor",
            ),
        ),
        "minimax_m3": _MINIMAX_M3,
        "minimax_m3_vl_text": _MINIMAX_M3,
        "muse_spark_text": Family(
            routed_experts=("num_local_experts",),
            expert_intermediate=("moe_intermediate_size",),
            expert_hidden=("moe_hidden_size",),
            gated_attention=True,
        ),
        "nemotron_h": Family(
            routed_experts=("n_routed_experts",),
            expert_intermediate=("moe_intermediate_size",),
            shared_experts=("n_shared_experts",),
            shared_intermediate=("moe_shared_expert_intermediate_size",),
            gated_experts=False,
            blocks=("layers_block_type", "layer_types", "hybrid_override_pattern"),
            expert_hidden=("moe_latent_size",),
            state="mamba-2-of-blocks",
            never_tied=True,
            answered=(
                "expand",
                "mamba_expand",
                "mtp_hybrid_override_pattern",
                "mamba_num_heads",
                "mamba_head_dim",
                "mamba_hidden_act",
                "mamba_proj_bias",
                "mamba_ssm_cache_dtype",
                "ssm_state_size",
                "use_mamba_kernels",
                "use_conv_bias",
                "mamba_conv_bias",
            ),
        ),
        "nllb-moe": Family(routed_experts=("num_experts",), expert_intermediate=(), unsupported=_ENCODER),
        "switch_transformers": Family(
            routed_experts=("num_experts",), expert_intermediate=(), unsupported=_ENCODER
        ),
        "step3p5": _STEP,
        "step3p7_text": _STEP,
        "step3p7": _STEP,
        "zaya": Family(
            routed_experts=("num_experts",),
            expert_intermediate=("moe_intermediate_size",),
            attention_problem="compressed convolutional attention, and its routers, are not modelled",
            answered=("router_hidden_size",),
        ),
        "llama": _DENSE,
        "mistral": _DENSE,
        "qwen2": _DENSE,
        "qwen3": _DENSE,
        "qwen3_vl_text": _DENSE,
        "qwen3_5_text": replace(
            _DENSE, attention_pattern=("layer_types", "full_attention_interval"), gated_attention=True
        ),
    }
)


# Families whose keys have one meaning in every family.
_FOR_UNKNOWN = [
    FAMILIES[name]
    for name in (
        "mixtral",
        "olmoe",
        "gpt_oss",
        "qwen2_moe",
        "qwen3_moe",
        "llama4_text",
        "deepseek",
        "exaone_moe",
    )
]


def _all_known() -> Family:
    """Every key of every family; for an expert's size, keys that never belong to a dense layer come first."""
    keys: dict[str, Any] = {
        field.name: tuple(
            dict.fromkeys(key for family in _FOR_UNKNOWN for key in getattr(family, field.name))
        )
        for field in fields(Family)
        if isinstance(getattr(_MIXTRAL, field.name), tuple)
    }
    dense = keys["dense_intermediate"]
    keys["expert_intermediate"] = tuple(sorted(keys["expert_intermediate"], key=lambda key: key in dense))
    return Family(**keys | {"layer_pattern": (), "attention_pattern": ()})


#: The family of a model without an entry.
UNKNOWN = _all_known()


def _class_rules() -> dict[str, tuple[str, ...]]:
    """By type the keys with which its class chooses layers with experts, where no list of layers does."""
    by_keys = {
        (): (
            "aria_text dbrx flex_olmo gemma4_text gpt_oss granitemoe granitemoe_swa granitemoehybrid "
            "granitemoeshared hunyuan_v1_moe inkling2_loop_text inkling2_text jetmoe kolibri1 lara_mini "
            "longcat_flash minimax minimax_m2 mixtral olmoe openai_privacy_filter phimoe qwen3_5_moe_text "
            "qwen4_exp_text solar_open"
        ),
        ("decoder_sparse_step", "mlp_only_layers"): (
            "flint qwen2_moe qwen3_moe qwen3_next qwen3_omni_moe_talker_text qwen3_omni_moe_text "
            "qwen3_vl_moe_text"
        ),
        ("expert_layer_period", "expert_layer_offset"): "jamba",
        ("first_k_dense_replace",): (
            "deepseek_v2 deepseek_v3 dots1 glm4_moe glm4v_moe_text mistral4 sarvam_mla sarvam_moe"
        ),
        ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval"): "ernie4_5_moe",
        ("num_dense_layers",): "afmoe lfm2_moe",
    }
    return {name: keys for keys, names in by_keys.items() for name in names.split()}


#: Of Transformers 5.24.0. Its other classes list the layers.
CLASS_RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(_class_rules())
