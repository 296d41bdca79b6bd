"""Keys of a `config.json` that the reader does not use: those without effect, and those that may have one.

A key that is not read, and whose name says size, number, layer, head, expert or kind, may change the shape:
the file is refused with its name. If it can only change attention, the experts are read and attention is not.

A key that a `config.json` leaves out means the default of the type's class in Transformers.
`class_defaults.json` has the types where the reader would otherwise take another value. `python
docs/model_types.py` makes it: it leaves out each key of a type's defaults in turn and compares the shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ndpsim.base.errors import one_of
from ndpsim.workload.models._config import Config

_SHAPE = re.compile(
    r"size|num|(^|_)n_|layer|head|expert|kind|moe|dim|rank|ffn|intermediate|block|pattern|interval|period|offset"
)
_ATTENTION = re.compile(
    r"attn|attention|head|kv|window|swa|global|index|linear_|mamba|ssm|conv|rope|lora|qk_|latent|sliding|state"
    r"|rotary|hybrid|ngram|ple_|per_layer_input|loop_|hc_|gating|^layer_types$|layer_group_size|log_scaling"
    r"|mla_|output_gate|full_rank|compress|gated_norm|per_layer_config|o_groups|d_rel|rel_extent|attn_res_block|double_wide"
)

#: Aliases by the classes of Transformers. Which of two counts depends on the model type.
ALIASES = (
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    (
        "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk", "moe_top_k",
        "top_k_experts",
    ),
    ("num_shared_experts", "n_shared_experts", "moe_num_shared_experts"),
    ("hidden_size", "d_model"),
    ("num_hidden_layers", "n_layers", "num_layers"),
    ("num_attention_heads", "n_heads"),
    ("num_key_value_heads", "kv_n_heads"),
)  # fmt: skip
# In these types the keys of the second are aliases of the first, too.
_OWN_ALIASES = {
    "deepseek_ref": (("moe_intermediate_size", "intermediate_size"),),
    "deepseek_v4": (("moe_intermediate_size", "intermediate_size"),),
    "longcat_flash": (("expert_ffn_hidden_size", "moe_intermediate_size"),),
    "granitemoehybrid": (),
}

# Output and training, dropout, norms, routing weights, layers that predict further tokens, and derived sizes.
_TEXT = """
add_full_attention_sink_bias add_swa_attention_sink_bias use_moe_router_bias
_attn_implementation _attn_implementation_autoset add_bias add_cross_attention add_qkv_bias attention_bias
attention_chunk_size attention_dropout attention_factor attention_method attention_multiplier
attention_out_bias attention_probs_dropout_prob attention_projection_layout attention_softcap attention_type
attention_value_scale attn_dropout attn_factor attn_implementation attn_logit_softcapping attn_pdrop
attn_scale attn_temperature_tuning block_name_to_quantize chunk_size_feed_forward clip_qkv
compress_rope_theta cross_attention_hidden_size embd_layer_norm enable_moe_fp32_combine eod_token_id ep_size
expert_capacity expert_selection_fn ffn_act_fn global_rope_theta head_dtype head_norm hidden_dropout
hidden_dropout_prob hidden_states_dtype is_decoder kv_cache_scheme layer_norm_bias layer_norm_eps
layer_norm_epsilon layer_rope_theta layernorm_full_attention_alpha layernorm_full_attention_beta
layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta
lm_head_bias log_num_experts logits_mup_width_multiplier max_window_layers mla_scale_kv_lora
mla_scale_q_lora mla_use_nope mlp_bias model_type_id
moe_apply_router_weight_on_input moe_aux_loss_coef moe_eval_capacity_token_fraction moe_gate_fn
moe_jitter_eps moe_layer_recompute moe_layers_to_log moe_loss_weight moe_norm_min
moe_normalize_expert_weights moe_renormalize moe_routed_scaling_factor moe_router_dtype
moe_router_enable_expert_bias moe_router_logit_softcapping moe_router_scaling_factor
moe_router_score_function moe_router_topk_scaling_factor moe_router_use_sigmoid moe_shared_expert_overlap
moe_token_dropout moe_z_loss_coef mtp_hidden_states_first mtp_layer_types mtp_layers_block_type
mtp_local_layer_ids mtp_mlp_layer_types mtp_num_hidden_layers mtp_num_layers mtp_per_layer_config
mtp_transformer_layers n_expert_groups n_group n_limited_groups no_rope_layer_interval no_rope_layers
norm_before_gate num_beam_groups num_beams num_codebooks_unused num_expert_group num_expert_groups
num_experts_to_log num_image_tokens num_labels num_limited_groups num_logits_to_keep num_mtp_layers
num_mtp_modules num_nextn_predict_layers num_return_sequences output_attentions output_hidden_states
pad_vocab_size_multiple_of partial_rotary_factor partial_rotary_factors position_embedding_type problem_type
pruned_heads qk_head_dim qk_layernorm qk_norm qk_norm_type qkv_bias query_pre_attn_scalar
rms_norm_eps_moe_gate rope_head_dim rope_interleave rope_local_base_freq rope_ntk rope_parameters rope_pct
rope_ratio rope_scaling rope_theta rope_type rotary_dim router_aux_loss_coef router_dtype scoring_func
sep_token_id seq_aux shared_expert_combination_strategy shared_expert_gate shared_expert_sink
shared_moe_mode sliding_window_pattern swa_rope_theta swiglu_limits_shared tie_encoder_decoder topk_group
topk_method unpadded_vocab_size use_bidirectional_attention use_cache_kernels use_expert_bias use_layernorm
use_mtp use_nope_layers use_qk_norm use_qkv_bias use_rope use_routing_bias use_shared_expert_gate
vocab_size_per_layer_input vocab_type
"""
_WITHOUT_EFFECT = frozenset(_TEXT.split())


def check_aliases(config: Config, model_type: str) -> None:
    """Refuse a file that has a key and its alias with different values.

    Raises:
        InputError: there are such keys.
    """
    for aliases in (*ALIASES, *_OWN_ALIASES.get(model_type, ())):
        found = {key: value for key, value in config.values.items() if key in aliases and value is not None}
        if len(found) > 1:
            config.read.update(found)
        if len({str(value) for value in found.values()}) > 1:
            first, second, *_ = (key for key in aliases if key in found)
            problem = (
                f"is {found[first]}, and its alias {second} is {found[second]}; leave the one that counts"
            )
            raise config.error(first, problem, code="conflict")


def check_unread(config: Config, families: tuple[str, ...], model_type: str) -> str:
    """Refuse a file with a key that may change the shape and was not read.

    Returns the reason why attention is not known, if a key may change only that.

    Raises:
        InputError: there is such a key.
    """
    problems = [
        str(part.error(key, "describes attention that is not modelled", code="unsupported"))
        for part in config.parts
        for key in _unread(part)
        if _ATTENTION.search(key) or _SHAPE.search(key)
    ]
    for key in _unread(config):
        if _ATTENTION.search(key):
            described = config.error(key, "describes attention that is not modelled", code="unsupported")
            problems.append(str(described))
        elif _SHAPE.search(key):
            named = f"; {one_of(model_type, families, 'model_type')}" if model_type not in families else ""
            raise config.error(key, f"is not understood and may change the shape{named}", code="unknown-name")
    return problems[0] if problems else ""


def _unread(config: Config) -> list[str]:
    """The keys of an object that were not asked for and may say something of a shape."""
    return [
        key
        for key, value in config.values.items()
        if key not in config.read and key not in _WITHOUT_EFFECT and not _says_nothing(value)
    ]


def _says_nothing(value: object) -> bool:
    """Whether a value is none, a text, a fraction or a nothing; a shape has numbers, flags and lists."""
    return not value or isinstance(value, str | float)


FILE = Path(__file__).with_name("class_defaults.json")

#: By type: `defaults`, values by key, and `lists`, keys with an entry for each layer, which have none.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))

# What else may say which layers have experts, and which attention.
_INSTEAD = {
    "mlp_layer_types": (
        "first_k_dense_replace", "num_dense_layers", "moe_layer_freq", "decoder_sparse_step",
        "mlp_only_layers", "moe_layers_enum", "moe_layer_start_index", "moe_layer_interval",
        "layers_block_type",
    ),
    "layer_types": (
        "full_attention_interval", "hybrid_layer_pattern", "layer_group_size", "attn_type_list",
        "prefix_dense_sliding_window_pattern", "sparse_attention_config", "linear_attn_config",
        "full_attn_idxs", "compress_ratios",
    ),
    "mlp_only_layers": ("mlp_layer_types",),
    "indexer_types": ("index_topk_freq", "index_topk_pattern"),
}  # fmt: skip


def with_defaults(config: Config, model_type: str) -> Config:
    """The configuration with the defaults of keys that it leaves out, without those whose alias it has.

    Raises:
        InputError: it leaves out a list that says which layers have experts.
    """
    found = CLASS_DEFAULTS.get(model_type, {})
    for key in found.get("lists", ()):
        if key.startswith("mlp") and _is_left_out(config, key):
            raise config.error(key, "missing; which layers have experts is not known", code="missing")
    missing = {
        key: value
        for key, value in found.get("defaults", {}).items()
        if not any(alias in config.values for alias in _aliases(key))
        and not (key == "tie_word_embeddings" and config.prefix)  # of a wrapper its own key counts
    }
    return config.overlaid(missing) if missing else config


def attention_left_out(config: Config, model_type: str) -> str:
    """The message of a list that says what attention a layer has, if the file leaves it out; else empty."""
    for key in CLASS_DEFAULTS.get(model_type, {}).get("lists", ()):
        if not key.startswith("mlp") and _is_left_out(config, key):
            return str(config.error(key, "missing; the attention of each layer is not known", code="missing"))
    return ""


def _is_left_out(config: Config, key: str) -> bool:
    return config.find((key, *_INSTEAD.get(key, ()))) is None


def _aliases(key: str) -> Mapping[str, None]:
    """The key and its other names."""
    names = (name for names in ALIASES if key in names for name in names)
    return dict.fromkeys((key, *names))
