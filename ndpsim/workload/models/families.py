"""Model families as data: the key of `config.json` that holds each field of a shape.

A new family is one entry of `FAMILIES`. Key names follow the configuration classes of Hugging Face
Transformers and, for DeepSeek, the configuration code in the model repositories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
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
        "kimi_k2": _DEEPSEEK,
        "glm4_moe": _DEEPSEEK,
        "llama": _DENSE,
        "mistral": _DENSE,
        "qwen2": _DENSE,
        "qwen3": _DENSE,
    }
)


def _all_known() -> Family:
    """Every key of every family; for an expert's size, keys that never belong to a dense layer come first."""
    keys: dict[str, Any] = {
        field.name: tuple(
            dict.fromkeys(key for family in FAMILIES.values() for key in getattr(family, field.name))
        )
        for field in fields(Family)
        if isinstance(getattr(_MIXTRAL, field.name), tuple)
    }
    dense = keys["dense_intermediate"]
    keys["expert_intermediate"] = tuple(sorted(keys["expert_intermediate"], key=lambda key: key in dense))
    return Family(**keys | {"layer_pattern": (), "attention_pattern": ()})


#: The family of a model without an entry.
UNKNOWN = _all_known()
