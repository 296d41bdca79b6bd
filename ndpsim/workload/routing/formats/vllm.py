"""vLLM's `routed_experts`: int16 [tokens, moe_layers, top_k] of a request, and `prompt_routed_experts`.

Source: vLLM, ``--enable-return-routed-experts`` (docs, "Routed Experts Replay"). A file is a request: an NPY
file of `routed_experts`, an NPZ file with one or both, or the JSON response of the server, whose arrays are
nested lists, or base64 of an NPY file or of int16 with a `shape`. Each choice of a response is a sequence of
the batch.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ndpsim.base.arrays import NPY, array_names, array_of, checked, npy_of, read_npy, read_npz
from ndpsim.base.errors import InputError
from ndpsim.base.text_files import read_json
from ndpsim.workload.routing.recorded import (
    Recorded,
    RecordedSequence,
    RoutingFormat,
    Stated,
    of_sequences,
)

_DECODE, _PROMPT = "routed_experts", "prompt_routed_experts"
_AXES = ("token", "layer", "k")


def _sequences(path: Path) -> Iterator[RecordedSequence]:
    if path.suffix == ".npy":
        yield path, None, checked(read_npy(path), _AXES, path, _DECODE)
    elif path.suffix == ".npz":
        arrays = read_npz(path, lambda name: name in (_DECODE, _PROMPT))
        prompt, generated = (
            None if name not in arrays else checked(arrays[name], _AXES, path, name)
            for name in (_PROMPT, _DECODE)
        )
        yield path, prompt, generated
    else:
        yield from _response_sequences(read_json(path), path)


def _response_sequences(response: Any, path: Path) -> Iterator[RecordedSequence]:
    if not isinstance(response, dict):
        raise InputError("is not a JSON object", "form", file=path)
    prompt = _decoded(response.get(_PROMPT), path, _PROMPT)
    choices = response.get("choices", [response])
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise InputError("is not a list of JSON objects", "form", file=path, key="choices")
    for number, choice in enumerate(choices):
        yield path, prompt, _decoded(choice.get(_DECODE), path, f"choices[{number}].{_DECODE}")


def _decoded(value: Any, path: Path, key: str) -> NDArray[Any] | None:
    """An array of a response."""
    if value is None:
        return None
    if isinstance(value, str):
        return checked(npy_of(_bytes(value, path, key), path, key), _AXES, path, key)
    if isinstance(value, dict):
        content = _bytes(value.get("data"), path, f"{key}.data")
        array = array_of(content, value.get("dtype", "int16"), value.get("shape"), path, key)
        return checked(array, _AXES, path, key)
    return checked(value, _AXES, path, key)


def _bytes(text: Any, path: Path, key: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"is no text of base64 ({error})", "form", file=path, key=key) from None


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    return of_sequences(
        [sequence for path in paths for sequence in _sequences(path)], stated, _PROMPT, _DECODE
    )


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix == ".npz":
        return bool({_DECODE, _PROMPT} & set(array_names(path)))
    return head.startswith(NPY) or (
        head.lstrip().startswith(b"{") and path.suffix == ".json" and _mentions(path)
    )


def _mentions(path: Path) -> bool:
    """Whether a response contains routed experts, which are after the generated text."""
    with open(path, "rb") as file:
        return any(f'"{_DECODE}"'.encode() in part for part in iter(lambda: file.read(1 << 24), b""))


FORMAT = RoutingFormat(
    example="routed_experts.npy: int16 [tokens, moe_layers, top_k]",
    meaning="routed_experts of vLLM, a request a file: NPY, NPZ, or the JSON response",
    recognises=_recognises,
    read=_read,
)
