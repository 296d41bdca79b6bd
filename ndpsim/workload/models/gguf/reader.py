"""A model's shape from the tensors of a GGUF file, and its weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.workload.models.expert import MAX_SIZE, whole_number
from ndpsim.workload.models.gguf.attention import read_attention
from ndpsim.workload.models.gguf.header import Array, Header, TensorInfo, read_header
from ndpsim.workload.models.shape import MoeShape
from ndpsim.workload.models.stored import Tensor, WeightFile

_MAX_LAYERS = 1 << 16
_MAX_PARTS = 1 << 10
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<parts>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
_IN_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+?)(?:\.weight)?")
_SINGLE_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d{1,5})")
_SHARED = re.compile(r"ffn_(gate|up|down)_(shexp|chexps)")

#: The tensors of a layer by their names without ``blk.N.`` and ``.weight``.
Layer = Mapping[str, TensorInfo]


def load_gguf(path: Path, name: str) -> tuple[MoeShape, list[Path]]:
    """The shape of the model in a GGUF file, with its weights, and the files that were read.

    A file that was split is read with its other parts. `name`: the model's name, maybe with the number of
    a part.

    Raises:
        InputError: a part is missing, a header lies, or the tensors are not those of a model that is
            understood.
    """
    headers, named = _parts(path), _PART.fullmatch(f"{name}.gguf")
    name = name if named is None else named["stem"]
    whole = replace(headers[0], tensors=tuple(info for header in headers for info in header.tensors))
    return _Model(whole, name).shape(), [header.path for header in headers]


def _parts(path: Path) -> list[Header]:
    """The headers of all parts, the first one first."""
    named = _PART.fullmatch(path.name)
    first = path if named is None else path.with_name(_part_name(named, 1))
    headers = [read_header(first)]
    count = headers[0].metadata.get("split.count", 1)
    if problem := whole_number(count, 0, _MAX_PARTS):
        raise headers[0].error("split.count", problem, "range")
    if count > 1:
        if named is None or int(named["parts"]) != count:
            problem = f"the file is one of {count} parts, and is not called NAME-00001-of-{count:05}.gguf"
            raise headers[0].error("split.count", problem)
        headers += [read_header(path.with_name(_part_name(named, number))) for number in range(2, count + 1)]
    stated = headers[0].metadata.get("split.tensors.count")
    found = sum(len(header.tensors) for header in headers)
    if stated is not None and stated != found:
        raise headers[0].error("split.tensors.count", f"is {stated}, and the parts have {found}", "conflict")
    return headers


def _part_name(named: re.Match[str], number: int) -> str:
    return f"{named['stem']}-{number:05}-of-{named['parts']}{named['suffix']}"


class _Model:
    """The tensors of a model by layers."""

    def __init__(self, header: Header, name: str) -> None:
        self._header, self._name = header, name
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise header.error("general.architecture", "missing, or no text", "missing")
        self.architecture = architecture
        blocks = self.number("block_count", _MAX_LAYERS)
        self._layers: list[dict[str, TensorInfo]] = [{} for _ in range(blocks)]
        self._single: dict[str, TensorInfo] = {}
        self._sort()
        while self._layers and any(key.startswith("nextn.") for key in self._layers[-1]):
            self._layers.pop()  # a layer that predicts further tokens
        self.hidden = self.number("embedding_length", MAX_SIZE)

    def _sort(self) -> None:
        for info in self._header.tensors:
            found = _IN_LAYER.fullmatch(info.name)
            layer = self._single if found is None else self._in_layer(int(found[1]), info)
            key = info.name.removesuffix(".weight") if found is None else found[2]
            if key in layer:
                raise self._header.error(info.name, "is given twice", "twice")
            layer[key] = info
        for layer in self._layers:
            _join_single_experts(layer)

    def _in_layer(self, number: int, info: TensorInfo) -> dict[str, TensorInfo]:
        if number >= len(self._layers):
            raise self._header.error(info.name, f"the model has {len(self._layers)} layers", "conflict")
        return self._layers[number]

    def value(self, key: str) -> Any:
        """The metadata of the architecture under `key`; None without it."""
        return self._header.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, high: int, default: int | None = None, low: int = 1) -> int:
        """A whole number of the architecture's metadata.

        Raises:
            InputError: it is missing, or no whole number from `low` to `high`.
        """
        value = self.value(key)
        if value is None and default is not None:
            return default
        if problem := "missing" if value is None else whole_number(value, low, high):
            raise self.error(key, problem, "missing" if value is None else "range")
        return int(value)

    def error(self, key: str, problem: str, code: Any = "unsupported") -> InputError:
        """The error `problem` of a key of the architecture."""
        return self._header.error(f"{self.architecture}.{key}", problem, code)

    def shape(self) -> MoeShape:
        """The shape, with the weights."""
        sparse = [number for number, layer in enumerate(self._layers) if "ffn_down_exps" in layer]
        dense = tuple(number for number in range(len(self._layers)) if number not in set(sparse))
        routed, intermediate = self._experts(sparse)
        per_token = self.number("expert_used_count", routed) if routed else 0
        shared = {self._shared(self._layers[number]) for number in sparse} or {0}
        if len(shared) > 1:
            raise self.error("expert_shared_feed_forward_length", "shared experts of layers differ in size")
        shared_size = shared.pop()
        attention, problem = read_attention(self, self._layers)
        embedding = self._single.get("token_embd")
        shape = MoeShape(
            name=self._name,
            family=self.architecture,
            source=str(self._header.path),
            hidden=self.hidden,
            expert_intermediate=intermediate,
            layers=len(self._layers),
            moe_layers=len(sparse),
            dense_layers=dense,
            dense_intermediate=self._dense(dense),
            routed_experts=routed,
            experts_per_token=per_token,
            shared_experts=self.number("expert_shared_count", routed, 1, low=0) or 1 if shared_size else 0,
            shared_intermediate=shared_size,
            hidden_act="silu",
            attention=attention,
            attention_problem=problem,
            vocabulary=self._vocabulary(embedding),
            tied_embeddings="output" not in self._single,
            context=self.number("context_length", 1 << 30, 0) or None,
        )
        return replace(shape, stored=self._weights(shape))

    def _vocabulary(self, embedding: TensorInfo | None) -> int | None:
        if embedding is not None:
            return embedding.rows
        tokens = self._header.metadata.get("tokenizer.ggml.tokens")
        return tokens.count if isinstance(tokens, Array) and tokens.count else None

    def _experts(self, sparse: list[int]) -> tuple[int, int]:
        """The number of routed experts of a layer, and their intermediate size; both 0 in a dense model."""
        stated = self.number("expert_count", _MAX_LAYERS, 0, low=0)
        found = {self._expert_sizes(number) for number in sparse}
        if len(found) > 1:
            raise self.error("expert_feed_forward_length", "experts of layers differ in size or number")
        routed, intermediate = found.pop() if found else (0, 0)
        if stated != routed:
            problem = f"is {stated}, and the tensors have {routed} experts"
            raise self.error("expert_count", problem, "conflict")
        return routed, intermediate

    def _expert_sizes(self, number: int) -> tuple[int, int]:
        layer = self._layers[number]
        down = layer["ffn_down_exps"]
        intermediate, count = down.columns, down.rows // self.hidden
        expected = {
            "ffn_gate_exps": (self.hidden, intermediate, count),
            "ffn_up_exps": (self.hidden, intermediate, count),
        }
        if "ffn_gate_up_exps" in layer:
            expected = {"ffn_gate_up_exps": (self.hidden, 2 * intermediate, count)}
        for key, sizes in (expected | {"ffn_down_exps": (intermediate, self.hidden, count)}).items():
            if key not in layer:
                problem = "missing: experts without it are not modelled"
                raise self._header.error(f"blk.{number}.{key}.weight", problem, "unsupported")
            if layer[key].sizes != sizes and layer[key].sizes != sizes[:2]:
                found, right = (" x ".join(map(str, each)) for each in (layer[key].sizes, sizes))
                problem = f"is {found}; by hidden size and intermediate size it is {right}"
                raise self._header.error(layer[key].name, problem, "conflict")
        if "ffn_up" in layer:
            problem = "a dense network beside the experts of a layer is not modelled"
            raise self._header.error(layer["ffn_up"].name, problem, "unsupported")
        return count, intermediate

    def _shared(self, layer: Layer) -> int:
        """The intermediate size of all shared experts of a layer."""
        down = layer.get("ffn_down_shexp")
        return down.columns if down is not None else 0

    def _dense(self, dense: tuple[int, ...]) -> int:
        """The intermediate size of dense layers; 0 without them."""
        sizes = set()
        for number in dense:
            layer = self._layers[number]
            if "ffn_down" not in layer or "ffn_up" not in layer:
                problem = "missing: layers without a feed-forward network are not modelled"
                raise self._header.error(f"blk.{number}.ffn_down.weight", problem, "unsupported")
            size = layer["ffn_down"].columns
            fused = layer["ffn_up"].rows == 2 * size
            if "ffn_gate" not in layer and not fused:
                problem = "missing: networks without a gate are not modelled"
                raise self._header.error(f"blk.{number}.ffn_gate.weight", problem, "unsupported")
            sizes.add(size)
        if len(sizes) > 1:
            raise self.error("feed_forward_length", f"dense layers differ in size: {sorted(sizes)[:4]}")
        return sizes.pop() if sizes else 0

    def _weights(self, shape: MoeShape) -> WeightFile:
        """Every tensor of the file."""
        tensors = []
        for info in self._header.tensors:
            found = _IN_LAYER.fullmatch(info.name)
            layer = None if found is None else int(found[1])
            kept = layer is None or layer < shape.layers
            key = info.name.removesuffix(".weight") if found is None else found[2]
            has = self._layers[layer] if layer is not None and kept else {}
            for group, share in _groups(key, has) if kept else (("others", 1),):
                tensors.append(_tensor(info, key, layer, group, share))
        return WeightFile(shape.name, shape.name, str(self._header.path), tuple(tensors))


def _tensor(info: TensorInfo, key: str, layer: int | None, group: str, share: int) -> Tensor:
    """A tensor of a file, or one of `share` equal parts of it."""
    matrices = info.sizes[2] if len(info.sizes) > 2 else 1
    rows = info.rows // matrices // share
    return Tensor(key, layer, group, info.block, matrices, rows, info.columns)


def _groups(key: str, layer: Layer) -> Iterator[tuple[str, int]]:
    """The classes of a tensor's weights, and how many share it evenly."""
    matrix = re.fullmatch(r"ffn_(gate|up|down)(?:_exps|\.\d+)", key)
    if matrix:
        yield matrix[1], 1
    elif key == "ffn_gate_up_exps":
        yield from (("gate", 2), ("up", 2))
    elif _SHARED.fullmatch(key):
        yield "shared_experts", 1
    elif key in ("ffn_gate_inp", "ffn_gate_inp_shexp"):
        yield "router", 1
    elif key in ("ffn_gate", "ffn_up", "ffn_down"):
        yield "dense_layers", 1
    elif key in ("token_embd", "output"):
        yield ("embedding" if key == "token_embd" else "head"), 1
    elif key in ("attn_k_b", "attn_v_b") and "attn_kv_b" in layer:
        yield "mla_copies", 1
    elif "norm" in key:
        yield "norms", 1
    elif key.startswith(("attn_", "ssm_")) and not key.endswith((".bias", "sinks")):
        yield "attention", 1
    else:
        yield "others", 1


def _join_single_experts(layer: dict[str, TensorInfo]) -> None:
    """Old files have a tensor for each expert: ``ffn_gate.0``. They become one of all experts."""
    single: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for key in list(layer):
        found = _SINGLE_EXPERT.fullmatch(key)
        if found:
            single[found[1]].append(layer[key])
    for key, infos in single.items():
        first = infos[0]
        if all(info.sizes == first.sizes and info.block == first.block for info in infos):
            layer[f"{key}_exps"] = replace(first, sizes=(*first.sizes[:2], len(infos)))
