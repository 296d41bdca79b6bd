"""Energy of the units around the DRAM: NDP units and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class UnitEnergy:
    """Energy of the units of a DIMM, from the files in ``rtl_params/``; None: not known.

    Attributes:
        product_pj: a product and its addition to the sum, at native bits.
        buffer_pj_per_byte: a byte of activations read from the unit's buffer.
        fifo_pj_per_byte: a byte of weights through a FIFO.
        value_pj: an activated value.
        static_mw: static power of both units.
    """

    product_pj: float | None
    buffer_pj_per_byte: float | None
    fifo_pj_per_byte: float | None
    value_pj: float | None
    static_mw: float | None

    def split(
        self, products: float, activation_bytes: int, weight_bytes: int, values: int, time_ns: float
    ) -> dict[str, float | None]:
        """Energies in nJ by component.

        Args:
            products: products, each weighted by its energy relative to one at native bits.
            activation_bytes: bytes of activations read for them.
            weight_bytes: bytes of weights read.
            values: activated values.
            time_ns: the time that it took.
        """
        return {
            "ndp_multiply": _nj(self.product_pj, products),
            "ndp_buffer": _nj(self.buffer_pj_per_byte, activation_bytes),
            "ndp_fifo": _nj(self.fifo_pj_per_byte, weight_bytes),
            "ndp_activation": _nj(self.value_pj, values),
            "ndp_static": _nj(self.static_mw, time_ns),  # mW x ns = pJ
        }


def transfer_nj(moved_bytes: int, pj_per_bit: float | None) -> float | None:
    """Energy in nJ of bytes over a link, once for every link they pass; None where a bit's is not known."""
    return _nj(pj_per_bit, 8 * moved_bytes)


def _nj(unit_pj: float | None, count: float) -> float | None:
    return None if unit_pj is None else unit_pj * count / 1000


def add_up(parts: Mapping[str, float | None]) -> dict[str, float | None]:
    """The components, and last the `total` of those that are known."""
    return {**parts, "total": sum(part for part in parts.values() if part is not None)}
