"""Builds all types of models of Transformers on the meta device, for model_types.py.

python docs/built_models.py OUT.json TYPE...    with transformers and torch installed, and without ndpsim
python docs/built_models.py --types             prints the names of all types

For each type `config`, the defaults of its class, and: `matrices`, the number of weights in its matrices, and
of these `head`, unless it is the embedding; `experts`, the shape of each tensor of routed experts with the
number of layers that have it; `cached`, for each layer the values that its cache has of a token. `not_built`
and `not_run` are reasons: the defaults of a class may lack a value, and some layers need values. A part for
images or sound is left out.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Changes to a type's defaults: values that they lack, and rules of layers. Its name then ends with "+".
CHANGED: dict[str, dict[str, Any]] = {
    "afmoe": {"num_hidden_layers": 12, "num_dense_layers": 3, "global_attn_every_n_layers": 3},
    "axk1": {"num_hidden_layers": 6, "first_k_dense_replace": 2},
    "axk2": {"num_hidden_layers": 6, "gated_norm_rank": 24, "index_n_heads": 8},
    "bailing_hybrid": {"num_hidden_layers": 12, "layer_group_size": 4, "head_dim": 64},
    "deepseek_v2": {
        "num_experts_per_tok": 6, "num_hidden_layers": 9, "first_k_dense_replace": 2, "q_lora_rank": None,
    },
    "deepseek_v3": {"num_hidden_layers": 8, "first_k_dense_replace": 2, "v_head_dim": 96},
    "deepseek_v32": {"num_hidden_layers": 7, "index_n_heads": 16, "index_head_dim": 96, "index_topk": 512},
    "deepseek_v4": {
        "num_hidden_layers": 6, "compress_ratios": [0, 0, 4, 128, 4, 0, 0], "compress_rate_csa": 2,
        "compress_rate_hca": 4, "o_groups": 4, "o_lora_rank": 512, "index_n_heads": 16, "hc_mult": 3,
    },
    "dots1": {
        "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1,
    },
    "ernie4_5_moe": {"num_hidden_layers": 12, "moe_layer_interval": 2, "moe_layer_end_index": 9},
    "gemma4_text": {
        "hidden_size": 2816, "intermediate_size": 2112, "moe_intermediate_size": 704, "num_experts": 128,
        "top_k_experts": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "enable_moe_block": True,
        "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 2,
    },
    "glm4_moe": {"head_dim": 128, "num_hidden_layers": 10, "first_k_dense_replace": 3},
    "glm4v_moe_text": {"head_dim": 128, "num_hidden_layers": 10, "first_k_dense_replace": 3},
    "glm5_next_text": {"num_hidden_layers": 8, "index_kpool": 8, "linear_num_heads": 32, "hc_mult": 2},
    "glm_moe_dsa": {"num_hidden_layers": 12, "index_topk_freq": 4, "index_skip_topk_offset": 3},
    "gpt_oss": {"num_hidden_layers": 7, "num_key_value_heads": 4, "head_dim": 80},
    "granitemoehybrid": {
        "num_hidden_layers": 8, "layer_types": ["mamba"] * 5 + ["attention"] + ["mamba"] * 2,
        "mamba_n_heads": 64, "mamba_d_state": 128, "mamba_n_groups": 8, "num_key_value_heads": 8,
    },
    "hunyuan_v1_moe": {"num_experts": 16, "moe_topk": 2, "head_dim": 128, "num_key_value_heads": 8},
    "hy_v4": {"num_hidden_layers": 7, "hc_mult": 2, "index_head_dim": 96, "v_head_dim": 192},
    "jamba": {
        "num_hidden_layers": 12, "attn_layer_period": 4, "attn_layer_offset": 1, "expert_layer_period": 3,
        "expert_layer_offset": 2, "mamba_d_state": 32, "mamba_dt_rank": 100,
    },
    "kimi_linear": {
        "num_hidden_layers": 8, "first_k_dense_replace": 2,
        "linear_attn_config": {
            "full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "head_dim": 64, "num_heads": 16,
            "short_conv_kernel_size": 3,
        },
    },
    "lfm2_moe": {"num_hidden_layers": 8, "layer_types": (["conv"] * 3 + ["full_attention"]) * 2},
    "longcat_flash": {
        "num_layers": 3, "zero_expert_num": 16, "n_routed_experts": 64, "moe_topk": 6,
        "ffn_hidden_size": 4096, "q_lora_rank": 768,
    },
    "llama4_text": {"num_hidden_layers": 8, "interleave_moe_layer_step": 2, "attention_chunk_size": 1024},
    "mimo_v2_flash": {"num_hidden_layers": 6},
    "minimax": {"num_hidden_layers": 6, "head_dim": 96},
    "minimax_m3_vl_text": {
        "num_hidden_layers": 4, "index_block_size": 64,
        "layer_types": ["full_attention"] + ["minimax_m3_sparse"] * 3,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    },
    "mistral_large4_text": {
        "num_hidden_layers": 9, "no_rope_layers": [1, 1, 0] * 3, "qk_rope_head_dim": 32,
        "indexer_types": ["full", "full", "shared"] * 3,
    },
    "qwen2_moe": {"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    "qwen3_moe": {"num_hidden_layers": 6, "head_dim": 80, "mlp_only_layers": [0, 4]},
    "qwen3_next": {"num_hidden_layers": 8, "linear_num_value_heads": 64, "linear_conv_kernel_dim": 3},
    "qwen4_exp_text": {
        "num_hidden_layers": 8, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256,
        "indexer_budget": 2048, "indexer_compress_ratio": 16, "hc_lowrank": 160,
    },
    "solar_open": {"num_hidden_layers": 6, "head_dim": 96},
}  # fmt: skip

_TOKENS = 4
_SEVERAL = re.compile(r"\.\d+\.")
# The part of a model with images or sound that reads text.
_TEXT = re.compile(r"(^|\.)(language_model|text_model|thinker|llm)\.")
_OTHER = re.compile(r"(^|\.)(vision|visual|vit|audio|multi_modal|projector|image|talker|encoder|mtp|speech)")
_CACHED = ("keys", "values", "indexer_keys", "idx_keys")
# Matrices whose names have these are tables of positions, or vectors; in gated norms there are matrices.
_NO_MATRIX = re.compile(r"bias|_ape$|A_log$|norm(?!\.mlp)")


def types_with_experts() -> Iterator[str]:
    """Each type whose configuration names experts, also with changed defaults."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: PLC0415

    for name in sorted([*CONFIG_MAPPING_NAMES, *(f"{name}+" for name in CHANGED)]):
        try:
            values = configuration(name).to_dict()
        except Exception:  # needs another configuration, or another package
            continue
        if "expert" in json.dumps(values, default=str):
            yield name


