"""DynaNDE's routing traces: CSV with the scores of all experts, ``layer_id,token_id,expert_0,expert_1,...``.

Source: the trace generator of DynaNDE, a fork of NeuPIMs; its reader takes the k experts with the highest
scores. Files of several layers and of several token positions belong together; a repeated layer or token
begins the next step. Its published samples have layer 0 in each row, and the layer in the name of the file:
if all names have one, and they differ, that of the name counts. If k is not given, it is the number of scores
above 0, which must be equal for all tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.routing.recorded import Passes, Recorded, RoutingFormat, Stated, assembled

_HEADER = ["layer_id", "token_id", "expert_0"]
_NAMED = re.compile(r"layer_?(\d{1,4})(?!\d)", re.ASCII | re.IGNORECASE)


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    passes, experts, k = Passes(), 0, stated.k
    layer_before, token_before = -1, -1
    named = _layers_of_names(paths)
    for path in paths:
        for line, text in numbered_lines(path):
            cells = [cell.strip() for cell in text.split(",")]
            if line == 1 and cells[:3] == _HEADER:
                continue
            layer, token, scores = _row(cells, path, line)
            layer = layer or named.get(path, 0)
            experts = experts or len(scores)
            if len(scores) != experts:
                problem = f"{len(scores)} experts, and {experts} in the rows before"
                raise InputError(problem, "form", file=path, line=line)
            k = k or int((scores > 0).sum())
            chosen = np.argsort(-scores, kind="stable")[:k]
            _check_choice(scores, chosen, k, stated.k is None, path, line)
            again = layer == layer_before and token <= token_before
            passes.add(layer, chosen, f"the step from line {line} on", scores[chosen], again)
            layer_before, token_before = layer, token
    return assembled(passes.found, paths[0], experts=experts)


def _layers_of_names(paths: Sequence[Path]) -> dict[Path, int]:
    """The layer in the name of each file; none if a file has none, or all have the same."""
    found = {path: _NAMED.search(path.name) for path in paths}
    layers = {path: int(match[1]) for path, match in found.items() if match}
    return layers if len(layers) == len(found) and len(set(layers.values())) > 1 else {}


def _row(cells: list[str], path: Path, line: int) -> tuple[int, int, NDArray[Any]]:
    try:
        layer, token = int(cells[0]), int(cells[1])
        scores = np.array(cells[2:], np.float64)
    except (ValueError, IndexError):
        problem = "is not a layer, a token and a score for each expert, separated by commas"
        raise InputError(problem, "form", file=path, line=line) from None
    if layer < 0 or token < 0 or not len(scores):
        raise InputError("is not a layer and a token from 0, and scores", "form", file=path, line=line)
    if not np.isfinite(scores).all():
        expert = int(np.argmin(np.isfinite(scores)))
        raise InputError(
            f"{cells[2 + expert]} is no finite score", "type", file=path, line=line, key=f"expert_{expert}"
        )
    return layer, token, scores


def _check_choice(
    scores: NDArray[Any], chosen: NDArray[Any], k: int, counted: bool, path: Path, line: int
) -> None:
    above = int((scores > 0).sum())
    if counted and above != k:
        problem = (
            f"{above} scores are above 0, and {k} in the rows before; say how many experts a token chooses"
        )
        raise InputError(problem, "missing", file=path, line=line)
    if above < k or len(chosen) < k:
        raise InputError(
            f"{above} scores are above 0, and a token chooses {k} experts", "conflict", file=path, line=line
        )


FORMAT = RoutingFormat(
    example="0,17,0.000000,0.123456,0.000000,0.876544",
    meaning="CSV of DynaNDE, columns layer_id,token_id,expert_0,...: the scores of all experts",
    recognises=lambda path, head: (
        head.removeprefix(b"\xef\xbb\xbf").replace(b" ", b"").startswith(",".join(_HEADER).encode())
    ),
    read=_read,
)
