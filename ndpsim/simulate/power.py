"""What a hardware file says of energy, in the form in which simulations use it."""

from __future__ import annotations

from ndpsim.config import Hardware
from ndpsim.energy import UnitEnergy

__all__ = ["unit_energy"]


def unit_energy(hardware: Hardware) -> UnitEnergy:
    """The energies of the GEMV and the activation unit of a DIMM."""
    gemv, activation = hardware.ndp.gemv, hardware.ndp.activation
    static = (gemv.static_mw, activation.static_mw)
    known = [mw for mw in static if mw is not None]
    return UnitEnergy(
        product_pj=gemv.product_pj,
        buffer_pj_per_byte=gemv.buffer_pj_per_byte,
        fifo_pj_per_byte=gemv.fifo_pj_per_byte,
        value_pj=activation.value_pj,
        static_mw=sum(known) if len(known) == len(static) else None,
    )
