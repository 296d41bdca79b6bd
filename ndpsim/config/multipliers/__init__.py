"""Sections of hardware files for units with multipliers: a module for each section, with its name.

``SECTION`` is the class of the keys. The module of the same name in `ndpsim.dimm.units` simulates the unit.
"""

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

# ---- Keys that every unit with multipliers has in a hardware file


class Multiplier(Section):
    """A multiplier unit, with the keys that every such unit has.

    A subclass describes one kind of unit. `called`: its name in reports. `peak_formula`: the formula of
    `peak_gflops` in its keys.
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
        """Peak of the whole unit at native precision; a multiplication and an addition are two operations."""
        raise NotImplementedError

    def problem(self, behind_cxl: bool) -> tuple[str, str] | None:
        """The reason why a system with or without a CXL link cannot have this unit: a key and a problem."""
        return None
