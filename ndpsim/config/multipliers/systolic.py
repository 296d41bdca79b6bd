"""The keys of systolic arrays."""

from __future__ import annotations

from typing import ClassVar, Literal

from ndpsim.base.units import exact
from ndpsim.config.multipliers import Multiplier
from ndpsim.config.quantities import Bits, ClockMhz, Count, Side, key


class Systolic(Multiplier):
    """The systolic arrays of a memory device, before all its channels."""

    called: ClassVar[str] = "systolic arrays"
    peak_formula: ClassVar[str] = "arrays x rows x columns x 2 x clock_mhz"

    arrays: Count = key("arrays of the device")
    rows: Side = key("rows of processing elements in an array")
    columns: Side = key("columns of processing elements in an array")
    clock_mhz: ClockMhz = key("clock of the arrays")
    dataflow: Literal["output-stationary", "weight-stationary"] = key(
        "the operand that stays in a processing element: its sum, or its weight"
    )
    low_bit_throughput: Literal["fixed", "inverse-bits"] = key(
        "multiplications of an element in a cycle; fixed: one; inverse-bits: native_bits / bits of a weight"
    )
    native_bits: Bits = key("bits of a weight that an element multiplies in one cycle")
    stationary_registers: int = key(
        "number of sums or weights in an element; with 2, one tile fills while another drains", ge=1, le=2
    )
    load_rows: Side = key("number of rows that load weights at the same time, if weight-stationary")

    @property
    def peak_gflops(self) -> float:
        return float(2 * self.arrays * self.rows * self.columns * exact(self.clock_mhz) / 1000)

    def problem(self, behind_cxl: bool) -> tuple[str, str] | None:
        if not behind_cxl:
            return "cxl", "is missing: systolic arrays need a device behind a CXL link"
        if self.load_rows > self.rows:
            problem = f"{self.load_rows} is more than the {self.rows} rows of an array"
            return "ndp.systolic.load_rows", problem
        return None


SECTION = Systolic
