"""What machines do to masks of bits in one instruction and Numba has no word for.

Masks are int64, shifted here and nowhere else: Numba makes a float of int64 mixed with uint64.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ndpsim.dram.masks.state import OneRank

__all__ = ["lowest", "natural", "ones", "ranks_of", "rotate"]

_WORD = ir.IntType(64)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    form = ir.FunctionType(result, [argument.type for argument in arguments])
    insert: Any = cgutils.get_or_insert_function
    return builder.call(insert(builder.module, form, name), arguments)


@intrinsic
def lowest(typing_context, mask):  # type: ignore[no-untyped-def]
    """The place of the lowest bit set; 64 for an empty mask."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic
def rotate(typing_context, mask, places):  # type: ignore[no-untyped-def]
    """The mask turned right by `places`, taken modulo 64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask, places = arguments
        return _call(builder, "llvm.fshr.i64", mask.type, mask, mask, places)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def natural(typing_context, number):  # type: ignore[no-untyped-def]
    """The number, which is from 0 to 2**31: an index that need not be looked at for counting from the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (number,) = arguments
        condition = builder.icmp_unsigned("<", number, ir.Constant(_WORD, 1 << 31))
        _call(builder, "llvm.assume", ir.VoidType(), condition)
        return number

    return types.int64(types.int64), generate


@intrinsic
def ones(typing_context, mask):  # type: ignore[no-untyped-def]
    """How many bits of the mask are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def ranks_of(typing_context, shape):  # type: ignore[no-untyped-def]
    """The ranks of a `Shape`; of a `OneRank`, a constant."""
    single = shape.instance_class is OneRank

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (shape,) = arguments
        return (
            ir.Constant(_WORD, 1) if single else builder.extract_value(shape, OneRank._fields.index("ranks"))
        )

    return types.int64(shape), generate
