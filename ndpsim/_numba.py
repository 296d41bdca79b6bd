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
from functools import partial
from typing import Any

from ndpsim.errors import InputError

__all__ = [
    "CompileResult",
    "KernelCompiler",
    "PartCompiler",
    "dumps",
    "event",
    "extending",
    "inner_steps",
    "intrinsic",
    "ir",
    "numba",
    "templates",
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
        from llvmlite import binding, ir
        from numba import extending
        from numba._dynfunc import make_function
        from numba.core import codegen, dispatcher, event, typed_passes, types, untyped_passes
        from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
        from numba.core.compiler_machinery import PassManager, register_pass
        from numba.core.serialize import dumps
        from numba.core.typed_passes import NativeLowering
        from numba.core.typing import templates
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
_pass_manager: Any = PassManager

# Numba's steps that kernels need, of some thirty.
_TYPING: Any = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
)


@_register_pass(mutates_CFG=True, analysis_only=False)
class _LowerKernel(NativeLowering):
    """Numba's step to LLVM's code, whose optimization is another."""

    _name = "lower_kernel"

    def run_pass(self, state: Any) -> bool:
        library = state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library._optimize_final_module = partial(_optimize, library)
        return self._lower(state)

    def _lower(self, state: Any) -> bool:
        lower: Any = super().run_pass
        return bool(lower(state))


def _optimize(library: Any) -> None:
    """Optimize a kernel with all its parts, once.

    Numba does it twice, the first time for the sake of reference counts, which kernels do without. Wider
    vectors than those that the fast controller asks for itself do not pay in its loops of a few turns.
    """
    config: Any = numba.config
    options: Any = binding.create_pipeline_tuning_options(speed_level=min(2, config.OPT))
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    builder: Any = binding.create_pass_builder(library._codegen._tm, options)
    builder.getModulePassManager().run(library._final_module, builder)


@_register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(_LowerKernel):
    """That step for parts of kernels: no part is run alone, so machine code is made of kernels only, and
    parts are optimized where they are.
    """

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        target = state.targetctx
        library = state.library = target.codegen().create_library(state.func_id.func_qualname)
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        library._optimize_final_module = lambda: None
        target.get_executable = _without_code
        try:
            return self._lower(state)
        finally:
            del target.get_executable


def _without_code(library: Any, descriptor: Any, environment: Any) -> Any:
    """What stands for a compiled function."""
    name = descriptor.qualname.split(".")[-1]
    return make_function(descriptor.lookup_module(), name, "", 0, environment, (library,))


class KernelCompiler(CompilerBase):
    """Numba's compiler with the steps that kernels need."""

    lowering: Any = _LowerKernel

    def define_pipelines(self) -> list[Any]:
        steps = _pass_manager("kernel")
        for step in (*_TYPING, self.lowering, typed_passes.NoPythonBackend):
            steps.add_pass(step, step.name())
        steps.finalize()
        return [steps]


class PartCompiler(KernelCompiler):
    """The same for parts of kernels."""

    lowering = _LowerPart


def _once(look_up: Any) -> Any:
    """Look up what an operator makes of numbers of the same types once, not wherever it stands."""
    found: dict[Any, Any] = {}

    def get_call_type(function: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        number = (types.Number, types.Boolean)
        of_operator = getattr(function.typing_key, "__module__", None) in ("_operator", "builtins")
        if keywords or not of_operator or not all(isinstance(kind, number) for kind in arguments):
            return look_up(function, context, arguments, keywords)
        key = (context, function.typing_key, arguments)
        if key not in found:
            found[key] = look_up(function, context, arguments, keywords), dict(function._impl_keys)
        signature, implementations = found[key]
        function._impl_keys.update(implementations)
        return signature

    return get_call_type


_functions: Any = types.BaseFunction
_looked_up = _functions.get_call_type
_functions.get_call_type = _once(_looked_up)


def inner_steps() -> Mapping[str, Callable[..., Any]]:
    """The functions of Numba, none of them public, that ndpsim replaces, wraps or calls, by name."""
    library, linker, steps = codegen.CodeLibrary, codegen.CPUCodeLibrary, DefaultPassBuilder
    return {
        "BaseFunction.get_call_type": _looked_up,
        "CPUCodeLibrary.finalize": linker.finalize,
        "CPUCodeLibrary._finalize_final_module": linker._finalize_final_module,
        "CPUCodeLibrary._optimize_final_module": linker._optimize_final_module,
        "CodeLibrary._raise_if_finalized": library._raise_if_finalized,
        "CompileResult._rebuild": CompileResult._rebuild,
        "CompileResult._reduce": CompileResult._reduce,
        "CPUCodegen._pass_builder": codegen.CPUCodegen._pass_builder,
        "DefaultPassBuilder.define_nopython_lowering_pipeline": steps.define_nopython_lowering_pipeline,
        "DefaultPassBuilder.define_typed_pipeline": steps.define_typed_pipeline,
        "DefaultPassBuilder.define_untyped_pipeline": steps.define_untyped_pipeline,
        "Dispatcher.compile": dispatcher.Dispatcher.compile,
        "Dispatcher.get_call_template": dispatcher.Dispatcher.get_call_template,
        "NativeLowering.run_pass": NativeLowering.run_pass,
    }
