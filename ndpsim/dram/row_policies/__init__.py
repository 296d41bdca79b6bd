"""Row policies: when the controller closes a row that no request asks to close.

A policy is a named tuple here and the module of the same name, which has its part at each of `points`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ClosedCap", "OpenRows", "RowPolicy"]


class OpenRows(NamedTuple):
    """Rows stay open."""

    @staticmethod
    def parts() -> str:
        """The module of its parts of kernels."""
        return f"{__name__}.open"


class ClosedCap(NamedTuple):
    """A row closes after so many column accesses."""

    cap: int

    @staticmethod
    def parts() -> str:
        """The module of its parts of kernels."""
        return f"{__name__}.closed_cap"


RowPolicy = OpenRows | ClosedCap
