"""Names of modules of Transformers: those that a tensor of GGUF may have, and patterns that choose some.

Names are without a prefix of the whole model ("model.", "model.language_model."), which depends on the model.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate

from ndpsim.base.errors import shown

_PREFIX = re.compile(r"(?:language_model\.)?(?:model\.)?(?:language_model\.)?(?:text_model\.)?")
_BLOCKS = ("mlp", "block_sparse_moe", "feed_forward", "moe")
_MATRICES = {"gate": ("gate_proj", "w1"), "up": ("up_proj", "w3"), "down": ("down_proj", "w2")}
_ATTENTION = {
    "attn_q": ("q_proj", "qkv_proj"),
    "attn_k": ("k_proj", "qkv_proj"),
    "attn_v": ("v_proj", "qkv_proj"),
    "attn_output": ("o_proj",),
    "attn_q_a": ("q_a_proj", "fused_qkv_a_proj"),
    "attn_q_b": ("q_b_proj",),
    "attn_kv_a_mqa": ("kv_a_proj_with_mqa", "fused_qkv_a_proj"),
    "attn_kv_b": ("kv_b_proj",),
}
_LINEAR = {
    "in_proj_qkvz": ("in_proj_qkvz", "in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_ba", "in_proj_b", "in_proj_a"),
}

# A pattern of a file must not take longer than the file: no repeated groups, few repetitions, short.
_MAX_PATTERN = 256
_MAX_REPETITIONS = 4
_REPEATED_GROUP = re.compile(r"\)\s*[*+{]")


def module_names(tensor: str, layer: int | None) -> tuple[str, ...]:
    """The names that the module of a tensor may have; none for a norm."""
    if layer is None:
        return {"token_embd": ("embed_tokens",), "output": ("lm_head",)}.get(tensor, ())
    return tuple(f"layers.{layer}.{name}" for name in _in_layer(tensor))


def _in_layer(tensor: str) -> Iterator[str]:
    if tensor in _ATTENTION:
        yield from (f"self_attn.{name}" for name in _ATTENTION[tensor])
    elif tensor.startswith("attn_") and not tensor.endswith("norm"):
        name = tensor.removeprefix("attn_")
        yield from (f"linear_attn.{other}" for other in _LINEAR.get(name, (name,)))
    elif tensor == "ffn_gate_inp":
        yield from (f"{block}.{name}" for block in _BLOCKS for name in ("gate", "router"))
    elif tensor.startswith("ffn_"):
        matrix, _, kind = tensor.removeprefix("ffn_").partition("_")
        inside = {"exps": ("experts.0.", "experts."), "shexp": ("shared_experts.", "shared_expert.")}
        for block in _BLOCKS:
            for inner in inside.get(kind, ("",)):
                yield from (f"{block}.{inner}{name}" for name in _MATRICES.get(matrix, ()))


def _without_prefix(name: str) -> str:
    return name[_PREFIX.match(name).end() :]  # type: ignore[union-attr]


def _checked(pattern: str) -> str:
    """A regular expression of a file.

    Raises:
        ValueError: it is none, or could take very long.
    """
    repetitions = sum(pattern.count(sign) for sign in "*+{")
    if len(pattern) > _MAX_PATTERN or repetitions > _MAX_REPETITIONS or _REPEATED_GROUP.search(pattern):
        raise ValueError(f"{shown(pattern)} is too long or repeats too much")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{shown(pattern)} is no regular expression: {error}") from None
    return pattern


@dataclass(frozen=True)
class Modules:
    """Modules that a configuration lists.

    Attributes:
        exact: their names, or names of modules that contain them.
        patterns: regular expressions for the beginning of a name, with any prefix of the model.
        linear: all linear layers.
    """

    exact: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    linear: bool = False

    @classmethod
    def of(cls, entries: Iterable[str], style: str) -> Modules:
        """The modules of a list.

        `style`: "compressed-tensors": names, "re:" and a regular expression, or a class; "glob": names with
        "*"; "transformers": the beginning or the end of a name, also as a regular expression; "regex".

        Raises:
            ValueError: an entry is no text, or a bad pattern.
        """
        exact: dict[str, None] = {}
        patterns, linear = [], False
        for entry in entries:
            if not isinstance(entry, str):
                raise ValueError("has an entry that is no name")
            text = entry.removeprefix("re:")
            if style == "compressed-tensors" and text == entry:
                linear = linear or entry == "Linear"
                exact[_without_prefix(entry)] = None
            elif style == "glob" and any(sign in entry for sign in "*?["):
                patterns.append(_checked(translate(entry)))
            elif style in ("glob", "transformers") and not set(entry) & set("*+?[](){}|^$\\"):
                exact[_without_prefix(entry.strip("."))] = None
            else:
                patterns.append(_checked(text))
        return cls(tuple(exact), tuple(patterns), linear)

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.exact)

    @functools.cached_property
    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(re.compile, self.patterns))

    def has(self, names: Iterable[str]) -> bool:
        """Whether one of the names is among them."""
        return any(self._has(name) for name in names)

    def _has(self, name: str) -> bool:
        parts = name.split(".")
        ends = range(1, len(parts) + 1)
        if any(".".join(parts[:end]) in self._names or ".".join(parts[-end:]) in self._names for end in ends):
            return True
        if self.linear and name != "embed_tokens":
            return True
        full = (name, f"model.{name}", f"model.language_model.{name}", f"language_model.model.{name}")
        return any(pattern.match(whole) for pattern in self._compiled for whole in full)
