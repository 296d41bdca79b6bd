"""An assignment as jobs: what each engine does, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.events.layer import HERE, MISSING, UNKNOWN, Copies, EngineParts, Rules, add_layer, find_whole
from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.jobs import Beside, JobList
from ndpsim.orchestrator.location import Location
from ndpsim.orchestrator.transfers import Transfers
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import GpuOrder, Parts
from ndpsim.policies.views import LayerPlacement, Machine
from ndpsim.processors import Cpu, Gpu, Processors
from ndpsim.processors.devices import expert_format, weight_bytes
from ndpsim.processors.operations import ACTIVATION_BYTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Above any number of DIMMs of an expert: tokens or a DIMM, times this, and DIMMs are one number.
_RADIX = 1 << 10

#: Tokens, DIMMs, share, and bits of a replica (None: the expert itself) of a part of an expert on NDP units.
NdpPart = tuple[int, int, float, int | None]


def server_names(dimms: int) -> tuple[str, ...]:
    """Names of the exclusive resources."""
    return ("gpu", "cpu", *(f"ndp {dimm}" for dimm in range(dimms)))


class Gated(NamedTuple):
    """A layer when its tokens are routed.

    Attributes:
        loads: tokens by expert.
        placement: of its experts.
        gpu_bits: of copies in the GPU's memory, or on their way, that are replicas, by expert.
        arriving: the jobs of experts on their way there.
        tokens_off_gpu: tokens with an expert on another engine.
        shared_ns: of the shared experts; 0: there are none.
        planning_ns: of the decision, before anything else.
    """

    loads: Ints
    placement: LayerPlacement
    gpu_bits: Mapping[int, int]
    arriving: Mapping[int, int]
    tokens_off_gpu: int
    shared_ns: float
    planning_ns: float


class _Table:
    """Rows of numbers, each made when it is first asked for.

    Most parts are whole experts with their full weights. The places of their rows are found by a number.

    make: the row of a number, a share, and bits as in `NdpPart`, with this many columns.

    Attributes:
        rows: [place, column].
        keys: number, share and bits of each row, in their order.
    """

    def __init__(self, make: Callable[[int, float, int | None], Sequence[float]], columns: int) -> None:
        self._make, self.rows = make, np.empty((0, columns))
        self._whole = np.full(1, UNKNOWN)
        self.keys: dict[tuple[int, float, int | None], int] = {}

    def find(self, parts: Parts, numbers: Ints, bits: Mapping[int, int]) -> Ints:
        """The place of each part's row.

        Args:
            numbers: of each expert of the layer.
            bits: by part, of those without their full weights.
        """
        places = np.empty(len(parts.experts), np.int64)
        if not find_whole(self._whole, numbers, parts.experts, parts.shares, places) or bits:
            for part, (expert, share) in enumerate(parts.listed()):
                if places[part] == UNKNOWN or part in bits:
                    places[part] = self._place(int(numbers[expert]), share, bits.get(part))
        return places

    def _place(self, number: int, share: float, bits: int | None) -> int:
        key = number, share, bits
        found = self.keys.get(key)
        if found is None:
            found = self.keys[key] = len(self.rows)
            self.rows = np.vstack([self.rows, self._make(*key)])
            if share == 1.0 and bits is None:
                if number >= len(self._whole):
                    more = np.full(2 * number - len(self._whole) + 1, UNKNOWN)
                    self._whole = np.concatenate([self._whole, more])
                self._whole[number] = found
        return found


class LayerJobs:
    """Makes the jobs of layers of one run.

    beside: of NDP jobs, by the numbers of tokens and of DIMMs of an expert.
    gpu_order: see `PolicyParameters`.
    """

    def __init__(
        self,
        machine: Machine,
        costs: Costs,
        processors: Processors,
        transfers: Transfers,
        beside: Mapping[tuple[int, int], Beside],
        gpu_order: GpuOrder,
    ) -> None:
        self._listed = gpu_order == "listed"
        self._machine, self._costs, self._transfers, self._beside = machine, costs, transfers, beside
        self._processors = processors
        self._call_ns = float(processors.gpu.call_ns)
        self._hand_over_ns = float(processors.cpu.layer_overhead_ns) if machine.has_cpu else 0.0
        self._gpu, self._cpu = _Table(self._gpu_row, 4), _Table(self._cpu_row, 3)
        self._ndp = _Table(self._ndp_row, 10)
        self._copied = _Table(lambda number, *_: self._read_row(transfers.copy, number), 2)
        self._read = _Table(lambda number, *_: self._read_row(transfers.read, number), 2)
        self._hidden_bytes = machine.model.hidden * ACTIVATION_BYTES
        experts = machine.model.routed_experts
        self._copies = Copies(np.empty(experts, np.int64), np.empty(experts, np.int64), np.zeros(2, np.int64))
        self._last, self._in_full = np.empty(machine.dimms, np.int64), np.ones(experts)

    @property
    def ndp_parts(self) -> list[NdpPart]:
        """All kinds of parts on NDP units until now, in the order of their numbers."""
        return [(*divmod(number, _RADIX), share, bits) for number, share, bits in self._ndp.keys]

    def add(self, jobs: JobList, assigned: CheckedAssignment, layer: Gated) -> Ints:
        """Add the jobs of a layer; returns the numbers of the parts on NDP units in `ndp_parts`."""
        gpu, cpu, ndp, bits = assigned.gpu, assigned.cpu, assigned.ndp, assigned.bits
        arrival, missing = _arrival(gpu.experts, layer)
        copied_bits = {part: of for part, of in _bits(gpu.experts, bits).items() if arrival[part] == MISSING}
        gpu_bits = _bits(gpu.experts, layer.gpu_bits) | copied_bits
        dimm, shards = layer.placement.dimm, layer.placement.shards.astype(np.int64)
        locations = (dimm + 1) * _RADIX + shards
        copied = np.zeros((len(arrival), 2))
        if len(missing):
            copied[missing] = self._reads(self._copied, gpu.experts[missing], locations)
        reads = self._reads(self._read, cpu.experts, locations)
        on_ndp = self._ndp.find(ndp, layer.loads * _RADIX + shards, _bits(ndp.experts, bits))
        of_gpu = _priced(gpu, layer, self._gpu, self._gpu.find(gpu, layer.loads, gpu_bits))
        of_cpu = _priced(cpu, layer, self._cpu, self._cpu.find(cpu, layer.loads, _bits(cpu.experts, bits)))
        of_ndp = _priced(ndp, layer, self._ndp, on_ndp)
        jobs.reserve(6 + 2 * len(gpu.experts) + len(cpu.experts) + int(shards[ndp.experts].sum()))
        rules = self._rules(assigned, layer)
        given = of_gpu, copied, arrival, self._copies, of_cpu, reads, of_ndp, dimm[ndp.experts], self._last
        add_layer(jobs.arrays, jobs.added, rules, *given)
        return on_ndp

    def _reads(self, table: _Table, experts: Ints, locations: Ints) -> Floats:
        """Rows of the host's reading of whole experts."""
        places = table.find(Parts(experts, self._in_full[: len(experts)]), locations, {})
        return table.rows.take(places, axis=0)

    def _rules(self, assigned: CheckedAssignment, layer: Gated) -> Rules:
        size, transfers = layer.tokens_off_gpu * self._hidden_bytes, self._transfers
        return Rules(
            self._listed or assigned.sequential,
            assigned.sequential,
            transfers.pcie.copy_engines,
            self._machine.expert_buffers,
            self._call_ns,
            self._hand_over_ns,
            float(layer.planning_ns),
            float(layer.shared_ns),
            size,
            transfers.pcie_ns(size) if size else 0.0,
            transfers.vectors("up"),
            transfers.vectors("down"),
        )

    def _gpu_row(self, tokens: int, share: float, bits: int | None) -> Sequence[float]:
        """See `ndpsim.events.layer`, as of the rows below."""
        size, of_full = self._weights(share, bits)
        ns = self._computing_ns(self._processors.gpu, tokens, share, bits)
        return ns, size, of_full, self._transfers.pcie_ns(size)

    def _cpu_row(self, tokens: int, share: float, bits: int | None) -> Sequence[float]:
        ns = self._computing_ns(self._processors.cpu, tokens, share, bits)
        return ns, *self._weights(share, bits)

    def _computing_ns(self, on: Gpu | Cpu, tokens: int, share: float, bits: int | None) -> float:
        machine = self._machine
        return on.expert_time(machine.model.expert, tokens, bits or machine.weights, share).time_ns

    def _weights(self, share: float, bits: int | None) -> tuple[int, float]:
        """Bytes of weights that are read (bits None: in full), and their share of the full bytes."""
        full = self._machine.expert_bytes
        if bits is None:
            return round(full * share), share
        size = weight_bytes(self._machine.model.expert, expert_format(bits))
        return round(size * share), size / full * share

    def _read_row(self, kind: Callable[[Location], int], number: int) -> Sequence[float]:
        dimm, shards = divmod(number, _RADIX)
        location = Location(dimm - 1, shards)
        return kind(location), self._transfers.read_ns(location)

    def _ndp_row(self, number: int, share: float, bits: int | None) -> Sequence[float]:
        tokens, shards = divmod(number, _RADIX)
        costs = self._costs.for_bits(bits)
        cost = costs.expert(tokens, shards, share)
        row, between, bus_ns, pause_ns = self._beside[tokens, shards]
        columns: list[float] = []
        for work_ns in (cost.time_ns, costs.part_ns(tokens, shards, share)):
            columns += (work_ns, *((bus_ns / work_ns, pause_ns / work_ns) if bus_ns else (0.0, 0.0)))
        return *columns, between, row, cost.bytes // shards, shards


def _arrival(experts: Ints, layer: Gated) -> tuple[Ints, Ints]:
    """`arrival` of experts on the GPU, as `add_layer` takes it, and the places of those that are copied."""
    arrival = np.where(layer.placement.resident[experts], HERE, MISSING)
    for expert, job in layer.arriving.items():
        arrival[experts == expert] = job
    return arrival, (arrival == MISSING).nonzero()[0]


def _bits(experts: Ints, bits: Mapping[int, int]) -> dict[int, int]:
    """The bits of those of these experts that have some, by their places."""
    if not bits:
        return {}
    return {part: bits[expert] for part, expert in enumerate(experts.tolist()) if expert in bits}


def _priced(parts: Parts, layer: Gated, table: _Table, places: Ints) -> EngineParts:
    """The parts of an engine, with what they cost."""
    tokens = layer.loads[parts.experts]
    return EngineParts(parts.experts, parts.shares, tokens, table.rows.take(places, axis=0))
