"""ndpsim's own file of a routing trace: an NPZ archive of plain arrays, without pickle.

| array | |
|---|---|
| `format`, `version` | the text ``ndpsim-routing`` and the number 1 |
| `experts` | routed experts of a layer |
| `layers` | int32 [layer]: numbers in the model, from 0, of the layers with experts |
| `ids` | int16 [step, layer, token, k]: the experts of decode tokens |
| `scores` | float32, as `ids`; may be absent |
| `prefill_ids` | int16 [layer, token, k], prompt after prompt; may be absent |
| `prompt_lengths` | int32 [sequence]: tokens of each prompt; beside `prefill_ids` |
| `prefill_scores` | float32, as `prefill_ids`; may be absent |
| `source` | JSON text: the origin of the trace |

The arrays are not compressed and have no time of writing, so that equal traces give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import array_names, read_npy, read_npz
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.files import replacing

FORMAT = "ndpsim-routing"
VERSION = 1

_NEEDED = ("format", "version", "experts", "layers", "ids", "source")
_OPTIONAL = ("scores", "prefill_ids", "prompt_lengths", "prefill_scores")
_PLAIN = ("ids", *_OPTIONAL)


def write(trace: Mapping[str, Any], path: Path) -> None:
    """Write a trace, completely or not at all.

    trace: fields of a `Routing`, by name.

    Raises:
        InputError: the file cannot be written.
    """
    has_prefill = trace["prefill_ids"] is not None
    arrays = {
        "format": np.array(FORMAT),
        "version": np.int32(VERSION),
        "experts": np.int32(trace["experts"]),
        "layers": np.array(trace["layers"], np.int32),
        "ids": trace["ids"],
        "source": np.array(json.dumps(dict(trace["source"] or {}), sort_keys=True)),
        "scores": trace["scores"],
        "prefill_ids": trace["prefill_ids"],
        "prompt_lengths": np.array(trace["prompt_lengths"], np.int32) if has_prefill else None,
        "prefill_scores": trace["prefill_scores"],
    }
    with replacing(path) as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def is_routing_file(path: Path) -> bool:
    """Whether a file looks like one of ndpsim's own traces."""
    return {"format", "version", "ids"} <= set(array_names(path))


def plain_arrays(file: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file that another program wrote: an NPY file with `ids`, or an NPZ file with `ids` and
    perhaps `prefill_ids` and `prompt_lengths`; None: it is another file.

    Raises:
        InputError: the file cannot be read.
    """
    if file.suffix == ".npy":
        return {"ids": read_npy(file)}
    names = array_names(file) if file.suffix == ".npz" else []
    if "ids" not in names or not set(names) <= set(_PLAIN):
        return None
    return read_npz(file, lambda name: name in _PLAIN)


def read(file: Path) -> dict[str, Any]:
    """The fields of a written trace, by name, without checks of their values.

    Raises:
        InputError: the file cannot be read, is not a trace, or has another version.
    """
    arrays = read_npz(file, lambda name: True)
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        problem = f"is no routing trace of ndpsim: it has no array '{missing[0]}'"
        raise InputError(f"{problem}; 'ndpsim routing import' converts other formats", "form", file=file)
    for name in arrays:
        if name not in (*_NEEDED, *_OPTIONAL):
            raise unknown(name, (*_NEEDED, *_OPTIONAL), "array", file=file)
    if str(_single(arrays["format"], "format", "U", file)) != FORMAT:
        raise InputError(f"{arrays['format']} is not {FORMAT}", "form", file=file, key="format")
    version = int(_single(arrays["version"], "version", "iu", file))
    if version != VERSION:
        raise InputError(
            f"{version} is not read by this ndpsim, which knows {VERSION}",
            "unsupported",
            file=file,
            key="version",
        )
    return {
        "experts": int(_single(arrays["experts"], "experts", "iu", file)),
        "layers": tuple(_numbers(arrays, "layers", file)),
        "ids": arrays["ids"],
        "prefill_ids": arrays.get("prefill_ids"),
        "prompt_lengths": tuple(_numbers(arrays, "prompt_lengths", file)),
        "scores": arrays.get("scores"),
        "prefill_scores": arrays.get("prefill_scores"),
        "source": _source(str(_single(arrays["source"], "source", "U", file)), file),
    }


def _single(array: NDArray[Any], name: str, kinds: str, file: Path) -> Any:
    if array.shape != () or array.dtype.kind not in kinds:
        what = "a text" if kinds == "U" else "a whole number"
        raise InputError(f"is {array.dtype} of shape {array.shape}, not {what}", "type", file=file, key=name)
    return array[()]


def _numbers(arrays: dict[str, NDArray[Any]], name: str, file: Path) -> list[int]:
    array = arrays.get(name, np.zeros(0, np.int32))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"is {array.dtype} of {array.ndim} axes, not a list of whole numbers", "type", file=file, key=name
        )
    return [int(number) for number in array]


def _source(text: str, file: Path) -> dict[str, Any]:
    try:
        source = json.loads(text)
    except (ValueError, RecursionError):
        source = None
    if not isinstance(source, dict):
        raise InputError("is not a JSON object", "form", file=file, key="source")
    return source
