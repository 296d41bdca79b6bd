"""Imports recorded routing of other programs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import choice, path_of, several, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.plugins import plugins_by_module
from ndpsim.base.text_files import first_bytes, recognised
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.routing import formats as _folder
from ndpsim.workload.routing.file import is_routing_file
from ndpsim.workload.routing.recorded import Recorded, RoutingFormat, Stated
from ndpsim.workload.routing.trace import MAX_EXPERTS, Routing


@functools.cache
def routing_formats() -> dict[str, RoutingFormat]:
    """All formats of recorded routing by name."""
    return plugins_by_module(_folder, "FORMAT")


def import_routing(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    format: str | None = None,
    model: str | PathLike[str] | MoeShape | None = None,
    experts: int | None = None,
    experts_per_token: int | None = None,
    steps: int | None = None,
) -> Routing:
    """Turn another program's record of routing into a trace.

    >>> ndpsim.import_routing(["routed_experts.npz"], model="qwen3-30b-a3b")  # doctest: +SKIP

    Args:
        files: one, or several that belong together, as the format says.
        format: a name of `routing_formats`; None: it is detected.
        model: the model of the record: a bundled name or a config.json. Its number of experts, layers and
            experts for each token must equal those of the files. Layers are numbered as in the model.
        experts: experts of a layer, if no model is given; by default as the files say, else the largest id
            plus one.
        experts_per_token: if the files do not say it, and no model is given.
        steps: decode steps to take, the first ones; None: all.

    Raises:
        InputError: a file cannot be read, has no known format, or has impossible content.
    """
    single = isinstance(files, str | PathLike)
    paths = [path_of(files, "files")] if single else list(several(files, "files", path_of))
    if not paths:
        raise InputError("there is no file", "missing", key="files")
    shape = None if model is None else load_model(model)
    if shape is not None and (experts is not None or experts_per_token is not None):
        raise InputError(
            "cannot be given with a model, which sets it", "conflict", key="experts or experts_per_token"
        )
    stated = Stated(
        shape,
        _number(experts_per_token, "experts_per_token", MAX_EXPERTS),
        _number(steps, "steps", 1 << 24),
    )
    if format is None:
        name = _detected(paths[0])
    else:
        name = choice(format, "format", routing_formats(), "format of routing")
    recorded = routing_formats()[name].read(paths, stated)
    source: dict[str, Any] = {"imported": name, "files": [path.name for path in paths]}
    try:
        recorded = _numbered(_first_steps(recorded, stated.steps), shape)
        number = _number(experts, "experts", MAX_EXPERTS)
        trace = _trace(recorded, shape, number, source)
        return trace if shape is None else trace.for_model(shape, layers=trace.layers)
    except InputError as error:
        if error.key in ("experts", "steps"):
            raise
        raise error.at(paths[0]) from None


def _number(value: int | None, name: str, most: int) -> int | None:
    return None if value is None else whole_number(value, name, 1, most)


def _detected(path: Path) -> str:
    first_bytes(path)  # an unreadable file has its own error
    if is_routing_file(path):
        raise InputError("is a routing trace of ndpsim already", "conflict", file=path)
    return recognised(path, routing_formats(), "routing-formats")


def _first_steps(recorded: Recorded, steps: int | None) -> Recorded:
    if steps is None:
        return recorded
    if steps > len(recorded.ids):
        raise InputError(
            f"{steps} is more than the {len(recorded.ids)} decode steps of the files", "range", key="steps"
        )
    scores = None if recorded.scores is None else recorded.scores[:steps]
    return replace(recorded, ids=recorded.ids[:steps], scores=scores)


def _numbered(recorded: Recorded, model: MoeShape | None) -> Recorded:
    """Layers by their numbers in the model, if the files only count them.

    Raises:
        InputError: the model has another number of layers.
    """
    if model is None or recorded.numbers_in_model:
        return recorded
    sparse = tuple(layer for layer in range(model.layers) if layer not in model.dense_layers)
    count = len(recorded.layers)
    if count == len(sparse):
        return replace(recorded, layers=sparse)
    if count != model.layers:
        problem = f"has {count} layers; {model.name} has {model.layers}, {len(sparse)} with experts"
        raise InputError(problem, "conflict")
    rows = list(sparse)

    def cut(array: NDArray[Any] | None, axis: int) -> NDArray[Any] | None:
        return None if array is None else np.take(array, rows, axis)

    return replace(
        recorded,
        layers=sparse,
        ids=np.take(recorded.ids, rows, 1),
        prefill_ids=cut(recorded.prefill_ids, 0),
        scores=cut(recorded.scores, 1),
        prefill_scores=cut(recorded.prefill_scores, 0),
    )


def _trace(
    recorded: Recorded, model: MoeShape | None, experts: int | None, source: dict[str, Any]
) -> Routing:
    notes = list(recorded.notes)
    number = model.choices if model is not None else experts or recorded.experts
    if number is None:
        arrays = (array for array in (recorded.ids, recorded.prefill_ids) if array is not None and array.size)
        number = 1 + max(int(array.max()) for array in arrays)
        notes.append(f"{number} experts, as the largest id says; give the model, or the number")
    if notes:
        source = source | {"notes": notes}
    return Routing(
        number,
        recorded.layers,
        recorded.ids,
        recorded.prefill_ids,
        recorded.prompt_lengths,
        recorded.scores,
        recorded.prefill_scores,
        source,
    )
