"""Reads a model's shape from a Hugging Face `config.json`, a user's or a bundled one, or from a GGUF file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from ndpsim.base.arguments import path_of
from ndpsim.base.arguments import text as as_text
from ndpsim.base.caching import FileCache
from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.base.files import reading
from ndpsim.base.run_files import note_input
from ndpsim.workload.models._config import Config, parse, read_text
from ndpsim.workload.models._read_attention import attention_problem, read_attention
from ndpsim.workload.models._read_layers import (
    MAX_COUNT,
    read_blocks,
    read_layers,
    with_aliases,
    without_blocks,
)
from ndpsim.workload.models.expert import MAX_SIZE, Expert
from ndpsim.workload.models.families import FAMILIES, UNKNOWN, Family
from ndpsim.workload.models.gguf.header import is_gguf
from ndpsim.workload.models.gguf.reader import load_gguf
from ndpsim.workload.models.known_keys import (
    attention_left_out,
    check_aliases,
    check_unread,
    with_defaults,
)
from ndpsim.workload.models.quantization import Quantization, plain_block, read_quantization
from ndpsim.workload.models.residual import read_residual
from ndpsim.workload.models.shape import LayerAttention, MixedAttention, MoeShape

_MODELS = Path(__file__).parent / "models"
_MAX_SHAPE = 1 << 20  # --shape
_MAX_CONTEXT = 1 << 30
_INDEX_PART = 1 << 16  # bytes at the begin and the end of an index, where its metadata is

_INDEX, _QUANTIZATION = "model.safetensors.index.json", "hf_quant_config.json"  # beside a config.json

_TOTAL_SIZE = re.compile(rb'"total_size"\s*:\s*([0-9]{1,18})\b')

# Models whose config.json has the sizes of another's; DeepSeek-R1 and Qwen3-Coder-Next are trained from them.
_SAME_SHAPE = {"deepseek-r1": "deepseek-v3", "qwen3-coder-next": "qwen3-next-80b-a3b"}

# Known activations of experts, by their names in Hugging Face's transformers.
_ACTIVATIONS = (
    "silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2",
    "swigluoai", "situ",
)  # fmt: skip

_ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
_CONTEXT_KEYS = ("max_position_embeddings", "model_max_length", "max_seq_len")


def _shared(config: Config, family: Family, expert_intermediate: int) -> tuple[int, int]:
    """The number of shared experts of a layer, and their intermediate size together."""
    if family.two_blocks:
        return 1, config.integer(family.dense_intermediate, MAX_SIZE)
    if family.always_shared:
        return family.always_shared, family.always_shared * expert_intermediate
    if config.find(family.shared_intermediate):
        size = config.integer(family.shared_intermediate, MAX_SIZE, low=0)
        counts = with_aliases(family, family.shared_experts or ("n_shared_experts",))
        count = config.integer_or(1, counts, MAX_COUNT)
        return (count, size) if size and count else (0, 0)
    counts = with_aliases(family, family.shared_experts)
    count = config.integer_or(0, counts, MAX_COUNT)
    if family.compressed and count != 1:
        key = config.find(counts) or counts[0]
        raise config.error(key, "is not 1, the shared experts that the class has", code="conflict")
    return count, count * expert_intermediate


def _routed_experts(config: Config, family: Family) -> int:
    """The number of experts of a layer; 0 in a family without experts."""
    if not family.routed_experts:
        if stray := config.find(UNKNOWN.routed_experts):
            raise config.error(stray, "is a key of experts, and the model_type has none", code="conflict")
        return 0
    keys = with_aliases(family, family.routed_experts)
    key = config.find(keys)
    if key is None:
        named = config.values.get("model_type")
        kind = f"model_type '{named}'" if isinstance(named, str) else "a model without model_type"
        raise config.error(
            family.routed_experts[0],
            f"missing: a dense model, which has no experts, or a family ndpsim does not know ({kind}; "
            f"looked for {', '.join(keys)})",
            code="unsupported",
        )
    if config.values.get("enable_moe_block") is False:
        raise config.error("enable_moe_block", "is false: a dense model", code="unsupported")
    if config.values[key] == 0 and not isinstance(config.values[key], (bool, float)):
        raise config.error(
            key, "0 experts: a dense model; no dense model of its model_type is known", code="unsupported"
        )
    return config.integer((key,), MAX_COUNT)


def _check_known(config: Config, family: Family, name: str) -> None:
    """Refuse files that lack a rule.

    Raises:
        InputError: it is such a file.
    """
    for keys in (family.shared_experts, family.shared_intermediate):
        keys = with_aliases(family, keys)
        if family is not UNKNOWN and keys and not any(key in config.values for key in keys):
            raise config.error(keys[0], f"missing; model_type '{name}' has it", code="missing")
    if family.layer_pattern and config.find(family.layer_pattern) is None:
        raise config.error(family.layer_pattern[0], f"missing; model_type '{name}' has it", code="missing")


def _flat(config: Config) -> Config:
    """A configuration whose parts for attention and experts, as DBRX has them, are its own keys."""
    inner: dict[str, Any] = {}
    for key in ("attn_config", "ffn_config"):
        part = config.values.get(key)
        inner |= part if isinstance(part, dict) else {}
    if not inner:
        return config
    outer = {key: value for key, value in config.values.items() if key not in ("attn_config", "ffn_config")}
    return config.within({**inner, **outer}, config.prefix)


def _of_text(config: Config, family: Family) -> Config:
    """A configuration whose keys that list a value for text and one for images have that for text."""
    changed = {}
    for key in family.of_text:
        if isinstance(config.values.get(key), list):
            values = config.list_of(key)
            if len(values) != 2:
                problem = f"has {len(values)} entries, not one for text and one for images"
                raise config.error(key, problem, code="form")
            changed[key] = values[0]
    return config.overlaid(changed) if changed else config


def _zero_experts(config: Config, family: Family) -> int:
    """The number of experts without weights, whose result is their input."""
    if not family.zero_experts:
        return 0
    if config.string_or("identity", "zero_expert_type") != "identity":
        raise config.error("zero_expert_type", "is not identity, the only one modelled", code="unsupported")
    return config.integer(family.zero_experts, MAX_COUNT, low=0)


def _shape(config: Config, name: str, source: str) -> MoeShape:
    model_type = config.string_or("unknown", "model_type")
    family = FAMILIES.get(model_type, UNKNOWN)
    config = _of_text(_flat(config), family)
    if family.two_blocks:
        config = without_blocks(config, family)
    check_aliases(config, model_type)
    if family.unsupported:
        raise config.error("model_type", f"{model_type}: {family.unsupported}", code="unsupported")
    config = with_defaults(config, model_type)
    routed = _routed_experts(config, family)
    _check_known(config, family, model_type)
    per_token_keys = with_aliases(family, family.experts_per_token)
    per_token = config.integer(per_token_keys, MAX_COUNT) if routed else 0
    if per_token > routed:
        key = config.find(per_token_keys) or per_token_keys[0]
        raise config.error(key, f"{per_token} experts for each token of only {routed}", code="conflict")
    blocks = read_blocks(config, family)
    layers, dense = read_layers(config, family, blocks, routed)
    expert_intermediate = config.integer(family.expert_intermediate, MAX_SIZE) if routed else 0
    has_dense = bool(dense) and not blocks  # networks of single blocks are in place of attention
    shared_experts, shared_intermediate = _shared(config, family, expert_intermediate)
    hidden = config.integer(with_aliases(family, family.hidden), MAX_SIZE)
    for key in family.dense_intermediate:
        config.values.get(key)  # has no effect without dense layers
    expert_hidden = config.integer_or(0, family.expert_hidden, MAX_SIZE) if family.expert_hidden else 0
    attention, problem = _attention(config, family, hidden, layers, blocks)
    shape = MoeShape(
        name=name,
        family=model_type,
        source=source,
        hidden=hidden,
        expert_intermediate=expert_intermediate,
        layers=layers,
        moe_layers=layers - len(dense),
        dense_layers=dense,
        dense_intermediate=config.integer(family.dense_intermediate, MAX_SIZE) if has_dense else 0,
        routed_experts=routed,
        experts_per_token=per_token,
        shared_experts=shared_experts,
        shared_intermediate=shared_intermediate,
        hidden_act=_activation(config),
        attention=attention,
        attention_problem=problem,
        vocabulary=config.integer_or(0, ("vocab_size",), MAX_SIZE, low=1) or None,
        tied_embeddings=_tied(config) and not family.never_tied,
        context=config.integer_or(0, _CONTEXT_KEYS, _MAX_CONTEXT, low=1) or None,
        expert_hidden=expert_hidden,
        residual=None if attention is None else read_residual(config, family.residual, hidden),
        gated_experts=family.gated_experts,
        zero_experts=_zero_experts(config, family),
        single_blocks=bool(blocks),
    )
    for key in family.answered:
        config.values.get(key)
    unread = check_unread(config, tuple(FAMILIES), model_type)
    known = attention is None or not unread
    return shape if known else replace(shape, attention=None, attention_problem=unread, residual=None)


def _attention(
    config: Config, family: Family, hidden: int, layers: int, blocks: list[str]
) -> tuple[LayerAttention | MixedAttention | None, str]:
    """The attention of the layers; None and the reason if it, or what is around experts, is not modelled."""
    model_type = config.string_or("unknown", "model_type")
    problem = attention_problem(config, family, layers) or attention_left_out(config, model_type)
    found = None if problem else read_attention(config, family, hidden, layers, blocks)
    other = config.find(family.expert_hidden)
    if found is not None and other is not None and config.values[other] != hidden:
        between = "projections between the hidden size and that of experts are not modelled"
        return None, str(config.error(other, between, code="unsupported"))
    return found, problem


def _tied(config: Config) -> bool:
    """Whether the embedding is the head: of a wrapper its own key counts, as in Transformers."""
    inner, outer = config.flag_or(False, "tie_word_embeddings"), config.whole.get("tie_word_embeddings")
    return outer if isinstance(outer, bool) else inner


def _activation(config: Config) -> str:
    key = config.find(_ACTIVATION_KEYS) or _ACTIVATION_KEYS[0]
    name = config.string_or("silu", key)
    if name not in _ACTIVATIONS:
        raise config.error(key, one_of(name, _ACTIVATIONS, "activation"), code="unknown-name")
    return name


def _bundled() -> dict[str, Path]:
    files = {item.stem: item for item in _MODELS.iterdir() if item.suffix == ".json"}
    return files | {name: files[like] for name, like in _SAME_SHAPE.items()}


def model_names() -> list[str]:
    """The names of the bundled models, sorted.

    >>> "mixtral-8x7b" in ndpsim.model_names()
    True
    """
    return sorted(_bundled())


def _locate(name: str) -> Path:
    """The `config.json` of `name`, which is not a bundled name."""
    path = Path(name)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shown(name)} is no usable path: {reason}", "unreadable", key="model") from None
    if name and is_folder:
        if not (path / "config.json").exists():
            raise InputError("this folder holds no config.json", "unreadable", file=path)
        return path / "config.json"
    if name and exists:
        return path
    if path.suffix == ".json" or len(path.parts) > 1:
        raise InputError("no such file", "unreadable", file=path)
    problem = f"{one_of(name, _bundled(), 'model')}, nor a config.json, a GGUF file or a folder"
    raise InputError(problem, "unknown-name", key="model")


def load_model(model: str | PathLike[str] | MoeShape) -> MoeShape:
    """The shape of a model.

    >>> ndpsim.load_model("mixtral-8x7b").routed_experts
    8

    Args:
        model: a bundled name (`model_names`, in any case), a Hugging Face `config.json`, a folder that holds
            one, or a GGUF file (of a split model, one of its parts). A bundled name comes first; write
            ``./name`` for a file of the same name. A `MoeShape` stays as it is.

    The model of a `config.json` has the name of its folder; the model of another file has the name of the
    file. `hidden_act` is "silu" if the file has none. A file with a `model_type` that is not in `FAMILIES` is
    read by all known names of keys. It is refused if it has no key for experts, or a key for shared experts
    or dense layers of an unknown kind.

    Raises:
        InputError: the model or file does not exist, the file is not a JSON object, or a key is missing or
            out of range.
    """
    if isinstance(model, MoeShape):
        return model
    name = str(path_of(model, "model")) if isinstance(model, PathLike) else model
    if not isinstance(name, str):
        problem = "is neither the name of a model, nor the path of its config.json, nor a MoeShape or Expert"
        raise InputError(f"{shown(model)} {problem}", "type", key="model")
    key = name, os.getcwd()
    known = _loaded.find(key)
    if known is not None:
        return known
    shape, files = _load(name)
    # With the folder: a bundled file has precedence over a file with the same name.
    return _loaded.store(key, [*files, _MODELS], shape)


def load_moe_model(model: str | PathLike[str] | MoeShape) -> MoeShape:
    """The shape of a model with experts; arguments are those of `load_model`.

    Raises:
        InputError: as `load_model`, or it is a dense model.
    """
    shape = load_model(model)
    shape.expert  # noqa: B018 (refuses a dense model)
    return shape


_loaded: FileCache[MoeShape] = FileCache(32)


def _load(model: str) -> tuple[MoeShape, list[Path]]:
    """The shape, and the files it was read from."""
    bundled = _bundled()
    name = model.lower()
    if name in bundled:
        stem = bundled[name].stem
        return _shape(parse(read_text(bundled[name]), f"{stem}.json"), name, stem), [bundled[name]]
    path = _locate(model)
    if is_gguf(path):
        return load_gguf(path, path.stem)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    config = parse(read_text(path), str(path))
    shape = _shape(config, name, str(path))
    index, quantization = path.with_name(_INDEX), path.with_name(_QUANTIZATION)
    return replace(shape, stored=_stored(config, index, quantization)), [path, index, quantization]


def _stored(config: Config, index: Path, quantization: Path) -> Quantization | None:
    """How the files beside a `config.json` store the weights; None: as their plain type, without an index."""
    beside = parse(read_text(quantization), str(quantization)) if quantization.is_file() else None
    stored = read_quantization(config, beside)
    total = _total_size(index) if index.is_file() else 0
    if not total:
        return stored
    plain = stored or Quantization(config.file, "", plain_block(config))
    return replace(plain, total_bytes=total)


def _total_size(index: Path) -> int:
    """`total_size` of an index, whose list of tensors may be long and is not read; 0 without it."""
    note_input(index)
    with reading(index), open(index, "rb") as file:
        begin = file.read(_INDEX_PART)
        file.seek(max(file.seek(0, os.SEEK_END) - _INDEX_PART, 0))
        end = file.read(_INDEX_PART)
    found = _TOTAL_SIZE.search(begin) or _TOTAL_SIZE.search(end)
    return int(found[1]) if found else 0


def parse_shape(text: str | Expert) -> Expert:
    """An expert from ``HIDDEN,INTERMEDIATE``, each from 1 to 2**20, as the option ``--shape`` takes it.

    An `Expert` stays as it is.

    Raises:
        InputError: it is not two such numbers in decimal digits.
    """
    if isinstance(text, Expert):
        return text
    parts = [part.strip() for part in as_text(text, "text").split(",")]
    if len(parts) != 2:
        problem = f"{shown(text)} is not HIDDEN,INTERMEDIATE, for instance 4096,1536"
        raise InputError(problem, "form", key="--shape")
    sizes = []
    for what, part in zip(("HIDDEN", "INTERMEDIATE"), parts, strict=True):
        digits = part.lstrip("0") if part.isascii() and part.isdigit() else ""
        # Check the length first: int() of a million digits is slow and then fails.
        if not digits or len(digits) > len(str(_MAX_SHAPE)) or int(digits) > _MAX_SHAPE:
            problem = f"{what} {shown(part)} is not a whole number from 1 to {_MAX_SHAPE}"
            raise InputError(problem, "range", key="--shape")
        sizes.append(int(digits))
    hidden, intermediate = sizes
    return Expert(hidden, intermediate)
