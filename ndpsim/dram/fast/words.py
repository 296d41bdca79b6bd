"""Operations on masks of bits that are one machine instruction and that Numba does not offer.

Masks are int64, shifted here and nowhere else: Numba makes a float of int64 mixed with uint64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ndpsim.base.jit import instruction

_WORD = ir.IntType(64)
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
