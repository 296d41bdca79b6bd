"""The one kernel decorator, and where its machine code is kept.

Kernels are compiled by `inner_steps` with a release of Numba that these were tried with, else by
`public_steps`. For those who write kernels, both are the same.

Numba's own cache watches one file a function, ignores `NUMBA_BOUNDSCHECK`, and runs what it finds: change a
helper in another file and it serves stale code, damage a file and the process ends. Here the cache folder is
named after everything that can change the code: every source file that kernels may import, the Numba and
Python versions, and the Numba flags. Damaged files and files of other users are not loaded (`cachedirs`).

The logger "ndpsim" says, at level INFO, when a kernel is compiled and when it is ready.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import logging
import os
import re
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ndpsim.base.cachedirs import Entries
from ndpsim.base.jit.releases import IS_TRIED, event, extending, numba
from ndpsim.base.plugins import outside_sources

if IS_TRIED:
    from ndpsim.base.jit import inner_steps as _steps
    from ndpsim.base.jit.references import referenced
else:
    from ndpsim.base.jit import public_steps as _steps  # type: ignore[no-redef]

_config: Any = numba.config  # its settings are made at import, unknown to type checkers

# Numba's functions have no types.
_register: Any = event.register
_intrinsic: Any = extending.intrinsic
_typeof: Any = numba.typeof

_log = logging.getLogger("ndpsim")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=tuple[Any, ...])

_HAS_KERNELS = re.compile(rb"\nfrom ndpsim\.base\.jit import (?!same_types\n)")
_IMPORTS = re.compile(r"\n *from (ndpsim[.\w]*) import (?:\(([^)]*)\)|(.*))")


def _settings() -> dict[str, str]:
    """Numba's settings that may change the code."""
    names = sorted(name for name in os.environ if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR")
    return {name: os.environ[name] for name in names}


def read_sources() -> dict[str, bytes]:
    """All modules of the package by their paths in it, ``dram/timing.py``, with plug-ins from outside."""
    package, sources = str(Path(__file__).parents[2]), {}
    for folder, _, files in os.walk(package):
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                with open(path, "rb") as source:
                    sources[os.path.relpath(path, package).replace(os.sep, "/")] = source.read()
    return sources | {path: file.read_bytes() for path, file in outside_sources()}


def version_of(sources: Mapping[str, bytes], *others: object) -> str:
    """20 hexadecimal digits of some of `read_sources`, and of versions and flags."""
    digest = hashlib.sha256(repr(others).encode(errors="surrogateescape"))
    for path in sorted(sources):
        digest.update(path.encode() + b"\0" + sources[path])
    return digest.hexdigest()[:20]


def _kernel_sources() -> dict[str, bytes]:
    """The modules with kernels, and all that they import: a change in another leaves the machine code."""
    sources = read_sources()
    paths = {
        f"ndpsim/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for path in sources
    }
    left = [path for path, source in sources.items() if _HAS_KERNELS.search(source)]
    found = dict.fromkeys(left)
    while left:
        for name in _imported(sources[left.pop()].decode()):
            path = paths.get(name)
            if path is not None and path not in found:
                found[path] = None
                left.append(path)
    return {path: sources[path] for path in found}


def _imported(source: str) -> Iterator[str]:
    """The modules that a source imports, and names of packages that may be modules."""
    for home, several, single in _IMPORTS.findall(source):
        yield home
        for name in re.findall(r"\w+", several or single):
            yield f"{home}.{name}"


def _describe() -> dict[str, Any]:
    from importlib import metadata  # noqa: PLC0415 (takes its time; needed only when something was compiled)

    return {
        "ndpsim": metadata.version("ndpsim"),
        "numba": numba.__version__,
        "python": sys.version.split()[0],
        "settings": _settings(),
    }


@functools.cache
def entries() -> Entries:
    """The cache of compiled kernels for these sources and settings."""
    version = version_of(_kernel_sources(), numba.__version__, IS_TRIED, sys.version, _settings())
    return Entries("kernels", version, _describe)


def cached_kernels() -> Counter[str]:
    """How many compiled versions of each kernel the cache has, by the kernel's full name."""
    return Counter(name.rpartition("-")[0] for name in entries().names())


def _note_kept(name: str, arguments: Any) -> None:
    """Note for `cached_kernels` a kernel of Numba's own cache, which cannot list its kernels."""
    entries().write(f"{name}-{hashlib.sha256(str(arguments).encode()).hexdigest()[:20]}", b"")


class _Compilations(event.Listener):
    """Listens to Numba and sums up the compile time of kernels; it includes the kernels that a kernel calls.

    Meanwhile Python collects no garbage by itself: searching all that is kept until a kernel is ready takes a
    seventh of the time. `inner_steps` collects that of each part, and after the kernel the rest is collected.
    """

    def __init__(self) -> None:
        self._before_s, self._began, self._depth = 0.0, 0.0, 0
        self._collects = self._freezes = False
        self.names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # of kernels

    def seconds(self) -> float:
        """The compile time so far, in all threads; Numba compiles in one thread at a time."""
        return self._before_s + (time.perf_counter() - self._began if self._depth else 0.0)

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled."""
        name = self.names.get(event.data["dispatcher"])
        if name is None:
            return
        self._depth += 1
        if self._depth == 1:
            self._collects, self._freezes = gc.isenabled(), gc.get_freeze_count() == 0
            gc.disable()
            if self._freezes:  # existing objects are not searched afterwards
                gc.freeze()
            self._began = time.perf_counter()
            _log.info("compiling %s", name, extra={"compiling": name})

    def on_end(self, event: Any) -> None:
        """A function has been compiled, or could not be compiled."""
        name = self.names.get(event.data["dispatcher"])
        if name is None:
            return
        self._depth -= 1
        if self._depth == 0:
            gc.collect()
            if self._freezes:
                gc.unfreeze()
            if self._collects:
                gc.enable()
            took = time.perf_counter() - self._began
            self._before_s += took
            if not IS_TRIED:
                _note_kept(name, event.data.get("args"))
            _log.info("compiled %s in %.1f s", name, took)


_compilations = _Compilations()
_register("numba:compile", _compilations)


def compiling_s() -> float:
    """For how many seconds this process has compiled kernels until now."""
    return _compilations.seconds()


def kernel(function: F) -> F:
    """Compile `function` with Numba in nopython mode, without the interpreter lock, cached on disk.

    Kernels work on the arrays they are given and allocate none. That spares them Numba's reference
    counts, which otherwise cost the controller more than its work does. With `NUMBA_DISABLE_JIT` they are the
    Python functions that they look like.
    """
    if _config.DISABLE_JIT:
        return _in_python(function)
    name = re.sub(r"[^\w.]", "", f"{function.__module__}.{function.__qualname__}")
    compiled = _steps.kernel(function, name, entries)
    _compilations.names[compiled] = name
    return cast(F, compiled)


def same_types(kernel: Any) -> Any:
    """A kernel for one caller, whose arguments have the same types in every call.

    Only the first call looks at them. Numba looks at each array of a named tuple in every call, which takes
    longer than many a kernel. The caller is responsible: with other types, a kernel reads what is not there.
    """
    if _config.DISABLE_JIT:
        return kernel
    code: Any = None

    def call(*arguments: Any) -> Any:
        nonlocal code
        if code is None:
            code = kernel.compile(tuple(map(_typeof, arguments)))
        return code(*arguments)

    return call


def _in_python(function: F) -> F:
    """A kernel that is not compiled: numbers overflow without a warning, and results are Python's numbers."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            outcome = function(*arguments)
        if isinstance(outcome, tuple):
            return tuple(np.asarray(part).item() for part in outcome)
        return outcome.item() if isinstance(outcome, np.generic) else outcome

    return cast(F, run)


def inlined(function: F) -> F:
    """A part of kernels that is called too often to pay for a call; it cannot be called from Python."""
    return function if _config.DISABLE_JIT else cast(F, _steps.part(function, inline=True))


def outlined(function: F) -> F:
    """`inlined` for parts that run rarely and would only crowd the code around them."""
    return function if _config.DISABLE_JIT else cast(F, _steps.part(function, inline=False))


def by_reference(cls: type[T]) -> type[T]:
    """Let kernels have a named tuple by reference, its fields read only, where ndpsim knows how.

    Its fields are integers, arrays and records, None, and tuples of these. How Numba compiles decides
    only how long that takes: what kernels read is the same.
    """
    return referenced(cls) if IS_TRIED else cls


def by_type(point: F) -> F:
    """A part of kernels that has a version for every type of its first argument.

    The version is the function with the same name in the module of the type, a named tuple.
    """
    return _chosen(point, lambda kind: getattr(_parts_of(kind), point.__name__))


def overridable(point: F) -> F:
    """As `by_type`, but a type whose module has no such function uses this one."""
    return _chosen(point, lambda kind: getattr(_parts_of(kind), point.__name__, None))


def _parts_of(kind: Any) -> Any:
    return importlib.import_module(kind.__module__)


def _chosen(point: F, part_of: Callable[[Any], Any]) -> F:
    if _config.DISABLE_JIT:
        return cast(F, lambda first, *others: (part_of(type(first)) or point)(first, *others))
    return cast(F, _steps.chosen(point, part_of))


def instruction(in_python: F, **options: Any) -> Callable[[Callable[..., Any]], F]:
    """Decorate what generates LLVM's code for a part of kernels, as Numba's `intrinsic` takes it.

    Args:
        in_python: the same in Python, for `NUMBA_DISABLE_JIT`.
        options: of `intrinsic`.
    """

    def choose(generator: Callable[..., Any]) -> F:
        if _config.DISABLE_JIT:
            return in_python
        return cast(F, _intrinsic(**options)(generator) if options else _intrinsic(generator))

    return choose
