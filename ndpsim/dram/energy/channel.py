"""The energy of a channel's commands and clocks, from currents.

Each current is the mean over a loop of commands that the standards prescribe. A command's energy is the
current of its loop above standby, over the time of the loop (Micron TN-40-07, "Calculating Memory Power for
DDR4 SDRAM"; DRAMPower, Chandrasekar et al., does the same). mA x V x ns = pJ. All chips of a rank,
`channel_bits / dq` without ECC chips, do the same at the same time. For a chip, with currents on VDD (and in
the same way on VPP and each further supply, if they are known):

    activate     (IDD0 - one bank open) x tRAS + (IDD0 - IDD2N) x tRP: an activation and its precharge
    read         (IDD4R - its open banks) x time of a burst; a write likewise with IDD4W
    refresh      (IDD5B - IDD2N) x tRFC, the rank's banks being closed; that of one bank of every
                 group likewise with IDD5C and tRFCsb, that of one bank, or of the pair that the
                 standard refreshes together, with IDD5PB and tRFCpb;
                 RFM as the refresh of the same banks, as data sheets have no current for it
    background   IDD2N, and (IDD3N - IDD2N) / banks more for each bank that is open, of the banks that
                 are open in the loop of IDD3N
    io           see `_io_pj`

IDD3N of DDR is measured with all banks open, IDD0 with one. Standby is assumed to grow equally with each open
bank (the bank-wise model of Jung et al., RAPIDO 2017, without an extra share for the first bank). If one open
bank drew all of IDD3N, an activation of the DDR5 part would have negative energy. With this model a simulated
measurement loop draws the current of the data sheet.

The times are those of the loops, not of the simulated device: a refresh does not need more energy because the
controller waits longer for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dram.energy.currents import Currents, Supply
from ndpsim.dram.spec import Device, Standard
from ndpsim.dram.spec.standard import (
    ACTIVATE,
    BANK_PAIR,
    ONE_BANK,
    READ,
    READ_AP,
    SAME_BANKS,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)

#: The reason why `split` has no energy.
NO_SAME_BANK = "IDD5C, the current of same-bank refreshes, is not known; give it as dram.power.IDD5C"
NO_ONE_BANK = "IDD5PB, the current of per-bank refreshes, is not known; give it as dram.power.IDD5PB"


class Counts(NamedTuple):
    """Counts on which energy depends, summed over channels.

    `rank_clocks`: clocks, times ranks; `open_clocks`: clocks, times the banks that were open.
    """

    activates: int
    reads: int
    writes: int
    refreshes: int
    same_bank_refreshes: int
    rank_clocks: int
    open_clocks: int
    bank_refreshes: int = 0


def counts_of(issued: NDArray[np.int64], standard: Standard, rank_clocks: int, open_clocks: int) -> Counts:
    """The counts of commands issued, int64[command]."""
    counts, refreshes = issued.tolist(), dict.fromkeys((ONE_BANK, SAME_BANKS, WHOLE_RANK, BANK_PAIR), 0)
    for count, command in zip(counts, standard.by_number, strict=True):
        if command.refreshes or command.manages:  # RFM costs what a refresh of the same banks does
            refreshes[standard.scope_of(command)] += count
    return Counts(
        activates=counts[ACTIVATE],
        reads=counts[READ] + counts[READ_AP],
        writes=counts[WRITE] + counts[WRITE_AP],
        refreshes=refreshes[WHOLE_RANK],
        same_bank_refreshes=refreshes[SAME_BANKS],
        rank_clocks=rank_clocks,
        open_clocks=open_clocks,
        bank_refreshes=refreshes[ONE_BANK] + refreshes[BANK_PAIR],
    )


@dataclass(frozen=True)
class ChannelEnergy:
    """Energies in nJ, all chips of a rank together.

    `activate` (with its precharge), `read`, `write`, `refresh`, `same_bank_refresh` and `bank_refresh`
    (None: not known): of a command, above standby. `io`: of the data pins for a burst, both ends. `closed`:
    of a rank and clock with all banks closed; `open_bank`: more, of each bank that is open.
    """

    activate: float
    read: float
    write: float
    refresh: float
    same_bank_refresh: float | None
    io: float
    closed: float
    open_bank: float
    bank_refresh: float | None = None


def channel_energy(device: Device, chip: Currents) -> ChannelEnergy:
    """Energy of the commands and clocks of a channel; the formulas are at the head of this module.

    Raises:
        InputError: a loop draws less than the standby beneath it.
    """
    chips, banks = device.devices_per_rank, device.banks_per_rank
    clock_ns = float(device.clock_ps / 1000)
    burst_ns = device.standard.prefetch * 1000 / device.timings["rate"]

    standby_banks, bursting = chip.standby_banks or banks, chip.burst_banks or banks

    # In W, of all chips; W x ns = nJ.
    def watts(drawn: Callable[[Supply], float]) -> float:
        return chips * sum(supply.volts * drawn(supply) for supply in chip.supplies) / 1000

    def bank(supply: Supply) -> float:
        return (supply.IDD3N - supply.IDD2N) / standby_banks

    def burst(loop: str) -> float:
        return watts(lambda supply: _above(supply, loop, supply.IDD2N + bursting * bank(supply))) * burst_ns

    def refresh(loop: str, period_ns: float | None) -> float | None:
        if getattr(chip, loop) is None or period_ns is None:
            return None
        return watts(lambda supply: _above(supply, loop, supply.IDD2N)) * period_ns

    activated = watts(lambda supply: supply.IDD0 - supply.IDD2N - bank(supply)) * chip.activate_ns
    energy = ChannelEnergy(
        activate=activated + watts(lambda supply: supply.IDD0 - supply.IDD2N) * chip.precharge_ns,
        read=burst("IDD4R"),
        write=burst("IDD4W"),
        refresh=watts(lambda supply: _above(supply, "IDD5B", supply.IDD2N)) * chip.refresh_ns,
        same_bank_refresh=refresh("IDD5C", chip.same_bank_refresh_ns),
        bank_refresh=refresh("IDD5PB", chip.bank_refresh_ns),
        io=chips * _io_pj(device, chip, burst_ns) / 1000,
        closed=watts(lambda supply: supply.IDD2N) * clock_ns,
        open_bank=watts(bank) * clock_ns,
    )
    negative = [name for name, nj in vars(energy).items() if nj is not None and nj < 0]
    if negative:
        problem = f"the currents give {', '.join(negative)} a negative energy"
        raise InputError(problem, "range", key="dram.power")
    return energy


def _above(supply: Supply, loop: str, standby: float) -> float:
    """Current of a loop above its standby, in mA; 0 if it is not known."""
    drawn: float | None = getattr(supply, loop)
    return 0 if drawn is None else drawn - standby


def _io_pj(device: Device, chip: Currents, burst_ns: float) -> float:
    """The data pins of one chip for a burst, with the far end, in pJ.

    If the current on VDDQ is known: the current of reads above standby; writes are assumed to draw as much.
    Otherwise, a pin and its termination draw VDDQ^2 / (driver + termination) while the line is low and
    nothing while it is high (POD, JESD79-4 and JESD79-5; the other way round with LVSTL, JESD209-5). Half of
    the bits are low; of a strobe's two lines one always is. A strobe serves eight data pins at most.
    """
    if chip.IDDQ4R is not None:
        return chip.VDDQ * (chip.IDDQ4R - (chip.IDDQ3N or 0)) * burst_ns
    if chip.driver_ohm is None or chip.termination_ohm is None:
        problem = "neither IDDQ4R nor driver_ohm and termination_ohm are given"
        raise InputError(problem, "missing", key="dram.power")
    dq = device.organisation.dq
    low_lines = dq / 2 + max(1, dq // 8)
    line_mw = 1000 * chip.VDDQ**2 / (chip.driver_ohm + chip.termination_ohm)
    return low_lines * line_mw * burst_ns


def split(counts: Counts, energy: ChannelEnergy) -> dict[str, float] | None:
    """Energies in nJ by component; None if the energy of an issued command is not known."""
    refresh = counts.refreshes * energy.refresh
    for count, command_nj in (
        (counts.same_bank_refreshes, energy.same_bank_refresh),
        (counts.bank_refreshes, energy.bank_refresh),
    ):
        if count:
            if command_nj is None:
                return None
            refresh += count * command_nj
    return {
        "activate": counts.activates * energy.activate,
        "read": counts.reads * energy.read,
        "write": counts.writes * energy.write,
        "refresh": refresh,
        "background": counts.rank_clocks * energy.closed + counts.open_clocks * energy.open_bank,
        "io": (counts.reads + counts.writes) * energy.io,
    }


# ---- Energy of the units around the DRAM: NDP units and links


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
    """The components, and last the `total` of those that are known; None: none is."""
    known = [part for part in parts.values() if part is not None]
    return {**parts, "total": sum(known) if known else None}
