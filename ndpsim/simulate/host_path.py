"""The path between the host and the DIMMs that share an expert: the buses of their channels, or a link.

Times are ticks. Values for each DIMM are for the different DIMMs of `PlacedOnDimms.placed`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ndpsim.config.system import Cxl
from ndpsim.dimm.link import Pipe
from ndpsim.dimm.units import last_served
from ndpsim.dram.energy import transfer_nj
from ndpsim.simulate.lane import Ints
from ndpsim.simulate.machine import Machine, PlacedOnDimms


class Buses:
    """The host's channels, which the DIMMs of a channel share burst by burst.

    Attributes:
        values_per_message: results of a token that leave together, in a burst or a packet.
        busy_ticks: time for which the busiest bus or link carried data.
    """

    def __init__(self, machine: Machine, expert: PlacedOnDimms) -> None:
        self.machine, self.expert = machine, expert
        self.values_per_message = machine.values_per_burst
        self.busy_ticks = 0
        self._bursts = 0  # of all DIMMs

    def write(self, start: int, values: int) -> list[int]:
        """The host writes this many activations to every DIMM; returns when each has its last."""
        machine, expert = self.machine, self.expert
        bursts = -(-values * machine.unit.activation_bytes // machine.device.burst_bytes)
        self._bursts += bursts * len(expert.of_dimm)
        first = start + machine.device.write_latency * machine.dram_ticks
        arrived = [first + machine.bus_ticks(bursts * placed.on_channel) for placed in expert.placed]
        self.busy_ticks += max(arrived) - first
        return arrived

    def read(self, known: Sequence[Ints], values: int, tokens: int) -> int:
        """The host reads this many results of each token; returns the time at which it has the last.

        `known`: for each different DIMM, the times at which a token's messages are known.
        """
        machine, channels = self.machine, self.expert.channels
        on_bus = machine.bus_ticks(tokens)
        # Results of a channel's DIMMs leave in the order of the times at which they are known.
        together = [np.sort(np.concatenate([known[of] for of in channel])) for channel in channels]
        messages = len(known[0])
        self._bursts += tokens * messages * len(self.expert.of_dimm)
        self.busy_ticks += max(map(len, channels)) * messages * on_bus
        end = max(last_served(ready, on_bus) for ready in together)
        return end + machine.device.read_latency * machine.dram_ticks

    def energy(self) -> dict[str, float | None]:
        """Energy in nJ by component."""
        return {"host": self.machine.dram_power.io_nj(self._bursts)}


class Link:
    """A link to every device: the activations of a tile are a message, and so is each packet of results.

    For methods and attributes see `Buses`.
    """

    def __init__(self, machine: Machine, expert: PlacedOnDimms, link: Cxl) -> None:
        self.machine, self.devices, self.pj_per_bit = machine, expert.of_dimm, link.pj_per_bit
        self.link = Pipe(link.gbps, link.latency_ns, link.packet_bytes, link.header_bytes)
        self.values_per_message = max(1, link.packet_bytes // machine.unit.activation_bytes)
        self._busy_ps, self._bytes = Fraction(0), 0  # of one link; of all links

    def write(self, start: int, values: int) -> list[int]:
        sizes = self._messages(values, values, 1)
        return [self._send(np.array([start]), sizes)] * (max(self.devices) + 1)

    def read(self, known: Sequence[Ints], values: int, tokens: int) -> int:
        sizes = self._messages(values, self.values_per_message, tokens)
        return max(self._send(np.repeat(ready, tokens), sizes) for ready in known)

    @property
    def busy_ticks(self) -> Fraction:
        return self._busy_ps / self.machine.timebase.tick_ps

    def energy(self) -> dict[str, float | None]:
        return {"link": transfer_nj(self._bytes, self.pj_per_bit)}

    def _messages(self, values: int, per_message: int, tokens: int) -> Ints:
        """Bytes of each message that is sent on a link, which is then counted."""
        value_bytes = self.machine.unit.activation_bytes
        sizes, size, busy_ps = _messages(self.link, values, per_message, value_bytes, tokens)
        self._busy_ps += busy_ps
        self._bytes += size * len(self.devices)
        return sizes

    def _send(self, ready: Ints, sizes: Ints) -> int:
        """The time at which the last of several messages has arrived; the link counts in ps, rounded up."""
        tick = self.machine.timebase.tick_ps
        arrived = self.link.arrivals(-(-ready * tick.numerator // tick.denominator), sizes)
        return -(-int(arrived[-1]) * tick.denominator // tick.numerator)


@functools.lru_cache(maxsize=64)
def _messages(
    link: Pipe, values: int, per_message: int, value_bytes: int, tokens: int
) -> tuple[Ints, int, Fraction]:
    """Bytes of each message with this many values of each token, their sum, and their ps on a link."""
    left = np.arange(values, 0, -per_message)
    sizes = np.repeat(np.minimum(left, per_message) * value_bytes, tokens)
    return sizes, int(sizes.sum()), link.busy_ps(sizes)


def host_path(machine: Machine, expert: PlacedOnDimms) -> Buses | Link:
    """An unused path of a machine's DIMMs."""
    return Buses(machine, expert) if machine.link is None else Link(machine, expert, machine.link)
