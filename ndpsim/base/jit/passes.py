"""Numba's steps before lowering (`inner_steps`), without what kernels have no use for.

Numba computes five times for each function where its variables live: for reference counts, generators and
`with`. Kernels have none of these, and what they no longer use need not be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba.core import interpreter, ir_utils, rewrites, ssa, transforms, typed_passes
from numba.core.compiler_machinery import FunctionPass, register_pass

# Numba's functions have no types.
_register_pass: Any = register_pass
_rules: Any = rewrites

#: Numba's repairs of byte code for `with` and for dictionaries.
_NOT_IN_KERNELS = (interpreter.peep_hole_delete_with_exit, interpreter.peep_hole_fuse_dict_add_updates)


class _Reader(interpreter.Interpreter):
    """Numba's reader of byte code."""

    def post_process(self, repairs: Sequence[Callable[[Any], Any]], code: Any) -> Any:
        """The code after Numba's repairs."""
        repair: Any = super().post_process
        return repair([each for each in repairs if each not in _NOT_IN_KERNELS], code)


class _Step(FunctionPass):
    def __init__(self) -> None:
        begin: Any = super().__init__
        begin()


@_register_pass(mutates_CFG=True, analysis_only=False)
class Read(_Step):
    """Byte code becomes Numba's code."""

    _name = "read_kernel"

    def run_pass(self, state: Any) -> bool:
        """For one kernel or part."""
        read: Any = _Reader
        state.func_ir = read(state.func_id).interpret(state.bc)
        return True


@_register_pass(mutates_CFG=True, analysis_only=False)
class Rewrite(_Step):
    """Numba's rules for constant indices, powers and messages of exceptions."""

    _name = "rewrite_kernel"

    def run_pass(self, state: Any) -> bool:
        """Each rule, in each block, until it has nothing to do there."""
        blocks = state.func_ir.blocks
        for make in _rules.rewrite_registry.rewrites["before-inference"]:
            rule = make(state)
            for key in blocks:
                while rule.match(state.func_ir, blocks[key], None, None):
                    blocks[key] = rule.apply()
        return True


@_register_pass(mutates_CFG=True, analysis_only=False)
class AssignOnce(_Step):
    """A variable that is assigned more than once becomes several, after each loop has one way back."""

    _name = "assign_once"

    def run_pass(self, state: Any) -> bool:
        """For one kernel or part."""
        canonical: Any = transforms.canonicalize_cfg
        split: Any = ssa.reconstruct_ssa
        define: Any = ir_utils.build_definitions
        state.func_ir.blocks = canonical(state.func_ir.blocks)
        state.func_ir = split(state.func_ir)
        state.func_ir._definitions = define(state.func_ir.blocks)
        return True


@_register_pass(mutates_CFG=True, analysis_only=False)
class Join(typed_passes.PreLowerStripPhis):
    """What `AssignOnce` split is one variable again where ways join."""

    _name = "join_kernel"

    def run_pass(self, state: Any) -> bool:
        """For one kernel or part."""
        join: Any = self._strip_phi_nodes
        state.func_ir = join(state.func_ir)
        return True
