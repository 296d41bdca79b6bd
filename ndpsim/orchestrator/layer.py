"""An assignment as jobs: what each engine does, and what it waits for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.jobs import Beside, JobList, Label, Labels
from ndpsim.orchestrator.location import Location
from ndpsim.orchestrator.ndp_jobs import NdpJobs
from ndpsim.orchestrator.transfers import Transfers
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import GpuOrder
from ndpsim.policies.views import Machine
from ndpsim.processors import Cpu, Gpu, Processors
from ndpsim.processors.devices import expert_format, weight_bytes
from ndpsim.processors.operations import ACTIVATION_BYTES

#: Exclusive resources; the NDP units of DIMM 0, 1 and so on follow.
GPU, CPU, first_ndp = 0, 1, 2

Ints = NDArray[np.int64]


def server_names(dimms: int) -> tuple[str, ...]:
    """Names of the exclusive resources."""
    return ("gpu", "cpu", *(f"ndp {dimm}" for dimm in range(dimms)))


class Gated(NamedTuple):
    """A layer when its tokens are routed.

    Attributes:
        loads: tokens by expert.
        dimm, shards: by expert, where it is, as in `LayerPlacement`.
        resident: flags [expert]: in the GPU's memory.
        gpu_bits: of copies there, or on their way, that are replicas, by expert.
        arriving: the jobs of experts on their way there.
        tokens_off_gpu: tokens with an expert on another engine.
        shared_ns: of the shared experts; 0: there are none.
        planning_ns: of the decision, before anything else.
    """

    loads: Sequence[int]
    dimm: Sequence[int]
    shards: Sequence[int]
    resident: NDArray[np.bool_]
    gpu_bits: Mapping[int, int]
    arriving: Mapping[int, int]
    tokens_off_gpu: int
    shared_ns: float
    planning_ns: float

    def location(self, expert: int) -> Location:
        """The location of an expert."""
        return Location(self.dimm[expert], self.shards[expert])


class _Weights(NamedTuple):
    """Weights of an expert that are read: bits (None: in full), bytes, and their share of the full bytes."""

    bits: int | None
    bytes: int
    share: float


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
        self._machine, self._transfers = machine, transfers
        self._ndp = NdpJobs(costs, beside, server_names(machine.dimms)[first_ndp:], first_ndp)
        whole = machine.model.expert

        def timed(processor: Gpu | Cpu) -> Callable[[int, float, int | None], float]:
            @functools.cache
            def time_ns(tokens: int, share: float, bits: int | None) -> float:
                return processor.expert_time(whole, tokens, bits or machine.weights, share).time_ns

            return time_ns

        self._gpu_ns, self._call_ns = timed(processors.gpu), processors.gpu.call_ns
        self._cpu_layer_ns = 0.0
        if machine.has_cpu:
            self._cpu_ns = timed(processors.cpu)
            self._cpu_layer_ns = processors.cpu.layer_overhead_ns
        self._weights = functools.cache(self._weights_of)
        self._read = functools.cache(lambda where: (transfers.read(where), transfers.read_ns(where)))
        self._hidden_bytes = machine.model.hidden * ACTIVATION_BYTES

    def add(self, jobs: JobList, assigned: CheckedAssignment, layer: Gated) -> None:
        """Add the jobs of a layer."""
        begun: tuple[int, ...] = ()
        if layer.planning_ns:
            label = Label("cpu", "planning", alone_ns=layer.planning_ns)
            begun = (jobs.add(label, layer.planning_ns, server=CPU),)
        sent = begun
        size = layer.tokens_off_gpu * self._hidden_bytes
        if size:
            sent = (self._add_vectors(jobs, "up", size, begun),)
        last = self._add_gpu(jobs, assigned, layer, begun)
        if assigned.sequential:
            sent = (*sent, *last)
        off_gpu = self._add_cpu(jobs, assigned, layer, sent)
        if assigned.sequential:
            sent = (*sent, *off_gpu)
        off_gpu += self._ndp.add(
            jobs, assigned.ndp, layer.loads, layer.dimm, layer.shards, assigned.bits, sent
        )
        if size:
            self._add_vectors(jobs, "down", size, off_gpu)

    def _add_vectors(self, jobs: JobList, direction: str, size: int, after: Sequence[int]) -> int:
        """Activations to the host, or results to the GPU."""
        ns = self._transfers.pcie_ns(size)
        kind = "activations" if direction == "up" else "results"
        label = Label(f"pcie-{direction}", kind, bytes=size, alone_ns=ns)
        transfer = self._transfers.vectors("up" if direction == "up" else "down")
        return jobs.add(label, ns, after, kind=transfer, per_ns=1.0)

    def _add_gpu(
        self, jobs: JobList, assigned: CheckedAssignment, layer: Gated, begun: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Shared experts first, then the others; copies go ahead as far as buffers reach.

        In the order of the list, each expert waits for the one before it. Otherwise experts have turns on the
        GPU: those that hold a buffer, or are on their way, before those that are resident.

        One fused call computes the experts that are there, and pays with the first of them. Whatever is
        waited for is a call of its own when it is there. Where it may interrupt the residents, these are
        launched once more after it.

        Returns:
            The last to be computed; those that have turns are not in it.
        """
        last, listed = begun, self._listed or assigned.sequential
        if layer.shared_ns:
            label = Label("gpu", "shared", alone_ns=layer.shared_ns)
            turn = -1 if listed else 0
            shared = jobs.add(label, layer.shared_ns, begun, server=GPU, turn=turn)
            last = (shared,) if listed else begun
        called = False
        copies: list[int] = []
        copied: list[int] = []  # the computing of copied experts
        engines, buffers = self._transfers.pcie.copy_engines, self._machine.expert_buffers
        resident = [layer.resident[expert] and expert not in layer.arriving for expert, _ in assigned.gpu]
        place = 0
        for here, run in itertools.groupby(resident):
            parts = assigned.gpu[place : place + len([*run])]
            first_turn, place = place + 1, place + len(parts)
            if here:
                turn = -1 if listed else first_turn + len(assigned.gpu)
                last = self._add_residents(jobs, parts, layer, last, turn, 0.0 if called else self._call_ns)
                called = True
                continue
            for turn, (expert, share) in enumerate(parts, first_turn):
                bits = layer.gpu_bits.get(expert)
                if expert in layer.arriving:
                    arrival = layer.arriving[expert]
                else:
                    bits = assigned.bits.get(expert)
                    before = [of[-n] for of, n in ((copies, engines), (copied, buffers)) if len(of) >= n]
                    after = last if assigned.sequential else (*begun, *before)
                    weights = self._weights(share, bits)
                    arrival = self._add_copy(jobs, expert, share, weights, layer.location(expert), after)
                    copies.append(arrival)
                tokens, size = layer.loads[expert], self._weights(share, bits).bytes
                ns = self._gpu_ns(tokens, share, bits) + (self._call_ns if listed else 2 * self._call_ns)
                label = Label("gpu", "expert", expert, share, tokens, size, ns)
                turn = -1 if listed else turn
                job = jobs.add(label, ns, (*last, arrival), server=GPU, turn=turn)
                last = (job,) if listed else last
                if copies and copies[-1] == arrival:
                    copied.append(job)
        return last

    def _add_residents(
        self,
        jobs: JobList,
        parts: Sequence[tuple[int, float]],
        layer: Gated,
        after: tuple[int, ...],
        turn: int,
        call_ns: float,
    ) -> tuple[int, ...]:
        """Experts that are in the GPU's memory; what comes behind them waits for the jobs that are returned.

        turn: of the first of them; -1: each waits for the one before it.
        """
        bits = [layer.gpu_bits.get(expert) for expert, _ in parts]
        tokens = [layer.loads[expert] for expert, _ in parts]
        work_ns = [
            self._gpu_ns(of_expert, share, of_weight)
            for of_expert, (_, share), of_weight in zip(tokens, parts, bits, strict=True)
        ]
        work_ns[0] += call_ns

        def label(job: int) -> Label:
            (expert, share), size = parts[job], self._weights(parts[job][1], bits[job]).bytes
            return Label("gpu", "expert", expert, share, tokens[job], size, work_ns[job])

        first, count = len(jobs), len(parts)
        numbers = range(first, first + count)
        labels = Labels(count, label)
        if turn < 0:
            pairs = [*after, *numbers[:-1]], [*[first] * len(after), *numbers[1:]]
            jobs.add_block(labels, np.array(work_ns), *pairs, server=GPU)
            return (numbers[-1],)
        pairs = [*after] * count, [number for number in numbers for _ in after]
        jobs.add_block(labels, np.array(work_ns), *pairs, server=GPU, turn=turn + np.arange(count))
        return after

    def _weights_of(self, share: float, bits: int | None) -> _Weights:
        full = self._machine.expert_bytes
        if bits is None:
            return _Weights(None, round(full * share), share)
        size = weight_bytes(self._machine.model.expert, expert_format(bits))
        return _Weights(bits, round(size * share), size / full * share)

    def _add_copy(
        self,
        jobs: JobList,
        expert: int,
        share: float,
        weights: _Weights,
        location: Location,
        after: Sequence[int],
    ) -> int:
        size = weights.bytes
        ns = self._transfers.pcie_ns(size)
        alone = max(ns, weights.share * self._transfers.read_ns(location))
        label = Label("pcie-down", "copy", expert, share, 0, size, alone, size / ns)
        return jobs.add(label, ns, after, kind=self._transfers.copy(location), per_ns=weights.share / ns)

    def _add_cpu(
        self, jobs: JobList, assigned: CheckedAssignment, layer: Gated, sent: tuple[int, ...]
    ) -> list[int]:
        """One after the other, each reading its weights while it computes; the hand-over to threads first."""
        last = sent
        if assigned.cpu and self._cpu_layer_ns:
            label = Label("cpu", "hand-over", alone_ns=self._cpu_layer_ns)
            last = (jobs.add(label, self._cpu_layer_ns, sent, server=CPU),)
        for expert, share in assigned.cpu:
            tokens, weights = layer.loads[expert], self._weights(share, assigned.bits.get(expert))
            kind, read_ns = self._read(layer.location(expert))
            ns = self._cpu_ns(tokens, share, weights.bits)
            alone, per_ns = max(ns, weights.share * read_ns), weights.share / ns
            label = Label("cpu", "expert", expert, share, tokens, weights.bytes, alone, weights.bytes / ns)
            last = (jobs.add(label, ns, last, server=CPU, kind=kind, per_ns=per_ns),)
        return list(last) if assigned.cpu else []
