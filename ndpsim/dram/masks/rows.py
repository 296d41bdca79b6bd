"""Rows of the state as vectors of the machine: a few words are read, compared and written at once.

A row that was written as a whole is read as a whole without delay. One whose words were written singly
is not, until the writes have reached the cache: so they are written with `set_lane`.

The rows are not checked for bounds, so their callers hand over their last element, which is.

Each instruction stands below what it does in Python, where a row is an array of four words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from ndpsim._jit import inlined, instruction

__all__ = [
    "bits",
    "both",
    "either",
    "filled",
    "larger",
    "least",
    "merged",
    "push_row",
    "read_row",
    "row_at",
    "rows_differ",
    "set_lane",
    "set_row",
    "smaller",
    "up_to",
    "where_none",
    "with_lane",
    "write_row",
]

_fields_of: Any = cgutils.create_struct_proxy  # Numba's functions have no types

_LANES = 4
_WORD = ir.IntType(64)
_HALF = ir.IntType(32)


class _Row(types.Type):
    """A vector of four words, called lanes; as a mask, a lane is -1 or 0."""

    def __init__(self) -> None:
        super().__init__(name="Row")


_ROW = _Row()
_VECTOR = ir.VectorType(_WORD, _LANES)


@register_model(_Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _splat(builder: Any, word: Any, width: int) -> Any:
    lanes = ir.Constant(ir.VectorType(_WORD, width), ir.Undefined)
    first = builder.insert_element(lanes, word, ir.Constant(_HALF, 0))
    return builder.shuffle_vector(first, lanes, ir.Constant(ir.VectorType(_HALF, width), [0] * width))


def _most(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def _least(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed("<", one, other), one, other)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, place: Any, width: int) -> Any:
    array = _fields_of(kind)(context, builder, value=array)
    word = builder.gep(array.data, [place])
    return builder.bitcast(word, ir.VectorType(_WORD, width).as_pointer())


def _fold(builder: Any, row: Any, work: Callable[[Any, Any, Any], Any]) -> Any:
    """One word of the lanes of a vector, two by two."""
    lanes = row.type.count
    for apart in (4, 2, 1):
        if apart >= lanes:
            continue
        places = [place ^ apart for place in range(lanes)]
        turned = builder.shuffle_vector(row, row, ir.Constant(ir.VectorType(_HALF, lanes), places))
        row = work(builder, row, turned)
    return builder.extract_element(row, ir.Constant(_HALF, 0))


def _of_two(in_python: Callable[..., Any], work: Callable[[Any, Any, Any], Any], meaning: str) -> Any:
    """What `work` makes of two rows, lane by lane."""

    def of_two(typing_context, one, other):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return work(builder, *arguments)

        return _ROW(_ROW, _ROW), generate

    of_two.__doc__ = meaning
    return instruction(in_python)(of_two)


larger = _of_two(np.maximum, _most, "The larger of two words in each lane.")
smaller = _of_two(np.minimum, _least, "The smaller of two words in each lane.")
both = _of_two(
    np.bitwise_and, lambda builder, one, other: builder.and_(one, other), "The bits that two rows share."
)
either = _of_two(np.bitwise_or, lambda builder, one, other: builder.or_(one, other), "The bits of two rows.")


def _filled(word: Any) -> Any:
    return np.full(_LANES, word, dtype=np.int64)


@instruction(_filled)
def filled(typing_context, word):
    """A row with the same word in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[0], _LANES)

    return _ROW(types.int64), generate


def _with_lane(row: Any, lane: Any, word: Any) -> Any:
    return np.where(np.arange(_LANES) == lane, word, row)


@instruction(_with_lane)
def with_lane(typing_context, row, lane, word):
    """The row with another word in one lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, lane, word = arguments
        here = builder.icmp_signed(
            "==", ir.Constant(_VECTOR, list(range(_LANES))), _splat(builder, lane, _LANES)
        )
        return builder.select(here, _splat(builder, word, _LANES), row)

    return _ROW(_ROW, types.int64, types.int64), generate


def _up_to(row: Any, word: Any) -> Any:
    return -(row <= word).astype(np.int64)


@instruction(_up_to)
def up_to(typing_context, row, word):
    """The mask of the lanes that are not larger than `word`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, word = arguments
        return builder.sext(builder.icmp_signed("<=", row, _splat(builder, word, _LANES)), _VECTOR)

    return _ROW(_ROW, types.int64), generate


def _where_none(row: Any) -> Any:
    return -(row == 0).astype(np.int64)


@instruction(_where_none)
def where_none(typing_context, row):
    """The mask of the lanes that are 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (row,) = arguments
        return builder.sext(builder.icmp_signed("==", row, ir.Constant(_VECTOR, [0] * _LANES)), _VECTOR)

    return _ROW(_ROW), generate


def _bits(row: Any) -> Any:
    return ((row < 0) << np.arange(_LANES)).sum()


@instruction(_bits)
def bits(typing_context, row):
    """A mask as a word: bit n for lane n."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (row,) = arguments
        signs = builder.icmp_signed("<", row, ir.Constant(_VECTOR, [0] * _LANES))
        return builder.zext(builder.bitcast(signs, ir.IntType(_LANES)), _WORD)

    return types.int64(_ROW), generate


