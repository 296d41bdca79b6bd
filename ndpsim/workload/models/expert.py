"""The shape of an expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ndpsim.base import arguments, errors

#: The largest allowed hidden or intermediate size.
MAX_SIZE = 1 << 24

#: The largest allowed number of heads of attention, or of groups of them.
MAX_HEADS = 1 << 16

_MAX_BITS = 64


def whole_number(value: object, low: int, high: int) -> str | None:
    """Message if `value` is no whole number from `low` to `high`, else None; True and 8.0 are none."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    return f"{errors.shown(value)} is not a whole number from {low} to {high}"


class Matrix(NamedTuple):
    """One weight matrix: `rows` outputs of `columns` inputs each."""

    name: str
    rows: int
    columns: int


@dataclass(frozen=True)
class Expert:
    """A feed-forward expert: down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate; no biases.

    `hidden` is the length of x and of the result, `intermediate` the length of up(x).

    Raises:
        InputError: a size is not a whole number from 1 to 2**24, or `gated` is no flag.
    """

    hidden: int
    intermediate: int
    gated: bool = True

    def __post_init__(self) -> None:
        for name, size in (("hidden", self.hidden), ("intermediate", self.intermediate)):
            object.__setattr__(self, name, arguments.whole_number(size, name, 1, MAX_SIZE))
        object.__setattr__(self, "gated", arguments.flag(self.gated, "gated"))

    def matrices(self) -> tuple[Matrix, ...]:
        """gate and up (intermediate x hidden) and down (hidden x intermediate), in the order of use."""
        inward = ("gate", "up") if self.gated else ("up",)
        return (
            *(Matrix(name, self.intermediate, self.hidden) for name in inward),
            Matrix("down", self.hidden, self.intermediate),
        )

    @property
    def matrix_count(self) -> int:
        """Number of `matrices`."""
        return 3 if self.gated else 2

    @property
    def weights(self) -> int:
        """Number of weights in all matrices together."""
        return self.matrix_count * self.hidden * self.intermediate

    def weight_bytes(self, bits: int = 16) -> int:
        """Bytes of the matrices at `bits` a weight, each rounded up to whole bytes; no group scales.

        Raises:
            InputError: `bits` is not a whole number from 1 to 64.
        """
        bits = arguments.whole_number(bits, "bits", 1, _MAX_BITS)
        return sum(-(-matrix.rows * matrix.columns * bits // 8) for matrix in self.matrices())
