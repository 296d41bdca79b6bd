"""From currents to the energy of a channel: what each command costs, and each clock.

Each current is the mean over a loop of commands that the standards prescribe, so a command's energy is what
its loop draws above standby, over the time of the loop (Micron TN-40-07, "Calculating Memory Power for DDR4
SDRAM"; DRAMPower, Chandrasekar et al., does the same). mA x V x ns = pJ; all chips of a rank, of which there
are `channel_bits / dq` (no ECC chips), do the same at the same time. Of a chip, in currents on VDD, and
likewise on VPP as far as they are known:

    activate     (IDD0 - one bank open) x tRAS + (IDD0 - IDD2N) x tRP: an activation and its precharge
    read         (IDD4R - IDD3N) x time of a burst; a write likewise with IDD4W
    refresh      (IDD5B - IDD2N) x tRFC, the rank's banks being closed; that of one bank of every
                 group likewise with IDD5C and tRFCsb
    background   IDD2N, and (IDD3N - IDD2N) / banks more for each bank that is open
    io           see `_io_pj`

IDD3N is measured with all banks open, IDD0 with one. So standby is taken to grow alike with each bank that
opens (the bank-wise model of Jung et al., RAPIDO 2017, with no share of its own for the first). Were one open
bank to draw all of IDD3N, an activation of the DDR5 part would cost less than nothing. So counted, the loop
of each current, when it is simulated, draws that current.

The times are those of the loops, not those of the simulated device: a chip does not spend more on a refresh
because the controller waits longer for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.energy.currents import Currents
from ndpsim.errors import InputError
from ndpsim.spec import Device, Standard
from ndpsim.spec.standard import (
    ACTIVATE,
    ONE_BANK,
    READ,
    READ_AP,
    SAME_BANKS,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)

__all__ = ["NO_ONE_BANK", "NO_SAME_BANK", "ChannelEnergy", "Counts", "channel_energy", "counts_of", "split"]


#: Why `split` knows no energy.
NO_SAME_BANK = "IDD5C, the current of same-bank refreshes, is not known; give it as dram.power.IDD5C"
NO_ONE_BANK = "the current of refreshes of one bank is not known"


class Counts(NamedTuple):
    """What energy depends on, summed over the channels that are meant.

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
    of, refreshes = issued.tolist(), [0, 0, 0]
    for count, command in zip(of, standard.by_number, strict=True):
        if command.refreshes:
            refreshes[standard.scope_of(command)] += count
    return Counts(
        activates=of[ACTIVATE],
        reads=of[READ] + of[READ_AP],
        writes=of[WRITE] + of[WRITE_AP],
        refreshes=refreshes[WHOLE_RANK],
        same_bank_refreshes=refreshes[SAME_BANKS],
        rank_clocks=rank_clocks,
        open_clocks=open_clocks,
        bank_refreshes=refreshes[ONE_BANK],
    )


@dataclass(frozen=True)
class ChannelEnergy:
    """Energies in nJ, all chips of a rank together.

    `activate` (with its precharge), `read`, `write`, `refresh`, `same_bank_refresh` (None: not known): of a
    command, above standby. `io`: of the data pins for a burst, both ends. `closed`: of a rank and clock with
    all banks closed; `open_bank`: more, of each bank that is open.
    """

    activate: float
    read: float
    write: float
    refresh: float
    same_bank_refresh: float | None
    io: float
    closed: float
    open_bank: float


def channel_energy(device: Device, chip: Currents) -> ChannelEnergy:
    """What the commands and clocks of a channel cost; the formulas stand at the head of this module.

    Raises:
        InputError: a loop draws less than the standby beneath it.
    """
    chips, banks = device.devices_per_rank, device.banks_per_rank
    clock_ns = float(device.clock_ps / 1000)
    burst_ns = device.standard.prefetch * 1000 / device.timings["rate"]

    def watts(idd: float, ipp: float | None, standby_ipp: float) -> float:
        """Of all chips in a loop."""
        return chips * (idd * chip.VDD + (standby_ipp if ipp is None else ipp) * chip.VPP) / 1000

    # W x ns = nJ
    closed = watts(chip.IDD2N, chip.IPP2N, 0)
    all_open = watts(chip.IDD3N, chip.IPP3N, 0)
    open_bank = (all_open - closed) / banks
    cycling = watts(chip.IDD0, chip.IPP0, 0)
    same_bank = None
    if chip.IDD5C is not None and chip.same_bank_refresh_ns is not None:
        same_bank = (watts(chip.IDD5C, None, chip.IPP2N) - closed) * chip.same_bank_refresh_ns
    energy = ChannelEnergy(
        activate=(cycling - closed - open_bank) * chip.activate_ns + (cycling - closed) * chip.precharge_ns,
        read=(watts(chip.IDD4R, chip.IPP4R, chip.IPP3N) - all_open) * burst_ns,
        write=(watts(chip.IDD4W, chip.IPP4W, chip.IPP3N) - all_open) * burst_ns,
        refresh=(watts(chip.IDD5B, chip.IPP5B, chip.IPP2N) - closed) * chip.refresh_ns,
        same_bank_refresh=same_bank,
        io=chips * _io_pj(device, chip, burst_ns) / 1000,
        closed=closed * clock_ns,
        open_bank=open_bank * clock_ns,
    )
    negative = [name for name, nj in vars(energy).items() if nj is not None and nj < 0]
    if negative:
        raise InputError(f"the currents make {', '.join(negative)} cost less than nothing", key="dram.power")
    return energy


def _io_pj(device: Device, chip: Currents, burst_ns: float) -> float:
    """The data pins of one chip for a burst, with the far end, in pJ.

    A pin and its termination draw VDDQ^2 / (driver + termination) while the line is low and nothing while it
    is high (POD, JESD79-4 and JESD79-5). Half of the bits are low; of a strobe's two lines one always is. A
    strobe serves eight data pins at most.
    """
    dq = device.organisation.dq
    low_lines = dq / 2 + max(1, dq // 8)
    line_mw = 1000 * chip.VDDQ**2 / (chip.driver_ohm + chip.termination_ohm)
    return low_lines * line_mw * burst_ns


def split(counts: Counts, energy: ChannelEnergy) -> dict[str, float] | None:
    """Energies in nJ by component; None when a command was issued whose energy is not known."""
    if counts.bank_refreshes:
        return None
    refresh = counts.refreshes * energy.refresh
    if counts.same_bank_refreshes:
        if energy.same_bank_refresh is None:
            return None
        refresh += counts.same_bank_refreshes * energy.same_bank_refresh
    return {
        "activate": counts.activates * energy.activate,
        "read": counts.reads * energy.read,
        "write": counts.writes * energy.write,
        "refresh": refresh,
        "background": counts.rank_clocks * energy.closed + counts.open_clocks * energy.open_bank,
        "io": (counts.reads + counts.writes) * energy.io,
    }
