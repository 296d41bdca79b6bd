"""The one kernel decorator, and where its machine code is kept.

Numba's own cache watches one file a function and ignores `NUMBA_BOUNDSCHECK`: change a helper in another
file and it serves stale code. Here the cache folder is named after everything that can change the code:
every source file that kernels may import, the Numba and Python versions, and the Numba flags. The folder
lies in the user's cache, never beside the package, so a read-only installation works.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import platformdirs
from numba._dynfunc import make_function
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

__all__ = ["cache_dir", "inlined", "is_compiled", "kernel", "mark_compiled", "outlined"]

_config: Any = numba.config  # its settings are made at import, unknown to type checkers

_registered: Any = register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]

F = TypeVar("F", bound=Callable[..., Any])

#: Packages that no kernel imports: a change in them leaves the machine code as it is.
_WITHOUT_KERNELS = ("bench", "cli", "config", "importers", "moe", "peers", "report", "simulate")

_KEPT_CACHES = 4  # folders of earlier sources and flags; each is a few megabytes
_COMPILED = "compiled"


def _fingerprint() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in _WITHOUT_KERNELS:
            continue
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update(f"{numba.__version__} {sys.version}".encode())
    for name in sorted(os.environ):
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR":
            digest.update(f"{name}={os.environ[name]}".encode())
    return digest.hexdigest()[:20]


def _roots() -> list[Path]:
    chosen = os.environ.get("NDPSIM_CACHE_DIR")
    usual = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("ndpsim"))
    return [usual, Path(tempfile.gettempdir()) / f"ndpsim-{os.getuid() if hasattr(os, 'getuid') else 'u'}"]


def _prune(root: Path) -> None:
    folders = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for stale in folders[_KEPT_CACHES:]:
        shutil.rmtree(stale, ignore_errors=True)


@functools.cache
def cache_dir() -> Path | None:
    """The folder of compiled kernels for these sources and flags; None when no folder can be written."""
    name = f"kernels-{_fingerprint()}"
    for root in _roots():
        folder = root / name
        try:
            new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            if new:
                _prune(root)
            return folder
        except OSError:
            continue
    return None


class _MachineCode(FunctionCache):
    """Numba's cache, but a kernel that is in it is loaded without what only compiling needs.

    Numba first registers all it knows of types and functions, which takes longer than everything else
    before the first result. Machine code calls nothing of that, nor, without reference counts, of Numba's
    runtime; when something has to be compiled, the compiler registers it all by itself.
    """

    def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@_registered
class _LowerPart(NativeLowering):
    """Numba's step to LLVM's code, for parts of kernels: nobody runs a part alone, so machine code is made
    of kernels only, and what is inlined is optimized where it is.
    """

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        target = state.targetctx
        library = state.library = target.codegen().create_library(state.func_id.func_qualname)
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        if state.flags.forceinline:
            library._optimize_final_module = lambda: None
        target.get_executable = _without_code
        try:
            lower: Any = super().run_pass
            return bool(lower(state))
        finally:
            del target.get_executable


def _without_code(library: Any, descriptor: Any, environment: Any) -> Any:
    """What stands for a compiled function."""
    name = descriptor.qualname.split(".")[-1]
    return make_function(descriptor.lookup_module(), name, "", 0, environment, (library,))


class _PartCompiler(CompilerBase):
    """Numba's compiler with that step."""

    def define_pipelines(self) -> list[Any]:
        define: Any = DefaultPassBuilder.define_nopython_pipeline
        steps = define(self.state)
        steps.passes = [(_LowerPart if step is NativeLowering else step, name) for step, name in steps.passes]
        steps.finalize()
        return [steps]


def _compiled(function: F, folder: Path | None, **options: Any) -> F:
    compile_: Any = numba.njit
    cache: Any = _MachineCode
    compiled = compile_(nogil=True, _nrt=False, **options)(function)
    if folder is not None and not _config.DISABLE_JIT:
        before = _config.CACHE_DIR
        _config.CACHE_DIR = str(folder)
        try:
            compiled._cache = cache(function)
        finally:
            _config.CACHE_DIR = before
    return cast(F, compiled)


def kernel(function: F) -> F:
    """Compile `function` with Numba in nopython mode, without the interpreter lock, cached on disk.

    Kernels work on the arrays they are given and allocate none. That spares them Numba's reference
    counts, which otherwise cost the controller more than its work does.
    """
    return _compiled(function, cache_dir())


def _part(function: F, **options: Any) -> F:
    """A part of kernels: compiled once for all constants it is called with, and not called from Python."""
    part: Any = _compiled(
        function,
        None,
        pipeline_class=_PartCompiler,
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
    return _part(function)


def is_compiled(work: str) -> bool:
    """Whether the kernels of `work` were compiled before, so that using them costs no wait."""
    folder = cache_dir()
    cached = folder is not None and (folder / f"{_COMPILED}-{work}").exists()
    return bool(_config.DISABLE_JIT) or cached


def mark_compiled(work: str) -> None:
    """Remember that the kernels of `work` are in the cache."""
    folder = cache_dir()
    if folder is not None:
        with contextlib.suppress(OSError):  # a cache that turned read-only only costs the next run its notice
            (folder / f"{_COMPILED}-{work}").touch()
