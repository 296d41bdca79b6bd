"""Reads a model's shape from a Hugging Face `config.json`: the user's file, or a bundled one."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path

from ndpsim.base.arguments import path_of
from ndpsim.base.arguments import text as as_text
from ndpsim.base.caching import FileCache
from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.workload.models._config import Config, parse, read_text
from ndpsim.workload.models._read_attention import attention_problem, read_attention
from ndpsim.workload.models.expert import MAX_SIZE, Expert, whole_number
from ndpsim.workload.models.families import FAMILIES, UNKNOWN, Family
from ndpsim.workload.models.shape import MoeShape

_MODELS = Path(__file__).parent / "models"
_MAX_COUNT = 1 << 16  # layers of a model, experts of a layer
_MAX_SHAPE = 1 << 20  # --shape
_MAX_CONTEXT = 1 << 30

# Models whose config.json has the sizes of another's; DeepSeek-R1 and Qwen3-Coder-Next are trained from them.
_SAME_SHAPE = {"deepseek-r1": "deepseek-v3", "qwen3-coder-next": "qwen3-next-80b-a3b"}

# Known activations of experts, by their names in Hugging Face's transformers.
_ACTIVATIONS = (
    "silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2",
)  # fmt: skip

# Keys that select the layers with experts; `_dense_layers` reads them.
_PATTERN_KEYS = (
    "mlp_layer_types",
    "first_k_dense_replace",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
)
_LLAMA_PATTERN_KEYS = ("moe_layers", "interleave_moe_layer_step")

# In an unknown family such a key would be ignored, and the shape would be wrong.
_UNREAD = re.compile(
    r"shared_(expert|intermediate)|(expert|moe).*shared|moe_layer|moe_step|moe.*interval|interleave_moe"
    r"|expert_layer|hybrid.*pattern"
)


def _sparse_by_type(config: Config, layers: int) -> list[bool]:
    kinds = config.list_of("mlp_layer_types", layers)
    for layer, kind in enumerate(kinds):
        if kind not in ("dense", "sparse"):
            raise config.error(
                "mlp_layer_types", f'entry {layer} is neither "dense" nor "sparse"', code="form"
            )
    return [kind == "sparse" for kind in kinds]


def _sparse_by_frequency(config: Config, layers: int) -> list[bool]:
    """`moe_layer_freq`: the distance of layers with experts, from layer 0, or a 0 or 1 for each layer."""
    key = "moe_layer_freq"
    if not isinstance(config.values.get(key), list):
        every = config.integer_or(1, (key,), _MAX_COUNT, low=1)
        return [layer % every == 0 for layer in range(layers)]
    return config.flags_of(key, layers)


def _layer_set(config: Config, key: str, layers: int) -> set[int]:
    """The indexes of layers under `key`; none without it."""
    listed = config.list_of(key)
    for layer in listed:
        if problem := whole_number(layer, 0, layers - 1):
            raise config.error(key, problem)
    return set(listed)


def _sparse_of_llama(config: Config, layers: int) -> list[bool]:
    """Whether each layer of Llama 4 has experts: those that are listed, or by (layer + 1) % step == 0."""
    if config.find(("moe_layers",)):
        listed = _layer_set(config, "moe_layers", layers)
        return [layer in listed for layer in range(layers)]
    step = config.integer(("interleave_moe_layer_step",), _MAX_COUNT)
    return [(layer + 1) % step == 0 for layer in range(layers)]


def _dense_layers(config: Config, family: Family, layers: int) -> tuple[int, ...]:
    """Indexes of the layers without experts, by the rules of the family.

    Raises:
        InputError: a rule is malformed, or leaves no layer with experts.
    """
    keys: tuple[str, ...]
    if family.layer_pattern == _LLAMA_PATTERN_KEYS:
        sparse, keys, otherwise = _sparse_of_llama(config, layers), _LLAMA_PATTERN_KEYS, "moe_layers"
    else:
        sparse, keys, otherwise = _sparse_by_rules(config, layers), _PATTERN_KEYS, "num_hidden_layers"
    if not any(sparse):
        problem = f"leaves none of {layers} layers with experts"
        raise config.error(config.find(keys) or otherwise, problem, code="conflict")
    return tuple(layer for layer, flag in enumerate(sparse) if not flag)


def _sparse_by_rules(config: Config, layers: int) -> list[bool]:
    """Whether each layer has experts.

    `mlp_layer_types` lists every layer and decides alone. Otherwise a layer has experts if all other rules
    allow it: `first_k_dense_replace` and `moe_layer_freq` as in DeepSeek (layer % freq == 0),
    `decoder_sparse_step` and `mlp_only_layers` as in Qwen ((layer + 1) % step == 0).
    """
    if config.find(("mlp_layer_types",)):
        return _sparse_by_type(config, layers)
    sparse = _sparse_by_frequency(config, layers)
    first = config.integer_or(0, ("first_k_dense_replace",), layers)
    step = config.integer_or(1, ("decoder_sparse_step",), _MAX_COUNT, low=1)
    excluded = _layer_set(config, "mlp_only_layers", layers)
    return [
        flag and layer >= first and (layer + 1) % step == 0 and layer not in excluded
        for layer, flag in enumerate(sparse)
    ]


def _shared(config: Config, family: Family, expert_intermediate: int) -> tuple[int, int]:
    """The number of shared experts of a layer, and their intermediate size together."""
    if family.always_shared:
        return family.always_shared, family.always_shared * expert_intermediate
    if config.find(family.shared_intermediate):
        size = config.integer(family.shared_intermediate, MAX_SIZE, low=0)
        count = config.integer_or(1, family.shared_experts, _MAX_COUNT)
        return (count, size) if size and count else (0, 0)
    count = config.integer_or(0, family.shared_experts, _MAX_COUNT)
    return count, count * expert_intermediate


def _routed_experts(config: Config, family: Family) -> int:
    """The number of experts of a layer; 0 in a family without experts."""
    if not family.routed_experts:
        if stray := config.find(UNKNOWN.routed_experts):
            raise config.error(stray, "is a key of experts, and the model_type has none", code="conflict")
        return 0
    key = config.find(family.routed_experts)
    if key is None:
        named = config.values.get("model_type")
        kind = f"model_type '{named}'" if isinstance(named, str) else "a model without model_type"
        raise config.error(
            family.routed_experts[0],
            f"missing: a dense model, which has no experts, or a family ndpsim does not know ({kind}; "
            f"looked for {', '.join(family.routed_experts)})",
            code="unsupported",
        )
    if config.values[key] == 0 and not isinstance(config.values[key], (bool, float)):
        raise config.error(
            key, "0 experts: a dense model; no dense model of its model_type is known", code="unsupported"
        )
    return config.integer((key,), _MAX_COUNT)


def _check_known(config: Config, family: Family, name: str) -> None:
    """Refuse files that would be read wrongly: an unread rule of an unknown family, or a missing rule."""
    if family is UNKNOWN:
        understood = {*_PATTERN_KEYS, *family.shared_experts, *family.shared_intermediate}
        for key, value in config.values.items():
            counts = bool(value) and not isinstance(value, (bool, float))
            if counts and key not in understood and _UNREAD.search(key):
                raise config.error(
                    key, f"is not understood; {one_of(name, FAMILIES, 'model_type')}", code="unknown-name"
                )
        return
    for keys in (family.shared_experts, family.shared_intermediate):
        if keys and not any(key in config.values for key in keys):
            raise config.error(keys[0], f"missing; model_type '{name}' has it", code="missing")
    if family.layer_pattern and config.find(family.layer_pattern) is None:
        raise config.error(family.layer_pattern[0], f"missing; model_type '{name}' has it", code="missing")


def _shape(config: Config, name: str, source: str) -> MoeShape:
    model_type = config.string_or("unknown", "model_type")
    family = FAMILIES.get(model_type, UNKNOWN)
    routed = _routed_experts(config, family)
    _check_known(config, family, model_type)
    per_token = config.integer(family.experts_per_token, _MAX_COUNT) if routed else 0
    if per_token > routed:
        key = config.find(family.experts_per_token) or family.experts_per_token[0]
        raise config.error(key, f"{per_token} experts for each token of only {routed}", code="conflict")
    layers = config.integer(family.layers, _MAX_COUNT)
    expert_intermediate = config.integer(family.expert_intermediate, MAX_SIZE) if routed else 0
    dense = _dense_layers(config, family, layers) if routed else tuple(range(layers))
    shared_experts, shared_intermediate = _shared(config, family, expert_intermediate)
    hidden = config.integer(family.hidden, MAX_SIZE)
    return MoeShape(
        name=name,
        family=model_type,
        source=source,
        hidden=hidden,
        expert_intermediate=expert_intermediate,
        layers=layers,
        moe_layers=layers - len(dense),
        dense_layers=dense,
        dense_intermediate=config.integer(family.dense_intermediate, MAX_SIZE) if dense else 0,
        routed_experts=routed,
        experts_per_token=per_token,
        shared_experts=shared_experts,
        shared_intermediate=shared_intermediate,
        hidden_act=_activation(config),
        attention=read_attention(config, family, hidden, layers),
        attention_problem=attention_problem(config),
        vocabulary=config.integer_or(0, ("vocab_size",), MAX_SIZE, low=1) or None,
        tied_embeddings=config.flag_or(False, "tie_word_embeddings"),
        context=config.integer_or(0, ("max_position_embeddings",), _MAX_CONTEXT, low=1) or None,
    )


def _activation(config: Config) -> str:
    name = config.string_or("silu", "hidden_act")
    if name not in _ACTIVATIONS:
        raise config.error("hidden_act", one_of(name, _ACTIVATIONS, "activation"), code="unknown-name")
    return name


def _bundled() -> dict[str, Path]:
    files = {item.stem: item for item in _MODELS.iterdir() if item.suffix == ".json"}
    return files | {name: files[like] for name, like in _SAME_SHAPE.items()}


def model_names() -> list[str]:
    """The names of the bundled models, sorted."""
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
    problem = f"{one_of(name, _bundled(), 'model')}, nor a config.json or a folder"
    raise InputError(problem, "unknown-name", key="model")


def load_model(model: str | PathLike[str] | MoeShape) -> MoeShape:
    """The shape of a model.

    Args:
        model: a bundled name (`model_names`, in any case), a Hugging Face `config.json`, or a folder that
            holds one. A bundled name comes first; write ``./name`` for a file of the same name. A `MoeShape`
            stays as it is.

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
    shape, file = _load(name)
    # With the folder: a bundled file has precedence over a file with the same name.
    return _loaded.store(key, [file, _MODELS], shape)


def load_moe_model(model: str | PathLike[str] | MoeShape) -> MoeShape:
    """The shape of a model with experts; arguments are those of `load_model`.

    Raises:
        InputError: as `load_model`, or it is a dense model.
    """
    shape = load_model(model)
    shape.expert  # noqa: B018 (refuses a dense model)
    return shape


_loaded: FileCache[MoeShape] = FileCache(32)


def _load(model: str) -> tuple[MoeShape, Path]:
    """The shape, and the file it was read from."""
    bundled = _bundled()
    name = model.lower()
    if name in bundled:
        stem = bundled[name].stem
        return _shape(parse(read_text(bundled[name]), f"{stem}.json"), name, stem), bundled[name]
    path = _locate(model)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return _shape(parse(read_text(path), str(path)), name, str(path)), path


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
    return Expert(*sizes)
