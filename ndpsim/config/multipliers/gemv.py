"""The keys of a matrix-vector unit."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from ndpsim.base.units import exact
from ndpsim.config.multipliers import Multiplier
from ndpsim.config.quantities import Bits, Count, Cycles, Latency, key


class Gemv(Multiplier):
    """The matrix-vector unit of a DIMM."""

    called: ClassVar[str] = "GEMV unit"
    peak_formula: ClassVar[str] = "multipliers x values_per_multiplier / bit_serial_cycles x 2 x clock_mhz"

    multipliers: Count = key("multipliers of the unit")
    values_per_multiplier: int = key("values that a multiplier processes at once", ge=1, le=1024)
    native_bits: Bits = key("native bits of a value in the multiplier")
    bit_serial_cycles: Cycles = key("cycles of a multiplier for values of native bits")
    adder_tree_cycles: Latency = key("latency of the adder tree")
    row_sum_cycles: Latency = key(
        "cycles between the sums of two rows, or of a row for two tokens, that leave the adder tree; 0: rows "
        "that are complete together leave together",
        0,
    )

    @property
    def peak_gflops(self) -> float:
        products = Fraction(self.multipliers * self.values_per_multiplier, self.bit_serial_cycles)
        return float(2 * products * exact(self.clock_mhz) / 1000)


SECTION = Gemv
