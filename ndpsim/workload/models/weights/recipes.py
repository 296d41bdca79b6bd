"""The block format of each tensor in a named file.

Files of llama.cpp's own types follow ``llama_tensor_get_type_impl`` of ``src/llama-quant.cpp``
(ggml-org/llama.cpp at 007dbbf), for a file made with an importance matrix, as most that are published are.
MLA models are as converted with one tensor for keys and values (attn_kv_b). Other recipes name their source.
The first rule that fits a tensor counts, else the file's own format. Norms and routers are F32 in GGUF.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def _first_eighth(layer: int, model: MoeShape) -> bool:
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
class Rule:
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
    rules: tuple[Rule, ...]
    source: str = "ggml-org/llama.cpp@007dbbf src/llama-quant.cpp"
    mla_copies: bool = False


_VALUES = "attn_v attn_kv_b"
_DOWN = "ffn_down*"
_NOT_QUANTISED = Rule("*norm ffn_gate_inp", "f32")
_EIGHT = (Rule(f"{_VALUES} attn_k", "q8_0", models=_eight_experts),)
_EIGHT_OUTPUT = Rule("attn_output", "q5_k", models=_eight_experts)


def _llama_recipe(block: str, *rules: Rule, head: str = "q6_k") -> Recipe:
    return Recipe(block, (_NOT_QUANTISED, Rule("output", head), *rules))


def _at_most_two_bits(block: str, embedding: str, down: str, output: str | None) -> Recipe:
    """IQ1_S to IQ2_M. `down`: format of the first layers; `output`: format of attn_output, None: as all."""
    return _llama_recipe(
        block,
        Rule("token_embd", embedding),
        Rule(_VALUES, "q4_k"),
        Rule("attn_k", "q4_k", models=_eight_experts),
        Rule(_DOWN, down, _first_eighth),
        _EIGHT_OUTPUT,
        *([] if output is None else [Rule("attn_output", output)]),
        head="q5_k",
    )


_LLAMA = {
    "f16": _llama_recipe("f16", head="f16"),
    "bf16": _llama_recipe("bf16", head="bf16"),
    "q8_0": _llama_recipe("q8_0", head="q8_0"),
    "q6_k": _llama_recipe("q6_k", *_EIGHT),
    "q5_k_m": _llama_recipe("q5_k", *_EIGHT, Rule(f"{_VALUES} {_DOWN}", "q6_k", _more_bits)),
    "q5_k_s": _llama_recipe("q5_k", *_EIGHT),
    "q5_0": _llama_recipe("q5_0", *_EIGHT, Rule(_DOWN, "q5_1", _first_eighth)),
    "q5_1": _llama_recipe("q5_1", *_EIGHT),
    "q4_k_m": _llama_recipe("q4_k", *_EIGHT, Rule(f"{_VALUES} {_DOWN}", "q6_k", _more_bits), _EIGHT_OUTPUT),
    "q4_k_s": _llama_recipe(
        "q4_k", *_EIGHT, Rule(_VALUES, "q5_k", _first(4)), Rule(_DOWN, "q5_k", _first_eighth), _EIGHT_OUTPUT
    ),
    "q4_0": _llama_recipe("q4_0", *_EIGHT, Rule(_DOWN, "q4_1", _first_eighth)),
    "q4_1": _llama_recipe("q4_1", *_EIGHT),
    "iq4_nl": _llama_recipe("iq4_nl", *_EIGHT, Rule(_VALUES, "q5_k", models=_shared_keys), _EIGHT_OUTPUT),
    "iq4_xs": _llama_recipe("iq4_xs", *_EIGHT, Rule(_VALUES, "q5_k", models=_shared_keys), _EIGHT_OUTPUT),
    "q3_k_l": _llama_recipe(
        "q3_k",
        *_EIGHT,
        Rule(f"{_VALUES} {_DOWN}", "q5_k"),
        Rule("attn_output", "q5_k", models=lambda model: not _eight_experts(model)),
    ),
    "q3_k_m": _llama_recipe(
        "q3_k",
        *_EIGHT,
        Rule(_VALUES, "q5_k", _first(2)),
        Rule(_DOWN, "q5_k", _first_sixteenth),
        _EIGHT_OUTPUT,
        Rule(f"{_VALUES} {_DOWN} attn_output", "q4_k"),
    ),
    "q3_k_s": _llama_recipe("q3_k", *_EIGHT, _EIGHT_OUTPUT),
    "iq3_m": _llama_recipe(
        "iq3_s",
        *_EIGHT,
        Rule(_DOWN, "q4_k", _first_eighth),
        Rule(_DOWN, "q4_k", _more_bits, _eight_experts),
        _EIGHT_OUTPUT,
        Rule(f"{_VALUES} attn_output", "q4_k"),
    ),
    "iq3_s": _llama_recipe("iq3_s", *_EIGHT, Rule(_VALUES, "q4_k", models=_shared_keys), _EIGHT_OUTPUT),
    "iq3_xs": _llama_recipe(
        "iq3_s",
        *_EIGHT,
        Rule(_VALUES, "q4_k", models=_shared_keys),
        Rule("attn_q attn_k", "iq3_xxs"),
        Rule("ffn_gate ffn_gate_* ffn_up*", "iq3_xxs", _middle),
        _EIGHT_OUTPUT,
    ),
    "iq3_xxs": _llama_recipe(
        "iq3_xxs",
        *_EIGHT,
        Rule("token_embd", "iq3_s"),
        Rule(_VALUES, "q4_k", models=_shared_keys),
        Rule("attn_q attn_k", "iq2_s"),
        _EIGHT_OUTPUT,
        Rule("attn_output", "iq3_s"),
        head="q5_k",
    ),
    "q2_k": _llama_recipe(
        "q2_k",
        *_EIGHT,
        Rule(_VALUES, "q4_k", models=_shared_keys),
        _EIGHT_OUTPUT,
        Rule(f"{_VALUES} {_DOWN} attn_output", "q3_k"),
    ),
    "q2_k_s": _llama_recipe(
        "q2_k", *_EIGHT, Rule(_VALUES, "q4_k", models=_shared_keys), Rule(_DOWN, "q4_k", _first_eighth)
    ),
    "iq2_m": _at_most_two_bits("iq2_s", "iq3_s", "iq3_s", "iq3_s"),
    "iq2_s": _at_most_two_bits("iq2_xs", "iq3_s", "iq3_s", "iq3_s"),
    "iq2_xs": _at_most_two_bits("iq2_xs", "q2_k", "q2_k", None),
    "iq2_xxs": _at_most_two_bits("iq2_xxs", "q2_k", "q2_k", None),
    "iq1_m": _at_most_two_bits("iq1_m", "q2_k", "q2_k", "iq2_xxs"),
    "iq1_s": _at_most_two_bits("iq1_s", "q2_k", "q2_k", "iq2_xxs"),
    "mxfp4_moe": _llama_recipe("q8_0", Rule("ffn_*_exps", "mxfp4"), head="q8_0"),
}

_IK = "ikawrakow/ik_llama.cpp@8337e4c github-data/"


def _custom(source: str, gate_and_up: str, down: str, *rules: Rule) -> Recipe:
    """A recipe of ``--custom-q``, which sets the formats of routed experts; all other tensors are Q8_0."""
    routed = Rule("ffn_down_exps", down), Rule("ffn_gate_exps ffn_up_exps", gate_and_up)
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
        Rule("attn_*", "iq6_k"),
    ),
    "mix-iq6_k": _custom(
        "discussions/357 (AesSedai, Qwen3-235B-A22B-mix-IQ6_K: types of tensors and size)",
        "iq6_k",
        "q8_0",
        Rule("attn_*", "iq6_k"),
    ),
    "ud-q2_k_xl": Recipe(
        "q2_k",
        (
            _NOT_QUANTISED,
            Rule("ffn_down_exps", "q3_k", _first_three_with_experts),
            Rule("ffn_*_exps", "q2_k"),
            Rule("attn_kv_a_mqa attn_kv_b ffn_down ffn_down_shexp output", "q6_k"),
            Rule("*", "q4_k"),
        ),
        f"{_IK}discussions/258 (Unsloth's DeepSeek-R1-UD-Q2_K_XL of January 2025: types of tensors and size)",
    ),
}

_KEPT = Rule("*norm ffn_gate_inp output token_embd", "bf16")
_ASSUMED = "by assumption all matrices of layers; embedding, head, routers and norms in BF16"
_PLAIN = {name: Recipe(name, (_KEPT,), _ASSUMED) for name in ("fp8", "int8", "int4")}

#: By name.
RECIPES: Mapping[str, Recipe] = MappingProxyType(_LLAMA | _CUSTOM | _PLAIN)
