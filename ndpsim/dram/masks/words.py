"""What machines do in one instruction and Numba has no word for: masks of bits, and rows of times.

Masks and times are int64, shifted here and nowhere else: Numba makes a float of int64 mixed with uint64.
The rows are not checked for bounds, so their callers hand over their last element, which is.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["bits", "lowest", "natural", "push_row", "read_row", "rotate", "rows_differ", "write_row"]

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
def bits(typing_context, mask):  # type: ignore[no-untyped-def]
    """How many bits of the mask are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


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


@intrinsic(prefer_literal=True)
def write_row(typing_context, known, at, state, ready, over, clock, last, kinds):  # type: ignore[no-untyped-def]
    """``known[at + n] = max(state[ready + n], over) - clock`` for each n of `kinds`, which is a constant.

    last: ``known[at + kinds - 1] + state[ready + kinds - 1]``.
    """
    width = kinds.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        known, at, state, ready, over, clock, _, _ = arguments
        words = _row(context, builder, signature.args[0], known, at, width)
        times = builder.load(_row(context, builder, signature.args[2], state, ready, width), align=8)
        over, clock = _splat(builder, over, width), _splat(builder, clock, width)
        builder.store(builder.sub(_most(builder, times, over), clock), words, align=8)
        return context.get_dummy_value()

    return types.none(known, types.int64, state, *[types.int64] * 4, kinds), generate


@intrinsic(prefer_literal=True)
def read_row(typing_context, known, at, state, ready, clock, last, kinds):  # type: ignore[no-untyped-def]
    """``state[ready + n] = known[at + n] + clock`` for each n of `kinds`, which is a constant.

    last: ``known[at + kinds - 1] + state[ready + kinds - 1]``.
    """
    width = kinds.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        known, at, state, ready, clock, _, _ = arguments
        words = builder.load(_row(context, builder, signature.args[0], known, at, width), align=8)
        times = _row(context, builder, signature.args[2], state, ready, width)
        builder.store(builder.add(words, _splat(builder, clock, width)), times, align=8)
        return context.get_dummy_value()

    return types.none(known, types.int64, state, *[types.int64] * 3, kinds), generate


@intrinsic
def rows_differ(typing_context, one, at, other, place, shift, last):  # type: ignore[no-untyped-def]
    """0 when ``one[at + n] == other[place + n] + shift`` for eight n, else something else.

    last: ``one[at + 7] + other[place + 7]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, at, other, place, shift, _ = arguments
        here = builder.load(_row(context, builder, signature.args[0], one, at, 8), align=8)
        there = builder.load(_row(context, builder, signature.args[2], other, place, 8), align=8)
        differs = builder.xor(here, builder.add(there, _splat(builder, shift, 8)))
        return _call(builder, "llvm.vector.reduce.or.v8i64", _WORD, differs)

    return types.int64(one, types.int64, other, *[types.int64] * 3), generate
