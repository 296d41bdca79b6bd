"""Reads the number of layers, and which of them have experts, by the rules of the families."""

from __future__ import annotations

from ndpsim.base.errors import one_of
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.expert import whole_number
from ndpsim.workload.models.families import CLASS_RULES, UNKNOWN, Family
from ndpsim.workload.models.known_keys import ALIASES

MAX_COUNT = 1 << 16  #: Most layers of a model, and experts of a layer.

# Keys that select the layers with experts; `_dense_layers` reads them.
_PATTERN_KEYS = (
    "mlp_layer_types",
    "first_k_dense_replace",
    "num_dense_layers",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_layer_start_index",
    "moe_layer_end_index",
    "moe_layer_interval",
    "expert_layer_period",
    "expert_layer_offset",
    "moe_layers_enum",
)

_SPARSE_KINDS = ("sparse", "moe", "hash_moe")

# Letters of blocks, and their names before and in Transformers 5.
_BLOCKS = {
    "M": ("mamba", "linear_attention"),
    "*": ("attention", "full_attention"),
    "E": ("moe",),
    "-": ("mlp",),
}

_LLAMA_PATTERN_KEYS = ("moe_layers", "interleave_moe_layer_step")


def _sparse_by_type(config: Config, layers: int) -> list[bool]:
    kinds = config.list_of("mlp_layer_types", layers)
    for layer, kind in enumerate(kinds):
        if kind != "dense" and kind not in _SPARSE_KINDS:
            raise config.error(
                "mlp_layer_types", f'entry {layer} is neither "dense" nor "sparse"', code="form"
            )
    return [kind != "dense" for kind in kinds]


def read_blocks(config: Config, family: Family) -> list[str]:
    """The letter of each block of a model whose layers are blocks; none for other families.

    Raises:
        InputError: there is no list of them, it has others, or the number of layers is another.
    """
    if not family.blocks:
        return []
    key = config.find(family.blocks)
    if key is None or not config.values[key]:
        problem = "missing or empty; it says which blocks have experts"
        raise config.error(key or family.blocks[0], problem, code="missing")
    is_text = isinstance(config.values.get(key), str)
    listed = list(config.string_or("", key)) if is_text else config.list_of(key)
    letters = {name: letter for letter, names in _BLOCKS.items() for name in (letter, *names)}
    for number, name in enumerate(listed):
        if not isinstance(name, str) or name not in letters:
            raise config.error(key, f"entry {number}: {one_of(name, letters, 'block')}", code="unknown-name")
    layers = config.integer_or(len(listed), family.layers, MAX_COUNT)
    if layers != len(listed):
        problem = f"has {len(listed)} blocks, and {family.layers[0]} is {layers}"
        raise config.error(key, problem, code="conflict")
    return [letters[name] for name in listed]


def _sparse_by_frequency(config: Config, layers: int) -> list[bool]:
    """`moe_layer_freq`: the distance of layers with experts, from layer 0, or a 0 or 1 for each layer."""
    key = "moe_layer_freq"
    if not isinstance(config.values.get(key), list):
        every = config.integer_or(1, (key,), MAX_COUNT, low=1)
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
        config.find(_LLAMA_PATTERN_KEYS[1:])  # the list has what it says
        listed = _layer_set(config, "moe_layers", layers)
        return [layer in listed for layer in range(layers)]
    step = config.integer(("interleave_moe_layer_step",), MAX_COUNT)
    return [(layer + 1) % step == 0 for layer in range(layers)]


def _dense_layers(config: Config, family: Family, layers: int, blocks: list[str]) -> tuple[int, ...]:
    """Indexes of the layers without experts, by their blocks or by the rules of the family.

    Raises:
        InputError: a rule is malformed, or leaves no layer with experts.
    """
    keys: tuple[str, ...]
    if blocks:
        sparse, keys, otherwise = [letter == "E" for letter in blocks], family.blocks, family.blocks[0]
    elif family.layer_pattern == _LLAMA_PATTERN_KEYS:
        sparse, keys, otherwise = _sparse_of_llama(config, layers), _LLAMA_PATTERN_KEYS, "moe_layers"
    else:
        sparse, keys, otherwise = _sparse_by_rules(config, family, layers), _PATTERN_KEYS, "num_hidden_layers"
    if not any(sparse):
        problem = f"leaves none of {layers} layers with experts"
        raise config.error(config.find(keys) or otherwise, problem, code="conflict")
    return tuple(layer for layer, flag in enumerate(sparse) if not flag)


