"""Counts of selections, [layer][expert], which are bundled or in files of users.

A file is CSV (see below), JSON, or a file of ``torch.save``. JSON is a list of lists, an object with
`counts` (a list of lists, or several by the name of their data), or an object with `expert_popularity`, as
Fiddler writes it. An object may have the numbers of its layers in the model (`layers`), the number of layers
of the model (`model_layers`), and the number of experts that a token chooses (`experts_per_token` or
`top_k`).

Parquet has a row for each layer and expert, as AISimulate publishes them (ai-dynamo/aisimulate,
`model_expert_popularity.parquet`): `layer_id`, `expert_id`, `activation_count`, `routed_token_count`. It
needs pyarrow.

SGLang's recorder in the mode `stat` and its ``--init-expert-location`` have `logical_count`, in JSON or by
``torch.save``: [layer][expert], or [step][layer][expert], over all layers of the model. Its steps are added,
and its layers without selections are dense.

CSV has one of these forms:

| header | a row |
|---|---|
| ``layer,expert_0,expert_1,...`` | a layer: the count of each expert |
| ``layer,expert,count`` | a layer and an expert; experts without a row were never selected |
| none | a layer, from layer 0 in the first row: the count of each expert |
Headers may also have the names `layer_id`, `expert_id`, and `selections` or `tokens` for `count`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import imported
from ndpsim.base.arrays import as_array, checked
from ndpsim.base.errors import InputError, shortened, shown, unknown
from ndpsim.base.text_files import first_bytes, numbered_lines, read_json
from ndpsim.workload.routing.tensors import read_saved, saved_mentions
from ndpsim.workload.routing.trace import MAX_EXPERTS

BUNDLED = Path(__file__).parent / "data"

_LARGEST = 1 << 53
_KEYS = ("counts", "expert_popularity")
_OF_SGLANG = "logical_count"
_COLUMNS = ("layer_id", "expert_id", "activation_count", "routed_token_count")  # of Parquet
_MAX_ROWS = 1 << 22


@dataclass(frozen=True)
class ExpertCounts:
    """The number of selections of each expert.

    Attributes:
        file: the file of the counts.
        by_data: int64 [layer, expert], by the name of the data; "" if the file has no name.
        layers: numbers of the counted layers in the model.
        model_layers: number of layers of the model; None if unknown.
        experts_per_token: experts that a token chooses; None if unknown.
        source: the source that the file states.
    """

    file: str
    by_data: Mapping[str, NDArray[np.int64]]
    layers: tuple[int, ...]
    model_layers: int | None
    experts_per_token: int | None
    source: str

    def table(self, data: str) -> NDArray[np.int64]:
        """The counts of `data`; the first ones if it is empty.

        Raises:
            InputError: no counts have this name.
        """
        if not data:
            return next(iter(self.by_data.values()))
        if data not in self.by_data:
            raise unknown(data, self.by_data, "data", file=self.file, key="data")
        return self.by_data[data]


def bundled_counts() -> list[str]:
    """Names of the models whose counts are bundled."""
    return sorted(file.stem for file in BUNDLED.glob("*.json"))


def read_counts(path: Path) -> ExpertCounts:
    """Counts from a file.

    Raises:
        InputError: the file cannot be read or does not hold counts.
    """
    head = first_bytes(path)
    if is_parquet(head):
        content: Any = _of_parquet(path)
    elif is_csv(head):
        content = read_csv(path)
    else:
        content = read_saved(path) if has_counts_of_torch(path, head) else read_json(path)
    return parse_counts(content, str(path))


def is_parquet(head: bytes) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    return head.startswith(b"PAR1")


def _of_parquet(path: Path) -> dict[str, Any]:
    """A Parquet file in the form of other files.

    Raises:
        InputError: pyarrow is missing, or the file is damaged, too large or lacks a column.
    """
    parquet = imported("pyarrow.parquet", "pip install pyarrow")
    try:
        file = parquet.ParquetFile(path)
        names, rows = file.schema_arrow.names, file.metadata.num_rows
        lacking = next((name for name in _COLUMNS if name not in names), "")
        table = None if lacking or rows > _MAX_ROWS else file.read(columns=list(_COLUMNS))
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise InputError(f"is no Parquet file: {shortened(str(error))}", "form", file=path) from None
    if lacking:
        raise InputError("is no column of this Parquet file", "missing", file=path, key=lacking)
    if table is None:
        raise InputError(f"has {rows:,} rows, and at most {_MAX_ROWS:,} are read", "too-large", file=path)
    return _dense_counts(table, path)


def _dense_counts(table: Any, path: Path) -> dict[str, Any]:
    """Counts of all layers and experts from a table with a row for each.

    Raises:
        InputError: a column has other values, or a row comes twice.
    """
    columns = {name: checked(table[name].to_numpy(), ("row",), path, name) for name in _COLUMNS}
    layers, rows = np.unique(columns["layer_id"], return_inverse=True)
    experts = columns["expert_id"]
    if experts.min() < 0 or experts.max() >= MAX_EXPERTS or layers.min() < 0:
        raise InputError(f"is not from 0 to {MAX_EXPERTS - 1}", "range", file=path, key="expert_id")
    counts = np.zeros((len(layers), int(experts.max()) + 1), np.int64)
    if len(np.unique(rows * counts.shape[1] + experts)) < len(experts):
        raise InputError("has a layer and an expert again", "twice", file=path, key="expert_id")
    counts[rows, experts] = columns["activation_count"]
    tokens, k = int(columns["routed_token_count"][0]), 0
    if tokens > 0 and (counts.sum(axis=1) % tokens == 0).all():
        k = int(counts[0].sum()) // tokens
    return {"counts": counts.tolist(), "layers": layers.tolist()} | ({"experts_per_token": k} if k else {})


def has_counts_of_torch(path: Path, head: bytes) -> bool:
    """Whether a file of ``torch.save`` has counts of SGLang."""
    return head.startswith(b"PK") and saved_mentions(path, _OF_SGLANG.encode())


def _of_sglang(value: Any, file: str) -> dict[str, Any]:
    """`logical_count` in the form of other files.

    Raises:
        InputError: it has another form.
    """
    array = as_array(value)
    if array.ndim not in (2, 3) or array.dtype.kind not in "iu" or not array.size or array.min() < 0:
        found = f"is {array.dtype} of shape {shown(array.shape)}"
        problem = f"{found}, not counts [layer][expert] or [step][layer][expert]"
        raise InputError(problem, "form", file=file, key=_OF_SGLANG)
    table = array.reshape(-1, *array.shape[-2:]).astype(np.float64).sum(axis=0)
    layers = np.flatnonzero(table.any(axis=1)).tolist()
    if not layers:
        raise InputError("has no selections", "invalid", file=file, key=_OF_SGLANG)
    return {"counts": table[layers].tolist(), "layers": layers, "model_layers": len(table)}


def parse_counts(content: Any, file: str) -> ExpertCounts:
    """Counts from the content of a file.

    Raises:
        InputError: the content is not counts.
    """
    values = content if isinstance(content, dict) else {"counts": content}
    if _OF_SGLANG in values:
        values = {**values, **_of_sglang(values[_OF_SGLANG], file)}
    key = next((key for key in _KEYS if key in values), None)
    if key is None:
        raise InputError(f"has neither {' nor '.join((*_KEYS, _OF_SGLANG))}", "missing", file=file)
    tables = values[key] if isinstance(values[key], dict) else {"": values[key]}
    by_data = {str(data): _table(table, f"{key}.{data}".rstrip("."), file) for data, table in tables.items()}
    if not by_data:
        raise InputError("is empty", "form", file=file, key=key)
    shapes = {table.shape for table in by_data.values()}
    if len(shapes) > 1:
        raise InputError(f"has tables of different shapes: {sorted(shapes)}", "form", file=file, key=key)
    rows = next(iter(shapes))[0]
    layers = values.get("layers", list(range(rows)))
    ascending = isinstance(layers, list) and all(type(layer) is int and layer >= 0 for layer in layers)
    if not ascending or len(layers) != rows or layers != sorted(set(layers)):
        raise InputError(
            f"is not {rows} layers of a model in ascending order", "form", file=file, key="layers"
        )
    return ExpertCounts(
        file,
        by_data,
        tuple(layers),
        _whole(values, "model_layers", layers[-1] + 1, file),
        _whole(values, "experts_per_token" if "experts_per_token" in values else "top_k", 1, file),
        str(values.get("source", file)),
    )


def _whole(values: Mapping[str, Any], key: str, least: int, file: str) -> int | None:
    value = values.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise InputError(f"{shown(value)} is not a whole number from {least}", "range", file=file, key=key)
    return value


def _table(table: Any, key: str, file: str) -> NDArray[np.int64]:
    if not isinstance(table, list) or not table or not all(isinstance(row, list) and row for row in table):
        raise InputError("is not a list of layers with a count for each expert", "form", file=file, key=key)
    for layer, row in enumerate(table):
        if len(row) != len(table[0]):
            problem = f"has {len(row)} experts, and row 0 has {len(table[0])}"
            raise InputError(problem, "form", file=file, key=f"{key}[{layer}]")
        for expert, count in enumerate(row):
            whole = type(count) is int or (type(count) is float and count.is_integer())
            if not whole or not 0 <= count <= _LARGEST:
                problem = f"{shown(count)} is not a count"
                raise InputError(problem, "range", file=file, key=f"{key}[{layer}][{expert}]")
        if not any(row):
            raise InputError("has no selections", "invalid", file=file, key=f"{key}[{layer}]")
    if len(table[0]) > MAX_EXPERTS:
        raise InputError(
            f"has {len(table[0])} experts, more than {MAX_EXPERTS}", "too-large", file=file, key=key
        )
    return np.array(table, np.int64)


_BY_LAYER = re.compile(r"layer(_id)?(,expert_\d+)+")
_BY_EXPERT = re.compile(r"layer(_id)?,expert(_id)?,(count|selections|tokens)")
_NUMBERS = re.compile(r"\d[\d.e+]*(,\d[\d.e+]*)+", re.ASCII)


def is_csv(head: bytes) -> bool:
    """Whether a file is CSV of counts, by its first bytes."""
    first = _bare(head.decode("utf-8-sig", "replace").lstrip().partition("\n")[0])
    return any(form.fullmatch(first) for form in (_BY_LAYER, _BY_EXPERT, _NUMBERS))


def read_csv(path: Path) -> dict[str, Any]:
    """Counts and layers of a CSV file, in the form of the JSON file.

    Raises:
        InputError: it cannot be read or does not hold counts.
    """
    rows = [(line, _bare(text)) for line, text in numbered_lines(path)]
    header = rows[0][1]
    counts: Counter[tuple[int, int]] = Counter()
    for number, (line, text) in enumerate(rows[0 if _NUMBERS.fullmatch(header) else 1 :]):
        cells = text.split(",")
        if len(cells) != header.count(",") + 1:
            problem = f"has {len(cells)} columns, and the first line has {header.count(',') + 1}"
            raise InputError(problem, file=path, line=line, code="form")
        numbers = [_count(cell, path, line) for cell in cells]
        if _BY_EXPERT.fullmatch(header):
            counted = {(numbers[0], numbers[1]): numbers[2]}
        else:
            layer = numbers.pop(0) if _BY_LAYER.fullmatch(header) else number
            counted = {(layer, expert): count for expert, count in enumerate(numbers)}
        if counted.keys() & counts.keys():
            layer, expert = min(counted.keys() & counts.keys())
            problem = f"has layer {layer}, expert {expert} again"
            raise InputError(problem, file=path, line=line, code="twice")
        counts.update(counted)
    layers = sorted({layer for layer, _ in counts})
    experts = 1 + max((expert for _, expert in counts), default=-1)
    if experts > MAX_EXPERTS:
        problem = f"has expert {experts - 1}, and the largest possible is {MAX_EXPERTS - 1}"
        raise InputError(problem, file=path, code="too-large")
    return {
        "counts": [[counts[layer, expert] for expert in range(experts)] for layer in layers],
        "layers": layers,
    }


def _bare(text: str) -> str:
    return text.strip().replace(" ", "").replace('"', "")


def _count(text: str, path: Path, line: int) -> int:
    try:
        return int(text) if text.isdigit() else _exact(float(text))
    except ValueError:
        problem = f"{shown(text)} is not a whole number from 0"
        raise InputError(problem, file=path, line=line, code="range") from None


def _exact(value: float) -> int:
    if value < 0 or not value.is_integer():
        raise ValueError
    return int(value)
