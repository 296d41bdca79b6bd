"""Machine instructions that Numba does not offer: on masks of bits, and on vectors of a few words.

Masks are int64, shifted here and nowhere else: Numba makes a float of int64 mixed with uint64.

The words of a vector are read, compared and written at once. A vector that was written as a whole is read
without delay. After single words were written, the read waits until the writes have reached the cache;
`set_element` avoids this.

A vector is the first words of a row of an array of two dimensions. The instructions do not check bounds, so
their callers pass the last word, which is checked.

Each instruction follows its Python equivalent, in which a vector is an array of four words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from ndpsim.base.jit import inlined, instruction

_ALL = (1 << 64) - 1


def _unsigned(mask: Any) -> int:
    return int(mask) & _ALL


def _signed(mask: int) -> np.int64:
    return np.uint64(mask & _ALL).astype(np.int64)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    form = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.module.declare_intrinsic(name, fnty=form), arguments)


def _lowest(mask: Any) -> np.int64:
    word = _unsigned(mask) | 1 << 64
    return np.int64((word & -word).bit_length() - 1)


@instruction(_lowest)
def lowest(typing_context, mask):
    """The place of the lowest bit set; 64 for an empty mask."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _rotate(mask: Any, places: Any) -> np.int64:
    word, right = _unsigned(mask), int(places) % 64
    return _signed(word >> right | word << (64 - right))


@instruction(_rotate)
def rotate(typing_context, mask, places):
    """The mask turned right by `places`, taken modulo 64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask, places = arguments
        return _call(builder, "llvm.fshr.i64", mask.type, mask, mask, places)

    return types.int64(types.int64, types.int64), generate


def _assume_nonnegative(number: Any) -> Any:
    return number


@instruction(_assume_nonnegative)
def assume_nonnegative(typing_context, number):
    """The number, which is from 0 to 2**31; as an index it needs no check for a negative value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (number,) = arguments
        condition = builder.icmp_unsigned("<", number, ir.Constant(_WORD, 1 << 31))
        _call(builder, "llvm.assume", ir.VoidType(), condition)
        return number

    return types.int64(types.int64), generate


def _ones(mask: Any) -> np.int64:
    return np.int64(_unsigned(mask).bit_count())


@instruction(_ones)
def ones(typing_context, mask):
    """The number of set bits in the mask."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


_fields_of: Any = cgutils.create_struct_proxy  # Numba's functions have no types

_WIDTH = 4
_WORD = ir.IntType(64)
_HALF = ir.IntType(32)


class _Vector(types.Type):
    """Four words; as a mask, each is -1 or 0."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


_VECTOR_TYPE = _Vector()
_VECTOR = ir.VectorType(_WORD, _WIDTH)


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _splat(builder: Any, word: Any, width: int) -> Any:
    words = ir.Constant(ir.VectorType(_WORD, width), ir.Undefined)
    first = builder.insert_element(words, word, ir.Constant(_HALF, 0))
    return builder.shuffle_vector(first, words, ir.Constant(ir.VectorType(_HALF, width), [0] * width))


def _most(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def _least(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed("<", one, other), one, other)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, place: Any, width: int) -> Any:
    """A vector at a place of an array, counted over all of its rows."""
    word = builder.gep(_fields_of(kind)(context, builder, value=array).data, [place])
    return builder.bitcast(word, ir.VectorType(_WORD, width).as_pointer())


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any, width: int) -> Any:
    """The vector with which a row of an array of two dimensions begins."""
    columns: Any = cgutils.unpack_tuple
    shape = _fields_of(kind)(context, builder, value=array).shape
    place = builder.mul(row, columns(builder, shape)[1])
    return _pointer(context, builder, kind, array, place, width)


class _VolatileStore(ir.StoreInstr):  # type: ignore[misc]
    def descr(self, text: list[str]) -> None:
        """Write the instruction as text."""
        plain: list[str] = []
        super().descr(plain)
        text.append("".join(plain).replace("store", "store volatile", 1))


def _store_whole(builder: Any, vector: Any, pointer: Any) -> None:
    """Store all words.

    Where some words are those in memory, LLVM would store only the others. On some processors such a store
    takes much longer, and so does the next read: row `stream_r1` of `bench` took 30% longer on an AMD EPYC.
    """
    builder.store(vector, pointer, align=8).__class__ = _VolatileStore