def _least_word(row: Any) -> Any:
    return row.min()


@instruction(_least_word)
def least(typing_context, row):
    """The smallest of the words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _fold(builder, arguments[0], _least)

    return types.int64(_ROW), generate


def _merged(row: Any) -> Any:
    return np.bitwise_or.reduce(row)


@instruction(_merged)
def merged(typing_context, row):
    """The bits of all words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _fold(builder, arguments[0], lambda builder, one, other: builder.or_(one, other))

    return types.int64(_ROW), generate


def _load_words(state: Any, place: Any, last: Any) -> Any:
    return state[place : place + _LANES].copy()


@instruction(_load_words)
def _load(typing_context, state, place, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, _ = arguments
        pointer = _pointer(context, builder, signature.args[0], array, place, _LANES)
        return builder.load(pointer, align=8)

    return _ROW(state, types.int64, types.int64), generate


def _store_words(state: Any, place: Any, row: Any, last: Any) -> None:
    state[place : place + _LANES] = row


@instruction(_store_words)
def _store(typing_context, state, place, row, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, row, _ = arguments
        pointer = _pointer(context, builder, signature.args[0], array, place, _LANES)
        builder.store(row, pointer, align=8)
        return context.get_dummy_value()

    return types.none(state, types.int64, _ROW, types.int64), generate


@inlined
def row_at(state, place):
    """The words from `place` on."""
    return _load(state, place, state[place + _LANES - 1])


@inlined
def set_row(state, place, row):
    """Write the words from `place` on."""
    _store(state, place, row, state[place + _LANES - 1])


@inlined
def set_lane(state, place, lane, word):
    """Write one word of those from `place` on."""
    set_row(state, place, with_lane(row_at(state, place), lane, word))


def _push_row(state: Any, ready: Any, distance: Any, clock: Any, last: Any) -> None:
    times = state[ready : ready + 8]
    np.maximum(times, clock + state[distance : distance + 8], out=times)


@instruction(_push_row)
def push_row(typing_context, state, ready, distance, clock, last):
    """``state[ready + n] = max(state[ready + n], clock + state[distance + n])`` for eight n.

    last: ``state[max(ready, distance) + 7]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, ready, distance, clock, _ = arguments
        times = _pointer(context, builder, signature.args[0], array, ready, 8)
        distances = _pointer(context, builder, signature.args[0], array, distance, 8)
        pushed = builder.add(_splat(builder, clock, 8), builder.load(distances, align=8))
        before = builder.load(times, align=8)
        builder.store(_most(builder, before, pushed), times, align=8)
        return context.get_dummy_value()

    return types.none(state, types.int64, types.int64, types.int64, types.int64), generate


def _write_row(table: Any, at: Any, state: Any, ready: Any, over: Any, clock: Any, last: Any) -> None:
    table[at : at + _LANES] = np.maximum(state[ready : ready + _LANES], over) - clock


@instruction(_write_row)
def write_row(typing_context, table, at, state, ready, over, clock, last):
    """``table[at + n] = max(state[ready + n], over) - clock`` for each n of a row.

    last: that of either row, added up.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, at, state, ready, over, clock, _ = arguments
        words = _pointer(context, builder, signature.args[0], table, at, _LANES)
        times = builder.load(_pointer(context, builder, signature.args[2], state, ready, _LANES), align=8)
        over, clock = _splat(builder, over, _LANES), _splat(builder, clock, _LANES)
        builder.store(builder.sub(_most(builder, times, over), clock), words, align=8)
        return context.get_dummy_value()

    return types.none(table, types.int64, state, *[types.int64] * 4), generate


def _read_row(table: Any, at: Any, state: Any, ready: Any, clock: Any, last: Any) -> None:
    state[ready : ready + _LANES] = table[at : at + _LANES] + clock


@instruction(_read_row)
def read_row(typing_context, table, at, state, ready, clock, last):
    """``state[ready + n] = table[at + n] + clock`` for each n of a row.

    last: that of either row, added up.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, at, state, ready, clock, _ = arguments
        words = builder.load(_pointer(context, builder, signature.args[0], table, at, _LANES), align=8)
        times = _pointer(context, builder, signature.args[2], state, ready, _LANES)
        builder.store(builder.add(words, _splat(builder, clock, _LANES)), times, align=8)
        return context.get_dummy_value()

    return types.none(table, types.int64, state, *[types.int64] * 3), generate


def _rows_differ(one: Any, at: Any, other: Any, place: Any, shift: Any, last: Any) -> Any:
    return int((one[at : at + 8] != other[place : place + 8] + shift).any())


@instruction(_rows_differ)
def rows_differ(typing_context, one, at, other, place, shift, last):
    """0 when ``one[at + n] == other[place + n] + shift`` for eight n, else something else.

    last: ``one[at + 7] + other[place + 7]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, at, other, place, shift, _ = arguments
        here = builder.load(_pointer(context, builder, signature.args[0], one, at, 8), align=8)
        there = builder.load(_pointer(context, builder, signature.args[2], other, place, 8), align=8)
        differs = builder.xor(here, builder.add(there, _splat(builder, shift, 8)))
        return _fold(builder, differs, lambda builder, one, other: builder.or_(one, other))

    return types.int64(one, types.int64, other, *[types.int64] * 3), generate
