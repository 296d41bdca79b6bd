"""Machines that run the steps of requests: one under a policy, or GPUs that hold all weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.base.options.moe import MOE
from ndpsim.config import Hardware
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.record import Observer
from ndpsim.inference.layers.recorder import Recorder
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.weights import RunWeights
from ndpsim.inference.processors import DenseTime, Processors
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.operations import MixedStep
from ndpsim.inference.processors.parallel import tensor_part
from ndpsim.inference.serving.asked import RoutingAsked
from ndpsim.inference.serving.gpus import Experts, GpuSteps
from ndpsim.inference.serving.room import KvRoom
from ndpsim.inference.serving.steps import MoeSteps, Steps
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.workload.models import MoeShape
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing.sequences import TokenRouting


class ServingMachine(Protocol):
    """A machine that runs steps of requests."""

    @property
    def config(self) -> dict[str, Any]:
        """The part of a result's config on policy, experts and engines."""

    @property
    def engines(self) -> int:
        """The number of engines."""

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """Steps from time 0 on; the observer receives each layer with experts."""


@dataclass(frozen=True)
class UnderPolicy:
    """A machine on which a policy decides where experts run.

    Attributes:
        part: the model, or a GPU's part of it.
        room: the room of the KV cache.
    """

    chosen: ChosenPolicy
    setup: Setup
    part: MoeShape
    routing: RoutingAsked
    room: KvRoom
    kv_bits: int
    engines: int = 1

    @property
    def config(self) -> dict[str, Any]:
        """See `ServingMachine`."""
        return {
            "policy": self.chosen.name,
            "parameters": self.chosen.parameters.model_dump(),
            "routing": self.routing.called,
            "gpu_experts": self.setup.machine.gpu_experts,
            "parallel": None if self.setup.processors.gpus == 1 else "tensor",
            "engines": 1,
            "host_gbps": self.setup.costs.host_gbps,
        }

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """See `ServingMachine`."""
        setup, chosen = self.setup, self.chosen
        run = LayerRun(setup, chosen.start(setup.machine, setup.estimates))
        if observer is not None:
            run.listeners.append(Recorder(run, chosen.parameters.model_dump(), observer))
        return MoeSteps(
            run,
            self.routing.by_sequence(requests.prompt_tokens),
            self._dense_time,
            self.kv_bits,
            self.room.kept_bytes,
        )

    def _dense_time(self, step: MixedStep) -> DenseTime:
        setup, kv = self.setup, self.room.memory.kv
        bits, devices = setup.weights.dense, setup.devices
        return setup.processors.part_time(self.part, step, kv=kv, bits=bits, devices=devices)


@dataclass(frozen=True)
class Gpus:
    """GPUs that hold all weights: see `ndpsim.inference.serving.gpus`.

    Attributes:
        parallel: "data", "tensor", or None for a single GPU.
        part: the model, or a GPU's part of it.
        routing: the routing; None for a dense model.
        most_tokens: maximum tokens of a step of an engine.
        devices: those of each GPU that compute attention in their banks; None: the GPUs do.
    """

    processors: Processors
    parallel: str | None
    part: MoeShape
    weights: RunWeights
    routing: RoutingAsked | None
    kv_bits: int
    most_tokens: int
    devices: AttentionDevices | None = None

    @property
    def count(self) -> int:
        """The number of GPUs."""
        return self.processors.gpus

    @property
    def engines(self) -> int:
        """The number of engines."""
        return self.count if self.parallel == "data" else 1

    @property
    def config(self) -> dict[str, Any]:
        """See `ServingMachine`."""
        called = None if self.routing is None else self.routing.called
        none: dict[str, Any] = {"policy": None, "parameters": {}, "routing": called, "gpu_experts": None}
        none["host_gbps"] = None
        bits = {} if self.part.has_experts else {"bits": None}
        return {**none, **bits, "parallel": self.parallel, "engines": self.engines}

    def steps_for(self, requests: Requests, observer: Observer | None = None) -> Steps:
        """See `ServingMachine`."""
        exchange = self.processors.exchange
        routing = None if self.routing is None else self.routing.by_sequence(requests.prompt_tokens)
        experts = None if routing is None else self._experts(routing)
        return GpuSteps(
            self.part, self._dense_time, self.kv_bits, experts, exchange, self.engines, self._bank_ns
        )

    def _dense_time(self, step: MixedStep) -> DenseTime:
        return self.processors.step_time(self.part, step, bits=self.weights.dense, devices=self.devices)

    def _bank_ns(self, size_bytes: int) -> float:
        """The time of a transfer to the devices of a GPU, or from them."""
        own_ns = self.processors.hardware.bank_link_ns(size_bytes)
        assert own_ns is not None
        return own_ns

    def _experts(self, routing: TokenRouting) -> Experts:
        gpu, part = self.processors.gpu, self.part
        loads = range(1, self.engines * self.most_tokens + 1)
        times = [gpu.expert_time(part.expert, load, self.weights.expert).time_ns for load in loads]
        places = np.array_split(np.arange(part.routed_experts), self.engines)
        return Experts(
            routing,
            np.array([0.0, *times]),
            gpu.call_ns,
            np.array([place[0] for place in places]),
        )


def default_policy(shape: MoeShape, hardware: Hardware) -> str | None:
    """The policy where none is named; None if GPUs hold all weights, so that no policy runs."""
    return MOE["policy"].default if shape.has_experts and Processors(hardware).gpus == 1 else None


def parallelism(shape: MoeShape, gpus: int, asked: str | None, has_policy: bool) -> str | None:
    """The way in which GPUs share a model, "data" or "tensor"; None for a single GPU.

    Raises:
        InputError: the model cannot be shared in this way, or there is one GPU.
    """
    if gpus == 1:
        if asked is not None:
            raise InputError(f"{asked} needs several GPUs: gpu.count", "conflict", key="parallel")
        return None
    if asked == "data" and not shape.has_experts:
        problem = f"{shape.name} has no experts in which engines meet: serve each with requests of its own"
        raise InputError(problem, "unsupported", key="parallel")
    if asked == "data" and has_policy:
        raise InputError("data has no policy: GPUs hold all experts", "conflict", key="parallel")
    return asked or ("data" if shape.has_experts and not has_policy else "tensor")


def part_of(shape: MoeShape, gpus: int, parallel: str | None) -> MoeShape:
    """The model, or with tensor parallelism a GPU's part of it."""
    return tensor_part(shape, gpus) if parallel == "tensor" else shape
