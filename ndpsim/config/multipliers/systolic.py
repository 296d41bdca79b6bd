"""The keys of systolic arrays."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ndpsim.config.multiplier import Multiplier
from ndpsim.config.quantities import Bits, ClockMhz, Count, Side
from ndpsim.units import exact


class Systolic(Multiplier):
    """The systolic arrays of a memory device, before all its channels."""

    called: ClassVar[str] = "systolic arrays"
    peak_formula: ClassVar[str] = "arrays x rows x columns x 2 x clock_mhz"

    arrays: Count = Field(description="arrays of the device")
    rows: Side = Field(description="rows of processing elements in an array")
    columns: Side = Field(description="columns of processing elements in an array")
    clock_mhz: ClockMhz = Field(description="clock of the arrays")
    dataflow: Literal["output-stationary", "weight-stationary"] = Field(
        description="what stays in a processing element while the rest moves: its sum, or its weight"
    )
    low_bit_throughput: Literal["fixed", "inverse-bits"] = Field(
        description="products of an element a cycle: one, or native_bits over the bits of a weight"
    )
    native_bits: Bits = Field(description="bits of a weight that takes an element a cycle")
    stationary_registers: int = Field(
        ge=1,
        le=2,
        description="sums or weights an element has room for; with 2 a tile fills while another drains",
    )
    load_rows: Side = Field(description="rows that take weights from outside at once, if weight-stationary")

    @property
    def peak_gflops(self) -> float:
        """See `Multiplier.peak_gflops`."""
        return float(2 * self.arrays * self.rows * self.columns * exact(self.clock_mhz) / 1000)

    def problem(self, behind_cxl: bool) -> tuple[str, str] | None:
        """See `Multiplier.problem`."""
        if not behind_cxl:
            return "cxl", "is missing: systolic arrays stand in a device behind a CXL link"
        if self.load_rows > self.rows:
            problem = f"{self.load_rows} is more than the {self.rows} rows of an array"
            return "ndp.systolic.load_rows", problem
        return None


SECTION = Systolic
