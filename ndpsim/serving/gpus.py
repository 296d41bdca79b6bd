"""Steps of a model whose weights are all in the memory of a GPU, which nothing is asked of a policy for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ndpsim.moe import MoeShape
from ndpsim.orchestrator.visits import Window, windows_of_step
from ndpsim.processors import DenseTime
from ndpsim.processors.operations import MixedStep
from ndpsim.serving.scheduler import Chunk
from ndpsim.serving.steps import mixed_step

_NOTE = "the energy of a GPU is not known"


class GpuSteps:
    """Steps of a dense model on one GPU.

    Args:
        dense_time: of a step's attention and dense parts.
    """

    def __init__(self, model: MoeShape, dense_time: Callable[[MixedStep], DenseTime], kv_bits: int) -> None:
        self._model, self._dense_time, self._kv_bits = model, dense_time, kv_bits
        self._busy_ns = self._clock_ns = 0.0

    @property
    def clock_ns(self) -> float:
        """When the last step has ended, or was waited until."""
        return self._clock_ns

    def wait_until(self, time_ns: float) -> None:
        """Nothing is to be computed until then."""
        self._clock_ns = max(self._clock_ns, time_ns)

    def move_blocks(self, to_gpu: Sequence[int], to_host: Sequence[int]) -> None:
        """See `Steps`: `run_serving` refuses it."""
        raise NotImplementedError

    def run(self, number: int, chunks: Sequence[Chunk]) -> None:
        """Run step `number`."""
        dense = self._dense_time(mixed_step(chunks, self._kv_bits))
        (whole,) = windows_of_step((), range(self._model.layers), "mixed", dense)
        assert isinstance(whole, Window)
        self._busy_ns += whole.gpu_ns
        self._clock_ns += whole.gpu_ns

    def results(self, time_ns: float) -> dict[str, Any]:
        """Fields of a result that tell of the machine in this time: see `ServingResult`."""
        return {
            "pairs_by_engine": {},
            "utilization": {"gpu": self._busy_ns / time_ns},
            "migrations": {},
            "bottleneck": {"gpu": 1.0},
            "energy_nj": {"gpu": None},
            "energy_note": _NOTE,
            "policy_wall_s": 0.0,
        }
