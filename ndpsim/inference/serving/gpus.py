"""Steps of a model whose weights are all in the memory of GPUs, without a policy.

- A dense model on one GPU.
- Tensor parallel: each GPU has a part of each matrix. The GPUs add up their results after the embedding and
  after attention and the feed-forward network of each layer, and collect the logits of the head.
- Data and expert parallel: each GPU has its own engine with its requests, and a part of the experts in their
  order, as in vLLM (`determine_expert_map` in vllm/model_executor/layers/fused_moe/layer.py). The engines
  synchronize in each layer with experts: tokens go to all GPUs, each computes its experts for all tokens, and
  results go back ("allgather_reducescatter" of vLLM). An engine without requests computes its experts, too.

Not modelled: the token that an engine without requests computes, and the router's results on the link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.energy import add_up
from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.layers.visits import Window, windows_of_step
from ndpsim.inference.processors import DenseTime
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, MixedStep
from ndpsim.inference.processors.parallel import Exchange
from ndpsim.inference.serving.scheduler import Chunk
from ndpsim.inference.serving.steps import mixed_step, tokens_of
from ndpsim.simulate.results.moe import ENGINES
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing.sequences import TokenRouting
from ndpsim.workload.routing.trace import loads_of

Floats = NDArray[np.float64]

_NOTE = "the energy of GPUs is not known"


@dataclass(frozen=True)
class Experts:
    """Experts of a model on GPUs.

    Attributes:
        routing: the routing of the sequences.
        time_ns: times of an expert on a GPU, by its tokens from 0.
        call_ns: time of a call for the experts of a layer.
        first: the first expert of each GPU.
    """

    routing: TokenRouting
    time_ns: Floats
    call_ns: float
    first: NDArray[np.int64]

    def layers_ns(self, chunks: Sequence[Chunk], experts: int) -> tuple[Floats, int]:
        """The time of each layer's experts on each GPU, [layer, GPU], and pairs of a token and an expert."""
        loads = loads_of(self.routing.ids(*tokens_of(chunks)), experts)
        return self.call_ns + np.add.reduceat(self.time_ns[loads], self.first, axis=1), int(loads.sum())


class GpuSteps:
    """Steps of engines on GPUs.

    Args:
        model: the model, or with tensor parallelism a GPU's part of it.
        dense_time: times of a step's attention and dense parts.
        experts: the experts; None for a dense model.
        exchange: exchanges between the GPUs.
        engines: the number of GPUs with data parallelism, otherwise 1.
        bank_ns: the time of a transfer between a GPU and its devices with units in their banks.
    """

    def __init__(
        self,
        model: MoeShape,
        dense_time: Callable[[MixedStep], DenseTime],
        kv_bits: int,
        experts: Experts | None,
        exchange: Exchange,
        engines: int,
        bank_ns: Callable[[int], float] = lambda size: 0.0,
    ) -> None:
        self._bank_ns, self._banks_ns = bank_ns, 0.0
        self._model, self._dense_time, self._kv_bits = model, dense_time, kv_bits
        self._experts, self._exchange, self._engines = experts, exchange, engines
        self._moe_layers = [layer for layer in range(model.layers) if layer not in model.dense_layers]
        self._busy_ns = np.zeros(exchange.gpus)
        self._link_ns = self._clock_ns = self._pairs = 0.0
        self._steps_ns = 0.0
        self.residents: Residents | None = None
        self.host_bytes = 0  # no blocks are moved

    @property
    def clock_ns(self) -> float:
        """The current time: the end of the last step, or the time until which the GPUs waited."""
        return self._clock_ns

    def wait_until(self, time_ns: float) -> None:
        """Wait, without work, until a time."""
        self._clock_ns = max(self._clock_ns, time_ns)

    def move_blocks(self, to_gpu: Sequence[int], to_host: Sequence[int]) -> None:
        """See `Steps`: `run_serving` refuses it."""
        raise NotImplementedError

    def run(self, number: int, parts: Sequence[Sequence[Chunk]]) -> None:
        """Run step `number`, which has a part for each engine."""
        steps = [mixed_step(chunks, self._kv_bits) for chunks in parts]
        windows, in_banks = np.array([self._windows_ns(step) for step in steps]).transpose(2, 0, 1)
        work_ns, busy_ns = float((windows + in_banks).max(axis=0).sum()), windows.sum(axis=1)
        self._banks_ns += float(in_banks.sum())
        if self._experts is not None:
            chunks = [chunk for of_engine in parts for chunk in of_engine]
            experts_ns, pairs = self._experts.layers_ns(chunks, self._model.routed_experts)
            work_ns += float(experts_ns.max(axis=1).sum())
            busy_ns = busy_ns + experts_ns.sum(axis=0)
            self._pairs += pairs
        link_ns = self._exchanges_ns(steps)
        self._busy_ns += busy_ns
        self._link_ns += link_ns
        self._steps_ns += work_ns + link_ns
        self._clock_ns += work_ns + link_ns

    def _windows_ns(self, step: MixedStep) -> list[tuple[float, float]]:
        """An engine's times, with shared experts, before each layer with experts and after the last one.

        Each is the GPU's time, and the time for which it waits for attention in banks.
        """
        if not step.lengths:
            return [(0.0, 0.0)] * (len(self._moe_layers) + 1)
        dense = self._dense_time(step)
        gates, tail = windows_of_step(self._moe_layers, range(self._model.layers), "mixed", dense)
        times = [(window.gpu_ns + dense.shared_ns, window) for _, window in gates] + [(tail.gpu_ns, tail)]
        return [(ns, self._waiting_ns(window)) for ns, window in times]

    def _waiting_ns(self, window: Window) -> float:
        """How long a GPU waits for attention in banks, beyond its own work beside it."""
        parts = (layer.attention for layer in window.in_banks)
        return sum(
            max(sum(map(self._bank_ns, (one.in_bytes, one.out_bytes))) + one.time_ns - one.beside_ns, 0.0)
            for one in parts
        )

    def _exchanges_ns(self, steps: Sequence[MixedStep]) -> float:
        """The time of all exchanges of a step."""
        model, exchange = self._model, self._exchange
        if self._engines > 1:
            sizes = [step.tokens * model.hidden * ACTIVATION_BYTES for step in steps]
            return 2 * len(self._moe_layers) * exchange.gather_ns(sizes)
        return 2 * model.layers * exchange.sum_ns(model, steps[0]) + exchange.ends_ns(model, steps[0])

    def results(self, time_ns: float) -> dict[str, Any]:
        """Fields of a result on the machine in this time: see `ServingResult`."""
        gpus, work_ns = self._exchange.gpus, self._steps_ns - self._link_ns
        names = ["gpu"] if gpus == 1 else [f"gpu {number}" for number in range(gpus)]
        bottleneck = {"gpu": work_ns - self._banks_ns, "link": self._link_ns, "banks": self._banks_ns}
        pairs = {} if self._experts is None else {**dict.fromkeys(ENGINES, 0.0), "gpu_hit": self._pairs}
        return {
            "pairs_by_engine": pairs,
            "utilization": dict(zip(names, (self._busy_ns / time_ns).tolist(), strict=True)),
            "migrations": {},
            "bottleneck": {name: ns / self._steps_ns for name, ns in bottleneck.items() if ns},
            "energy_nj": add_up({"gpu": None}),
            "energy_note": _NOTE,
            "policy_wall_s": 0.0,
        }
