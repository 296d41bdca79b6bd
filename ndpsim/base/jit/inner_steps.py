"""The way in which kernels are compiled with the releases of Numba that it was tried with (`releases.TRIED`).

It builds on inner steps of Numba, which the next release may change: a kernel takes only the steps it
needs, is optimized once, and is loaded from its entry in the cache without what only compiling needs.
Attributes are set on objects that were made here and on no other, so what others compile is compiled as Numba
does it. `public_steps` is the other way, with the same results.
"""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import logging
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

from llvmlite import binding
from numba._dynfunc import make_function
from numba.core import (
    base,
    callconv,
    cgutils,
    codegen,
    compiler,
    dispatcher,
    interpreter,
    postproc,
    typed_passes,
    untyped_passes,
)
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.errors import NumbaError
from numba.core.lowering import BaseLower, Lower
from numba.core.rewrites import registry
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering
from numba.core.typeinfer import ConstraintNetwork
from numba.core.typing import context

from ndpsim.base.cachedirs import Entries
from ndpsim.base.jit import passes
from ndpsim.base.jit.lowering import KernelLower, KernelTarget
from ndpsim.base.jit.releases import extending, numba, types

_log = logging.getLogger("ndpsim")

# Numba's functions have no types.
_dumps: Any = dumps
_rebuild: Any = CompileResult._rebuild
_normalize_signature: Any = normalize_signature
_register_pass: Any = register_pass
_parse_assembly: Any = binding.parse_assembly
_parse_bitcode: Any = binding.parse_bitcode
_instructions: Any = vars(extending)["_Intrinsic"]

# Numba's steps that kernels need, of some thirty.
_TYPING: Any = (
    passes.Read,
    untyped_passes.FixupArgs,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    passes.Rewrite,
    passes.AssignOnce,
    typed_passes.NopythonTypeInference,
    passes.Join,
)


@_register_pass(mutates_CFG=True, analysis_only=False)
class _LowerKernel(NativeLowering):
    """Numba's step to LLVM's code, whose optimization is another."""

    _name = "lower_kernel"
    lowering_class = KernelLower

    def run_pass(self, state: Any) -> bool:
        library = state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library._optimize_functions = partial(_tidy, library._codegen)
        library._optimize_final_module = partial(_optimize, library)
        library.finalize = partial(_link_and_finalize, library)
        return self._lower(state)

    def _lower(self, state: Any) -> bool:
        lower: Any = super().run_pass
        return bool(lower(state))


def _link_and_finalize(library: Any) -> None:
    """Numba's step, after every part of a kernel is linked into it once, however many parts call it.

    LLVM links what is already called, so callers come first.
    """
    called_first: dict[Any, None] = {}
    _add_parts(library, called_first)
    others = list(reversed(called_first))[1:]
    for part_of_it in others:
        if isinstance(part_of_it, _PartLibrary):
            for bitcode in part_of_it.bitcode:
                library._final_module.link_in(_parse_bitcode(bitcode))
    library._linking_libraries = [other for other in others if not isinstance(other, _PartLibrary)]
    finalize: Any = type(library).finalize
    finalize(library)


def _add_parts(library: Any, called_first: dict[Any, None]) -> None:
    for part_of_it in library._linking_libraries:
        if part_of_it not in called_first:
            _add_parts(part_of_it, called_first)
    called_first[library] = None


class _PartLibrary(codegen.JITCodeLibrary):
    """The code of a part, as bitcode. No part runs alone, so only kernels become machine code."""

    def __init__(self, maker: Any, name: str) -> None:
        begin: Any = codegen.CodeLibrary.__init__
        begin(self, maker, name)
        self._linking_libraries: list[Any] = []
        self.bitcode: list[bytes] = []

    def add_ir_module(self, module: Any) -> None:
        """Keep a module as bitcode whose functions a kernel may drop; those not to be inlined say so."""
        text: Any = cgutils.normalize_ir_text
        for function in module.functions:
            if function.blocks and "alwaysinline" not in function.attributes:
                function.attributes.add("noinline")
        parsed = _parse_assembly(text(str(module)))
        for function in parsed.functions:
            if not function.is_declaration and function.linkage == binding.Linkage.external:
                function.linkage = "linkonce_odr"
        _tidy(self._codegen, parsed)
        self.bitcode.append(parsed.as_bitcode())
        _take_apart(module)

    def finalize(self) -> None:
        """Parts are optimized where they are."""
        self._finalized = True


def _take_apart(module: Any) -> None:
    """Break the cycles of a module, so that its memory is free at once."""
    for function in module.functions:
        for block in function.blocks:
            block.instructions.clear()
            block.terminator = None
        function.blocks.clear()
    module.globals.clear()


