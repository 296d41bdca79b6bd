"""The use of PCIe, of the links between DIMMs and of the host's channels, for each kind of transfer.

Several GPUs have parts of each expert and of the KV cache, which move over all of their links at once:
"pcie-down" and "pcie-up" are these links together. Activations and results move over the link of one GPU.

A host with its own memory reads experts from it: "host memory" then replaces its channels.

A memory device behind a CXL link has one wire in each direction to the GPU: "pcie-down" and "pcie-up" are
then these wires. Copies of experts, activations, results and the KV cache share them, without host channels.
The device's memory replaces the channels. Copies use it for the time of their reads: at most 31.5 GB/s of
about 454 on `cxl`, and NDP units lose that share.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.config import Hardware
from ndpsim.dimm.link import PcieLink
from ndpsim.inference.events.state import Kinds
from ndpsim.inference.layers.contention import joined, shared_bandwidth
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.jobs import Beside
from ndpsim.inference.layers.location import Location
from ndpsim.policies.views import STRIPED
from ndpsim.simulate.results.slowdown import SlowdownTable

Floats = NDArray[np.float64]

#: Shared resources, to the GPU and to the host; wires of the links and the host's channels follow.
PCIE_DOWN, PCIE_UP = 0, 1

#: The number of shared resources, from the first, that have priorities.
PRIORITISED = 2


_MOST_SIZES = 1 << 12  # those of the KV cache differ from step to step


class Transfers:
    """The kinds of transfers of a run; each is made when it is first needed.

    Args:
        channel: the channel of each DIMM.

    Attributes:
        shared_names: the names of the shared resources.
        pcie: the machine's PCIe, or its CXL link.

    Raises:
        InputError: the machine has no link to a GPU.
    """

    def __init__(self, hardware: Hardware, costs: Costs, channel: tuple[int, ...]) -> None:
        given = hardware.gpu_link
        if given is None:
            raise InputError(
                "is missing: nothing links the GPU to the host", "missing", file=hardware.file, key="pcie"
            )
        self.pcie = PcieLink(
            given.gbps, given.latency_ns, given.packet_bytes, given.header_bytes, given.copy_engines
        )
        self._overhead_ns = given.copy_overhead_us * 1000
        self._hardware = hardware
        self._costs, self._dimms = costs, len(channel)
        self._units = hardware.has_units
        #: Time of a copy of so many bytes alone over PCIe: its packets, and the constant overhead of a copy.
        self.pcie_ns = functools.lru_cache(_MOST_SIZES)(self._copy_ns)
        wires = costs.wire_names() if hardware.system.link is not None else ()
        self._wire = {name: 2 + number for number, name in enumerate(wires)}
        self._first_channel = 2 + len(wires)
        self._channel = np.array([self._first_channel + one for one in channel], dtype=np.int64)
        self._own_memory = not hardware.host_reads_dimms
        gpu = hardware.system.gpu
        #: GPUs, each with a link of its own, over which its part of an expert and of the KV cache moves.
        self.gpus = 1 if gpu is None else gpu.count
        #: Whether the DIMMs of NDP units have other users.
        self.meets_units = self._units and (not self._own_memory or hardware.system.link is not None)
        channels = [f"channel {number}" for number in range(max(channel) + 1)]
        if hardware.system.cxl is not None:
            channels = ["memory"]
        if self._own_memory:
            channels = ["host memory"]
        self.shared_names = ("pcie-down", "pcie-up", *wires, *channels)
        self._numbers: dict[tuple[str, Location | tuple[Location, Location] | None], int] = {}
        self._rows: list[tuple[Floats | float, ...]] = []
        self._kinds: Kinds | None = None
        self.vectors("up"), self.vectors("down")

    def _copy_ns(self, size_bytes: int) -> float:
        arrival_ps = self.pcie.arrivals(np.zeros(1, np.int64), np.array([size_bytes], np.int64))[0]
        return float(arrival_ps) / 1000 + self._overhead_ns

    def copy_ns(self, size_bytes: int) -> float:
        """Time of an expert's copy alone: each GPU gets an equal part over its own link."""
        return self.pcie_ns(-(-size_bytes // self.gpus))

    @property
    def has_bank_link(self) -> bool:
        """Whether devices with units in their banks have a link of their own to the GPU."""
        return self._hardware.bank_link_ns(0) is not None

    def bank_ns(self, size_bytes: int) -> float:
        """Time of a transfer to these devices, or from them, alone."""
        own_ns = self._hardware.bank_link_ns(size_bytes)
        return self.pcie_ns(size_bytes) if own_ns is None else own_ns

    def vectors(self, direction: Literal["up", "down"]) -> int:
        """The kind of activations to the host, or of results to the GPU, with work in ns of PCIe."""
        return self._number((direction, None))

    def read(self, location: Location) -> int:
        """The kind of a host read of an expert."""
        return self._number(("read", location))

    def copy(self, location: Location) -> int:
        """The kind of an expert's copy to the GPU: it is read and sent over PCIe."""
        return self._number(("copy", location))

    def cache(self, size_bytes: int, direction: Literal["up", "down"]) -> int:
        """The kind of transfers of the KV cache between the host's memory (striped) and each GPU.

        size_bytes: of one GPU. It has this size until the next call: a run would have a kind for each step
        otherwise.
        """
        number = self._number((f"cache {direction}", None))
        self._rows[number] = self._cache_row(size_bytes, direction)
        if self._kinds is not None:
            for values, value in zip(self._kinds[1:], self._rows[number], strict=True):
                values[number] = value
        return number

    def relayout(self, source: Location, target: Location) -> int:
        """The kind of an expert's move between DIMMs."""
        return self._number(("relayout", (source, target)))

    def kinds(self) -> Kinds:
        """The tables of all kinds until now."""
        if self._kinds is None:
            self._kinds = Kinds(self._channel, *(np.array(rows) for rows in zip(*self._rows, strict=True)))
        return self._kinds

    def slowdown(self, contention: bool, shards: Sequence[int]) -> SlowdownTable:
        """The mutual slowdown of NDP units, host and relayouts; there is none without `contention`.

        shards: numbers of DIMMs of sharded experts.
        """
        if not (self.meets_units and contention):
            return shared_bandwidth(1.0, left=1.0)
        return joined(*(self._costs.contention(count) for count in (1, *shards)))

    def read_ns(self, location: Location) -> float:
        """Time of a host read of an expert alone, or of the device's read behind a CXL link."""
        return self._costs.host_read(location.read_shards).time_ns

    def _number(self, key: tuple[str, Location | tuple[Location, Location] | None]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._rows)
            self._rows.append(self._row(*key))
            self._kinds = None
        return number

    def _row(
        self, what: str, where: Location | tuple[Location, Location] | None
    ) -> tuple[Floats | float, ...]:
        shared = np.zeros(len(self.shared_names))
        read_ns, read_bytes = np.zeros(self._dimms), np.zeros(self._dimms)
        moved, stream_dimms = np.zeros((self._dimms, 2)), 0.0
        kind, _, rest = what.partition(" ")
        if kind in ("up", "down"):
            shared[PCIE_UP if kind == "up" else PCIE_DOWN] = 1.0
        elif kind == "cache":
            return self._cache_row(0, rest)
        elif kind == "relayout":
            self._add_relayout(where, shared, moved)  # type: ignore[arg-type]
        else:
            if kind == "copy":
                shared[PCIE_DOWN] = self.copy_wire_ns(self._costs.host_read(None).bytes)
            stream_dimms = self._add_read(where, 1.0, shared, read_ns, read_bytes)  # type: ignore[arg-type]
        return shared, read_ns, read_bytes, moved, stream_dimms

    def _cache_row(self, size_bytes: int, direction: str) -> tuple[Floats | float, ...]:
        """The row of a transfer of the KV cache; its bytes are read as a share of a striped expert."""
        shared, read_ns, read_bytes = np.zeros(len(self.shared_names)), *np.zeros((2, self._dimms))
        shared[PCIE_UP if direction == "up" else PCIE_DOWN] = self.wire_ns(size_bytes)
        share = self.gpus * size_bytes / self._costs.host_read(None).bytes
        stream_dimms = self._add_read(Location(STRIPED), share, shared, read_ns, read_bytes)
        return shared, read_ns, read_bytes, np.zeros((self._dimms, 2)), stream_dimms

    def wire_ns(self, size_bytes: int) -> float:
        """Time for which a transfer occupies PCIe: packets with their headers."""
        return self.pcie_ns(size_bytes) - self.pcie.latency_ns - self._overhead_ns

    def copy_wire_ns(self, size_bytes: int) -> float:
        """Time for which an expert's copy occupies the links of all GPUs."""
        return self.copy_ns(size_bytes) - self.pcie.latency_ns - self._overhead_ns

    def _add_read(
        self, location: Location, share: float, shared: Floats, read_ns: Floats, read_bytes: Floats
    ) -> float:
        """A host read's time on its own memory; or on channels, with its bytes, by DIMM: those of a channel
        share its time.

        Returns:
            DIMMs of a channel that one stream goes over: all of them if it is striped; 0: it reads none.
        """
        dimm, shards = location
        cost = self._costs.host_read(location.read_shards)
        if self._own_memory:
            shared[self._first_channel] = cost.time_ns * share
            return 0.0
        chosen = range(self._dimms) if location.striped else range(dimm, dimm + shards)
        of_dimm = cost.bytes / len(chosen) * share
        for number in chosen:
            read_bytes[number] = of_dimm
            read_ns[number] = of_dimm / cost.gbps_per_channel
        return self._dimms / cost.channels if location.striped else 1.0

    def _add_relayout(self, ends: tuple[Location, Location], shared: Floats, moved: Floats) -> None:
        cost = self._costs.relayout(*(end.name for end in ends))
        for name, ns in cost.wire_ns.items():
            shared[self._wire[name]] = ns
        for way, of_dimms in enumerate((cost.dimm_read_gbps, cost.dimm_written_gbps)):
            for dimm, gbps in of_dimms.items():
                moved[dimm, way] = gbps * cost.time_ns

    def beside(self, shards: Sequence[int]) -> Mapping[tuple[int, int], Beside]:
        """Rates of experts by number of tokens and of DIMMs, filled when they are needed."""
        return _BesideOfTokens(self._costs.contention(), (1, *shards))


class _BesideOfTokens(dict[tuple[int, int], Beside]):
    def __init__(self, table: SlowdownTable, shards: Sequence[int]) -> None:
        super().__init__()
        self._table, self._tokens, self._shards = table, table.tokens.tolist(), shards

    def __missing__(self, key: tuple[int, int]) -> Beside:
        count, shards = key
        row = max((n for n, one in enumerate(self._tokens) if one <= count), default=0)
        between = 0.0
        if row + 1 < len(self._tokens) and count > self._tokens[row]:
            # Slowdowns fall with the time of an expert: interpolate over its logarithm.
            low, high = self._tokens[row], self._tokens[row + 1]
            between = math.log(count / low) / math.log(high / low)
        row += len(self._tokens) * self._shards.index(shards)
        self[key] = found = Beside(row, between, *self._table.vectors_ns(count))
        return found
