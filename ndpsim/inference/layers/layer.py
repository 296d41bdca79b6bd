"""An assignment as jobs: what each engine does, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.inference.events.layer import CostTables, PartCost, ReadCost, Rules, add_layer
from ndpsim.inference.events.rows import (
    FREE,
    MISSING,
    OF_COPIES,
    OF_CPU,
    OF_CPU_READS,
    OF_GPU,
    OF_NDP,
    RADIX,
    UNKNOWN,
    EngineParts,
    Engines,
    KnownRows,
    LayerExperts,
    Room,
    find_rows,
    first_entry,
)
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.jobs import Beside, JobList
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.inference.processors import Cpu, Gpu, Processors
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.operations import ACTIVATION_BYTES
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import GpuOrder, Parts
from ndpsim.policies.views import LayerPlacement, Machine
from ndpsim.workload.models import Expert

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
        ids: the experts of each token.
        placement: of its experts.
        gpu_bits: of copies in the GPU's memory, or on their way, that are replicas, by expert.
        arriving: the jobs of experts on their way there.
        shared_ns: of the shared experts; 0: there are none.
        planning_ns: of the decision, before anything else.
    """

    loads: Ints
    ids: NDArray[np.int16]
    placement: LayerPlacement
    gpu_bits: Mapping[int, int]
    arriving: Mapping[int, int]
    shared_ns: float
    planning_ns: float


class _Table:
    """Rows of costs, each made when it is first asked for.

    make: fields of the row of a number, a share, and bits as in `NdpPart`; other fields are 0.

    Attributes:
        rows: [row], of the kind of cost, with room for more.
        known: the rows with full weights.
        keys: number, share and bits of each row, in their order.
    """

    def __init__(
        self, make: Callable[[int, float, int | None], Mapping[str, float]], cost: np.dtype[np.void]
    ) -> None:
        self._make, self.rows = make, np.zeros(64, cost)
        self.known = _free_entries(64)
        self.keys: dict[tuple[int, float, int | None], int] = {}

    def find(self, number: int, share: float = 1.0, bits: int | None = None) -> int:
        """The row of a part."""
        key = number, share, bits
        found = self.keys.get(key)
        if found is None:
            made = self._make(*key)
            found = self.keys[key] = len(self.keys)
            if found == len(self.rows):
                self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            for name, value in made.items():
                self.rows[name][found] = value
            if 2 * len(self.keys) > len(self.known.numbers):
                self.known = _free_entries(2 * len(self.known.numbers))
                for known, row_of_key in self.keys.items():
                    self._note(known, row_of_key)
            else:
                self._note(key, found)
        return found

    def _note(self, key: tuple[int, float, int | None], row: int) -> None:
        (number, share, bits), (numbers, shares, rows) = key, self.known
        if bits is None:
            entry = first_entry(number, share, len(numbers))
            while numbers[entry] != FREE:
                entry = (entry + 1) % len(numbers)
            numbers[entry], shares[entry], rows[entry] = number, share, row


