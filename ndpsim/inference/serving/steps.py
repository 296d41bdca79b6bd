"""A step of an engine on the machine: attention, dense parts and experts of its chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.layers.setup import host_room_bytes
from ndpsim.inference.layers.totals import Totals, machine_results
from ndpsim.inference.layers.visits import GatedVisit, Window, frozen_loads, windows_of_step
from ndpsim.inference.processors import DenseTime
from ndpsim.inference.processors.operations import MixedStep
from ndpsim.inference.serving.scheduler import Chunk
from ndpsim.policies.script import Visit
from ndpsim.workload.routing.sequences import TokenRouting

Ints = NDArray[np.int64]


class Steps(Protocol):
    """Runs steps one after the other.

    Attributes:
        clock_ns: the time now.
        residents: experts in the GPU's memory; None: no policy runs.
        host_bytes: of the host's memory, that experts leave to sequences that are moved there.
    """

    residents: Residents | None
    host_bytes: int

    @property
    def clock_ns(self) -> float:
        """The time now: the end of the last step, or the time until which the engine waited."""

    def wait_until(self, time_ns: float) -> None:
        """Nothing is to be computed until then."""

    def move_blocks(self, to_gpu: Sequence[int], to_host: Sequence[int]) -> None:
        """Move blocks of the KV cache before a step; how many of each sequence."""

    def run(self, number: int, parts: Sequence[Sequence[Chunk]]) -> None:
        """Run step `number`, which has a part for each engine."""

    def results(self, time_ns: float) -> dict[str, Any]:
        """Fields of a result that tell of the machine in this time: see `ServingResult`."""


def mixed_step(chunks: Sequence[Chunk], kv_bits: int) -> MixedStep:
    """The work of chunks, in their order."""
    lengths = tuple([(chunk.tokens, chunk.computed + chunk.tokens) for chunk in chunks])
    return MixedStep(lengths, kv_bits, tuple([chunk.sequence.number for chunk in chunks]))


def tokens_of(chunks: Sequence[Chunk]) -> tuple[Ints, Ints]:
    """The sequence of each token of chunks, and its position in it."""
    tokens = np.array([chunk.tokens for chunk in chunks])
    sequences = np.repeat(np.array([chunk.sequence.number for chunk in chunks]), tokens)
    first = np.array([chunk.computed for chunk in chunks])
    within = np.arange(len(sequences)) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    return sequences, np.repeat(first, tokens) + within


class MoeSteps:
    """Steps of a mixture-of-experts model under a policy.

    A step with a chunk of a prompt, or of a sequence that is computed again, has the phase "mixed", any other
    one "decode". In its layers decoded tokens come first.

    Args:
        dense_time: of attention and dense parts in a step.
        kept_bytes: of sequences with so many blocks of the KV cache each.
    """

    def __init__(
        self,
        run: LayerRun,
        routing: TokenRouting,
        dense_time: Callable[[MixedStep], DenseTime],
        kv_bits: int,
        kept_bytes: Callable[[Sequence[int]], int],
    ) -> None:
        self._run, self._routing, self._dense_time, self._kv_bits = run, routing, dense_time, kv_bits
        self._kept_bytes, self._totals = kept_bytes, Totals.of(run.setup)
        run.listeners.append(self._totals)
        self.residents: Residents | None = Residents(run)
        self.host_bytes = host_room_bytes(run.setup, run.placed.replicas)

    @property
    def clock_ns(self) -> float:
        """The time now: the end of the last step, or the time until which the engine waited."""
        return self._run.clock_ns

    def wait_until(self, time_ns: float) -> None:
        """Nothing is to be computed until then; experts on their way move on."""
        self._run.wait_until(time_ns)

    def move_blocks(self, to_gpu: Sequence[int], to_host: Sequence[int]) -> None:
        """Move blocks of the KV cache over PCIe before anything else of the step begins."""
        self._run.move_cache(self._kept_bytes(to_gpu), self._kept_bytes(to_host))

    def run(self, number: int, parts: Sequence[Sequence[Chunk]]) -> None:
        """Run step `number` of the only engine."""
        (chunks,) = parts
        decoding = [chunk for chunk in chunks if chunk.decodes]
        others = [chunk for chunk in chunks if not chunk.decodes]
        ordered = [*decoding, *others]
        step = mixed_step(ordered, self._kv_bits)
        dense = self._dense_time(step)
        visits, tail = self._visits(number, ordered, dense, step.tokens - len(decoding))
        self._run.run_step(visits, tail)

    def results(self, time_ns: float) -> dict[str, Any]:
        """Fields of a result that tell of the machine in this time: see `ServingResult`."""
        return machine_results(self._run, self._totals, time_ns)

    def _visits(
        self, number: int, chunks: Sequence[Chunk], dense: DenseTime, prompt_tokens: int
    ) -> tuple[list[GatedVisit], tuple[Window, ...]]:
        """The layers with experts, the last first to know what follows, and the windows behind the last."""
        ids, setup = self._routing.ids(*tokens_of(chunks)), self._run.setup
        loads = frozen_loads(ids, setup.machine.model.routed_experts)
        layers, phase = setup.machine.layers, "mixed" if prompt_tokens else "decode"
        gates, tail = windows_of_step(layers, setup.size.layers, phase, dense)
        following: GatedVisit | None = None
        visits: list[GatedVisit] = []
        for row, window in reversed(gates):
            visit = Visit(phase, number, layers[row])
            chosen = loads[row], ids[row], None
            following = GatedVisit(
                visit, row, *chosen, (window,), dense.shared_ns, False, following, prompt_tokens
            )
            visits.append(following)
        return visits[::-1], (tail,)
