"""What runs the steps of requests: a machine under a policy, or GPUs that hold all weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ndpsim.moe import MoeShape
from ndpsim.orchestrator.given import Given
from ndpsim.orchestrator.record import Observer
from ndpsim.orchestrator.step_run import StepRunner
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.processors import DenseTime
from ndpsim.processors.operations import MixedStep
from ndpsim.routing import Routing
from ndpsim.routing.sequences import routing_of_sequences
from ndpsim.serving.gpus import GpuSteps
from ndpsim.serving.steps import MoeSteps, Steps
from ndpsim.workloads import Requests


class Machine(Protocol):
    """Begins steps of requests."""

    @property
    def config(self) -> dict[str, Any]:
        """What a result says of policy and experts."""

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """Steps from time 0 on; the observer is shown each layer with experts."""


@dataclass(frozen=True)
class UnderPolicy:
    """A machine on which a policy decides where experts run.

    Attributes:
        routing: a SPEC, or a trace.
        routed: what it is called.
        dense_time: of attention and dense parts in a step.
        kept_bytes: as of `KvRoom`.
    """

    chosen: ChosenPolicy
    given: Given
    routing: str | Routing
    routed: str
    seed: int
    dense_time: Callable[[MixedStep], DenseTime]
    kv_bits: int
    kept_bytes: Callable[[Sequence[int]], int]

    @property
    def config(self) -> dict[str, Any]:
        """See `Machine`."""
        return {
            "policy": self.chosen.name,
            "parameters": self.chosen.parameters.model_dump(),
            "routing": self.routed,
            "gpu_experts": self.given.machine.gpu_experts,
        }

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """See `Machine`."""
        given, chosen = self.given, self.chosen
        policy = chosen.start(given.machine, given.estimates)
        return MoeSteps(
            StepRunner(given, policy, chosen.parameters.model_dump(), observer),
            routing_of_sequences(self.routing, given.machine.model, requests.prompt_tokens, self.seed),
            self.dense_time,
            self.kv_bits,
            self.kept_bytes,
        )


@dataclass(frozen=True)
class OnGpu:
    """A GPU with a dense model: see `GpuSteps`."""

    shape: MoeShape
    dense_time: Callable[[MixedStep], DenseTime]
    kv_bits: int

    @property
    def config(self) -> dict[str, Any]:
        """See `Machine`."""
        return {"policy": None, "parameters": {}, "routing": None, "gpu_experts": None, "bits": None}

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """See `Machine`."""
        return GpuSteps(self.shape, self.dense_time, self.kv_bits)
