"""Whether kernels whose arguments are looked at in the first call only get the same types in every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ndpsim.inference.layers import layer, layer_run, run_state


def layout(value: Any) -> Any:
    """What a kernel must know of a value to read it."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.flags.c_contiguous
    if isinstance(value, tuple):
        return type(value).__name__, *map(layout, value)
    kinds = {"a flag": bool | np.bool_, "an integer": int | np.integer, "a number": float | np.floating}
    return next(name for name, kind in kinds.items() if isinstance(value, kind))


def always_the_same(of_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose calls must all have arguments with the layouts of the first."""
    first: list[Any] = []

    def call(*arguments: Any) -> Any:
        layouts = [*map(layout, arguments)]
        first[:] = first or layouts
        assert layouts == first
        return of_kernel(*arguments)

    return call


def watch_argument_types(patch: pytest.MonkeyPatch) -> None:
    """Every kernel of a run that looks at its arguments once is one of `always_the_same`."""
    patch.setattr(layer_run, "same_types", always_the_same)
    patch.setattr(layer, "same_types", always_the_same)
    patch.setattr(run_state, "_find_path", always_the_same(run_state.find_path))
