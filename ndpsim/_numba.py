"""What ndpsim uses of Numba, imported so that no setting of the environment makes it fail; and, in one place,
the inner steps of Numba that it changes (`inner_steps`): their next release may change them, too.

Numba reads its settings from variables of the environment, and from `.numba_config.yaml` in the working
folder, when it is imported. Those that it refuses are left out, each with a line.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ndpsim.errors import InputError

__all__ = [
    "CompileResult",
    "PartCompiler",
    "dumps",
    "event",
    "inner_steps",
    "intrinsic",
    "numba",
    "types",
]

_log = logging.getLogger("ndpsim")

# Values that Numba takes as they are, and then fails on or lets LLVM end the process for.
_USABLE = {
    "NUMBA_NUM_THREADS": re.compile(r"\s*\+?0*[1-9][0-9]{0,5}\s*"),
    "NUMBA_CPU_FEATURES": re.compile(r"([+-][\w.-]+(,[+-][\w.-]+)*)?"),
}
_REFUSED = re.compile(
    r"Environment variable '(?P<name>\w+)' .* value '(?P<value>.*?)' could not be parsed", re.S
)


def _ignore(name: str, value: str) -> None:
    os.environ.pop(name, None)
    _log.warning("%s=%s is ignored: Numba does not take this value", name, " ".join(value.split())[:60])


for _name, _form in _USABLE.items():
    if _name in os.environ and not _form.fullmatch(os.environ[_name]):
        _ignore(_name, os.environ[_name])

with warnings.catch_warnings(record=True) as _said:
    warnings.simplefilter("always")
    try:
        import numba
        from numba._dynfunc import make_function
        from numba.core import codegen, dispatcher, event, types
        from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
        from numba.core.compiler_machinery import register_pass
        from numba.core.serialize import dumps
        from numba.core.typed_passes import NativeLowering
        from numba.extending import intrinsic
    except Exception as _error:
        _reason = " ".join(f"{type(_error).__name__}: {_error}".split())[:300]
        _place = ", or .numba_config.yaml here" if os.path.lexists(".numba_config.yaml") else ""
        raise InputError(f"Numba cannot be imported with its NUMBA_ settings{_place} ({_reason})") from None

for _warning in _said:
    _refused = _REFUSED.search(str(_warning.message))
    if _refused:
        _ignore(_refused["name"], _refused["value"])
    else:
        warnings.warn_explicit(_warning.message, _warning.category, _warning.filename, _warning.lineno)


_register_pass: Any = register_pass


@_register_pass(mutates_CFG=True, analysis_only=False)
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


class PartCompiler(CompilerBase):
    """Numba's compiler with that step."""

    def define_pipelines(self) -> list[Any]:
        define: Any = DefaultPassBuilder.define_nopython_pipeline
        steps = define(self.state)
        steps.passes = [(_LowerPart if step is NativeLowering else step, name) for step, name in steps.passes]
        steps.finalize()
        return [steps]


def inner_steps() -> Mapping[str, Callable[..., Any]]:
    """The functions of Numba, none of them public, that ndpsim replaces, wraps or calls, by name."""
    library, linker = codegen.CodeLibrary, codegen.CPUCodeLibrary
    return {
        "CPUCodeLibrary.finalize": linker.finalize,
        "CPUCodeLibrary._finalize_final_module": linker._finalize_final_module,
        "CPUCodeLibrary._optimize_final_module": linker._optimize_final_module,
        "CodeLibrary._raise_if_finalized": library._raise_if_finalized,
        "CompileResult._rebuild": CompileResult._rebuild,
        "CompileResult._reduce": CompileResult._reduce,
        "DefaultPassBuilder.define_nopython_pipeline": DefaultPassBuilder.define_nopython_pipeline,
        "Dispatcher.compile": dispatcher.Dispatcher.compile,
        "Dispatcher.get_call_template": dispatcher.Dispatcher.get_call_template,
        "NativeLowering.run_pass": NativeLowering.run_pass,
    }