def class_of(name: str) -> str:
    """The name of the class of a type's models; "" if there is none."""
    from transformers.models.auto import modeling_auto as auto  # noqa: PLC0415

    lists = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    )
    model_type = name.removesuffix("+")
    found = next((names[model_type] for names in lists if model_type in names), "")
    return found if isinstance(found, str) else found[0]


def configuration(name: str) -> Any:
    """The configuration of a type, changed if its name ends with "+"."""
    import transformers  # noqa: PLC0415

    changes = CHANGED[name.removesuffix("+")] if name.endswith("+") else {}
    return transformers.AutoConfig.for_model(name.removesuffix("+"), **changes)


def built(name: str) -> dict[str, Any]:
    """What a model of this type has."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    class_name = class_of(name)
    if not class_name:
        return {"not_built": "no class of models"}
    try:
        config = configuration(name)
        config._attn_implementation = "eager"
        with torch.device("meta"), no_init_weights():
            model = getattr(transformers, class_name)(config).eval()
        model.tie_weights()  # which goes with initial values
    except Exception as error:
        return {"not_built": _reason(error)}
    found: dict[str, Any] = _weights(model)
    try:
        return found | {"cached": _cached(model)}
    except Exception as error:  # such as experts that need values
        return found | {"not_run": _reason(error)}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:100]


def _weights(model: Any) -> dict[str, Any]:
    named = [(name, parameter.shape) for name, parameter in model.named_parameters()]
    if any(_TEXT.search(name) for name, _ in named):
        named = [(name, shape) for name, shape in named if _TEXT.search(name) or name.startswith("lm_head")]
    named = [(name, shape) for name, shape in named if not _OTHER.search(name)]
    matrices, head, experts = 0, 0, Counter[str]()
    for name, shape in named:
        if len(shape) < 2 or _NO_MATRIX.search(name):
            continue
        matrices += shape.numel()
        head += shape.numel() if name.startswith("lm_head") else 0
        if "expert" in name and "shared" not in name and len(shape) == 3:
            experts[f"{_SEVERAL.sub('.N.', name)} {list(shape)}"] += 1
    return {"matrices": matrices, "head": head, "experts": dict(experts)}


def _cached(model: Any) -> list[int]:
    import torch  # noqa: PLC0415

    for module in model.modules():
        if type(module).__name__.endswith("Experts"):  # which tokens they have needs values
            module.forward = lambda states, *rest, **more: torch.zeros_like(states)
    with torch.no_grad(), torch.device("meta"):
        cache = model(input_ids=torch.zeros(1, _TOKENS, dtype=torch.long), use_cache=True).past_key_values
    return [_of_layer(layer) // _TOKENS for layer in cache.layers]


def _of_layer(layer: Any) -> int:
    """Values that a layer of a cache has: those of tokens, and entries that compressors made of several."""
    found = [getattr(layer, name, None) for name in _CACHED]
    found += getattr(layer, "compressed_kv", {}).values()
    # In DeepSeek-V4 keys and values are the same.
    return sum(value.numel() for value in {id(value): value for value in found}.values() if value is not None)


def described(name: str) -> dict[str, Any]:
    """The configuration of a type, and what its model has."""
    values = json.loads(json.dumps(configuration(name).to_dict(), default=str))
    return {"config": {"model_type": name.removesuffix("+"), **values}, **built(name)}


def main(path: str, *types: str) -> None:
    """Write what some types have, or with `--types` print the names of all."""
    import transformers  # noqa: PLC0415

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    if path == "--types":
        print(*types_with_experts(), sep="\n")
        return
    found = {name: described(name) for name in types}
    Path(path).write_text(json.dumps({"version": transformers.__version__, "types": found}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
