"""Named tuples that kernels are given by reference where ndpsim knows how; elsewhere by their parts."""

from __future__ import annotations

from typing import Any, TypeVar

from ndpsim._numba import IS_TRIED

T = TypeVar("T", bound=tuple[Any, ...])


def by_reference(cls: type[T]) -> type[T]:
    """Let kernels have a named tuple by reference, its fields read only.

    Its fields are integers, arrays and records, None, and named tuples of these. How Numba compiles decides
    only how long that takes: what kernels read is the same.
    """
    if not IS_TRIED:
        return cls
    from ndpsim._references import referenced  # noqa: PLC0415 (only what the inner steps were tried with has them)

    return referenced(cls)
