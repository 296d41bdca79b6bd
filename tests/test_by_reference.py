"""Kernels read in a named tuple by reference what Python reads in it."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest

from ndpsim.base.jit import by_reference, inlined, kernel, outlined, releases


class Pair(NamedTuple):
    first: int
    second: Any


@by_reference
class Inner(NamedTuple):
    cube: Any
    number: int


@by_reference
class Outer(NamedTuple):
    line: Any
    table: Any
    nothing: None
    pair: Pair
    inner: Inner
    address: int


@inlined
def sum_of(array):
    total = 0
    for value in array.flat:
        total += value
    return total


@outlined
def read_inner(inner, seen):
    seen[5], seen[6] = sum_of(inner.cube), inner.number
    seen[7], seen[8], seen[9] = inner.cube.shape
    seen[10] = inner.cube[1, 0, 2]


@kernel
def read(outer, seen):
    seen[0], seen[1] = sum_of(outer.line), sum_of(outer.table)
    seen[2], seen[3], seen[4] = outer.pair.first, sum_of(outer.pair.second), outer.address
    read_inner(outer.inner, seen)
    seen[11] = outer.nothing is None
    seen[12] = outer.table[2, 1]
    outer.line[1] = 77


def make() -> Outer:
    numbers = np.random.default_rng(7)

    def ints(*shape: int, dtype: Any = np.int64) -> Any:
        return numbers.integers(-1000, 1000, shape).astype(dtype)

    inner = Inner(ints(2, 3, 4), -5)
    return Outer(ints(3), ints(4, 2, dtype=np.int32), None, Pair(2**40, ints(5)), inner, 9)


def expected(outer: Outer) -> list[int]:
    inner = outer.inner
    return [
        *(outer.line.sum(), outer.table.sum(), outer.pair.first, outer.pair.second.sum(), outer.address),
        *(inner.cube.sum(), inner.number, *inner.cube.shape, inner.cube[1, 0, 2], 1, outer.table[2, 1]),
    ]


def seen_of(outer: Outer) -> list[int]:
    seen = np.zeros(13, dtype=np.int64)
    read(outer, seen)
    return seen.tolist()


def test_a_kernel_reads_every_field_and_writes_to_its_arrays():
    outer = make()
    wanted = expected(outer)
    assert seen_of(outer) == wanted
    assert outer.line[1] == 77


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda outer: outer._replace(line=outer.line * 2)]
)
def test_a_copy_is_read_from_its_own_arrays(copied):
    outer = make()
    seen_of(outer)
    other = copied(outer)
    other.inner.cube[1, 0, 2] += 1
    other.table[2, 1] += 1
    wanted = expected(other)
    assert seen_of(other) == wanted


@pytest.mark.skipif(not releases.IS_TRIED, reason="Numba passes named tuples by their parts")
@pytest.mark.parametrize("field", [{"address": 1.5}, {"address": True}, {"pair": Pair(1, 0.5)}])
def test_a_field_of_another_kind_is_refused_by_name(field):
    (name,) = field
    with pytest.raises(TypeError, match=f"^{name}"):
        read(make()._replace(**field), np.zeros(13, dtype=np.int64))