def _tidy(maker: Any, module: Any) -> None:
    """Make the functions of a part short before they are linked; all else is left to `_optimize`."""
    module.data_layout = maker._data_layout
    options: Any = binding.create_pipeline_tuning_options(speed_level=1)
    builder: Any = binding.create_pass_builder(maker._tm, options)
    passes: Any = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, builder)


def _optimize(library: Any) -> None:
    """Optimize a kernel with all its parts, once.

    Numba does it twice, the first time for the sake of reference counts, which kernels do without. Wider
    vectors than those that the fast controller asks for itself do not pay in its loops of a few turns, nor
    does unrolling them. Parts that are called lose the arguments that they do not use: Numba passes a tuple
    by its fields, of which most calls need a few.
    """
    config: Any = numba.config
    options: Any = binding.create_pipeline_tuning_options(speed_level=min(2, config.OPT))
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_interleaving = options.loop_unrolling = False
    builder: Any = binding.create_pass_builder(library._codegen._tm, options)
    module = library._final_module
    for function in module.functions:
        if not function.is_declaration and function.linkage == binding.Linkage.linkonce_odr:
            function.linkage = "internal"
    passes: Any = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_ipsccp_pass()
    passes.add_dead_arg_elimination_pass()
    passes.run(module, builder)
    builder.getModulePassManager().run(module, builder)


@_register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(_LowerKernel):
    """The lowering step for parts of kernels."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        target = state.targetctx
        state.library = _PartLibrary(target.codegen(), state.func_id.func_qualname)
        target.get_executable = _without_code  # of this compilation alone: a copy of Numba's
        return self._lower(state)


def _without_code(library: Any, descriptor: Any, environment: Any) -> Any:
    """Stands for a compiled function."""
    name = descriptor.qualname.split(".")[-1]
    return make_function(descriptor.lookup_module(), name, "", 0, environment, (library,))


class _Constraints(ConstraintNetwork):
    """Numba's rules for the types of one function."""

    def propagate(self, inferer: Any) -> Any:
        """Apply each rule; Numba watches each for warnings and errors, here those that fail."""
        make: Any = ConstraintNetwork
        failed = make()
        for rule in self.constraints:
            try:
                rule(inferer)
            except NumbaError:
                failed.append(rule)
        return failed.propagate(inferer)


class _Stack:
    """Numba's stack of functions whose types are being found."""

    def __init__(self, numbas: Any) -> None:
        self._numbas = numbas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numbas, name)

    def register(self, target: Any, inferer: Any, *others: Any) -> Any:
        """Begin with a function, whose rules are not known yet."""
        make: Any = _Constraints
        inferer.constraints = make()
        return self._numbas.register(target, inferer, *others)


_PLAIN = (types.Number, types.Boolean, types.Array, types.BaseTuple, types.SliceType)
_plain: Any = types.unliteral


class _Typing:
    """Numba's typing context; it remembers the result type of an operator or instruction on given types."""

    def __init__(self, numbas: Any) -> None:
        self._numbas = numbas
        self._found: dict[Any, Any] = {}
        self.callstack = _Stack(numbas.callstack)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numbas, name)

    def refresh(self) -> None:
        """Does nothing: a kernel does it once, see `KernelCompiler`."""

    def resolve_value_type(self, value: Any) -> Any:
        """The type of a constant; Numba knows operators among those that it finds nowhere else."""
        kind = self._numbas._get_global_type(value) if isinstance(value, BuiltinFunctionType) else None
        return kind or self._numbas.resolve_value_type(value)

    def resolve_function_type(self, function: Any, arguments: Any, keywords: Any) -> Any:
        """The signature with which a function is called."""
        look_up = self._numbas.resolve_function_type
        source = getattr(function, "typing_key", function)
        if keywords or not (isinstance(source, _instructions) or _is_operator(source, arguments)):
            return look_up(function, arguments, keywords)
        if isinstance(arguments[0], types.Array):  # all indices have one signature, as Numba finds it
            arguments = tuple(map(_plain, arguments))
        return self._remembered(function, arguments, partial(look_up, function, arguments, keywords))

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """The signature with which an element or part of a value is set."""
        if not isinstance(target, types.Array):
            return self._numbas.resolve_setitem(target, index, value)
        arguments = tuple(map(_plain, (target, index, value)))
        return self._remembered("setitem", arguments, partial(self._numbas.resolve_setitem, *arguments))

    def _remembered(self, function: Any, arguments: Any, look_up: Callable[[], Any]) -> Any:
        # The function keeps what was found; when others add to the function, it is another object.
        key = function, arguments
        if key not in self._found:
            self._found[key] = look_up()
        return self._found[key]


