"""Counts of selections as CSV.

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
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.routing.trace import MAX_EXPERTS

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