def _fold(builder: Any, vector: Any, work: Callable[[Any, Any, Any], Any]) -> Any:
    """Combine the words of a vector to one, in pairs."""
    words = vector.type.count
    for apart in (4, 2, 1):
        if apart >= words:
            continue
        places = [place ^ apart for place in range(words)]
        turned = builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_HALF, words), places))
        vector = work(builder, vector, turned)
    return builder.extract_element(vector, ir.Constant(_HALF, 0))


def _of_two(in_python: Callable[..., Any], work: Callable[[Any, Any, Any], Any], meaning: str) -> Any:
    """The function that does `work` on two vectors, word by word."""

    def of_two(typing_context, one, other):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return work(builder, *arguments)

        return _VECTOR_TYPE(_VECTOR_TYPE, _VECTOR_TYPE), generate

    of_two.__doc__ = meaning
    return instruction(in_python)(of_two)


larger = _of_two(np.maximum, _most, "The larger of two words, in each place.")
smaller = _of_two(np.minimum, _least, "The smaller of two words, in each place.")
both = _of_two(
    np.bitwise_and, lambda builder, one, other: builder.and_(one, other), "The bits that two vectors share."
)
plus = _of_two(np.add, lambda builder, one, other: builder.add(one, other), "The sums of two vectors.")
either = _of_two(
    np.bitwise_or, lambda builder, one, other: builder.or_(one, other), "The bits of two vectors."
)


def _filled(word: Any) -> Any:
    return np.full(_WIDTH, word, dtype=np.int64)


@instruction(_filled)
def filled(typing_context, word):
    """A vector with the same word in every place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[0], _WIDTH)

    return _VECTOR_TYPE(types.int64), generate


def _with_lane(vector: Any, place: Any, word: Any) -> Any:
    return np.where(np.arange(_WIDTH) == place, word, vector)


@instruction(_with_lane)
def with_element(typing_context, vector, place, word):
    """The vector with another word in one place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, place, word = arguments
        here = builder.icmp_signed(
            "==", ir.Constant(_VECTOR, list(range(_WIDTH))), _splat(builder, place, _WIDTH)
        )
        return builder.select(here, _splat(builder, word, _WIDTH), vector)

    return _VECTOR_TYPE(_VECTOR_TYPE, types.int64, types.int64), generate


def _up_to(vector: Any, word: Any) -> Any:
    return -(vector <= word).astype(np.int64)


@instruction(_up_to)
def up_to(typing_context, vector, word):
    """The mask of the words that are not larger than `word`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, word = arguments
        return builder.sext(builder.icmp_signed("<=", vector, _splat(builder, word, _WIDTH)), _VECTOR)

    return _VECTOR_TYPE(_VECTOR_TYPE, types.int64), generate


def _where_none(vector: Any) -> Any:
    return -(vector == 0).astype(np.int64)


@instruction(_where_none)
def where_none(typing_context, vector):
    """The mask of the words that are 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (vector,) = arguments
        return builder.sext(builder.icmp_signed("==", vector, ir.Constant(_VECTOR, [0] * _WIDTH)), _VECTOR)

    return _VECTOR_TYPE(_VECTOR_TYPE), generate


def _bits(vector: Any) -> Any:
    return ((vector < 0) << np.arange(_WIDTH)).sum()


@instruction(_bits)
def bits(typing_context, vector):
    """A mask as a word: bit n for place n."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (vector,) = arguments
        signs = builder.icmp_signed("<", vector, ir.Constant(_VECTOR, [0] * _WIDTH))
        return builder.zext(builder.bitcast(signs, ir.IntType(_WIDTH)), _WORD)

    return types.int64(_VECTOR_TYPE), generate


def _least_word(vector: Any) -> Any:
    return vector.min()


@instruction(_least_word)
def least(typing_context, vector):
    """The smallest of the words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _fold(builder, arguments[0], _least)

    return types.int64(_VECTOR_TYPE), generate


def _merged(vector: Any) -> Any:
    return np.bitwise_or.reduce(vector)