def _is_operator(source: Any, arguments: Any) -> bool:
    return getattr(source, "__module__", None) in ("_operator", "builtins") and all(
        isinstance(kind, _PLAIN) for kind in arguments
    )


_typing = functools.cache(_Typing)


class _Steps(PassManager):
    """Numba's list of steps, without its clocks, checks and messages."""

    def _runPass(self, index: int, step: Any, state: Any) -> None:  # noqa: N802 (named by Numba)
        step.analysis = self._analysis
        for run in (step.run_initialization, step.run_pass, step.run_finalizer):
            run(state)


@functools.cache
def _steps_to(lowering: Any) -> Any:
    """The steps of a kernel or a part."""
    make: Any = _Steps
    steps = make("kernel")
    for step in (*_TYPING, lowering, typed_passes.NoPythonBackend):
        steps.add_pass(step, step.name())
    steps.finalize()
    return steps


class KernelCompiler(CompilerBase):
    """Numba's compiler with the steps that kernels need.

    Numba looks for new types and functions before it compiles any function; here a kernel does, for its
    parts, too. What only compiling needs is let go at once.
    """

    lowering: Any = _LowerKernel

    def __init__(self, typing: Any, target: Any, *others: Any) -> None:
        self._register(target)
        target = copy.copy(target)
        target.__class__ = KernelTarget
        begin: Any = super().__init__
        begin(_typing(typing), target, *others)

    def _register(self, target: Any) -> None:
        target.refresh()

    def _compile_core(self) -> Any:
        run: Any = super()._compile_core
        compiled = run()
        compiled.fndesc.typemap = compiled.fndesc.calltypes = None
        self.state.clear()
        gc.collect(0)  # of what was made since a part was compiled last; nothing older is searched
        return compiled

    def define_pipelines(self) -> list[Any]:
        return [_steps_to(self.lowering)]


class PartCompiler(KernelCompiler):
    """The same for parts of kernels."""

    lowering = _LowerPart

    def _register(self, target: Any) -> None:
        """Its kernel has done that."""


class _MachineCode:
    """The cache of a kernel, as Numba's dispatcher asks for one.

    A kernel that is in it is loaded without what only compiling needs. Numba first registers all it knows of
    types and functions, which takes longer than everything else before the first result. Machine code calls
    nothing of that, nor, without reference counts, of Numba's runtime; when something has to be compiled, the
    compiler registers it all by itself.
    """

    def __init__(self, function: Callable[..., Any], name: str, entries: Callable[[], Entries]) -> None:
        self._function, self._name, self._entries = function, name, entries

    @property
    def cache_path(self) -> str | None:
        """The folder that is used first."""
        return next(map(str, self._entries().folders()), None)

    def enable(self) -> None:
        """Numba's interface requires this method; the cache is always enabled."""

    disable = flush = enable

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The kernel compiled for arguments of these types, or None."""
        machine = context.codegen().magic_tuple()
        content = self._entries().read(self._entry(signature, machine))
        if content is None:
            return None
        try:
            made_for, on, parts = pickle.loads(content)
            return _rebuild(context, *parts) if (made_for, on) == (signature, machine) else None
        except Exception as error:  # a whole file, but this Numba cannot load it
            _log.info("%s is compiled again: its entry in the cache cannot be loaded (%s)", self._name, error)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a kernel that was just compiled for arguments of these types."""
        if self._function.__closure__ is not None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        machine = compiled.codegen.magic_tuple()
        content = _dumps((signature, machine, compiled._reduce()))
        self._entries().write(self._entry(signature, machine), content)

    def _entry(self, signature: Any, machine: Any) -> str:
        digest = hashlib.sha256(f"{signature} {machine}".encode())
        digest.update(_source(self._function.__code__.co_filename) + self._function.__code__.co_code)
        return f"{self._name}-{digest.hexdigest()[:20]}"


