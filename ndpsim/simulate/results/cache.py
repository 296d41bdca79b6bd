"""Results of earlier calls, in memory and on disk.

The key of a result is a digest of all its inputs: the resolved hardware, weights and options of the call, the
contents of traces (not the names of files), and the version of the simulator with its sources. On disk, each
result is a JSON file in the folders that `ndpsim.base.cachedirs` describes. Files are written completely or
not at all, are valid only if their digest matches, and may be read by many processes at once.

Results of bundled machines that take longest to simulate come with ndpsim. A file of ``hwconfigs/measured``
has results by their names in the cache, which cover everything that a result depends on except the sources,
and the digest of the sources that simulated them. If the sources have changed since, nothing in it is used.
``validation/measured.py`` makes these files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import pickle
import platform
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ndpsim.base import jit
from ndpsim.base.arguments import is_flag, path_of, whole_number
from ndpsim.base.cachedirs import Entries
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Reported
from ndpsim.config.files import data_folder
from ndpsim.dram.spec import Standard
from ndpsim.dram.spec.pages import standards
from ndpsim.dram.traces import Requests
from ndpsim.simulate import results
from ndpsim.simulate.results.expert import MeanExpert
from ndpsim.simulate.results.relayout import MovedExpert
from ndpsim.simulate.results.slowdown import BesideTraffic, SlowdownTable
from ndpsim.simulate.results.stopwatch import Stopwatch

_log = logging.getLogger("ndpsim")

#: What the cache stores.
Stored = Reported | SlowdownTable | MeanExpert | MovedExpert | BesideTraffic

R = TypeVar("R", bound=Stored)

#: Packages that no simulation imports; results do not depend on them.
_WITHOUT_SIMULATION = (
    "cli/",
    "config/importers/",
    "report/",
    "studies/bench/",
    "studies/claims/",
    "studies/ramulator.py",
    "studies/search/",
)

_MOST_ENTRIES = 1 << 24
_MOST_BYTES = 1 << 50
_LARGEST_BYTES = 1 << 20  # size limit of a result in memory


def _release() -> str:
    try:
        return metadata.version("ndpsim")
    except metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def version() -> str:
    """20 hexadecimal digits that identify everything on which results depend, except a call's arguments.

    They cover the sources of the simulator, its release, and the versions of Python, NumPy and Numba.
    """
    sources = {
        path: source
        for path, source in jit.read_sources().items()
        if not path.startswith(_WITHOUT_SIMULATION)
    }
    return jit.version_of(sources, _release(), np.__version__, jit.entries().name)


def _describe() -> dict[str, str]:
    return {"ndpsim": _release(), "numpy": np.__version__, "python": platform.python_version()}


# ---- Keys, and the text of results

_TUPLE = "()"  # key of an object that represents a tuple; "Phase()" is that for a Phase
_ARRAY = "array()"  # and of one that represents an array: its type and its values


def digest_of(values: Sequence[Any]) -> str:
    """A digest of plain data, NumPy's numbers, dataclasses, hardware and requests.

    It does not depend on the order of mappings, nor on whether a number is Python's or NumPy's. It covers the
    values of hardware and the content of requests, but not the files that they were read from.

    Raises:
        TypeError: a value has another type.
    """
    text = json.dumps(values, sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _plain(value: Any) -> Any:
    """The JSON form of a value of another type."""
    from ndpsim.config import Hardware  # noqa: PLC0415 (takes its time; runs without a cache need none)

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Hardware):
        return value.digest
    if isinstance(value, Requests):
        return _digest_of_requests(value)
    if isinstance(value, Standard) and value == standards().get(value.name):
        return value.name  # the version of the cache covers its content
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"a result cannot depend on a {type(value).__name__}")


def _digest_of_requests(requests: Requests) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for name in ("address", "write", "cycle", "place"):
        column = getattr(requests, name)
        digest.update(f"{name} {None if column is None else column.shape} ".encode())
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def to_text(result: Stored) -> bytes:
    """A result as JSON, from which `from_text` makes an equal one of the same types."""
    return json.dumps(_encoded(result), separators=(",", ":")).encode()


def _encoded(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encoded(each) for each in value]
    if type(value) is tuple:
        return {_TUPLE: [_encoded(each) for each in value]}
    if type(value) is np.ndarray:
        return {_ARRAY: [value.dtype.str, value.tolist()]}
    if type(value) is dict and all(type(key) is str and not key.endswith(_TUPLE) for key in value):
        return {key: _encoded(of_key) for key, of_key in value.items()}
    name = type(value).__name__
    if getattr(results, name, None) is type(value):
        table = isinstance(value, SlowdownTable)
        parts = value if table else (getattr(value, each.name) for each in fields(value) if each.init)
        return {f"{name}{_TUPLE}": [_encoded(each) for each in parts]}
    raise TypeError(f"a result cannot be stored with a {name} in it")


def from_text(text: bytes) -> Stored:
    """The result that `to_text` wrote.

    Raises:
        ValueError, TypeError, AttributeError, RecursionError: the text is not such a result.
    """
    result = json.loads(text, object_hook=_decoded)
    if not isinstance(result, Stored):
        raise ValueError("the text is no result")
    return result


def _decoded(found: dict[str, Any]) -> Any:
    """The plain form of an object."""
    if len(found) != 1:
        return found
    ((name, parts),) = found.items()
    if name == _TUPLE:
        return tuple(parts)
    if name == _ARRAY:
        return np.array(parts[1], dtype=parts[0])
    if not name.endswith(_TUPLE):
        return found
    kind = getattr(results, name.removesuffix(_TUPLE))
    if not isinstance(kind, type) or not (is_dataclass(kind) or kind is SlowdownTable):
        raise ValueError(f"{name} is no part of a result")
    return kind(*parts)


# ---- Caches


class ResultCache:
    """Results of calls, for equal calls: ``simulate_expert(..., cache=cache)``.

    A cached result equals a computed one. Its `wall_s` and `compile_s` are those of the call that found it.
    You may change it: the cache keeps a copy. If the folder cannot be used or is full, the cache works
    without it, and the logger `ndpsim` reports that once.

    Args:
        folder: for results on disk; None: in the user's cache folder, or in ``NDPSIM_CACHE_DIR``. Other users
            must not be able to write it.
        memory_entries: results in memory, at most; 0: none.
        disk_bytes: largest size of the files in the folder, of all versions of ndpsim together; 0: no results
            on disk. A file counts as at least 4 KiB. A result larger than an eighth of `disk_bytes` stays in
            memory only. Processes that write at once may exceed `disk_bytes` by an eighth each for a moment.

    In memory and on disk, the least recently used results are evicted. Threads may share a cache, and
    processes a folder. A cache that is sent to another process has nothing in memory there.

    Results that come with ndpsim count as results on disk.

    Attributes:
        hits: calls whose result was found.
        misses: calls that had to be computed.

    Raises:
        InputError: an argument is invalid.
    """

    def __init__(
        self, folder: str | PathLike[str] | None = None, memory_entries: int = 4096, disk_bytes: int = 1 << 28
    ) -> None:
        self.hits = self.misses = 0
        self._folder = None if folder is None else Path(os.path.realpath(path_of(folder, "folder")))
        self._memory_entries = whole_number(memory_entries, "memory_entries", 0, _MOST_ENTRIES)
        self._disk_bytes = whole_number(disk_bytes, "disk_bytes", 0, _MOST_BYTES)
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultCache, (self._folder, self._memory_entries, self._disk_bytes)

    def __repr__(self) -> str:
        return f"ResultCache: {self.hits} hits, {self.misses} misses, {len(self._memory)} results in memory"

    @functools.cached_property
    def _disk(self) -> Entries:
        return Entries("results", version(), _describe, self._folder, self._disk_bytes)

    def _find(self, name: str) -> Stored | None:
        """The result with this name, or None."""
        with self._lock:
            pickled = self._memory.get(name)
            if pickled is not None:
                self._memory.move_to_end(name)
        found: Stored | None = self._find_on_disk(name) if pickled is None else pickle.loads(pickled)
        with self._lock:
            self.hits += found is not None
            self.misses += found is None
        return found

    def _find_on_disk(self, name: str) -> Stored | None:
        content = self._disk.read(name) if self._disk_bytes else None
        content = content or bundled_results().get(name)
        if content is None:
            return None
        try:
            found = from_text(content)
        except Exception as error:  # complete, but not a result
            _log.info("%s is computed again: its entry in the cache cannot be read (%s)", name, error)
            return None
        self._put_in_memory(name, found)
        return found

    def _store(self, name: str, result: Stored) -> None:
        self._put_in_memory(name, result)
        if self._disk_bytes:
            self._disk.write(name, to_text(result))

    def _put_in_memory(self, name: str, result: Stored) -> None:
        # Unpickling is the fastest way to give each call its own copy.
        pickled = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        if len(pickled) > _LARGEST_BYTES:
            return
        with self._lock:
            self._memory[name] = pickled
            self._memory.move_to_end(name)
            while len(self._memory) > self._memory_entries:
                self._memory.popitem(last=False)


@functools.cache
def _usual_cache() -> ResultCache:
    """The cache for `cache=True`, one for each process."""
    return ResultCache()


def stored_beside_results() -> Entries:
    """The entries on disk that `cache=True` uses, for data derived from results."""
    return _usual_cache()._disk


def chosen_cache(cache: bool | ResultCache) -> ResultCache | None:
    """The cache for an argument `cache`; None: no cache.

    Raises:
        InputError: the argument is neither a flag nor a cache.
    """
    if isinstance(cache, ResultCache):
        return cache
    if is_flag(cache):
        return _usual_cache() if cache else None
    raise InputError(f"{shown(cache)} is neither True, nor False, nor a ResultCache", "type", key="cache")


class Lookup(Generic[R]):
    """A call's search in a cache, which stores the result if none was found.

    Args:
        kind: the kind of the result.
        cache: the caller's argument.
        computing: whether the call always computes, and does not store its result.
        given: everything on which the result depends, for `digest_of`.
        labels: names of inputs in the result's `config`, on which nothing depends.

    Raises:
        InputError: `cache` is not a cache.
    """

    def __init__(
        self,
        kind: type[R],
        cache: bool | ResultCache,
        computing: bool,
        inputs: Sequence[Any],
        labels: Mapping[str, Any],
    ) -> None:
        chosen = chosen_cache(cache)
        self._kind, self._cache, self._labels = kind, None if computing else chosen, labels
        self._name = "" if self._cache is None else f"{kind.__name__}-{digest_of(inputs)}"

    def find(self, stopwatch: Stopwatch, progress: Callable[[float], None]) -> R | None:
        """The result, if it was computed before; it ends the call, whose duration the result has.

        Tables and costs have no duration.
        """
        if self._cache is None:
            return None
        found = self._cache._find(self._name)
        if not isinstance(found, self._kind):
            return None
        progress(0.0)
        progress(1.0)
        if not isinstance(found, Reported):
            return found
        changed: Any = {
            "config": {**found.config, **self._labels},  # type: ignore[attr-defined]
            **stopwatch.times(),
        }
        return replace(found, **changed)  # type: ignore[type-var]

    def store(self, result: R) -> R:
        """Store a result that was not found; returns it."""
        if self._cache is not None:
            self._cache._store(self._name, result)
        return result


#: The sources that simulate these results, by the beginnings of their paths.
SIMULATION = (
    "base/",
    "config/",
    "dimm/",
    "dram/",
    "inference/layers/contention.py",
    "inference/layers/location.py",
    "inference/layers/relayouts.py",
    "inference/layers/shared_dimm.py",
    "simulate/",
    "workload/models/expert.py",
)

#: Sources among them that do not: they simulate others, or what they decide is in a result's name.
OTHERS = (
    "base/options/",
    "config/importers/",
    "dimm/banks/",
    "dram/banks/",
    "dram/spec/extensions/",
    "simulate/rtl/",
)


@functools.cache
def sources_digest() -> str:
    """20 hexadecimal digits of the sources that simulate these results."""
    return jit.version_of(
        {
            path: source
            for path, source in jit.read_sources().items()
            if path.startswith(SIMULATION) and not path.startswith(OTHERS)
        }
    )


@functools.cache
def bundled_results() -> Mapping[str, bytes]:
    """The text of each result by its name, from the files of the present sources."""
    found: dict[str, Any] = {}
    for path in sorted(data_folder("hwconfigs/measured").glob("*.json")):
        file = json.loads(path.read_bytes())
        if file["sources"] == sources_digest():
            found |= file["results"]
    return {name: json.dumps(result).encode() for name, result in found.items()}
