"""Columns of traces: arrays of whole numbers from arguments, and DataFrames of them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ndpsim.base.arrays import as_array
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Shown


def whole_numbers(
    values: ArrayLike, name: str, dtype: DTypeLike = np.int64, kinds: str = "iu", dimensions: int = 1
) -> NDArray[Any]:
    """`values` as an array of integers of `dtype`, not copied if it is one already.

    Args:
        name: name of the argument, for errors.
        kinds: accepted kinds of NumPy types; "iub" includes bools.
        dimensions: the number of dimensions of the array.

    Raises:
        InputError: the values are not whole numbers, do not fit the type, or have other dimensions.
    """
    array = as_array(values)
    if not array.size and array.ndim == dimensions:
        return array.astype(dtype)  # an empty list has no type of its own
    if array.dtype.kind not in kinds or array.ndim != dimensions:
        expected = "whole numbers" if dimensions == 1 else f"whole numbers in {dimensions} dimensions"
        raise InputError(f"{shown(values)} is not an array of {expected}", "type", key=name)
    limits = np.iinfo(np.dtype(dtype))
    if array.dtype != limits.dtype and array.dtype.kind != "b":
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                problem = f"{value} is not a whole number from {limits.min} to {limits.max}"
                raise InputError(problem, "range", key=name)
    return array.astype(dtype, copy=False)


class Columns(Shown):
    """A trace whose columns are arrays."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """`to_arrays` as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            problem = f"needs pandas, which cannot be imported ({error}); to_arrays does without"
            raise InputError(problem, "not-installed", key="to_pandas") from None
        return pandas.DataFrame(self.to_arrays())
