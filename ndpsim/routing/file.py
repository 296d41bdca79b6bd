"""ndpsim's own file of a routing trace: an NPZ archive of plain arrays, without pickle.

| array | |
|---|---|
| `format`, `version` | the text ``ndpsim-routing`` and the number 1 |
| `experts` | routed experts of a layer |
| `layers` | int32 [layer]: the model's numbers, from 0, of the layers with experts |
| `ids` | int16 [step, layer, token, k]: the experts of decode tokens |
| `scores` | float32, as `ids`; may be absent |
| `prefill_ids` | int16 [layer, token, k], prompt after prompt; may be absent |
| `prompt_lengths` | int32 [sequence]: tokens of each prompt; beside `prefill_ids` |
| `prefill_scores` | float32, as `prefill_ids`; may be absent |
| `source` | JSON text: where the trace comes from |

The arrays are stored, not compressed, and carry no time: the same trace is always the same bytes.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import path_of
from ndpsim.errors import InputError, one_of
from ndpsim.files import replacing
from ndpsim.routing.arrays import member_names, read_npz
from ndpsim.routing.trace import Routing

FORMAT = "ndpsim-routing"
VERSION = 1

_NEEDED = ("format", "version", "experts", "layers", "ids", "source")
_OPTIONAL = ("scores", "prefill_ids", "prompt_lengths", "prefill_scores")


def write(routing: Routing, path: str | PathLike[str]) -> None:
    """Write a trace, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    target = path_of(path, "path")
    source = json.dumps(dict(routing.source or {}), sort_keys=True)
    arrays: dict[str, Any] = {
        "format": np.array(FORMAT),
        "version": np.int32(VERSION),
        "experts": np.int32(routing.experts),
        "layers": np.array(routing.layers, np.int32),
        "ids": routing.ids,
        "source": np.array(source),
    }
    if routing.scores is not None:
        arrays["scores"] = routing.scores
    if routing.prefill_ids is not None:
        arrays["prefill_ids"] = routing.prefill_ids
        arrays["prompt_lengths"] = np.array(routing.prompt_lengths, np.int32)
    if routing.prefill_scores is not None:
        arrays["prefill_scores"] = routing.prefill_scores
    with replacing(target) as file:
        np.savez(file, **arrays)


def is_routing_file(path: Path) -> bool:
    """Whether a file looks like one of ndpsim's own traces."""
    return {"format", "version", "ids"} <= set(member_names(path))


def load_routing(path: str | PathLike[str]) -> Routing:
    """Read a trace that `Routing.save` wrote, or ``ndpsim routing``.

    Raises:
        InputError: it cannot be read, is none, of another version, or says what cannot be.
    """
    file = path_of(path, "path")
    arrays = read_npz(file, lambda name: True)
    for name in arrays:
        if name not in (*_NEEDED, *_OPTIONAL):
            raise InputError(one_of(name, (*_NEEDED, *_OPTIONAL), "array"), file=file)
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        problem = f"is no routing trace of ndpsim: it has no array '{missing[0]}'; import other formats first"
        raise InputError(problem, file=file)
    if str(_single(arrays["format"], "format", "U", file)) != FORMAT:
        raise InputError(f"{arrays['format']} is not {FORMAT}", file=file, key="format")
    version = int(_single(arrays["version"], "version", "iu", file))
    if version != VERSION:
        raise InputError(
            f"{version} is not read by this ndpsim, which knows {VERSION}", file=file, key="version"
        )
    try:
        return Routing(
            int(_single(arrays["experts"], "experts", "iu", file)),
            tuple(_numbers(arrays, "layers", file)),
            arrays["ids"],
            arrays.get("prefill_ids"),
            tuple(_numbers(arrays, "prompt_lengths", file)),
            arrays.get("scores"),
            arrays.get("prefill_scores"),
            _source(str(_single(arrays["source"], "source", "U", file))),
        )
    except InputError as error:
        raise error.at(file) from None


def _single(array: NDArray[Any], name: str, kinds: str, file: Path) -> Any:
    if array.shape != () or array.dtype.kind not in kinds:
        what = "a text" if kinds == "U" else "a whole number"
        raise InputError(f"is {array.dtype} of shape {array.shape}, not {what}", file=file, key=name)
    return array[()]


def _numbers(arrays: dict[str, NDArray[Any]], name: str, file: Path) -> list[int]:
    array = arrays.get(name, np.zeros(0, np.int32))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"is {array.dtype} of {array.ndim} axes, not a list of whole numbers", file=file, key=name
        )
    return [int(one) for one in array]


def _source(text: str) -> dict[str, Any]:
    try:
        source = json.loads(text)
    except (ValueError, RecursionError):
        source = None
    if not isinstance(source, dict):
        raise InputError("is not a JSON object", key="source")
    return source
