"""The block format of each tensor in a named file.

Files of llama.cpp's own types follow ``llama_tensor_get_type_impl`` of ``src/llama-quant.cpp``
(ggml-org/llama.cpp at 007dbbf), for a file made with an importance matrix, like most published files.
MLA models are as converted with one tensor for keys and values (attn_kv_b). Other recipes name their source.
The first rule that fits a tensor counts, else the file's own format. Norms and routers are F32 in GGUF.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from ndpsim.workload.models.attention import Attention
from ndpsim.workload.models.shape import MoeShape

#: Whether a rule applies to a layer of a model.
Layers = Callable[[int, MoeShape], bool]


def _all(layer: int, model: MoeShape) -> bool:
    return True


def _more_bits(layer: int, model: MoeShape) -> bool:
    """llama.cpp's use_more_bits: the first eighth, the last eighth and every third layer between."""
    eighth = model.layers // 8
    return layer < eighth or layer >= 7 * model.layers // 8 or (layer - eighth) % 3 == 2


def _eighth(layer: int, model: MoeShape) -> bool:
    return layer < model.layers // 8


def _middle(layer: int, model: MoeShape) -> bool:
    return model.layers // 8 <= layer < 7 * model.layers // 8


def _first_sixteenth(layer: int, model: MoeShape) -> bool:
    return layer < model.layers // 16


def _first(count: int) -> Layers:
    return lambda layer, model: layer < count


def _first_three_with_experts(layer: int, model: MoeShape) -> bool:
    return layer in [n for n in range(model.layers) if n not in model.dense_layers][:3]


def _eight_experts(model: MoeShape) -> bool:
    return model.routed_experts == 8


def _shared_keys(model: MoeShape) -> bool:
    """At least four queries to a key."""
    kinds = [kind for kind in model.attention_kinds if isinstance(kind, Attention)]
    return bool(kinds) and all(kind.heads >= 4 * kind.kv_heads for kind in kinds)


@dataclass(frozen=True)
class Format:
    """The format of some tensors.

    Attributes:
        tensors: names as in GGUF, between ``blk.N.`` and ``.weight``; * stands for anything.
        block: name of their format.
        layers: the layers to which it applies.
        models: the models to which it applies.
    """

    tensors: str
    block: str
    layers: Layers = _all
    models: Callable[[MoeShape], bool] = lambda model: True

    def fits(self, tensor: str, layer: int, model: MoeShape) -> bool:
        """Whether the rule applies to this tensor; `layer` is 0 for a tensor of no layer."""
        named = any(fnmatchcase(tensor, pattern) for pattern in self.tensors.split())
        return named and self.models(model) and self.layers(layer, model)


@dataclass(frozen=True)
class Recipe:
    """The formats of a file.

    Attributes:
        block: name of the format of tensors without a rule.
        rules: the first rule that applies counts.
        source: the place where the files are published.
        mla_copies: MLA models have attn_kv_b a second time, as attn_k_b and attn_v_b.
    """

    block: str
    rules: tuple[Format, ...]
    source: str = "ggml-org/llama.cpp@007dbbf src/llama-quant.cpp"
    mla_copies: bool = False


_VALUES = "attn_v attn_kv_b"
_DOWN = "ffn_down*"
_NOT_QUANTISED = Format("*norm ffn_gate_inp", "f32")
_EIGHT = (Format(f"{_VALUES} attn_k", "q8_0", models=_eight_experts),)
_EIGHT_OUTPUT = Format("attn_output", "q5_k", models=_eight_experts)


def _llama(block: str, *rules: Format, head: str = "q6_k") -> Recipe:
    return Recipe(block, (_NOT_QUANTISED, Format("output", head), *rules))


def _at_most_two_bits(block: str, embedding: str, down: str, output: str | None) -> Recipe:
    """IQ1_S to IQ2_M. `down`: format of the first layers; `output`: of attn_output, None: as the others."""
    return _llama(
        block,
        Format("token_embd", embedding),
        Format(_VALUES, "q4_k"),
        Format("attn_k", "q4_k", models=_eight_experts),
        Format(_DOWN, down, _eighth),
        _EIGHT_OUTPUT,
        *([] if output is None else [Format("attn_output", output)]),
        head="q5_k",
    )


