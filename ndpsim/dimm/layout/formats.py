"""The bits of weights, and of the scale and zero point of a group of weights.

A row of a matrix is a sequence of groups, without gaps. A group is its scale, its zero point and then its
weights. A unit that reads a row from its beginning therefore has the scale and zero point before the
weights, and stores only one of each, at any group size.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, whole_number
from ndpsim.base.arrays import as_array
from ndpsim.base.choices import one_of_bits
from ndpsim.base.errors import InputError, shown, unknown

Ints = NDArray[np.int64]

#: The matrices of a gated expert, in the order of use; others have no gate.
MATRICES = ("gate", "up", "down")

#: The owner of a bit; PADDING: none, after the last weight.
WEIGHT, SCALE, ZERO_POINT, PADDING = range(4)

_MAX_GROUP = 1 << 24


def _whole(values: Any, name: str) -> Any:
    """Whole numbers of 64 bits: one, or an array.

    Raises:
        InputError: they are none.
    """
    array = as_array(values)
    if array.dtype.kind not in "iu":
        raise InputError(f"{shown(values)} are not whole numbers", "type", key=name)
    return values if isinstance(values, int) else array.astype(np.int64, copy=False)


class InRow(NamedTuple):
    """The owners of bits of a row.

    `kind`: WEIGHT, SCALE or ZERO_POINT. `column`: the column of the weight, or the group of a scale or zero
    point, from 0. `bit`: the bit within it.
    """

    kind: Ints
    column: Ints
    bit: Ints


@dataclass(frozen=True)
class WeightFormat:
    """The bits of a matrix.

    Attributes:
        bits: bits of a weight, one of `BITS`.
        group_size: weights along a row that share a scale and a zero point, fewer in the last group of a
            row; 0: there are no scales, which weights of 16 bits do not need.
        scale_bits: bits of a scale.
        zero_point_bits: bits of a zero point; 0: none, as symmetric quantisation has it.

    Raises:
        InputError: a number is out of range, or weights of 16 bits have groups.
    """

    bits: int
    group_size: int = 0
    scale_bits: int = 16
    zero_point_bits: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", one_of_bits(self.bits, "bits"))
        for name, low, high in (
            ("group_size", 0, _MAX_GROUP),
            ("scale_bits", 1, 64),
            ("zero_point_bits", 0, 64),
        ):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, low, high))
        if self.group_size and self.bits == 16:
            raise InputError("weights of 16 bits have no groups with scales", "conflict", key="group_size")

    @property
    def of_group(self) -> int:
        """Bits of a group's scale and zero point."""
        return self.scale_bits + self.zero_point_bits if self.group_size else 0

    def groups(self, columns: int) -> int:
        """Groups in a row of `columns` weights.

        Raises:
            InputError: it is no whole number.
        """
        columns = whole_number(columns, "columns", 0)
        return -(-columns // self.group_size) if self.group_size else 0

    def row_bits(self, columns: int) -> int:
        """Bits of a row, scales and zero points included.

        Raises:
            InputError: `columns` is no whole number.
        """
        columns = whole_number(columns, "columns", 0)
        return columns * self.bits + self.groups(columns) * self.of_group

    def weight_at(self, column: Ints) -> Ints:
        """The first bit of each weight in its row.

        Raises:
            InputError: `column` has other than whole numbers.
        """
        column = _whole(column, "column")
        begins: Ints = column * self.bits
        return begins + (column // self.group_size + 1) * self.of_group if self.group_size else begins

    def scale_at(self, group: Ints) -> Ints:
        """The first bit of the scale of each group in its row; its zero point follows.

        Raises:
            InputError: `group` has other than whole numbers.
        """
        begins: Ints = _whole(group, "group") * (self.group_size * self.bits + self.of_group)
        return begins

    def owner(self, bit: Ints) -> InRow:
        """The weight or scale to which bits of a row belong: the inverse of `weight_at` and `scale_at`.

        Raises:
            InputError: `bit` has other than whole numbers.
        """
        bit = _whole(bit, "bit")
        if not self.group_size:
            column, within = np.divmod(bit, self.bits)
            return InRow(np.full_like(bit, WEIGHT), column, within)
        group, within = np.divmod(bit, self.group_size * self.bits + self.of_group)
        weight, weight_bit = np.divmod(within - self.of_group, self.bits)
        in_scale, in_header = within < self.scale_bits, within < self.of_group
        return InRow(
            np.where(in_scale, SCALE, np.where(in_header, ZERO_POINT, WEIGHT)),
            np.where(in_header, group, group * self.group_size + weight),
            np.where(in_scale, within, np.where(in_header, within - self.scale_bits, weight_bit)),
        )

    def __str__(self) -> str:
        text = "1 bit" if self.bits == 1 else f"{self.bits} bits"
        if not self.group_size:
            return text
        zero_point = f" and zero point of {self.zero_point_bits}" if self.zero_point_bits else ""
        return f"{text}, scale of {self.scale_bits}{zero_point} bits a group of {self.group_size}"


@dataclass(frozen=True)
class ExpertFormat:
    """The bits of an expert's matrices; `gate` is None if it has none.

    Raises:
        InputError: one of them is no `WeightFormat`.
    """

    gate: WeightFormat | None
    up: WeightFormat
    down: WeightFormat

    def __post_init__(self) -> None:
        for name in self.names:
            instance(getattr(self, name), name, WeightFormat)

    @property
    def names(self) -> tuple[str, ...]:
        """The matrices, in the order of their numbers; down is the last one."""
        return MATRICES if self.gate is not None else MATRICES[1:]

    @property
    def most_bits(self) -> int:
        """Bits of a weight of the matrix with the widest ones."""
        return max(matrix.bits for matrix in self.matrices)

    @classmethod
    def of(
        cls,
        bits: int | Mapping[str, int] = 16,
        group_size: int = 0,
        scale_bits: int = 16,
        zero_point_bits: int | None = None,
    ) -> ExpertFormat:
        """The formats of matrices with `bits` bits a weight, or with those of each by its name.

        Matrices of fewer than 16 bits have groups of `group_size` weights (0: no groups); without
        `zero_point_bits` a zero point has as many bits as a weight of its matrix.

        Raises:
            InputError: a number or a name makes no sense, or there are groups and no matrix to have them.
        """
        if isinstance(bits, Mapping):
            for name in bits:
                if name not in MATRICES:
                    raise unknown(name, MATRICES, "matrix", key="bits")
            missing = [name for name in MATRICES if name not in bits]
            if missing:
                raise InputError(f"has no bits for {' and '.join(missing)}", "missing", key="bits")
            each = [one_of_bits(bits[name], "bits") for name in MATRICES]
        else:
            each = [one_of_bits(bits, "bits")] * len(MATRICES)
        group_size = whole_number(group_size, "group_size", 0, _MAX_GROUP)
        scale_bits = whole_number(scale_bits, "scale_bits", 1, 64)
        if zero_point_bits is not None:
            zero_point_bits = whole_number(zero_point_bits, "zero_point_bits", 0, 64)
        if group_size and all(width == 16 for width in each):
            problem = "groups weights of fewer than 16 bits, and all have 16"
            raise InputError(problem, "conflict", key="group_size")
        return cls(*(_format(width, group_size, scale_bits, zero_point_bits) for width in each))

    @property
    def matrices(self) -> tuple[WeightFormat, ...]:
        """The formats of the matrices, in the order of `names`."""
        return (self.up, self.down) if self.gate is None else (self.gate, self.up, self.down)

    def bits(self) -> int | dict[str, int]:
        """Bits of a weight: one number, or that of each matrix where they differ."""
        each = [matrix.bits for matrix in self.matrices]
        return each[0] if len(set(each)) == 1 else dict(zip(self.names, each, strict=True))


def expert_format(bits: int | ExpertFormat, gated: bool = True) -> ExpertFormat:
    """The format of an expert whose weights all have `bits` bits, or this one; no gate if it is not `gated`.

    Raises:
        InputError: weights cannot have this many bits.
    """
    form = bits if isinstance(bits, ExpertFormat) else _format_of_all(one_of_bits(bits, "bits"))
    return form if gated else replace(form, gate=None)


@functools.cache
def _format_of_all(bits: int) -> ExpertFormat:
    return ExpertFormat.of(bits)


def _format(bits: int, group_size: int, scale_bits: int, zero_point_bits: int | None) -> WeightFormat:
    if bits == 16 or not group_size:
        return WeightFormat(bits, 0 if bits == 16 else group_size)
    return WeightFormat(bits, group_size, scale_bits, bits if zero_point_bits is None else zero_point_bits)


# ---- The weights of an expert: their shape and format, and slices of them


@dataclass(frozen=True)
class ExpertWeights:
    """The weights of an expert: gate, if it has one, and up (intermediate x hidden), and down (hidden x
    intermediate).
    """

    hidden: int
    intermediate: int
    format: ExpertFormat

    @property
    def down(self) -> int:
        """The number of down, and of matrices before it, each with a row for a hidden value."""
        return len(self.format.names) - 1

    def shape(self, matrix: int) -> tuple[int, int]:
        """(rows, columns) of a matrix by its number in `format.names`."""
        across = self.hidden, self.intermediate
        return across if matrix == self.down else across[::-1]

    def matrix_bits(self) -> tuple[int, ...]:
        """Bits of each matrix, scales and zero points included, in the order of `format.names`."""
        shapes = (self.shape(matrix) for matrix in range(len(self.format.names)))
        return tuple(
            rows * form.row_bits(columns)
            for form, (rows, columns) in zip(self.format.matrices, shapes, strict=True)
        )

    def slices(self, count: int) -> list[range]:
        """The `intermediate` dimension in `count` slices, as equal as whole groups of down allow.

        Raises:
            InputError: there are more slices than weights or groups.
        """
        unit = self.format.down.group_size or 1
        units = -(-self.intermediate // unit)
        if count > units:
            raise InputError(
                f"sharded:{count} leaves DIMMs without weights: the intermediate size makes at most "
                f"{units} slices of {unit}",
                "range",
                key="layout",
            )
        ends = [min(units * n // count * unit, self.intermediate) for n in range(count + 1)]
        return [range(first, end) for first, end in pairwise(ends)]
