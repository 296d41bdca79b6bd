"""Kernels whose arguments are looked at in the first call only; see `test_moe_run` for those of whole runs."""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import kernel, same_types


def test_a_kernel_is_compiled_for_the_first_call_and_called_alike_in_later_ones():
    add = same_types(kernel(lambda numbers, more: numbers.sum() + more))
    assert [add(np.arange(count), more) for count, more in ((3, 1), (4, 10))] == [4, 16]
