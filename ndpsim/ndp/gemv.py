"""The GEMV unit: bit-serial multipliers behind the lanes of a DIMM, and an adder tree.

The multipliers are shared out evenly: each lane feeds its own. A burst of weights occupies as many of
them as hold its values and stays for one bit-serial pass a token; the next burst that they serve can
start when they are done. A lane's multipliers are therefore `servers` equal places that each hold a
burst for `burst_cycles`, which is the sink of the lane's DRAM channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, Interleaving, LaneShare
from ndpsim.ndp.unit import MultiplierUnit, Run

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GemvUnit(MultiplierUnit):
    """A GEMV unit as its parameters say; cycles are of its own clock.

    Attributes:
        multipliers: on the whole unit.
        values_per_multiplier: values a multiplier works on at once.
        native_bits: bits of a weight that takes `bit_serial_cycles`.
        bit_serial_cycles: cycles of one pass over weights of `native_bits`.
        adder_tree_cycles: from the last product of a row to its sum.
    """

    multipliers: int
    values_per_multiplier: int
    native_bits: int
    bit_serial_cycles: int
    adder_tree_cycles: int

    def pass_cycles(self, bits: int) -> int:
        """Cycles of one pass over weights of `bits` bits: bit-serial, so in proportion, rounded up."""
        return -(-self.bit_serial_cycles * bits // self.native_bits)

    def burst_work(self, lanes: int, burst_bytes: int, bits: int) -> tuple[int, int]:
        """(servers of a lane, cycles that a burst holds one of them per token).

        Multipliers take whole bursts, so those that are too few for one burst more stand idle: of the 32
        of a lane, with 8 values each, a burst of 3-bit weights, 171 of them, takes 22 for 3 cycles, where
        two bursts of 4-bit weights take all for 4 cycles. Then 3 bits are slower than 4 by an eighth.

        Raises:
            InputError: there are fewer multipliers than lanes.
        """
        of_lane = self.multipliers // lanes
        if of_lane == 0:
            problem = f"{self.multipliers} multipliers are fewer than the {lanes} lanes"
            raise InputError(problem, "conflict", key="ndp.gemv.multipliers")
        values = -(-burst_bytes * 8 // bits)
        wanted = -(-values // self.values_per_multiplier)
        return max(1, of_lane // wanted), -(-wanted // of_lane) * self.pass_cycles(bits)

    def check_format(self, written: ExpertFormat) -> None:
        if written.gate.bits != written.up.bits:
            raise InputError(
                f"gate and up, read row by row in turn, need equal bits, not {written.gate.bits} "
                f"and {written.up.bits}",
                "conflict",
                key="bits",
            )

    def region_work(self, interleaving: Interleaving, region: int) -> tuple[int, int]:
        """`burst_work` of a region. A burst asks for as much as one full of weights, though it may hold
        scales as well.
        """
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
        return done + self.adder_tree_cycles * cycle_ticks

    def cycles_for_product(self, lanes: int, burst_bytes: int, bits: int) -> Fraction:
        servers, cycles = self.burst_work(lanes, burst_bytes, bits)
        return Fraction(cycles * bits, servers * lanes * burst_bytes * 8)

    def native_share(self, bits: int) -> Fraction:
        return Fraction(self.pass_cycles(bits), self.bit_serial_cycles)


UNIT = GemvUnit