_LLAMA = {
    "f32": _llama("f32", head="f32"),
    "f16": _llama("f16", head="f16"),
    "bf16": _llama("bf16", head="bf16"),
    "q8_0": _llama("q8_0", head="q8_0"),
    "q6_k": _llama("q6_k", *_EIGHT),
    "q5_k_m": _llama("q5_k", *_EIGHT, Format(f"{_VALUES} {_DOWN}", "q6_k", _more_bits)),
    "q5_k_s": _llama("q5_k", *_EIGHT),
    "q5_0": _llama("q5_0", *_EIGHT, Format(_DOWN, "q5_1", _eighth)),
    "q5_1": _llama("q5_1", *_EIGHT),
    "q4_k_m": _llama("q4_k", *_EIGHT, Format(f"{_VALUES} {_DOWN}", "q6_k", _more_bits), _EIGHT_OUTPUT),
    "q4_k_s": _llama(
        "q4_k", *_EIGHT, Format(_VALUES, "q5_k", _first(4)), Format(_DOWN, "q5_k", _eighth), _EIGHT_OUTPUT
    ),
    "q4_0": _llama("q4_0", *_EIGHT, Format(_DOWN, "q4_1", _eighth)),
    "q4_1": _llama("q4_1", *_EIGHT),
    "iq4_nl": _llama("iq4_nl", *_EIGHT, Format(_VALUES, "q5_k", models=_shared_keys), _EIGHT_OUTPUT),
    "iq4_xs": _llama("iq4_xs", *_EIGHT, Format(_VALUES, "q5_k", models=_shared_keys), _EIGHT_OUTPUT),
    "q3_k_l": _llama(
        "q3_k",
        *_EIGHT,
        Format(f"{_VALUES} {_DOWN}", "q5_k"),
        Format("attn_output", "q5_k", models=lambda model: not _eight_experts(model)),
    ),
    "q3_k_m": _llama(
        "q3_k",
        *_EIGHT,
        Format(_VALUES, "q5_k", _first(2)),
        Format(_DOWN, "q5_k", _first_sixteenth),
        _EIGHT_OUTPUT,
        Format(f"{_VALUES} {_DOWN} attn_output", "q4_k"),
    ),
    "q3_k_s": _llama("q3_k", *_EIGHT, _EIGHT_OUTPUT),
    "iq3_m": _llama(
        "iq3_s",
        *_EIGHT,
        Format(_DOWN, "q4_k", _eighth),
        Format(_DOWN, "q4_k", _more_bits, _eight_experts),
        _EIGHT_OUTPUT,
        Format(f"{_VALUES} attn_output", "q4_k"),
    ),
    "iq3_s": _llama("iq3_s", *_EIGHT, Format(_VALUES, "q4_k", models=_shared_keys), _EIGHT_OUTPUT),
    "iq3_xs": _llama(
        "iq3_s",
        *_EIGHT,
        Format(_VALUES, "q4_k", models=_shared_keys),
        Format("attn_q attn_k", "iq3_xxs"),
        Format("ffn_gate ffn_gate_* ffn_up*", "iq3_xxs", _middle),
        _EIGHT_OUTPUT,
    ),
    "iq3_xxs": _llama(
        "iq3_xxs",
        *_EIGHT,
        Format("token_embd", "iq3_s"),
        Format(_VALUES, "q4_k", models=_shared_keys),
        Format("attn_q attn_k", "iq2_s"),
        _EIGHT_OUTPUT,
        Format("attn_output", "iq3_s"),
        head="q5_k",
    ),
    "q2_k": _llama(
        "q2_k",
        *_EIGHT,
        Format(_VALUES, "q4_k", models=_shared_keys),
        _EIGHT_OUTPUT,
        Format(f"{_VALUES} {_DOWN} attn_output", "q3_k"),
    ),
    "q2_k_s": _llama(
        "q2_k", *_EIGHT, Format(_VALUES, "q4_k", models=_shared_keys), Format(_DOWN, "q4_k", _eighth)
    ),
    "iq2_m": _at_most_two_bits("iq2_s", "iq3_s", "iq3_s", "iq3_s"),
    "iq2_s": _at_most_two_bits("iq2_xs", "iq3_s", "iq3_s", "iq3_s"),
    "iq2_xs": _at_most_two_bits("iq2_xs", "q2_k", "q2_k", None),
    "iq2_xxs": _at_most_two_bits("iq2_xxs", "q2_k", "q2_k", None),
    "iq1_m": _at_most_two_bits("iq1_m", "q2_k", "q2_k", "iq2_xxs"),
    "iq1_s": _at_most_two_bits("iq1_s", "q2_k", "q2_k", "iq2_xxs"),
    "tq1_0": _llama("tq1_0", *_EIGHT, Format("token_embd", "q4_k")),
    "tq2_0": _llama("tq2_0", *_EIGHT, Format("token_embd", "q4_k")),
    "q1_0": _llama("q1_0", *_EIGHT),
    "mxfp4_moe": _llama("q8_0", Format("ffn_*_exps", "mxfp4"), head="q8_0"),
}

