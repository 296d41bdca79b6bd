"""Energy of a simulation, from its hardware file and the data sheet of its DRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.units import Timebase
from ndpsim.dram import energy
from ndpsim.dram.spec import Device, Standard

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.dimm.layout import ExpertWeights
    from ndpsim.dimm.link import Network
    from ndpsim.dimm.units import MultiplierUnit

Energy = tuple[dict[str, float | None] | None, str]


@dataclass(frozen=True, eq=False)
class DramPower:
    """Power of equal channels: `channel` is None without a data sheet, with the reason in `note`."""

    standard: Standard
    channel: energy.ChannelEnergy | None
    note: str

    def split(
        self,
        issued: NDArray[np.int64],
        rank_clocks: int,
        open_clocks: int,
        others: Mapping[str, float | None] | None = None,
    ) -> Energy:
        """Energy in nJ by component, or None; and its sources, or the reason for None.

        Args:
            issued: int64[command], commands over all channels.
            rank_clocks: clocks, summed over all ranks.
            open_clocks: clocks for which banks were open, summed over all banks.
            others: components other than the DRAM.
        """
        if self.channel is None:
            return None, self.note
        counts = energy.counts_of(issued, self.standard, rank_clocks, open_clocks)
        dram = energy.split(counts, self.channel)
        if dram is None:
            return None, energy.NO_ONE_BANK if counts.bank_refreshes else energy.NO_SAME_BANK
        return energy.add_up({**dram, **(others or {})}), self.note

    def io_nj(self, bursts: int) -> float:
        """Energy of bursts over a bus, in nJ; 0 if that of the DRAM is unknown."""
        return 0.0 if self.channel is None else bursts * self.channel.io


def dram_power(device: Device, changes: Mapping[str, float] | None = None) -> DramPower:
    """Power of channels of a device, with `changes` to the currents of its data sheet."""
    currents = energy.find_currents(device, changes)
    return DramPower(
        device.standard,
        None if currents is None else energy.channel_energy(device, currents),
        energy.explain(device, currents),
    )


def unit_energy(hardware: Hardware) -> energy.UnitEnergy:
    """The energies of the multipliers and the activation unit of a DIMM or device."""
    (_, unit), activation = hardware.ndp.multiplier, hardware.ndp.activation
    static = (unit.static_mw, activation.static_mw)
    known = [mw for mw in static if mw is not None]
    return energy.UnitEnergy(
        product_pj=unit.product_pj,
        buffer_pj_per_byte=unit.buffer_pj_per_byte,
        fifo_pj_per_byte=unit.fifo_pj_per_byte,
        value_pj=activation.value_pj,
        static_mw=sum(known) if len(known) == len(static) else None,
    )


def unit_work(
    unit: MultiplierUnit, weights: ExpertWeights, tokens: int, weight_bytes: int
) -> tuple[float, int, int, int]:
    """The work of this many tokens, with this many bytes of read weights.

    It is, for `UnitEnergy.split`: products, bytes of activations, bytes of weights, activated values.
    """
    products = tokens * weights.hidden * weights.intermediate  # of a matrix
    matrices = weights.format.matrices
    return (
        float(products * sum(unit.native_share(matrix.bits) for matrix in matrices)),
        len(matrices) * products * unit.activation_bytes,
        weight_bytes,
        tokens * weights.intermediate,
    )


def engine_energy(
    hardware: Hardware,
    network: Network,
    timebase: Timebase,
    busy: NDArray[np.int64],
    bits: int,
    time_ns: float,
) -> dict[str, float | None]:
    """Energy in nJ by component of all relayout engines, the links, and channels that bridge groups.

    Args:
        network, timebase: the links, and their ticks.
        busy: ticks by wire.
        bits: bits of weights that were read and moved.
        time_ns: the duration.
    """
    link, unit = hardware.system.link, hardware.relayout
    assert link is not None, "there is a network"
    bytes_over = [0.0, 0.0]  # links, channels
    wires = {hop.wire: hop for hop in network.hops}
    for wire, ticks in enumerate(busy):
        hop = wires[wire]
        over_channel = max(hop.source, hop.target) >= network.dimms
        bytes_over[over_channel] += timebase.to_ns(int(ticks)) * hop.gbps
    passed = 2 * bits // 8  # with a buffer at each end
    static = None if unit.static_mw is None else unit.static_mw * network.dimms
    spent = {
        "ndp_relayout": None if unit.pj_per_byte is None else unit.pj_per_byte * passed / 1000,
        "ndp_static": None if static is None else static * time_ns / 1000,
        "link": energy.transfer_nj(round(bytes_over[0]), link.pj_per_bit),
    }
    if bytes_over[1]:
        device = hardware.lane_device()
        power = dram_power(device, hardware.power_changes)
        spent["host"] = power.io_nj(round(bytes_over[1] / device.burst_bytes))
    return spent