@functools.cache
def _source(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""  # typed in


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    compile_: Any = numba.njit
    return compile_(nogil=True, _nrt=False, **options)(function)


def kernel(function: Callable[..., Any], name: str, entries: Callable[[], Entries]) -> Any:
    """The compiled function, whose machine code is kept in `entries` under its name."""
    compiled = _compiled(function, pipeline_class=KernelCompiler)
    compiled._cache = _MachineCode(function, name, entries)
    return compiled


def _compile_part(of_kernels: Any, signature: Any) -> Any:
    """Compile as Numba's dispatcher does, under the lock of the kernel's compilation, without its clocks."""
    arguments, _ = _normalize_signature(signature)
    if (found := of_kernels.overloads.get(arguments)) is None:
        found = of_kernels._compiler.compile(arguments, None)
        of_kernels.add_overload(found)
    return found.entry_point


class KernelPart:
    """A part of kernels. Its dispatcher is made for the first kernel that is compiled with it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher."""
        return self._make()

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks a function for that another one calls."""
        return self.dispatcher._numba_type_


def part(function: Callable[..., Any], inline: bool) -> KernelPart:
    """A part of kernels: compiled once for all constants it is called with, and not called from Python."""
    return KernelPart(partial(_make_part, function, inline))


def _make_part(function: Callable[..., Any], inline: bool) -> Any:
    of_kernels = _compiled(
        function,
        pipeline_class=PartCompiler,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=inline,  # always given, else Numba takes it from the part that calls this one
    )
    of_kernels.compile = partial(_compile_part, of_kernels)
    get_template = of_kernels.get_call_template

    def get_general_template(arguments: Any, keywords: Any) -> Any:
        return get_template(tuple(map(types.unliteral, arguments)), keywords)

    of_kernels.get_call_template = get_general_template
    return of_kernels


def chosen(point: Callable[..., Any], part_of: Callable[[Any], Any]) -> KernelPart:
    """The function to call: the part that `part_of` finds for the first argument's class, else `point`."""
    return KernelPart(partial(_make_chosen, point, part_of))


def _make_chosen(point: Callable[..., Any], part_of: Callable[[Any], Any]) -> Any:
    own, point_of_all = part(point, inline=True), _compiled(point)

    def of(arguments: Any) -> Any:
        return (part_of(arguments[0].instance_class) or own).dispatcher

    point_of_all.get_call_template = lambda arguments, keywords: of(arguments).get_call_template(
        arguments, keywords
    )
    point_of_all.get_overload = lambda arguments: of(arguments).get_overload(arguments)
    return point_of_all


def inner_steps() -> Mapping[str, Callable[..., Any]]:
    """The functions of Numba, none of them public, that ndpsim replaces, wraps or calls, by name."""
    from numba.np import arrayobj  # noqa: PLC0415 (takes its time; needed only to compile)

    library, linker, steps = codegen.CodeLibrary, codegen.CPUCodeLibrary, DefaultPassBuilder
    return {
        "BaseContext.get_function": base.BaseContext.get_function,
        "typing.BaseContext._get_global_type": context.BaseContext._get_global_type,
        "typing.BaseContext.resolve_setitem": context.BaseContext.resolve_setitem,
        "typing.BaseContext.resolve_value_type": context.BaseContext.resolve_value_type,
        "BaseLower.lower_block": BaseLower.lower_block,
        "CompilerBase._compile_core": CompilerBase._compile_core,
        "CPUCallConv.call_function": callconv.CPUCallConv.call_function,
        "CPUCodeLibrary.add_ir_module": linker.add_ir_module,
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
        "ConstraintNetwork.propagate": ConstraintNetwork.propagate,
        "Dispatcher.compile": dispatcher.Dispatcher.compile,
        "Dispatcher.get_call_template": dispatcher.Dispatcher.get_call_template,
        "IRLegalization.run_pass": typed_passes.IRLegalization.run_pass,
        "IRProcessing.run_pass": untyped_passes.IRProcessing.run_pass,
        "Interpreter.interpret": interpreter.Interpreter.interpret,
        "Interpreter.post_process": interpreter.Interpreter.post_process,
        "Lower.delvar": Lower.delvar,
        "Lower.lower_binop": Lower.lower_binop,
        "Lower.lower_getitem": Lower.lower_getitem,
        "Lower.lower_inst": Lower.lower_inst,
        "Lower.lower_setitem": Lower.lower_setitem,
        "Lower.storevar": Lower.storevar,
        "NativeLowering.run_pass": NativeLowering.run_pass,
        "PassManager._runPass": PassManager._runPass,
        "PostProcessor.run": postproc.PostProcessor.run,
        "PreLowerStripPhis.run_pass": typed_passes.PreLowerStripPhis.run_pass,
        "ReconstructSSA.run_pass": untyped_passes.ReconstructSSA.run_pass,
        "RewriteRegistry.apply": registry.RewriteRegistry.apply,
        "_make_subtarget": compiler._make_subtarget,
        "populate_array": arrayobj.populate_array,
        "type_inference_stage": typed_passes.type_inference_stage,
    }
