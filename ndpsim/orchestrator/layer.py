"""An assignment as jobs: what each engine does, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.events.layer import HERE, MISSING, Copies, EngineParts, Rules, add_layer
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


class _Table(dict[tuple[object, ...], int]):
    """Places of keys among rows of numbers, each made when it is first asked for.

    make: the row of a key, with this many columns.
    """

    def __init__(self, make: Callable[..., Sequence[float]], columns: int) -> None:
        super().__init__()
        self._make, self._rows = make, np.empty((0, columns))

    def __missing__(self, key: tuple[object, ...]) -> int:
        self._rows = np.vstack([self._rows, self._make(*key)])
        self[key] = place = len(self)
        return place

    def rows(self, keys: Sequence[tuple[object, ...]]) -> Floats:
        """The rows of keys: [key, column]."""
        places = np.fromiter(map(self.__getitem__, keys), np.int64, len(keys))
        return self._rows.take(places, axis=0)


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
        self._copied = _Table(lambda *where: self._read_row(transfers.copy, Location(*where)), 2)
        self._read = _Table(lambda *where: self._read_row(transfers.read, Location(*where)), 2)
        self._hidden_bytes = machine.model.hidden * ACTIVATION_BYTES
        experts = machine.model.routed_experts
        self._copies = Copies(np.empty(experts, np.int64), np.empty(experts, np.int64), np.zeros(2, np.int64))
        self._last = np.empty(machine.dimms, np.int64)

    def add(self, jobs: JobList, assigned: CheckedAssignment, layer: Gated) -> list[NdpPart]:
        """Add the jobs of a layer; returns the parts of experts on NDP units."""
        gpu, cpu, ndp, bits = assigned.gpu, assigned.cpu, assigned.ndp, assigned.bits
        arrival, missing = _arrival(gpu.experts, layer)
        gpu_bits = _bits(gpu.experts, layer.gpu_bits)
        for part in missing.tolist() if bits else ():
            gpu_bits[part] = bits.get(int(gpu.experts[part]))
        copied = np.zeros((len(arrival), 2))
        if len(missing):
            copied[missing] = self._copied.rows(_locations(layer, gpu.experts[missing]))
        reads = self._read.rows(_locations(layer, cpu.experts))
        of_gpu = _parts(gpu, layer, self._gpu, gpu_bits)
        of_cpu = _parts(cpu, layer, self._cpu, _bits(cpu.experts, bits))
        shards = layer.placement.shards[ndp.experts]
        tokens = layer.loads[ndp.experts]
        of_each = ndp.shares.tolist(), _bits(ndp.experts, bits)
        keys = [*zip(tokens.tolist(), shards.tolist(), *of_each, strict=True)]
        of_ndp = EngineParts(ndp.experts, ndp.shares, tokens, self._ndp.rows(keys))
        jobs.reserve(6 + 2 * len(gpu.experts) + len(cpu.experts) + int(shards.sum()))
        rules, dimm = self._rules(assigned, layer), layer.placement.dimm[ndp.experts]
        given = of_gpu, copied, arrival, self._copies, of_cpu, reads, of_ndp, dimm, self._last
        add_layer(jobs.arrays, jobs.added, rules, *given)
        return keys

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

    def _read_row(self, kind: Callable[[Location], int], location: Location) -> Sequence[float]:
        return kind(location), self._transfers.read_ns(location)

    def _ndp_row(self, tokens: int, shards: int, share: float, bits: int | None) -> Sequence[float]:
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


def _bits(experts: Ints, bits: Mapping[int, int]) -> list[int | None]:
    """The bits of each of these experts, None where there are none."""
    return [*map(bits.get, experts.tolist())] if bits else [None] * len(experts)


def _locations(layer: Gated, experts: Ints) -> list[tuple[int, int]]:
    """The first DIMM and the number of DIMMs of each of these experts."""
    placement = layer.placement
    return [*zip(placement.dimm[experts].tolist(), placement.shards[experts].tolist(), strict=True)]


def _parts(parts: Parts, layer: Gated, table: _Table, bits: Iterable[int | None]) -> EngineParts:
    """The parts of GPU or CPU, with what they cost."""
    tokens = layer.loads[parts.experts]
    rows = table.rows([*zip(tokens.tolist(), parts.shares.tolist(), bits, strict=True)])
    return EngineParts(parts.experts, parts.shares, tokens, rows)