_IK = "ikawrakow/ik_llama.cpp@8337e4c github-data/"


def _custom(source: str, gate_and_up: str, down: str, *rules: Format) -> Recipe:
    """A recipe of ``--custom-q``, which sets the formats of routed experts; all other tensors are Q8_0."""
    routed = Format("ffn_down_exps", down), Format("ffn_gate_exps ffn_up_exps", gate_and_up)
    return Recipe("q8_0", (_NOT_QUANTISED, *rules, *routed), _IK + source, mla_copies=True)


_CUSTOM = {
    "iq4_k": _custom("issues/296 (ubergarm, DeepSeek-V3-0324-IQ4_K_R4)", "iq4_k", "iq5_k"),
    "iq4_ks": _custom("discussions/258 (ubergarm, IQ4_KS_R4: types of tensors)", "iq4_ks", "iq5_ks"),
    "iq2_k": _custom("discussions/258 (ubergarm, IQ2_K_R4: types of tensors)", "iq2_k", "iq3_k"),
    "ubergarm-q2_k": _custom("discussions/258 (ubergarm, DeepSeek-R1-Q2_K_R4)", "q2_k", "q3_k"),
    "mix-iq3_k": _custom(
        "discussions/357 (ubergarm, Qwen3-235B-A22B-mix-IQ3_K: types of tensors and size)",
        "iq3_k",
        "iq4_k",
        Format("attn_*", "iq6_k"),
    ),
    "mix-iq6_k": _custom(
        "discussions/357 (AesSedai, Qwen3-235B-A22B-mix-IQ6_K: types of tensors and size)",
        "iq6_k",
        "q8_0",
        Format("attn_*", "iq6_k"),
    ),
    "ud-q2_k_xl": Recipe(
        "q2_k",
        (
            _NOT_QUANTISED,
            Format("ffn_down_exps", "q3_k", _first_three_with_experts),
            Format("ffn_*_exps", "q2_k"),
            Format("attn_kv_a_mqa attn_kv_b ffn_down ffn_down_shexp output", "q6_k"),
            Format("*", "q4_k"),
        ),
        f"{_IK}discussions/258 (Unsloth's DeepSeek-R1-UD-Q2_K_XL of January 2025: types of tensors and size)",
    ),
}

_ASSUMED_IK = f"{_IK}: by assumption routed experts in this format, all other tensors in Q8_0"
_IK_FORMATS = {
    name: Recipe("q8_0", (_NOT_QUANTISED, Format("ffn_*_exps", name)), _ASSUMED_IK, mla_copies=True)
    for name in (
        "iq3_k", "iq5_k", "iq6_k", "iq2_ks", "iq2_kl", "iq3_ks", "iq4_kss", "iq5_ks", "iq1_kt", "iq2_kt",
        "iq3_kt", "iq4_kt",
    )
}  # fmt: skip

_UNSLOTH = {
    "iq1_s": "iq1_s", "iq1_m": "iq1_m", "iq2_xxs": "iq2_xxs", "iq2_m": "iq2_m", "iq3_xxs": "iq3_xxs",
    "iq3_s": "iq3_s", "iq4_xs": "iq4_xs", "iq4_nl": "iq4_nl", "tq1_0": "iq1_s", "q3_k_xl": "q3_k_m",
    "q3_k_m": "q3_k_m", "q3_k_s": "q3_k_s", "q4_k_xl": "q4_k_s", "q4_k_m": "q4_k_m", "q4_k_s": "q4_k_s",
    "q5_k_xl": "q5_k_m", "q5_k_m": "q5_k_m", "q5_k_s": "q5_k_s", "q6_k_xl": "q6_k", "q6_k": "q6_k",
    "q8_k_xl": "q8_0",
}  # fmt: skip
_DYNAMIC = {
    f"ud-{name}": replace(
        _LLAMA[like],
        source=f"by assumption as {like}: Unsloth publishes no rule; the GGUF file itself has the types",
    )
    for name, like in _UNSLOTH.items()
}

_KEPT = Format("*norm ffn_gate_inp output token_embd", "bf16")
_ASSUMED = "by assumption all matrices of layers; embedding, head, routers and norms in BF16"
_PLAIN = {name: Recipe(name, (_KEPT,), _ASSUMED) for name in ("fp8", "int8", "int4", "nvfp4")}

#: By name.
RECIPES: Mapping[str, Recipe] = MappingProxyType(_LLAMA | _IK_FORMATS | _CUSTOM | _DYNAMIC | _PLAIN)
