"""Kernels whose arguments are looked at in the first call only: in all calls they have the same types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ndpsim._jit import kernel, same_types
from ndpsim.orchestrator import layer, outcome, step_run
from small_moe import Everything, moe, once_each


def layout(value: Any) -> Any:
    """What a kernel must know of a value to read it."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.flags.c_contiguous
    if isinstance(value, tuple):
        return type(value).__name__, *map(layout, value)
    kinds = {"a flag": bool | np.bool_, "an integer": int | np.integer, "a number": float | np.floating}
    return next(name for name, kind in kinds.items() if isinstance(value, kind))


def always_the_same(of_kernel: Callable[..., Any]) -> Callable[..., Any]:
    first: list[Any] = []

    def call(*arguments: Any) -> Any:
        layouts = [*map(layout, arguments)]
        first[:] = first or layouts
        assert layouts == first
        return of_kernel(*arguments)

    return call


@pytest.mark.parametrize("policy", [*once_each(), Everything], ids=str)
@pytest.mark.parametrize("kv", ["gpu", "host"])
def test_every_call_in_a_run_has_arguments_of_the_types_of_the_first(policy, kv, monkeypatch):
    monkeypatch.setattr(step_run, "same_types", always_the_same)
    monkeypatch.setattr(layer, "same_types", always_the_same)
    monkeypatch.setattr(outcome, "_find_path", always_the_same(outcome.find_path))
    moe(policy, prompt=8, kv=kv)


def test_a_kernel_is_compiled_for_the_first_call_and_called_alike_in_later_ones():
    add = same_types(kernel(lambda numbers, more: numbers.sum() + more))
    assert [add(np.arange(count), more) for count, more in ((3, 1), (4, 10))] == [4, 16]
