"""Keys that every unit with multipliers has in a hardware file."""

from __future__ import annotations

from typing import ClassVar

from ndpsim.config.quantities import (
    ActivationBytes,
    AreaMm2,
    BufferKib,
    BufferPj,
    ClockMhz,
    FifoBursts,
    FifoPj,
    ProductPj,
    Section,
    StaticMw,
    key,
)


class Multiplier(Section):
    """A unit that multiplies, with the keys that each has.

    What a subclass says of itself is all that configuration knows of it. `called`: what reports call it.
    `peak_formula`: how `peak_gflops` follows from its keys.
    """

    called: ClassVar[str]
    peak_formula: ClassVar[str]

    clock_mhz: ClockMhz = key("clock of the unit")
    buffer_kib: BufferKib
    activation_bytes: ActivationBytes
    fifo_bursts: FifoBursts
    product_pj: ProductPj = None
    buffer_pj_per_byte: BufferPj = None
    fifo_pj_per_byte: FifoPj = None
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None

    @property
    def peak_gflops(self) -> float:
        """At native precision, of the whole unit: a product and a sum are two."""
        raise NotImplementedError

    def problem(self, behind_cxl: bool) -> tuple[str, str] | None:
        """Why it cannot be in a system, with a CXL link or not: a key and what is wrong with it."""
        return None