def _free_entries(count: int) -> KnownRows:
    return KnownRows(np.full(count, FREE), np.zeros(count), np.zeros(count, np.int64))


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
        self._tables = {
            OF_GPU: _Table(self._gpu_row, PartCost),
            OF_CPU: _Table(self._cpu_row, PartCost),
            OF_NDP: _Table(self._ndp_row, PartCost),
            OF_COPIES: _Table(lambda number, *_: self._read_row(transfers.copy, number), ReadCost),
            OF_CPU_READS: _Table(lambda number, *_: self._read_row(transfers.read, number), ReadCost),
        }
        self._hidden_bytes = machine.model.hidden * ACTIVATION_BYTES
        self._kinds = transfers.vectors("up"), transfers.vectors("down")
        experts = machine.model.routed_experts
        arrival, copies, computed, *self._rows = np.empty((3 + len(self._tables), experts), np.int64)
        counts, last = np.zeros(2, np.int64), np.empty(machine.dimms, np.int64)
        chosen = np.empty(machine.model.choices, np.bool_)
        self._room = Room(arrival, chosen, copies, computed, counts, last)
        self._none_comes = np.full(experts, MISSING)
        self._find_rows, self._add_layer = same_types(find_rows), same_types(add_layer)
        self._known: tuple[KnownRows, ...] = ()
        self._cost_tables = CostTables(*[table.rows for table in self._tables.values()])
        self._see_tables()

    def _see_tables(self) -> None:
        """Let kernels have the tables as they are now."""
        tables = self._tables.values()
        self._known = tuple([table.known for table in tables])
        if any(table.rows is not rows for table, rows in zip(tables, self._cost_tables, strict=True)):
            self._cost_tables = CostTables(*[table.rows for table in tables])

    @property
    def ndp_parts(self) -> list[NdpPart]:
        """All kinds of parts on NDP units until now, in the order of their numbers."""
        return [(*divmod(number, RADIX), share, bits) for number, share, bits in self._tables[OF_NDP].keys]

    def add(self, jobs: JobList, assigned: CheckedAssignment, layer: Gated) -> Ints:
        """Add the jobs of a layer; returns the numbers of the parts on NDP units in `ndp_parts`."""
        placement, rows, coming = layer.placement, self._rows, self._none_comes
        if layer.arriving:
            coming = coming.copy()
            coming[[*layer.arriving]] = [*layer.arriving.values()]
        experts = LayerExperts(
            layer.loads, placement.dimm, placement.shards, placement.resident, coming, layer.ids
        )
        gpu, cpu, ndp = assigned.gpu, assigned.cpu, assigned.ndp
        engines = Engines(
            EngineParts(gpu.experts, gpu.shares, rows[OF_GPU], rows[OF_COPIES]),
            EngineParts(cpu.experts, cpu.shares, rows[OF_CPU], rows[OF_CPU_READS]),
            EngineParts(ndp.experts, ndp.shares, rows[OF_NDP], rows[OF_NDP]),
        )
        all_known, most, tokens = self._find_rows(self._known, experts, engines, self._room)
        if not all_known or layer.gpu_bits or assigned.bits:
            self._find_others(assigned, layer)
            self._see_tables()
        jobs.reserve(6 + most)
        rules = self._rules(assigned, layer, tokens)
        self._add_layer(jobs.arrays, jobs.added, rules, self._cost_tables, experts, engines, self._room)
        return rows[OF_NDP][: len(ndp.experts)]

    def _find_others(self, assigned: CheckedAssignment, layer: Gated) -> None:
        """Find the rows of replicas, and those yet to be made."""
        bits, tables, rows, placement = assigned.bits, self._tables, self._rows, layer.placement
        arrival = self._room.arrival
        any_part = bool(bits or layer.gpu_bits)

        def others(table: int, parts: Parts) -> Iterator[tuple[int, int, float]]:
            """Number, expert and share of parts without a row; of all parts where some are replicas."""
            unknown = np.flatnonzero(any_part | (rows[table][: len(parts.experts)] == UNKNOWN))
            return zip(
                unknown.tolist(), parts.experts[unknown].tolist(), parts.shares[unknown].tolist(), strict=True
            )

        def find(table: int, part: int, number: int, share: float = 1.0, of_bits: int | None = None) -> None:
            if of_bits is not None or rows[table][part] == UNKNOWN:
                rows[table][part] = tables[table].find(number, share, of_bits)

        def find_read(table: int, part: int, expert: int) -> None:
            find(table, part, (int(placement.dimm[expert]) + 1) * RADIX + int(placement.shards[expert]))

        for part, expert, share in others(OF_GPU, assigned.gpu):
            of_copy = bits.get(expert) if arrival[part] == MISSING else None
            find(OF_GPU, part, int(layer.loads[expert]), share, of_copy or layer.gpu_bits.get(expert))
        for part, expert, _ in others(OF_COPIES, assigned.gpu):
            if arrival[part] == MISSING:
                find_read(OF_COPIES, part, expert)
        for part, expert, share in others(OF_CPU, assigned.cpu):
            find(OF_CPU, part, int(layer.loads[expert]), share, bits.get(expert))
        for part, expert, _ in others(OF_CPU_READS, assigned.cpu):
            find_read(OF_CPU_READS, part, expert)
        for part, expert, share in others(OF_NDP, assigned.ndp):
            number = int(layer.loads[expert]) * RADIX + int(placement.shards[expert])
            find(OF_NDP, part, number, share, bits.get(expert))

    def _rules(self, assigned: CheckedAssignment, layer: Gated, tokens_off_gpu: int) -> Rules:
        size, transfers = tokens_off_gpu * self._hidden_bytes, self._transfers
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
            *self._kinds,
        )

    def _gpu_row(self, tokens: int, share: float, bits: int | None) -> Mapping[str, float]:
        gpu = self._processors.gpu
        row = self._row(gpu, tokens, share, bits, self._processors.gpu_expert(self._machine.model.expert))
        return {**row, "pcie_ns": self._transfers.copy_ns(int(row["bytes"]))}

    def _cpu_row(self, tokens: int, share: float, bits: int | None) -> Mapping[str, float]:
        return self._row(self._processors.cpu, tokens, share, bits, self._machine.model.expert)

    def _row(
        self, on: Gpu | Cpu, tokens: int, share: float, bits: int | None, expert: Expert
    ) -> Mapping[str, float]:
        ns = on.expert_time(expert, tokens, bits or self._machine.weights, share).time_ns
        size, of_full = self._weights(share, bits)
        return {"tokens": tokens, "bytes": size, "ns": ns, "of_full": of_full}

    def _weights(self, share: float, bits: int | None) -> tuple[int, float]:
        """Bytes of weights that are read (bits None: in full), and their share of the full bytes."""
        full = self._machine.expert_bytes
        if bits is None:
            return round(full * share), share
        size = weight_bytes(self._machine.model.expert, bits)
        return round(size * share), size / full * share

    def _read_row(self, kind: Callable[[Location], int], number: int) -> Mapping[str, float]:
        dimm, shards = divmod(number, RADIX)
        location = Location(dimm - 1, shards)
        return {"kind": kind(location), "ns": self._transfers.read_ns(location)}

    def _ndp_row(self, number: int, share: float, bits: int | None) -> Mapping[str, float]:
        tokens, shards = divmod(number, RADIX)
        costs = self._costs.for_bits(bits)
        cost = costs.expert(tokens, shards, share)
        table, between, bus_ns, pause_ns = self._beside[tokens, shards]
        row: dict[str, float] = {"tokens": tokens, "bytes": cost.bytes // shards, "dimms": shards}
        row |= {"between": between, "table": table}
        for behind, ns in (("", cost.time_ns), ("_behind", costs.part_ns(tokens, shards, share))):
            row[f"ns{behind}"] = ns
            row[f"bus_share{behind}"] = bus_ns / ns if bus_ns else 0.0
            row[f"pause_share{behind}"] = pause_ns / ns if bus_ns else 0.0
        return row
