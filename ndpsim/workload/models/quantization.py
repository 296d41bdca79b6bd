"""Formats of weights from a `quantization_config`: bits, groups, scales and zero points of each tensor.

Schemes and keys are those of Transformers 5.24 (`utils/quantization_config.py`), of compressed-tensors 0.12
(formats), of GPTQModel 4 (`dynamic`) and of NVIDIA's ModelOpt (`hf_quant_config.json`). Scales of single
matrices and rows of indices are not counted. Routers, embeddings and norms keep the model's own type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ndpsim.base.errors import one_of
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.blocks import BLOCKS, Block, grouped
from ndpsim.workload.models.modules import Modules, module_names

_MAX_GROUP = 1 << 16
_MAX_ENTRIES = 1 << 16
_SCALE = 16  # bits of a scale of the model's type

_MXFP4 = grouped("mxfp4", 4, 32, 8)
_NVFP4 = grouped("nvfp4", 4, 16, 8)

#: A list of modules, and the format of their weights.
Rule = tuple[Modules, Block]


@dataclass(frozen=True)
class Quantization:
    """How a file of safetensors stores the weights of a model.

    Attributes:
        source: the key that says so, with its file.
        method: the scheme, by its name in the file.
        plain: the format of tensors that are not quantised.
        rules: the first one that has a tensor counts.
        experts: the format of routed experts that no rule has; None: `plain`.
        problem: why the weights are not known; empty: they are.
        total_bytes: bytes of all files, as their index says; 0: there is no index.
    """

    source: str
    method: str
    plain: Block
    rules: tuple[Rule, ...] = ()
    experts: Block | None = None
    problem: str = ""
    total_bytes: int = 0

    def block_of(self, tensor: str, layer: int | None) -> Block:
        """The format of a tensor, by its name in GGUF."""
        if tensor.endswith("norm") or tensor in ("ffn_gate_inp", "token_embd"):
            return self.plain
        names = module_names(tensor, layer)
        for modules, block in self.rules:
            if modules.has(names):
                return block
        is_expert = tensor.endswith("_exps")
        return self.experts if is_expert and self.experts is not None else self.plain


def plain_block(config: Config) -> Block:
    """The type of tensors that are not quantised: `dtype` of the model; 16 bits without it."""
    named = next(
        (
            values[key]
            for values in (config.values, config.whole)
            for key in ("dtype", "torch_dtype")
            if isinstance(values.get(key), str)
        ),
        "bfloat16",
    )
    return BLOCKS[{"float32": "f32", "float16": "f16"}.get(str(named).removeprefix("torch."), "bf16")]


def read_quantization(config: Config, beside: Config | None = None) -> Quantization | None:
    """The formats of `quantization_config`; None without it.

    `beside`: the `hf_quant_config.json` of the folder, which counts if the configuration has none.

    Raises:
        InputError: a value is malformed. A scheme that is not understood is a `problem` of the result.
    """
    plain = plain_block(config)
    found = config.whole.get("quantization_config") or config.values.get("quantization_config")
    compression = config.whole.get("compression_config")  # the key of early compressed-tensors
    key = "quantization_config" if found or not compression else "compression_config"
    found = found or compression
    asked = config.within({}, f"{key}.")
    if not found:
        if beside is None:
            return None
        found, key = beside.values.get("quantization"), "quantization"
        asked = beside.within({}, "quantization.")
    if not isinstance(found, dict):
        raise asked.within({}, "").error(key, "is not a JSON object", code="type")
    asked = asked.within(found, asked.prefix)
    method = "modelopt" if beside is not None and key == "quantization" else _method(asked)
    source = f"{key} of {asked.file}"
    if found.get("dequantize") is True:
        return None
    if method not in _READERS:
        problem = str(asked.error("quant_method", one_of(method, _READERS, "scheme"), code="unsupported"))
        return Quantization(source, method, plain, problem=problem)
    try:
        rules, experts = _READERS[method](asked, plain, config)
    except _NotUnderstoodError as error:
        return Quantization(source, method, plain, problem=str(error))
    return Quantization(source, method, plain, tuple(rules), experts)


class _NotUnderstoodError(Exception):
    """A part of a scheme is not understood, which only matters where bits are taken from it."""


def _method(config: Config) -> str:
    named = config.string_or("", "quant_method").lower().replace("_", "-").removeprefix("intel/")
    if not named and (config.values.get("load_in_4bit") or config.values.get("load_in_8bit")):
        return "bitsandbytes"
    return named


def _listed(config: Config, style: str, *keys: str) -> Modules:
    """The modules under the first of `keys` that exists."""
    key = config.find(keys)
    if key is None:
        return Modules()
    entries = config.list_of(key)
    if len(entries) > _MAX_ENTRIES:
        raise config.error(key, f"has more than {_MAX_ENTRIES} entries", code="too-large")
    try:
        return Modules.of(entries, style)
    except ValueError as error:
        raise config.error(key, str(error), code="form") from None


def _rules(kept: Modules, plain: Block, block: Block) -> list[Rule]:
    """`block` for all linear layers of layers but those that are kept; the head is kept as well."""
    return [
        (Modules((*kept.exact, "lm_head"), kept.patterns), plain),
        (Modules(linear=True), block),
    ]


def _block_sizes(config: Config, key: str) -> tuple[int, int]:
    """The rows and columns of a block of weights that share a scale."""
    sizes = config.list_of(key)
    if len(sizes) != 2 or not all(isinstance(size, int) and 0 < size <= _MAX_GROUP for size in sizes):
        raise config.error(key, "is not the rows and columns of a block", code="form")
    rows, columns = sizes
    return rows, columns


def _fp8(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    scale = 8 if config.values.get("scale_fmt") == "ue8m0" and config.find(("expert_dtype",)) else 32
    rows = columns = 0
    if config.find(("weight_block_size",)):
        rows, columns = _block_sizes(config, "weight_block_size")
    name = f"fp8 {rows}x{columns}" if rows else "fp8"
    block = grouped(name, 8, columns, scale if rows else 0, 0, rows or 1)
    rules = _rules(_listed(config, "transformers", "modules_to_not_convert", "ignored_layers"), plain, block)
    expert_type = config.values.get("expert_dtype", model.values.get("expert_dtype"))
    if expert_type == "fp4":
        rules.insert(1, (_EXPERTS, _MXFP4))
    return rules, None


_EXPERTS = Modules.of([r"layers\.\d+\.\w+\.experts\."], "regex")


def _mxfp4(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """Only routed experts are in MXFP4."""
    kept = _listed(config, "transformers", "modules_to_not_convert")
    return [(kept, plain)], _MXFP4


def _packed(config: Config, plain: Block, model: Config, style: str, *kept: str) -> list[Rule]:
    bits = config.integer(("bits", "w_bit"), 16)
    group = _group(config, ("group_size", "q_group_size"), 128)
    zero_point = bits if config.flag_or(True, "zero_point") else 0
    return _rules(_listed(config, style, *kept), plain, _integers(bits, group, zero_point))


def _integers(bits: int, group: int, zero_point: int, scale: int = _SCALE) -> Block:
    return grouped(f"int{bits} g{group or 'row'}", bits, group, scale, zero_point)


def _group(config: Config, keys: tuple[str, ...], default: int) -> int:
    """Weights that share a scale; 0: a row."""
    key = config.find(keys)
    if key is not None and config.values[key] in (-1, 0) and not isinstance(config.values[key], bool):
        return 0
    return config.integer_or(default, keys, _MAX_GROUP, low=1)


def _gptq(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """GPTQ stores zero points of symmetric formats, too. `dynamic`: "-:" and a pattern: not quantised."""
    bits, group = config.integer(("bits",), 8), _group(config, ("group_size",), 128)
    block, rules = _integers(bits, group, bits), []
    for pattern, changed in config.object_of("dynamic").items():
        inner = config.within(changed or {}, f"{config.prefix}dynamic.")
        try:
            modules = Modules.of([pattern.removeprefix("-:").removeprefix("+:")], "regex")
        except ValueError as error:
            raise inner.error(pattern, str(error), code="form") from None
        if pattern.startswith("-:"):
            rules.append((modules, plain))
        elif isinstance(changed, dict):
            own = inner.integer_or(bits, ("bits",), 8, low=1)
            rules.append((modules, _integers(own, _group(inner, ("group_size",), group), own)))
    kept = _listed(config, "transformers", "modules_to_not_convert")
    if config.flag_or(False, "lm_head"):
        return [*rules, (kept, plain), (Modules(linear=True), block)], None
    return [*rules, *_rules(kept, plain, block)], None


def _awq(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    return _packed(config, plain, model, "transformers", "modules_to_not_convert"), None


def _auto_round(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """AutoRound packs as GPTQ or AWQ do, both with zero points; `extra_config` has bits of single modules."""
    bits, group = config.integer(("bits",), 8), _group(config, ("group_size",), 128)
    rules = []
    for name, changed in config.object_of("extra_config").items():
        inner = config.within(changed if isinstance(changed, dict) else {}, config.prefix)
        own = inner.integer_or(bits, ("bits",), 32, low=1)
        block = plain if own >= 16 else _integers(own, _group(inner, ("group_size",), group), own)
        rules.append((Modules.of([name], "transformers"), block))
    return [*rules, *_rules(Modules(), plain, _integers(bits, group, bits))], None


def _bitsandbytes(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """8 bits: a scale of 32 bits a row. 4 bits: a maximum for 64 weights, itself of 8 bits if quantised."""
    kept = _listed(config, "transformers", "llm_int8_skip_modules")
    if config.flag_or(False, "load_in_8bit") and not config.flag_or(False, "load_in_4bit"):
        return _rules(kept, plain, grouped("int8 row", 8, 0, 32)), None
    double = config.flag_or(False, "bnb_4bit_use_double_quant")
    name = config.string_or("fp4", "bnb_4bit_quant_type")
    return _rules(kept, plain, grouped(f"{name} g64", 4, 64, 8 if double else 32)), None


def _modelopt(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """NVFP4: a scale of 8 bits for 16 weights; FP8: one for a matrix, or for 128 x 128 weights (PB)."""
    formats = {
        "NVFP4": _NVFP4, "NVFP4_AWQ": _NVFP4, "W4A16_NVFP4": _NVFP4, "MXFP4": _MXFP4,
        "W4A8_MXFP4_FP8": _MXFP4, "FP8": grouped("fp8", 8),
        "FP8_PER_CHANNEL_PER_TOKEN": grouped("fp8 row", 8, 0, 32),
        "FP8_PB_WO": grouped("fp8 128x128", 8, 128, 32, 0, 128), "MXFP8": grouped("mxfp8", 8, 32, 8),
        "W4A16_AWQ": _integers(4, 128, 0), "W4A8_AWQ": _integers(4, 128, 0),
        "W8A8_SQ_PER_CHANNEL": grouped("int8 row", 8, 0, 32),
    }  # fmt: skip
    kept = _listed(config, "glob", "ignore", "exclude_modules")

    def format_of(values: Config) -> Block:
        named = values.string_or("", "quant_algo").upper()
        if named not in formats:
            problem = one_of(named, formats, "scheme")
            raise _NotUnderstoodError(str(values.error("quant_algo", problem, code="unsupported")))
        return formats[named]

    layers = config.values.get("quantized_layers")
    if config.string_or("", "quant_algo").upper() != "MIXED_PRECISION":
        return _rules(kept, plain, format_of(config)), None
    if not isinstance(layers, dict):
        raise config.error("quantized_layers", "missing; MIXED_PRECISION needs it", code="missing")
    by_block: dict[Block, list[str]] = {}
    for name, changed in layers.items():
        inner = config.within(changed if isinstance(changed, dict) else {}, config.prefix)
        by_block.setdefault(format_of(inner), []).append(name)
    return [(kept, plain), *((Modules.of(names, "glob"), block) for block, names in by_block.items())], None


def _compressed(config: Config, plain: Block, model: Config) -> tuple[list[Rule], Block | None]:
    """Each of `config_groups` has targets and a format; the format says how many bits are stored."""
    groups = config.values.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise config.error("config_groups", "missing, or not a JSON object", code="missing")
    rules: list[Rule] = [(_listed(config, "compressed-tensors", "ignore"), plain)]
    outer = config.string_or("", "format")
    sparsity = config.values.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format") not in (None, "dense"):
        problem = config.error("sparsity_config", "sparse weights are not understood", code="unsupported")
        raise _NotUnderstoodError(str(problem))
    for name, values in groups.items():
        prefix = f"{config.prefix}config_groups.{name}."
        if not isinstance(values, dict):
            raise config.error("config_groups", f"{name} is not a JSON object", code="type")
        group = config.within(values, prefix)
        targets = _listed(group, "compressed-tensors", "targets")
        weights = values.get("weights")
        if weights is None:  # activations only
            continue
        if not isinstance(weights, dict):
            raise group.error("weights", "is not a JSON object", code="type")
        inner = config.within(weights, f"{prefix}weights.")
        stored = group.string_or("", "format") or ("" if outer == "mixed-precision" else outer)
        rules.append((targets, _compressed_block(inner, stored, config, plain)))
    return rules, None


_STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")
_UNCOMPRESSED = ("initialized", "calibration", "frozen")
_BYTES = ("int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized")
_PACKED = ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")


def _compressed_block(config: Config, stored: str, whole: Config, plain: Block) -> Block:
    """The format of the weights of a group."""
    bits = config.integer(("num_bits",), 16)
    of_type = config.string_or("int", "type")
    if not stored and bits == 8:
        stored = "float-quantized" if of_type == "float" else "int-quantized"
    stored = stored or "pack-quantized"
    if stored == "dense" or whole.values.get("quantization_status") in _UNCOMPRESSED:
        return plain
    if stored == "marlin-24":  # half of the weights, and two bits of place for each of them
        return grouped(f"int{bits} 2:4", bits // 2 + 1, _group(config, ("group_size",), 0), _SCALE)
    if stored not in (*_BYTES, *_PACKED):
        problem = one_of(stored, (*_BYTES, *_PACKED, "marlin-24"), "format")
        raise _NotUnderstoodError(str(whole.error("format", problem, code="unsupported")))
    held = bits if stored in _PACKED else 8
    scale = 8 if stored[:5] in ("nvfp4", "mxfp4", "mxfp8") else _SCALE
    symmetric = config.flag_or(True, "symmetric")
    zero_point = 0 if symmetric else held
    strategy = config.string_or("group" if config.find(("group_size",)) else "tensor", "strategy")
    if strategy not in _STRATEGIES:
        raise _NotUnderstoodError(
            str(config.error("strategy", one_of(strategy, _STRATEGIES, "strategy"), code="unsupported"))
        )
    name = f"{of_type}{bits}" if held == bits else f"{of_type}{bits} in 8 bits"
    if strategy == "tensor":
        return grouped(name, held)
    if strategy == "block":
        rows, columns = _block_sizes(config, "block_structure")
        return grouped(f"{name} {rows}x{columns}", held, columns, scale, zero_point, rows)
    group = 0 if strategy == "channel" else _group(config, ("group_size",), 0)
    return grouped(f"{name} g{group or 'row'}", held, group, scale, zero_point)


_Reader = Callable[[Config, Block, Config], tuple[list[Rule], Block | None]]
_READERS: Mapping[str, _Reader] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
}
