"""The one kernel decorator, and where its machine code is kept.

Numba's own cache watches one file a function, ignores `NUMBA_BOUNDSCHECK`, and runs what it finds: change a
helper in another file and it serves stale code, damage a file and the process ends. Here the cache folder is
named after everything that can change the code: every source file that kernels may import, the Numba and
Python versions, and the Numba flags. What this user did not write there, whole, is not loaded (`cachedirs`).

The logger "ndpsim" says, at level INFO, when a kernel is compiled and when it is ready.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import logging
import os
import pickle
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ndpsim._numba import (
    CompileResult,
    KernelCompiler,
    PartCompiler,
    dumps,
    event,
    intrinsic,
    numba,
    types,
)
from ndpsim.cachedirs import Entries

__all__ = [
    "by_type",
    "cached_kernels",
    "compiling_s",
    "entries",
    "inlined",
    "instruction",
    "kernel",
    "outlined",
    "overridable",
]

_config: Any = numba.config  # its settings are made at import, unknown to type checkers

# Numba's functions have no types.
_dumps: Any = dumps
_register: Any = event.register
_rebuild: Any = CompileResult._rebuild

_log = logging.getLogger("ndpsim")

F = TypeVar("F", bound=Callable[..., Any])

#: Packages that no kernel imports: a change in them leaves the machine code as it is.
_WITHOUT_KERNELS = (
    "bench",
    "claims",
    "cli",
    "config",
    "importers",
    "moe",
    "orchestrator",
    "peers",
    "policies",
    "processors",
    "report",
    "results",
    "routing",
    "simulate",
    "sweeps",
)


def _settings() -> dict[str, str]:
    """Numba's settings that may change the code."""
    names = sorted(name for name in os.environ if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR")
    return {name: os.environ[name] for name in names}


def _fingerprint() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in _WITHOUT_KERNELS:
            continue
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update(f"{numba.__version__} {sys.version}".encode())
    for name, value in _settings().items():
        digest.update(f"{name}={value}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:20]


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
    return Entries("kernels", _fingerprint(), _describe)


def cached_kernels() -> Counter[str]:
    """How many compiled versions of each kernel the cache has, by the kernel's full name."""
    return Counter(name.rpartition("-")[0] for name in entries().names())


class _MachineCode:
    """The cache of a kernel, as Numba's dispatcher asks for one.

    A kernel that is in it is loaded without what only compiling needs. Numba first registers all it knows of
    types and functions, which takes longer than everything else before the first result. Machine code calls
    nothing of that, nor, without reference counts, of Numba's runtime; when something has to be compiled, the
    compiler registers it all by itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.name = re.sub(r"[^\w.]", "", f"{function.__module__}.{function.__qualname__}")

    @property
    def cache_path(self) -> str | None:
        """The folder that is used first."""
        return next(map(str, entries().folders()), None)

    def enable(self) -> None:
        """Part of what Numba asks for."""

    disable = flush = enable

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The kernel compiled for arguments of these types, or None."""
        machine = context.codegen().magic_tuple()
        content = entries().read(self._entry(signature, machine))
        if content is None:
            return None
        try:
            made_for, on, parts = pickle.loads(content)
            return _rebuild(context, *parts) if (made_for, on) == (signature, machine) else None
        except Exception as error:  # whole, but not what this Numba can load
            _log.info("%s is compiled again: its entry in the cache cannot be loaded (%s)", self.name, error)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a kernel that was just compiled for arguments of these types."""
        if self._function.__closure__ is not None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        machine = compiled.codegen.magic_tuple()
        content = _dumps((signature, machine, compiled._reduce()))
        entries().write(self._entry(signature, machine), content)

    def _entry(self, signature: Any, machine: Any) -> str:
        digest = hashlib.sha256(f"{signature} {machine}".encode())
        digest.update(_source(self._function.__code__.co_filename) + self._function.__code__.co_code)
        return f"{self.name}-{digest.hexdigest()[:20]}"


@functools.cache
def _source(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""  # typed in


class _Compilations(event.Listener):
    """Listens to Numba and sums up how long kernels are compiled; those that one calls are part of it.

    Meanwhile no garbage is collected: Numba keeps nearly all that it makes, and looking through it takes a
    seventh of the time.
    """

    def __init__(self) -> None:
        self._before_s, self._began, self._depth, self._collects = 0.0, 0.0, 0, False

    def seconds(self) -> float:
        """Until now, in all threads; Numba compiles in one at a time."""
        return self._before_s + (time.perf_counter() - self._began if self._depth else 0.0)

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if not isinstance(cache, _MachineCode):
            return
        self._depth += 1
        if self._depth == 1:
            self._collects = gc.isenabled()
            gc.disable()
            self._began = time.perf_counter()
            _log.info("compiling %s", cache.name, extra={"compiling": cache.name})

    def on_end(self, event: Any) -> None:
        """It was compiled, or could not be."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if not isinstance(cache, _MachineCode):
            return
        self._depth -= 1
        if self._depth == 0:
            if self._collects:
                gc.enable()
            took = time.perf_counter() - self._began
            self._before_s += took
            _log.info("compiled %s in %.1f s", cache.name, took)


_compilations = _Compilations()
_register("numba:compile", _compilations)


def compiling_s() -> float:
    """For how many seconds this process has compiled kernels until now."""
    return _compilations.seconds()


def _compiled(function: F, **options: Any) -> Any:
    compile_: Any = numba.njit
    return compile_(nogil=True, _nrt=False, **options)(function)


def kernel(function: F) -> F:
    """Compile `function` with Numba in nopython mode, without the interpreter lock, cached on disk.

    Kernels work on the arrays they are given and allocate none. That spares them Numba's reference
    counts, which otherwise cost the controller more than its work does. With `NUMBA_DISABLE_JIT` they are the
    Python functions that they look like.
    """
    if _config.DISABLE_JIT:
        return _in_python(function)
    compiled = _compiled(function, pipeline_class=KernelCompiler)
    compiled._cache = _MachineCode(function)
    return cast(F, compiled)


def _in_python(function: F) -> F:
    """A kernel that is not compiled: numbers overflow in it without a word, and it returns Python's own."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            outcome = function(*arguments)
        if isinstance(outcome, tuple):
            return tuple(np.asarray(part).item() for part in outcome)
        return outcome.item() if isinstance(outcome, np.generic) else outcome

    return cast(F, run)


def _part(function: F, **options: Any) -> F:
    """A part of kernels: compiled once for all constants it is called with, and not called from Python."""
    if _config.DISABLE_JIT:
        return function
    part = _compiled(
        function,
        pipeline_class=PartCompiler,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        **options,
    )
    get_template = part.get_call_template

    def get_general_template(arguments: Any, keywords: Any) -> Any:
        return get_template(tuple(map(types.unliteral, arguments)), keywords)

    part.get_call_template = get_general_template
    return cast(F, part)


def inlined(function: F) -> F:
    """A part of kernels that is called too often to pay for a call; it cannot be called from Python."""
    return _part(function, forceinline=True)


def outlined(function: F) -> F:
    """As `inlined`, for what happens rarely and would only crowd the code around it."""
    return _part(function, forceinline=False)  # else Numba takes it from the part that calls this one


def by_type(point: F) -> F:
    """A part of kernels of which every type of its first argument has its own.

    That is the part with the same name in the module that `parts` of the type, a named tuple, names.
    """
    return _chosen(point, lambda module: getattr(module, point.__name__))


def overridable(point: F) -> F:
    """As `by_type`, but a type whose module has no such part takes this one."""
    own = inlined(point)
    return _chosen(point, lambda module: getattr(module, point.__name__, own))


def _chosen(point: F, part_of: Callable[[ModuleType], Any]) -> F:
    def of(kind: Any) -> Any:
        return part_of(importlib.import_module(kind.parts()))

    if _config.DISABLE_JIT:
        return cast(F, lambda first, *others: of(type(first))(first, *others))
    part = _compiled(point)
    part.get_call_template = lambda arguments, keywords: of(arguments[0].instance_class).get_call_template(
        arguments, keywords
    )
    part.get_overload = lambda arguments: of(arguments[0].instance_class).get_overload(arguments)
    return cast(F, part)


def instruction(in_python: F, **options: Any) -> Callable[[Callable[..., Any]], F]:
    """Decorate what generates LLVM's code for a part of kernels, as Numba's `intrinsic` takes it.

    Args:
        in_python: the same in Python, for `NUMBA_DISABLE_JIT`.
        options: of `intrinsic`.
    """

    def choose(generator: Callable[..., Any]) -> F:
        if _config.DISABLE_JIT:
            return in_python
        return cast(F, intrinsic(**options)(generator) if options else intrinsic(generator))

    return choose
