"""Energy of DRAM, from the currents in its chips' data sheets, and of the units around it.

>>> from ndpsim.dram.energy import channel_energy, find_currents
>>> from ndpsim.dram.spec import resolve
>>> device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
>>> energy = channel_energy(device, find_currents(device))
>>> round(energy.read, 3), round(energy.closed * 1.6, 3)  # nJ of a burst, W of an idle rank at 1.6 GHz
(2.784, 0.415)
"""

from ndpsim.dram.energy.channel import (
    NO_ONE_BANK,
    NO_SAME_BANK,
    ChannelEnergy,
    Counts,
    UnitEnergy,
    add_up,
    channel_energy,
    counts_of,
    split,
    transfer_nj,
)
from ndpsim.dram.energy.currents import Currents, Supply, currents_of, explain, find_currents, power_rows
from ndpsim.dram.energy.traces import count_trace, from_trace, last_clock