def _with_own_rules(config: Config, sparse: list[bool]) -> list[bool]:
    """The layers of `sparse` that rules of single families leave: first and last, intervals, periods."""
    first = config.integer_or(0, ("moe_layer_start_index",), MAX_COUNT)
    last = config.integer_or(-1, ("moe_layer_end_index",), MAX_COUNT, low=-1)
    step = config.integer_or(1, ("moe_layer_interval",), MAX_COUNT, low=1)
    period = config.integer_or(1, ("expert_layer_period",), MAX_COUNT, low=1)
    offset = config.integer_or(0, ("expert_layer_offset",), MAX_COUNT)
    return [
        flag
        and first <= layer <= (len(sparse) if last < 0 else last)
        and (layer + 1) % step == 0
        and layer % period == offset % period
        for layer, flag in enumerate(sparse)
    ]


def _sparse_by_rules(config: Config, family: Family, layers: int) -> list[bool]:
    """Whether each layer has experts, by rules that the class of the type knows.

    Raises:
        InputError: another rule, which the class does not know, asks for other layers.
    """
    sparse, named = _by_all_rules(config, family, layers), config.string_or("unknown", "model_type")
    known = CLASS_RULES.get(named, _PATTERN_KEYS)
    foreign = [key for key in _PATTERN_KEYS if key not in known and config.find((key,))]
    if foreign and _by_all_rules(config.overlaid(dict.fromkeys(foreign)), family, layers) != sparse:
        problem = f"leaves layers without experts, and the class of model_type '{named}' does not know it"
        raise config.error(foreign[0], problem, code="conflict")
    return sparse


def _by_all_rules(config: Config, family: Family, layers: int) -> list[bool]:
    """Whether each layer has experts, by the rules of all classes.

    `mlp_layer_types` lists every layer and decides alone. Otherwise a layer has experts if all other rules
    allow it: `first_k_dense_replace` and `moe_layer_freq` as in DeepSeek (layer % freq == 0),
    `decoder_sparse_step` and `mlp_only_layers` as in Qwen ((layer + 1) % step == 0), `num_dense_layers` as in
    LFM2, first and last layer and interval as in ERNIE, period and offset as in Jamba.
    """
    if config.find(("mlp_layer_types",)):
        for key in _PATTERN_KEYS:
            config.values.get(key)  # the list has what they say
        return _sparse_by_type(config, layers)
    sparse = _sparse_by_frequency(config, layers)
    first = config.integer_or(0, ("first_k_dense_replace", "num_dense_layers"), layers)
    step = config.integer_or(1, ("decoder_sparse_step",), MAX_COUNT, low=1)
    if family is not UNKNOWN:
        sparse = _with_own_rules(config, sparse)
    excluded = _layer_set(config, "mlp_only_layers", layers)
    return [
        flag and layer >= first and (layer + 1) % step == 0 and layer not in excluded
        for layer, flag in enumerate(sparse)
    ]


def with_aliases(family: Family, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Keys of a family, and the other names that Transformers has for them."""
    if family is UNKNOWN:
        return keys
    others = (alias for aliases in ALIASES if set(aliases) & set(keys) for alias in aliases)
    return tuple(dict.fromkeys((*keys, *others)))


def without_blocks(config: Config, family: Family) -> Config:
    """A configuration without the number of its blocks, which some files have beside that of layers.

    Raises:
        InputError: it is neither the number of layers, nor twice as many.
    """
    (key,), blocks = family.layers, "num_hidden_layers"
    if config.find((key,)) and config.find((blocks,)):
        layers, found = config.integer((key,), MAX_COUNT), config.integer((blocks,), MAX_COUNT)
        if found not in (layers, 2 * layers):
            raise config.error(blocks, f"{found} are not two blocks for each of {layers} layers", "conflict")
        plain = {name: value for name, value in config.values.items() if name != blocks}
        return config.within(plain, config.prefix)
    return config


def read_layers(
    config: Config, family: Family, blocks: list[str], routed: int
) -> tuple[int, tuple[int, ...]]:
    """The number of layers, and those without experts."""
    keys = family.layers if family.two_blocks else with_aliases(family, family.layers)
    layers = len(blocks) or config.integer(keys, MAX_COUNT)
    dense = _dense_layers(config, family, layers, blocks) if routed else tuple(range(layers))
    if family.two_blocks:  # the first block of a layer has its experts
        return 2 * layers, tuple(sorted({2 * layer for layer in dense} | set(range(1, 2 * layers, 2))))
    return layers, dense
