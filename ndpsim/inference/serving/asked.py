"""Settings of a server, found: the requests, the policy and the routing; and what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.serve import ServeSettings
from ndpsim.base.units import shortfall
from ndpsim.config import Hardware
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.serving.room import KvRoom
from ndpsim.policies.choose import ChosenPolicy, choose_policies
from ndpsim.policies.interface import Policy
from ndpsim.workload.models import MoeShape
from ndpsim.workload.requests import Requests, load_requests
from ndpsim.workload.routing import Routing, default_routing, load_routing
from ndpsim.workload.routing.generate import existing_file, is_spec
from ndpsim.workload.routing.sequences import TokenRouting, routing_of_sequences


def requests_asked(settings: ServeSettings) -> Requests:
    """The requests with their original arrivals; a rate is refused that they cannot have."""
    if settings.requests is None:
        raise InputError("is missing: a file, or a SPEC such as poisson:rate=2", "missing", key="requests")
    requests = load_requests(settings.requests, settings.seed)
    if settings.rate is not None:
        requests.at_rate(settings.rate)
    return requests


def policy_asked(policy: str | type[Policy] | ChosenPolicy) -> ChosenPolicy:
    """The one policy of a run."""
    if not isinstance(policy, str | type | ChosenPolicy):
        raise InputError(f"{shown(policy)} is not a policy", "type", key="policy")
    (chosen, _), *others = choose_policies((policy,))
    if others:
        raise InputError("a run has one policy; sweep over several", "unsupported", key="policy")
    if chosen.policy.rehearses:
        problem = f"{chosen.name} needs all steps in advance; serve forms them as it runs"
        raise InputError(problem, "unsupported", key="policy")
    return chosen


class RoutingAsked(NamedTuple):
    """The routing of a run, or nothing for a dense model.

    Attributes:
        called: name of the routing in results.
        by_sequence: see `routing_of_sequences`.
        offline: SPEC of a trace from which policies may learn.
    """

    called: str
    by_sequence: Callable[[NDArray[np.int64]], TokenRouting]
    offline: str


def routing_asked(
    routing: str | PathLike[str] | Routing | None, shape: MoeShape, seed: int
) -> RoutingAsked | None:
    """The routing: a SPEC, or a trace of all layers with experts; None for a dense model."""
    if not shape.has_experts:
        return None
    if routing is None:
        routing = default_routing(shape)
    if isinstance(routing, str) and is_spec(routing):
        return RoutingAsked(routing, routing_of_sequences(routing, shape, seed), routing)
    if isinstance(routing, Routing):
        trace, called = routing, "a trace"
    else:
        trace, called = load_routing(existing_file(routing), shape), str(routing)
    by_sequence = routing_of_sequences(trace.for_model(shape), shape, seed)
    return RoutingAsked(called, by_sequence, default_routing(shape))


def check_without_policy(shape: MoeShape, settings: ServeSettings) -> None:
    """Check that no setting of GPUs that hold all weights needs a policy or other memory."""
    without = "GPUs hold all of its experts where no policy is named"
    why = without if shape.has_experts else "it is a dense model, without experts"
    of_experts = () if shape.has_experts else ("bits", "weights", "routing")
    for key in ("policy", "gpu_experts", "host_gbps", *of_experts):
        if getattr(settings, key) is not None:
            raise InputError(f"does not apply to {shape.name}: {why}", "conflict", key=key)
    if settings.kv == "host":
        problem = f"the KV cache of {shape.name} is in the memory of GPUs: {why}"
        raise InputError(problem, "unsupported", key="kv")


def check_preemption(preemption: str, has_policy: bool, room: KvRoom, gpus: int) -> None:
    """Check that blocks can be moved to the host's memory, if preemption does so."""
    if preemption == "swap" and gpus > 1:
        raise InputError(f"swap is not supported with {gpus} GPUs", "unsupported", key="preemption")
    if preemption == "swap" and not has_policy:
        problem = "swap needs a policy; without one, sequences are computed again"
        raise InputError(problem, "unsupported", key="preemption")
    if preemption == "swap" and room.memory.kv != "gpu":
        where = "the host's memory" if room.memory.kv == "host" else "devices with units in their banks"
        problem = f"swap needs the KV cache in the GPU's memory; here it is in {where}"
        raise InputError(problem, "conflict", key="preemption")


def check_bank_link(hardware: Hardware, devices: AttentionDevices | None) -> None:
    """Check that GPUs without a policy have a link of their own to devices that compute attention."""
    banks = hardware.system.banks
    if devices is not None and banks is not None and banks.link_gbps is None:
        problem = "is missing: GPUs that hold all weights have no link to the host in this model"
        raise hardware.origins["banks.link_gbps"].error(problem, "banks.link_gbps", "missing")


def check_experts_fit(part: MoeShape, room: KvRoom, gpus: int) -> None:
    """Check that each GPU has room for its part of the experts."""
    needed, memory = part.moe_layers * -(-part.routed_experts // gpus), room.memory
    if memory.experts < needed:
        lacking = shortfall(needed * memory.expert_bytes, memory.experts_bytes)
        problem = (
            f"the experts of {part.name} do not fit: the room for experts in each GPU's memory {lacking}. "
            "Use more GPUs, fewer bits or a policy"
        )
        raise InputError(problem, "too-large", key="gpu.memory_gb")
