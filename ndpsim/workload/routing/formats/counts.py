"""Counts of selections, [layer][expert], as a trace of tokens with exactly these loads.

Everything else is arbitrary: the trace has one step, whose tokens choose in the order of the experts.
``popularity:`` with the file generates a batch with this popularity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.workload.routing.counts import has_counts_of_torch, is_csv, is_parquet, read_counts
from ndpsim.workload.routing.recorded import Recorded, RoutingFormat, Stated

_PASSES = re.compile(rb'\[\s*\{\s*"\d')


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    path = paths[0]
    if len(paths) > 1:
        raise InputError(
            "is one of several files; counts are imported one file at a time", "unsupported", file=paths[1]
        )
    counts = read_counts(path)
    table = counts.table("")
    k = stated.k or counts.experts_per_token
    if k is None:
        problem = "has no number of experts that a token chooses; give it, or the model"
        raise InputError(problem, file=path, key="experts_per_token", code="missing")
    totals = table.sum(axis=1)
    tokens, rest = divmod(int(totals[0]), k)
    if rest or (totals != totals[0]).any():
        row = 0 if rest else int(np.argmax(totals != totals[0]))
        problem = (
            f"{totals[row]} selections, not the same multiple of {k} in every layer; "
            f"to generate tokens with this popularity, use popularity:{path}"
        )
        raise InputError(problem, "invalid", file=path, key=f"layer {counts.layers[row]}")
    if table.max() > tokens:
        row, expert = map(int, np.argwhere(table > tokens)[0])
        problem = f"{table[row, expert]} selections by {tokens} tokens, which choose each expert once"
        raise InputError(problem, "range", file=path, key=f"layer {counts.layers[row]}, expert {expert}")
    ensure_fits(16 * totals.size * int(totals[0]), f"choices of {tokens} tokens", file=path)
    notes = [f"of {', '.join(counts.by_data)}, the first is taken"] if len(counts.by_data) > 1 else []
    return Recorded(
        counts.layers,
        np.array([_tokens(row, tokens, k) for row in table])[None],
        experts=table.shape[1],
        notes=tuple(notes),
    )


def _tokens(counts: NDArray[np.int64], tokens: int, k: int) -> NDArray[np.int16]:
    """Choices [token, k] with exactly these counts, with those of an expert in sequence, column by column.

    No token chooses an expert twice, unless the expert has more selections than there are tokens.
    """
    return np.repeat(np.arange(len(counts), dtype=np.int16), counts).reshape(k, tokens).T


def _recognises(path: Path, head: bytes) -> bool:
    start = head.lstrip()
    keyed = any(f'"{key}"'.encode() in head for key in ("counts", "expert_popularity", "logical_count"))
    # A list of objects whose first key is a number has passes of tokens: see `passes_json`.
    listed = (start.startswith(b"[") and not _PASSES.match(start)) or (start.startswith(b"{") and keyed)
    return is_csv(head) or is_parquet(head) or listed or has_counts_of_torch(path, head)


FORMAT = RoutingFormat(
    example='{"experts_per_token": 2, "counts": [[2520, 2687, 2904], [2958, 2718, 2435]]}',
    meaning="JSON, CSV with columns layer,expert_0,... or layer,expert,count, Parquet of AISimulate, or "
    "logical_count of SGLang: selections of each expert; as one step with just these loads",
    recognises=_recognises,
    read=_read,
)
