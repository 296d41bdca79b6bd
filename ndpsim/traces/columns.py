"""Columns of traces: what a caller gave as arrays of whole numbers, and frames made of them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ndpsim.arguments import shown
from ndpsim.errors import InputError
from ndpsim.reported import Shown


def whole_numbers(
    values: ArrayLike, name: str, dtype: DTypeLike = np.int64, kinds: str = "iu", dimensions: int = 1
) -> NDArray[Any]:
    """`values` as an array of integers of `dtype`; what has it already is not copied.

    Args:
        name: the argument, for the message.
        kinds: the kinds of NumPy types that are taken; "iub" takes bools, too.
        dimensions: the number of dimensions of the array.

    Raises:
        InputError: they are no whole numbers, of another number of dimensions, or do not fit the type.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if not array.size and array.ndim == dimensions:
        return array.astype(dtype)  # an empty list has no type of its own
    if array.dtype.kind not in kinds or array.ndim != dimensions:
        of = "whole numbers" if dimensions == 1 else f"whole numbers in {dimensions} dimensions"
        raise InputError(f"{shown(values)} is not an array of {of}", "type", key=name)
    limits = np.iinfo(np.dtype(dtype))
    if array.dtype != limits.dtype and array.dtype.kind != "b":
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                problem = f"{value} is not a whole number from {limits.min} to {limits.max}"
                raise InputError(problem, "range", key=name)
    return array.astype(dtype, copy=False)


class Columns(Shown):
    """A trace of which every column is an array."""

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
