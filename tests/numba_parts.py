"""Functions that tests/test_public_numba.py chooses by a type."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined


class Doubling(NamedTuple):
    by: int


@inlined
def scaled(how, number):
    return number * 2
