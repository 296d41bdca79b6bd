"""The standby energy of memory, and the energy that work adds to it.

The simulated energy of a part of a run (an expert, a host read or a relayout) includes the standby of its
ranks over its own time. Parts overlap, and often no part runs. A run therefore counts standby once: every
rank of the machine over the whole time, with closed banks and its refreshes, and the static power of units.
It adds the energy of each part above standby: commands, data, links, units and open banks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ndpsim.config import Hardware
from ndpsim.dram.spec import lower
from ndpsim.dram.state import schedule_of
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.power import dram_power, unit_energy

#: Energy in nJ by component, None: not known. None without components: the DRAM's currents are not known.
Parts = Mapping[str, float | None] | None


class Standby:
    """Power of a machine's memory and its units at rest.

    Attributes:
        note: the source of the DRAM's energy, or the reason why it is not known.
    """

    def __init__(self, hardware: Hardware) -> None:
        self._dimms, self._lanes = hardware.system.dimm.count, hardware.lanes
        device = hardware.lane_device()
        turns, period = schedule_of(lower(device), bus_policy(hardware.system.dram, device))
        ranks = [device.ranks if turn.rank < 0 else 1 for turn in turns]  # that a turn refreshes
        commands = np.array([turn.command for turn in turns], dtype=np.int64)
        due = np.bincount(commands, ranks, len(device.standard.names)).astype(np.int64)
        power = dram_power(device, hardware.power_changes)
        of_period_nj, self.note = power.split(due, period * device.ranks, open_clocks=0)
        period_ns = float(period * device.clock_ps / 1000)
        self._lane_w: dict[str, float] | None = None
        if of_period_nj is not None:
            self._lane_w = {
                name: (of_period_nj[name] or 0.0) / period_ns for name in ("background", "refresh")
            }
        self._static: dict[str, float | None] = {}
        if hardware.system.ndp is not None:
            self._static["ndp_static"] = _static_w(hardware)

    def over(self, time_ns: float) -> dict[str, float | None]:
        """Energy of all DIMMs over a time."""
        if self._lane_w is None:
            return {"dram": None}
        dram = {name: self._dimms * self._lanes * watts * time_ns for name, watts in self._lane_w.items()}
        static = {
            name: None if watts is None else self._dimms * watts * time_ns
            for name, watts in self._static.items()
        }
        return {**dram, **static}

    def above(self, parts: Parts, dimms: int, time_ns: float) -> Parts:
        """The part of a simulation's energy above the standby of this number of DIMMs over its time."""
        if parts is None or self._lane_w is None:
            return None
        at_rest_nj = dimms * self._lanes * self._lane_w["background"] * time_ns
        added = {name: nj for name, nj in parts.items() if name not in ("refresh", "ndp_static", "total")}
        assert added["background"] is not None, "the currents are known"
        return {**added, "background": added["background"] - at_rest_nj}


def unknown(parts: Parts) -> Parts:
    """The same components, none of them known."""
    return parts and dict.fromkeys(parts)


def _static_w(hardware: Hardware) -> float | None:
    """The static power of a DIMM's units; None if the power of one unit is not known."""
    relayout = hardware.ndp.relayout
    of_units = [unit_energy(hardware).static_mw, 0.0 if relayout is None else relayout.static_mw]
    known = [mw for mw in of_units if mw is not None]
    return sum(known) / 1000 if len(known) == len(of_units) else None