@instruction(_merged)
def merged(typing_context, vector):
    """The bits of all words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _fold(builder, arguments[0], lambda builder, one, other: builder.or_(one, other))

    return types.int64(_VECTOR_TYPE), generate


def _load_words(array: Any, row: Any, last: Any) -> Any:
    return array[row][:_WIDTH].copy()


@instruction(_load_words)
def _load(typing_context, array, row, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row, _ = arguments
        pointer = _row(context, builder, signature.args[0], array, row, _WIDTH)
        return builder.load(pointer, align=8)

    return _VECTOR_TYPE(array, types.int64, types.int64), generate


def _store_words(array: Any, row: Any, words: Any, last: Any) -> None:
    array[row][:_WIDTH] = words


@instruction(_store_words)
def _store(typing_context, array, row, words, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row, words, _ = arguments
        pointer = _row(context, builder, signature.args[0], array, row, _WIDTH)
        _store_whole(builder, words, pointer)
        return context.get_dummy_value()

    return types.none(array, types.int64, _VECTOR_TYPE, types.int64), generate


@inlined
def vector_at(array, row):
    """The first words of a row of an array."""
    return _load(array, row, array[row, _WIDTH - 1])


@inlined
def set_vector(array, row, words):
    """Write the first words of a row of an array."""
    _store(array, row, words, array[row, _WIDTH - 1])


@inlined
def set_element(array, row, place, word):
    """Write one of the first words of a row of an array."""
    set_vector(array, row, with_element(vector_at(array, row), place, word))


def _raise_words(times: Any, node: Any, distances: Any, command: Any, clock: Any, last: Any) -> None:
    np.maximum(times[node], clock + distances[command], out=times[node])


@instruction(_raise_words)
def _raise(typing_context, times, node, distances, command, clock, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        times, node, distances, command, clock, _ = arguments
        to = _row(context, builder, signature.args[0], times, node, 8)
        by = _row(context, builder, signature.args[2], distances, command, 8)
        raised = builder.add(_splat(builder, clock, 8), builder.load(by, align=8))
        before = builder.load(to, align=8)
        _store_whole(builder, _most(builder, before, raised), to)
        return context.get_dummy_value()

    return types.none(times, types.int64, distances, *[types.int64] * 3), generate


@inlined
def raise_times(times, node, distances, command, clock):
    """``times[node, n] = max(times[node, n], clock + distances[command, n])`` for eight n."""
    _raise(times, node, distances, command, clock, times[node, 7] + distances[command, 7])


def _write_words(table: Any, at: Any, times: Any, place: Any, over: Any, clock: Any, last: Any) -> None:
    table[at : at + _WIDTH] = np.maximum(times.reshape(-1)[place : place + _WIDTH], over) - clock


@instruction(_write_words)
def _write(typing_context, table, at, times, place, over, clock, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, at, times, place, over, clock, _ = arguments
        words = _pointer(context, builder, signature.args[0], table, at, _WIDTH)
        there = _pointer(context, builder, signature.args[2], times, place, _WIDTH)
        over, clock = _splat(builder, over, _WIDTH), _splat(builder, clock, _WIDTH)
        builder.store(builder.sub(_most(builder, builder.load(there, align=8), over), clock), words, align=8)
        return context.get_dummy_value()

    return types.none(table, types.int64, times, *[types.int64] * 4), generate


@inlined
def write_times(table, at, times, node, first, over, clock):
    """``table[at + n] = max(times[node, first + n], over) - clock`` for each n of a vector."""
    last = table[at + _WIDTH - 1] + times[node, first + _WIDTH - 1]
    _write(table, at, times, node * times.shape[1] + first, over, clock, last)


def _read_words(table: Any, at: Any, times: Any, place: Any, clock: Any, last: Any) -> None:
    times.reshape(-1)[place : place + _WIDTH] = table[at : at + _WIDTH] + clock


@instruction(_read_words)
def _read(typing_context, table, at, times, place, clock, last):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, at, times, place, clock, _ = arguments
        words = builder.load(_pointer(context, builder, signature.args[0], table, at, _WIDTH), align=8)
        there = _pointer(context, builder, signature.args[2], times, place, _WIDTH)
        builder.store(builder.add(words, _splat(builder, clock, _WIDTH)), there, align=8)
        return context.get_dummy_value()

    return types.none(table, types.int64, times, *[types.int64] * 3), generate


@inlined
def read_times(table, at, times, node, first, clock):
    """``times[node, first + n] = table[at + n] + clock`` for each n of a vector: undoes `write_times`."""
    last = table[at + _WIDTH - 1] + times[node, first + _WIDTH - 1]
    _read(table, at, times, node * times.shape[1] + first, clock, last)


def _words_differ(one: Any, at: Any, other: Any, place: Any, shift: Any, last: Any) -> Any:
    return int((one[at : at + 8] != other[place : place + 8] + shift).any())


@instruction(_words_differ)
def words_differ(typing_context, one, at, other, place, shift, last):
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
