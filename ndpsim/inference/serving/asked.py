"""Arguments of `run_serving`, checked: the engine, the requests, the policy and the routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import flag, shown
from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import SERVE
from ndpsim.inference.serving.kv import HostRoom, KvCache
from ndpsim.inference.serving.room import KvAsked, KvRoom
from ndpsim.inference.serving.scheduler import Limits, Scheduler, scheduler_named
from ndpsim.inference.serving.steps import Steps
from ndpsim.policies.choose import ChosenPolicy, choose_policies
from ndpsim.policies.interface import GivesRoom, Policy
from ndpsim.workload.models import MoeShape
from ndpsim.workload.requests import Requests, load_requests
from ndpsim.workload.routing import Routing, default_routing, load_routing
from ndpsim.workload.routing.generate import existing_file, is_spec
from ndpsim.workload.routing.sequences import TokenRouting, routing_of_sequences


@dataclass(frozen=True)
class EngineAsked:
    """The rules by which engines form steps.

    Attributes:
        ahead: whether a step is formed when the previous one begins.
    """

    scheduler: type[Scheduler]
    limits: Limits
    preemption: str
    prefix_cache: bool
    ahead: bool

    def schedulers(self, engines: int, room: KvRoom, steps: Steps) -> list[Scheduler]:
        """A scheduler for each engine."""
        swaps, sizes = self.preemption == "swap", (room.blocks, room.block_tokens)
        residents = steps.residents
        shared = None if residents is None else room.shared_with(residents, lambda: steps.clock_ns)
        host = HostRoom(steps.host_bytes, room.kept_bytes) if swaps else None
        return [
            self.scheduler(KvCache(*sizes, self.prefix_cache, shared, host), self.limits, swaps)
            for _ in range(engines)
        ]

    @property
    def config(self) -> dict[str, Any]:
        """The part of a result's config on steps."""
        return {
            "scheduler": self.scheduler.name,
            "max_batch": self.limits.sequences,
            "max_tokens": self.limits.tokens,
            "preemption": self.preemption,
        }


def engine_asked(
    scheduler: str,
    max_batch: int,
    max_tokens: int,
    preemption: str,
    prefix_cache: bool,
    async_scheduling: bool,
) -> EngineAsked:
    """See `run_serving`."""
    former = scheduler_named(SERVE["scheduler"].checked(scheduler))
    limits = Limits(SERVE["max-batch"].checked(max_batch), SERVE["max-tokens"].checked(max_tokens))
    if limits.tokens < limits.sequences:
        problem = f"{limits.tokens} are fewer than the {limits.sequences} sequences of max_batch"
        raise InputError(problem, "conflict", key="max_tokens")
    preemption = SERVE["preemption"].checked(preemption)
    ahead = flag(async_scheduling, "async_scheduling") and former.works_ahead and preemption != "swap"
    return EngineAsked(former, limits, preemption, flag(prefix_cache, "prefix_cache"), ahead)


def kv_asked(
    chosen: ChosenPolicy | None,
    kv: str,
    kv_bits: int,
    block_tokens: int,
    kv_blocks: int | None,
    gpu_experts: int | None,
) -> KvAsked:
    """See `run_serving`; without `chosen`, no policy runs."""
    return KvAsked(
        SERVE["kv"].checked(kv) if chosen else "gpu",
        SERVE["kv-bits"].checked(kv_bits),
        SERVE["block-tokens"].checked(block_tokens),
        SERVE["kv-blocks"].checked(kv_blocks),
        gpu_experts,
        chosen is not None and issubclass(chosen.policy, GivesRoom),
    )


def requests_asked(requests: str | PathLike[str] | Requests | None, seed: int) -> Requests:
    """See `run_serving`."""
    if requests is None:
        raise InputError("are needed: a file, a SPEC, or Requests", "missing", key="requests")
    return load_requests(requests, seed)


def policy_asked(policy: str | type[Policy] | ChosenPolicy) -> ChosenPolicy:
    """The one policy of a run."""
    if not isinstance(policy, str | type | ChosenPolicy):
        raise InputError(f"{shown(policy)} is no policy", "type", key="policy")
    (chosen, _), *others = choose_policies((policy,))
    if others:
        raise InputError("a run has one policy; sweep over several", "unsupported", key="policy")
    if chosen.policy.rehearses:
        problem = f"{chosen.name} tries whole runs first, and the steps of serving are not known before"
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
        trace, called = load_routing(existing_file(routing)), str(routing)
    by_sequence = routing_of_sequences(trace.for_model(shape), shape, seed)
    return RoutingAsked(called, by_sequence, default_routing(shape))


def check_gpus(shape: MoeShape, kv: str, of_policy: Mapping[str, object]) -> None:
    """Check that no argument for GPUs that hold all weights needs a policy or other memory.

    of_policy: values of arguments for policies, by name; None: not given.
    """
    why = "GPUs hold all of its experts" if shape.has_experts else "it is a dense model, without experts"
    for key, value in of_policy.items():
        if value is not None:
            raise InputError(f"has no meaning for {shape.name}: {why}", "conflict", key=key)
    if kv == "host":
        problem = f"the KV cache of {shape.name} is in the memory of GPUs: {why}"
        raise InputError(problem, "unsupported", key="kv")


def check_preemption(preemption: str, has_policy: bool, room: KvRoom) -> None:
    """Check that blocks can be moved to the host's memory, if preemption does so."""
    if preemption == "swap" and not has_policy:
        problem = "swap is for a machine under a policy; without one sequences are computed again"
        raise InputError(problem, "unsupported", key="preemption")
    if preemption == "swap" and room.memory.kv == "host":
        problem = "the KV cache is in the host's memory, and so nothing can be moved there"
        raise InputError(problem, "conflict", key="preemption")


def check_experts_fit(part: MoeShape, room: KvRoom, gpus: int) -> None:
    """Check that each GPU has room for its part of the experts."""
    needed, memory = part.moe_layers * -(-part.routed_experts // gpus), room.memory
    if memory.experts < needed:
        problem = (
            f"the experts of {part.name} need {needed * memory.expert_bytes:,} B of each GPU, which has "
            f"{memory.experts_bytes:,} B for them"
        )
        raise InputError(problem, "too-large", key="gpu.memory_gb")
