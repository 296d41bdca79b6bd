"""How fast a program's CPU kernels multiply weights of a format, relative to the fitted efficiency of a CPU.

`ndpsim/inference/processors/fits/formats.csv`, which `validation/cpu_formats.py` writes, has for each program
and format the share of that efficiency and the tokens that are added for unpacking.
"""

from __future__ import annotations

import csv
import functools
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ndpsim.inference.processors.fitted import FOLDER
from ndpsim.workload.models.blocks import BLOCKS, Block
from ndpsim.workload.models.stored import Tensor


class Kernels(NamedTuple):
    """Kernels for some weights.

    `efficiency`: share of `host.cpu_compute_efficiency`. `added_tokens`: as `host.cpu_added_tokens`.
    `bits`: mean bits of a weight, with scales.
    """

    efficiency: float = 1.0
    added_tokens: float = 0.0
    bits: float = 16.0


_GRIDS = ("iq1_", "iq2_x", "iq2_s", "iq3_x", "iq3_s")

#: Kernels that were not measured by format.
USUAL = Kernels()


def kernels_of(program: str | None, tensors: Iterable[Tensor]) -> Kernels:
    """The mean over tensors, by their weights, of the time of a token and of unpacking.

    program: whose kernels they are, of formats.csv; None: they were not measured by format.
    """
    weights = size = token = unpacking = 0.0
    for tensor in tensors:
        efficiency, added = (1.0, 0.0) if program is None else _of_format(program, tensor.block)
        weights, size = weights + tensor.weights, size + tensor.bytes
        token += tensor.weights / efficiency
        unpacking += tensor.weights * added / efficiency
    if not weights:
        return USUAL
    return Kernels(weights / token, unpacking / token, 8 * size / weights)


def _of_format(program: str, block: Block) -> tuple[float, float]:
    """Efficiency and added tokens of a format, or the means of those that are unpacked alike.

    These have as many whole bits, where 1 bit is taken as 2, and are also unpacked from a grid, or are not.
    """
    known = _formats(program)
    if block.name in known:
        return known[block.name][1:]
    bits, grid = min(max(2, int(block.bits)), 16), _from_grid(block.name)
    alike = [values for name, values in known.items() if values[0] == bits and _from_grid(name) == grid]
    alike = alike or list(known.values())
    return (
        statistics.geometric_mean(efficiency for _, efficiency, _ in alike),
        statistics.fmean(added for _, _, added in alike),
    )


@functools.cache
def _formats(program: str) -> Mapping[str, tuple[int, float, float]]:
    """By format: whole bits, efficiency, added tokens."""
    with (FOLDER / "formats.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["format"]: (_whole_bits(row["format"]), float(row["efficiency"]), float(row["added_tokens"]))
            for row in csv.DictReader(file)
            if row["program"] == program
        }


def _from_grid(name: str) -> bool:
    """Whether weights are looked up in a table, several at once (IQ1, IQ2, IQ3), or computed (KT)."""
    return name.startswith(_GRIDS) or name.endswith("_kt")


def _whole_bits(name: str) -> int:
    return int(BLOCKS[name].bits)
