"""The attention of a model, as its `config.json` describes it."""

from __future__ import annotations

import re

from ndpsim.moe._config import Config
from ndpsim.moe.shape import MAX_SIZE, Attention

__all__ = ["read_attention"]

_MAX_HEADS = 1 << 16

# Linear, state-space and sparse attention: what they compute and cache is of none of the kinds read here.
_OTHER_KINDS = re.compile(
    r"linear_(num|key|value|conv|attn)|full_attention_interval|attn_type_list|^index_|mamba|^ssm_"
)


def read_attention(config: Config, hidden: int) -> Attention | None:
    """The attention of every layer; None where the file does not say, or has a kind of its own.

    The keys are those of Hugging Face: `num_attention_heads`; `num_key_value_heads`, one for each head where
    it is missing; `head_dim`, `hidden_size` over the heads where it is missing; with `kv_lora_rank` instead
    `q_lora_rank` (none: queries are not compressed), `qk_nope_head_dim`, `qk_rope_head_dim` and
    `v_head_dim`; `sliding_window`, unless `use_sliding_window` is false.

    Raises:
        InputError: a value is out of range, or the heads do not share what they have to share.
    """
    if config.find(("num_attention_heads",)) is None or any(
        value and _OTHER_KINDS.search(key) for key, value in config.values.items()
    ):
        return None
    heads = config.integer(("num_attention_heads",), _MAX_HEADS)
    window = 0
    if config.values.get("use_sliding_window") is not False:
        window = config.integer_or(0, ("sliding_window",), MAX_SIZE)
    if config.find(("kv_lora_rank",)):
        rope = config.integer(("qk_rope_head_dim",), MAX_SIZE)
        return Attention(
            heads=heads,
            kv_heads=heads,
            head_size=config.integer(("qk_nope_head_dim",), MAX_SIZE) + rope,
            value_size=config.integer(("v_head_dim",), MAX_SIZE),
            query_rank=config.integer_or(0, ("q_lora_rank",), MAX_SIZE),
            latent_rank=config.integer(("kv_lora_rank",), MAX_SIZE),
            rope_size=rope,
            window=window,
        )
    kv_heads = config.integer_or(heads, ("num_key_value_heads",), _MAX_HEADS, low=1)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"{kv_heads} cannot be shared evenly by {heads} heads")
    if config.find(("head_dim",)) is None and hidden % heads:
        raise config.error("num_attention_heads", f"{heads} do not divide the hidden size of {hidden}")
    size = config.integer_or(hidden // heads, ("head_dim",), MAX_SIZE, low=1)
    return Attention(heads, kv_heads, size, size, window=window)
