"""Formats of a weight file for the simulation: the format of a routed expert, and bits of the dense parts.

A matrix of an expert has groups of whole bits, see `WeightFormat`. A block format is converted to the largest
number of bits for which the block has room; the rest of the block is divided evenly between its groups.
Example: Q4_K is 4 bits with a scale and a minimum of 8 bits for a group of 32, or 4.5 bits a weight. If
layers differ, every layer has their mean. Additional bytes of a row (`Block.row_bytes`) are divided over the
row. Both are rounded to whole bits of a group, which is as large as possible, up to 256 weights.
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.base.choices import BITS
from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import MATRICES, ExpertFormat, WeightFormat
from ndpsim.workload.models.weights import Block, WeightFile

_DENSE = ("attention", "router", "shared_experts", "dense_layers", "embedding", "head")
_MAX_HEADER = 128  # maximum bits of a scale and a zero point together in `WeightFormat`
_GROUPS = (256, 128, 64, 32, 16)


def matrix_format(bits: Fraction, columns: int, block: Block | None = None) -> WeightFormat:
    """The format of a matrix with `bits` bits a weight, scales included, and rows of `columns` weights.

    `block`: the format of all its weights, whose groups it gets; None: groups are as large as fits.
    """
    whole = next(number for number in BITS if number <= bits)
    if whole == 16:
        return WeightFormat(16)
    if block is not None:
        group, minimum = block.group, block.minimum
    else:
        sizes = (size for size in _GROUPS if columns % size == 0 and (bits - whole) * size <= _MAX_HEADER)
        group, minimum = next(sizes, _GROUPS[-1]), False
    header = round((bits - whole) * group)
    if not header:
        return WeightFormat(whole)
    if block is not None and block.zero_point_bits is not None:
        zero_point = block.zero_point_bits
    else:
        zero_point = header // 2 if minimum else max(0, header - _MAX_HEADER // 2)
    return WeightFormat(whole, group, header - zero_point, zero_point)


def expert_format_of(file: WeightFile) -> ExpertFormat:
    """The format of a routed expert in `file`, the same in all layers."""
    return ExpertFormat(*(_matrix_format(file, name) for name in MATRICES))


def _matrix_format(file: WeightFile, name: str) -> WeightFormat:
    """The format of one of an expert's matrices."""
    if file.bits[name] > BITS[0]:
        problem = (
            f"{file.name} has {float(file.bits[name]):g} bits for experts; {BITS[0]} at most are simulated"
        )
        raise InputError(problem, "unsupported", key="weights")
    columns, blocks = file.of_class(name)[0].columns, list(file.blocks(name))
    alike = blocks[0] if len(blocks) == 1 and blocks[0].group and not blocks[0].row_bytes else None
    return matrix_format(file.bits[name], columns, alike)


def dense_bits(file: WeightFile) -> dict[str, Fraction]:
    """Mean bits of a weight of each dense part, by the names of `dense_weight_bytes`; 0: the model has none.

    A head that is tied to the embedding has its bits.
    """
    found = {part: file.bits.get(part, Fraction(0)) for part in _DENSE}
    return found | {"head": found["head"] or found["embedding"]}
