"""The GEMV unit: bit-serial multipliers behind the lanes of a DIMM, and an adder tree.

The multipliers are divided evenly between the lanes. A burst of weights occupies as many multipliers as its
values need, for one bit-serial pass for each token; then they can start the next burst. A lane's multipliers
are therefore `servers` equal servers that hold a burst for `burst_cycles` each. They are the sink of
the lane's DRAM channel. The adder tree over all lanes gives the sum of a row and token every
`row_sum_cycles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import ExpertFormat, Interleaving, LaneShare
from ndpsim.dimm.units.unit import MultiplierUnit, Run

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GemvUnit(MultiplierUnit):
    """A GEMV unit; cycles are cycles of its own clock.

    Attributes:
        multipliers: number of multipliers of the unit.
        values_per_multiplier: values that a multiplier processes at once.
        native_bits: bits of a weight that needs `bit_serial_cycles`.
        bit_serial_cycles: cycles of one pass over weights of `native_bits`.
        adder_tree_cycles: cycles from the last product of a row to its sum.
        row_sum_cycles: cycles between the sums of two rows and tokens; 0: they may leave together.
    """

    multipliers: int
    values_per_multiplier: int
    native_bits: int
    bit_serial_cycles: int
    adder_tree_cycles: int
    row_sum_cycles: int = 0

    def pass_cycles(self, bits: int) -> int:
        """Cycles of one bit-serial pass over weights of `bits` bits: proportional to the bits, rounded up."""
        return -(-self.bit_serial_cycles * bits // self.native_bits)

    def burst_work(self, lanes: int, burst_bytes: int, bits: int) -> tuple[int, int]:
        """(servers of a lane, cycles for which a burst holds a server for each token).

        Multipliers process whole bursts, so multipliers that are too few for another burst are idle. Example:
        a lane has 32 multipliers of 8 values. A burst of 171 3-bit weights occupies 22 of them for 3 cycles.
        Two bursts of 4-bit weights occupy all for 4 cycles. Then 3 bits are slower than 4 by an eighth.

        Raises:
            InputError: there are fewer multipliers than lanes.
        """
        multipliers = self.multipliers // lanes
        if multipliers == 0:
            problem = f"{self.multipliers} multipliers are fewer than the {lanes} lanes"
            raise InputError(problem, "conflict", key="ndp.gemv.multipliers")
        values = -(-burst_bytes * 8 // bits)
        wanted = -(-values // self.values_per_multiplier)
        return max(1, multipliers // wanted), -(-wanted // multipliers) * self.pass_cycles(bits)

    def check_format(self, written: ExpertFormat) -> None:
        if written.gate is not None and written.gate.bits != written.up.bits:
            raise InputError(
                f"gate and up, read row by row in turn, need equal bits, not {written.gate.bits} "
                f"and {written.up.bits}",
                "conflict",
                key="bits",
            )

    def region_work(self, interleaving: Interleaving, region: int) -> tuple[int, int]:
        """`burst_work` of a region. A burst that also has scales counts as one full of weights."""
        bits = interleaving.regions[region].formats[0].bits
        return self.burst_work(interleaving.lanes, interleaving.device.burst_bytes, bits)

    def servers(self, interleaving: Interleaving, region: int) -> int:
        return self.region_work(interleaving, region)[0]

    def runs(
        self, interleaving: Interleaving, region: int, lane: int, share: LaneShare, tokens: int
    ) -> tuple[Run, ...]:
        return (Run(share.bursts[region], tokens * self.region_work(interleaving, region)[1]),)

    def summed(
        self, interleaving: Interleaving, region: int, tokens: int, done: Ints, cycle_ticks: int
    ) -> Ints:
        latency = self.adder_tree_cycles * cycle_ticks
        if not self.row_sum_cycles:
            return done + latency
        spacing = np.arange(len(done)) * (self.row_spacing(tokens) * cycle_ticks)
        return np.maximum.accumulate(done - spacing) + spacing + latency  # rows leave in their order

    def row_spacing(self, tokens: int) -> int:
        return tokens * self.row_sum_cycles

    def cycles_for_product(self, lanes: int, burst_bytes: int, bits: int) -> Fraction:
        servers, cycles = self.burst_work(lanes, burst_bytes, bits)
        return Fraction(cycles * bits, servers * lanes * burst_bytes * 8)

    def native_share(self, bits: int) -> Fraction:
        return Fraction(self.pass_cycles(bits), self.bit_serial_cycles)


UNIT = GemvUnit
