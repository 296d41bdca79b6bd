"""Parts that tests/test_public_numba.py chooses by a type."""

from __future__ import annotations

from ndpsim._jit import inlined


@inlined
def scaled(how, number):
    return number * 2
