"""Megatron-core's routing trace: JSON lines, one record for each step and layer, with `top_indices`.

Source: NVIDIA/Megatron-LM, `RouterTracer` and `tools/moe_routing`, which write `router_trace_rank{N}.jsonl`.
Records with `block` number the layers of the decoder from 0; older ones without it number them from 1, as
Megatron's `layer_number` does. Records of multi-token prediction (block `mtp`) are ignored. Steps before the
first one with the same number of tokens as the last one are prefill. Several files are the ranks of data
parallelism, each with its own sequences; of tensor-parallel ranks, which repeat the tokens, give one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import json_objects, json_with, whole_of
from ndpsim.workload.routing.recorded import Pass, Recorded, RoutingFormat, Stated, assembled


def _is_choice(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(type(expert) is int for expert in row)


def _choices(record: dict[str, Any], path: Path, line: int) -> list[list[int]]:
    rows: Any = record.get("top_indices")
    if not isinstance(rows, list) or not all(map(_is_choice, rows)) or len(set(map(len, rows))) != 1:
        problem = "is missing" if rows is None else "is not a list of as many experts for each token"
        raise InputError(problem, "form", file=path, line=line, key="top_indices")
    for key, actual in (("num_tokens", len(rows)), ("topk", len(rows[0]))):
        if key in record and record[key] != actual:
            problem = f"{shown(record[key])}, and top_indices has {actual}"
            raise InputError(problem, "conflict", file=path, line=line, key=key)
    chosen: list[list[int]] = rows
    return chosen


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    steps: dict[int, Pass] = {}
    from_one = False
    for path in paths:
        seen: set[tuple[int, int]] = set()
        for line, record in json_objects(path):
            if record.get("block") == "mtp":
                continue
            step, layer = (whole_of(record, key, path, line) for key in ("step", "layer"))
            if (step, layer) in seen:
                raise InputError(f"step {step} has layer {layer} twice", "twice", file=path, line=line)
            seen.add((step, layer))
            from_one |= "block" not in record
            rows = steps.setdefault(step, Pass(f"step {step}")).rows
            rows.setdefault(layer, []).extend(_choices(record, path, line))
    from_one &= all(layer > 0 for pass_ in steps.values() for layer in pass_.rows)
    passes = [steps[step] for step in sorted(steps)]
    for pass_ in passes:
        pass_.rows = {layer - from_one: rows for layer, rows in pass_.rows.items()}
    return assembled(passes, paths[0])


FORMAT = RoutingFormat(
    example='{"rank": 0, "step": 4, "layer": 1, "num_tokens": 2, "top_indices": [[3, 17], [5, 0]]}',
    meaning="JSON lines of Megatron-core, a record for each step and layer",
    recognises=json_with("top_indices"),
    read=_read,
)
