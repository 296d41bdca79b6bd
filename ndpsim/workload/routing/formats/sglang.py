"""SGLang's expert distribution recorder in the mode `per_token`: a file of ``torch.save``.

Source: sgl-project/sglang, `_DetailSinglePassGatherer`. A record is a forward pass, with `topk_ids_of_layer`
[layer, token, k] over all layers of the model, -1 where a layer is dense and in columns beyond the model's k,
and `forward_mode`, 1 for prefill and 2 for decode. Ids are those of physical experts;
`last_physical_to_logical_map` has the model's experts. The modes `stat`, whose
counts are read as a popularity, and `per_pass` have no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError, shown
from ndpsim.workload.routing.recorded import Pass, Recorded, RoutingFormat, Stated, assembled
from ndpsim.workload.routing.tensors import is_saved_by_torch, read_saved

_EXTEND, _DECODE, _IDLE = 1, 2, 4  # ForwardMode


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    passes: list[Pass] = []
    experts = 0
    for path in paths:
        content = read_saved(path)
        if not isinstance(content, dict) or not isinstance(content.get("records"), list):
            problem = "has no records of tokens; record with --expert-distribution-recorder-mode per_token"
            raise InputError(problem, "form", file=path)
        physical = _map(content.get("last_physical_to_logical_map"), path)
        if physical is not None:
            experts = max(experts, int(physical.max()) + 1)
        records = enumerate(content["records"])
        passes += [pass_ for number, record in records if (pass_ := _pass(record, number, physical, path))]
    return assembled(passes, paths[0], experts=experts or None)


def _map(value: Any, path: Path) -> NDArray[Any] | None:
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size or array.min() < 0:
        problem = "is not a logical expert for each layer and physical expert"
        raise InputError(problem, "form", file=path, key="last_physical_to_logical_map")
    return array


def _pass(record: Any, number: int, physical: NDArray[Any] | None, path: Path) -> Pass | None:
    """A forward pass; None without tokens."""
    where = f"records[{number}]"
    ids = record.get("topk_ids_of_layer") if isinstance(record, dict) else None
    if not isinstance(ids, np.ndarray) or ids.ndim != 3 or ids.dtype.kind not in "iu":
        problem = "is not [layer, token, k]; record with --expert-distribution-recorder-mode per_token"
        raise InputError(problem, "form", file=path, key=f"{where}.topk_ids_of_layer")
    mode = record.get("forward_mode")
    if mode == _IDLE or not ids.shape[1]:
        return None
    if mode not in (_EXTEND, _DECODE):
        problem = f"{shown(mode)} is neither prefill ({_EXTEND}) nor decode ({_DECODE})"
        raise InputError(problem, "range", file=path, key=f"{where}.forward_mode")
    ids = ids[..., (ids != -1).any(axis=(0, 1))]
    rows = {layer: ids[layer] for layer in range(len(ids)) if (ids[layer] != -1).any()}
    if physical is not None:
        rows = {layer: _logical(chosen, layer, physical, path, where) for layer, chosen in rows.items()}
    lengths = record.get("extend_seq_lens") if mode == _EXTEND else None
    return Pass(
        f"{where}:",
        prefill=mode == _EXTEND,
        rows={layer: list(chosen) for layer, chosen in rows.items()},
        lengths=tuple(int(length) for length in lengths if length) if lengths is not None else (),
    )


def _logical(
    chosen: NDArray[Any], layer: int, physical: NDArray[Any], path: Path, where: str
) -> NDArray[Any]:
    if layer >= len(physical) or chosen.min() < 0 or chosen.max() >= physical.shape[1]:
        allowed = f"0 to {physical.shape[1] - 1}"
        problem = f"has an expert that is not from {allowed}, as many as last_physical_to_logical_map has"
        raise InputError(problem, "range", file=path, key=f"{where}.topk_ids_of_layer[{layer}]")
    mapped: NDArray[Any] = physical[layer][chosen]
    return mapped


FORMAT = RoutingFormat(
    example="expert_distribution_recorder_1760.pt: records with topk_ids_of_layer",
    meaning="SGLang's expert distribution recorder in the mode per_token, a file of torch.save",
    recognises=lambda path, head: head.startswith(b"PK") and is_saved_by_torch(path),
    read=_read,
)
