"""What machines do in one instruction and Numba has no word for: masks of bits, and rows of times.

Masks and times are int64, shifted here and nowhere else: Numba makes a float of int64 mixed with uint64.
The rows are not checked for bounds, so their callers hand over their last element, which is.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["lowest", "natural", "push_row", "rotate"]

_WORD = ir.IntType(64)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    form = ir.FunctionType(result, [argument.type for argument in arguments])
    insert: Any = cgutils.get_or_insert_function
    return builder.call(insert(builder.module, form, name), arguments)


def _most(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def _row(context: Any, builder: Any, kind: Any, array: Any, place: Any, width: int) -> Any:
    """A pointer to `width` words of an array."""
    array = context.make_array(kind)(context, builder, array)
    word = builder.gep(array.data, [place])
    return builder.bitcast(word, ir.VectorType(_WORD, width).as_pointer())


def _splat(builder: Any, word: Any, width: int) -> Any:
    vector = ir.VectorType(_WORD, width)
    lanes = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(lanes, word, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        first, lanes, ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    )


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
def push_row(typing_context, state, ready, distance, clock, last):  # type: ignore[no-untyped-def]
    """``state[ready + n] = max(state[ready + n], clock + state[distance + n])`` for eight n.

    last: ``state[max(ready, distance) + 7]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, ready, distance, clock, _ = arguments
        times = _row(context, builder, signature.args[0], array, ready, 8)
        distances = _row(context, builder, signature.args[0], array, distance, 8)
        pushed = builder.add(_splat(builder, clock, 8), builder.load(distances, align=8))
        before = builder.load(times, align=8)
        builder.store(_most(builder, before, pushed), times, align=8)
        return context.get_dummy_value()

    return types.none(state, types.int64, types.int64, types.int64, types.int64), generate
