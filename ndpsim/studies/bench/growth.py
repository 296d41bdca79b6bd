"""How processor time grows with the size of the work, in one direction at a time."""

from __future__ import annotations

import functools
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ndpsim
from ndpsim.base.arguments import progress_function
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.studies.bench.row import best_seconds, rows_named

_SEED = 7
_QUEUED = 20_000  # requests where something else grows
_DEEP, _SMALL = "qwen3-235b-a22b", "qwen3-30b-a3b"


@dataclass(frozen=True)
class GrowthRow:
    """Work that grows in one direction.

    Attributes:
        name: the direction: what there is more and more of.
        about: the work, in a few words.
        sizes: how many of it, from small to large.
        work: makes the call that is measured; what it makes before is not.
    """

    name: str
    about: str
    sizes: Sequence[int]
    work: Callable[[int], Callable[[], Any]]


@dataclass(frozen=True)
class GrowthResult:
    """A measured row.

    Attributes:
        name, about, sizes: as in `GrowthRow`.
        cpu_s: processor time of each size, of all threads; the best of several runs.
    """

    name: str
    about: str
    sizes: Sequence[int]
    cpu_s: Sequence[float]

    @property
    def exponents(self) -> Sequence[float]:
        """The power of the size with which time grows to the next size: 1 where it is proportional."""
        pairs = zip(self.sizes, self.sizes[1:], self.cpu_s, self.cpu_s[1:], strict=False)
        return [math.log(s2 / s1) / math.log(n2 / n1) for n1, n2, s1, s2 in pairs]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "exponents": self.exponents}


def _trace(random: bool, requests: int = _QUEUED, **options: Any) -> Callable[[], Any]:
    """Reads of all of a channel's banks, in sequence or at random."""
    lines = np.arange(requests, dtype=np.int64)
    if random:
        lines = np.random.default_rng(_SEED).integers(0, 1 << 26, requests)
    return functools.partial(
        ndpsim.run_trace, (64 * lines, np.zeros(requests, np.int8)), wrap=True, **options
    )


@functools.cache
def _results() -> ResultCache:
    """Results that runs share, in memory alone."""
    return ResultCache(disk_bytes=0)


def _moe(model: str = _SMALL, batch: int = 64, steps: int = 2, **options: Any) -> Callable[[], Any]:
    shared: dict[str, Any] = {"cache": _results(), "bounds": False}
    return functools.partial(
        ndpsim.run_moe, "trimoe", model, ["balance"], batch=batch, steps=steps, **shared, **options
    )


def _served(requests: int) -> Callable[[], Any]:
    arrivals = f"poisson:rate=200,requests={requests},input_tokens=16,output_tokens=8"
    shared: dict[str, Any] = {"cache": _results(), "gpu_experts": 64}
    return functools.partial(ndpsim.run_serving, "trimoe", _SMALL, arrivals, "balance", **shared)


def _opened(points: int) -> Callable[[], Any]:
    """Open a finished sweep again; its folder goes with the function."""
    folder = tempfile.TemporaryDirectory(prefix="ndpsim-growth-")
    vary = {"shape": ["64,64"], "tokens": list(range(1, points + 1))}

    def sweep() -> None:
        ndpsim.sweep("gemv", vary, out=f"{folder.name}/sweep", jobs=1)

    sweep()
    return sweep


_POWERS = [10**power for power in range(8)]
_READS = f"{_QUEUED:,} random reads"

GROWTH_ROWS: Sequence[GrowthRow] = (
    GrowthRow("reads-in-turn", "contiguous reads of a channel", _POWERS[4:], lambda n: _trace(False, n)),
    GrowthRow("reads-at-random", "random reads of a channel", _POWERS[3:7], lambda n: _trace(True, n)),
    GrowthRow(
        "queue",
        f"slots of the queue, {_READS}",
        [8, 16, 32, 64, 128, 256, 512],
        lambda n: _trace(True, read_buffer=n),
    ),
    GrowthRow("ranks", f"ranks, {_READS}", [1, 2, 4, 8], lambda n: _trace(True, ranks=n)),
    GrowthRow(
        "channels",
        f"channels, {_READS} of each",
        [1, 2, 4, 8, 16],
        lambda n: _trace(True, n * _QUEUED, channels=n, jobs=1),
    ),
    GrowthRow(
        "tokens",
        f"tokens of an expert of {_DEEP} on trimoe",
        _POWERS[:4],
        lambda n: functools.partial(ndpsim.simulate_expert, "trimoe", _DEEP, n),
    ),
    GrowthRow(
        "layers", f"layers of {_DEEP}, two steps", [1, 3, 9, 27, 81], lambda n: _moe(_DEEP, layers=range(n))
    ),
    GrowthRow("batch", f"sequences of a step of {_SMALL}", _POWERS[:4], lambda n: _moe(batch=n)),
    GrowthRow("steps", f"steps of {_SMALL}", [1, 4, 16, 64], lambda n: _moe(steps=n)),
    GrowthRow(
        "context",
        f"tokens of context of a sequence of {_SMALL}",
        _POWERS[3:7],
        lambda n: _moe(context=n, batch=1, kv="host"),
    ),
    GrowthRow("requests", f"requests that {_SMALL} serves, eight tokens each", _POWERS[1:4], _served),
    GrowthRow("points", "points of a finished sweep that is opened again", _POWERS[1:4], _opened),
)


def run_growth(
    rows: Sequence[str] = (), repeat: int = 3, progress: Callable[[float], None] | bool | None = None
) -> list[GrowthResult]:
    """Measure rows of `GROWTH_ROWS`, after a first run of each size that is not measured.

    Args:
        rows: names; none: all.
        repeat: number of measured runs; the best is used.
        progress: called with the share of sizes done.

    Raises:
        InputError: there is no such row.
    """
    progress = progress_function(progress)
    chosen = rows_named(rows, GROWTH_ROWS)
    left = total = sum(len(row.sizes) for row in chosen)
    found = []
    for row in chosen:
        seconds = []
        for size in row.sizes:
            progress(1 - left / total)
            call = row.work(size)
            call()
            seconds.append(best_seconds(call, repeat, time.process_time))
            left -= 1
        found.append(GrowthResult(row.name, row.about, list(row.sizes), seconds))
    return found
