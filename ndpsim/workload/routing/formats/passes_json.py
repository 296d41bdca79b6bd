"""Experts of single requests as the corpus of "Patterns behind Chaos" has them: JSON, a request a file.

Source: core12345/MoE_expert_selection_trace on Hugging Face (Yu et al., arXiv 2510.05497), of DeepSeek-R1,
Kimi-K2, Qwen3-235B and Llama 4. A file is a list of passes: the prompt, then each generated token. A pass
has for each layer of the model, by its number, the experts of its tokens, [token][k]; null where a layer is
dense.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import checked
from ndpsim.base.errors import InputError, shortened
from ndpsim.base.text_files import read_json
from ndpsim.workload.routing.recorded import (
    Recorded,
    RecordedSequence,
    RoutingFormat,
    Stated,
    of_sequences,
)

_AXES = ("token", "k")
_BEGIN = re.compile(rb'\s*\[\s*\{\s*"\d{1,6}"\s*:\s*(null|\[)')
_LAYER = re.compile(r"\d{1,6}", re.ASCII)


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    sequences: list[RecordedSequence] = []
    known: tuple[int, ...] | None = None
    for path in paths:
        layers, passes = _passes(path)
        if known not in (None, layers):
            raise InputError(
                f"has experts in {len(layers)} other layers than the file before", "conflict", file=path
            )
        known = layers
        generated = [tokens for tokens in passes[1:] if len(tokens)]
        sequences.append((path, passes[0], np.concatenate(generated) if generated else None))
    return of_sequences(sequences, stated, "a prompt", "generated tokens", known)


def _passes(path: Path) -> tuple[tuple[int, ...], list[NDArray[Any]]]:
    """The layers with experts, and the experts of each pass: [token, layer, k]."""
    content = read_json(path)
    if not isinstance(content, list) or not all(isinstance(entry, dict) and entry for entry in content):
        raise InputError("is not a list of passes, the prompt and each generated token", "form", file=path)
    layers: tuple[int, ...] = ()
    passes = []
    for number, entry in enumerate(content):
        rows = {_layer(key, number, path): value for key, value in entry.items() if value is not None}
        layers = layers or tuple(sorted(rows))
        if not rows or tuple(sorted(rows)) != layers:
            problem = f"has experts in {len(rows)} layers, and pass 0 in {len(layers)}"
            raise InputError(problem, "conflict", file=path, key=f"pass {number}")
        arrays = [checked(rows[layer], _AXES, path, f"pass {number}, layer {layer}") for layer in layers]
        if len({array.shape for array in arrays}) > 1:
            problem = "has layers with different numbers of tokens or of experts"
            raise InputError(problem, "conflict", file=path, key=f"pass {number}")
        if number and len(arrays[0]) != 1:
            problem = f"has {len(arrays[0])} tokens; a pass after the prompt has one"
            raise InputError(problem, "conflict", file=path, key=f"pass {number}")
        passes.append(np.stack(arrays, axis=1))
    return layers, passes


def _layer(key: str, number: int, path: Path) -> int:
    if not _LAYER.fullmatch(key):
        problem = f"{shortened(key)} is no number of a layer"
        raise InputError(problem, "form", file=path, key=f"pass {number}")
    return int(key)


FORMAT = RoutingFormat(
    example='[{"0": null, "1": [[106, 7], [89, 3]]}, {"0": null, "1": [[76, 1]]}]',
    meaning='JSON of "Patterns behind Chaos", a request a file: the experts of each pass by layer and token',
    recognises=lambda path, head: _BEGIN.match(head) is not None,
    read=_read,
)
