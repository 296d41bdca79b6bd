"""The bits of a run's weights, from a number or from the name of a weight file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.moe import MOE
from ndpsim.dimm.layout import MATRICES, ExpertFormat
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.operations import DenseBits
from ndpsim.inference.processors.weights import dense_bits, expert_format_of
from ndpsim.workload.models import MoeShape
from ndpsim.workload.models.weights import WeightFile, own_weight_file, weight_file

_BITS = 16


@dataclass(frozen=True)
class RunWeights:
    """Bits of a run's weights.

    Attributes:
        bits: bits of a routed expert's weight; for a file with fractions of bits, the nearest whole number.
        format: the format of a routed expert in a file; None: `bits`, without scales.
        dense: the formats of the dense parts.
        file: the weight file; None: there is none.
    """

    bits: int
    format: ExpertFormat | None
    dense: DenseBits
    file: WeightFile | None

    @property
    def expert(self) -> int | ExpertFormat:
        """Bits or format of a routed expert, as an argument of simulations."""
        return self.bits if self.format is None else self.format

    def to_dict(self) -> dict[str, Any]:
        """The entries of a result: `bits`, `dense_bits` and, with a file, `weights`."""
        experts: Any = self.bits
        if self.file is not None and self.format is not None:
            experts = {name: float(self.file.bits[name]) for name in MATRICES}
        elif self.format is not None:
            experts = {
                name: form.bits + form.of_group / (form.group_size or 1)
                for name, form in zip(MATRICES, self.format.matrices, strict=True)
            }
        dense: Any = self.dense
        if not isinstance(dense, int):
            dense = {part: float(of_part) for part, of_part in dense.items()}
        named = {} if self.file is None else {"weights": self.file.name}
        return {"bits": experts, "dense_bits": dense, **named}


def run_weights(model: MoeShape, bits: int | None, dense: int | None, weights: str | None) -> RunWeights:
    """The weights for the arguments of `run_moe`.

    Raises:
        InputError: bits are given together with a weight file, or there is no such file.
    """
    if weights is None:
        if dense is not None:
            dense = MOE["dense-bits"].checked(dense)
        own = own_weight_file(model) if bits is None or dense is None else None
        if own is None:
            return RunWeights(_BITS if bits is None else bits, None, _BITS if dense is None else dense, None)
        return _changed(_of_file(model, own), bits, dense)
    for value, key in ((bits, "bits"), (dense, "dense_bits")):
        if value is not None:
            raise InputError(
                f"{value} beside weights={weights}, which says the bits of all weights", "conflict", key=key
            )
    return _of_file(model, weight_file(weights, model))


def _of_file(model: MoeShape, file: WeightFile) -> RunWeights:
    """The weights of a file."""
    if not model.has_experts:
        return RunWeights(_BITS, None, dense_bits(file), file)
    form = expert_format_of(file)
    mean = Fraction(8 * weight_bytes(model.expert, form), model.expert.weights)
    return RunWeights(max(1, min(16, round(mean))), form, dense_bits(file), file)


def _changed(weights: RunWeights, bits: int | None, dense: int | None) -> RunWeights:
    """The weights of a model's own file, with given bits in place of some."""
    if bits is not None:
        return replace(weights, bits=bits, format=None, file=None)
    return weights if dense is None else replace(weights, dense=dense, file=None)
