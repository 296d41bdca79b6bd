"""A machine and an engine that are set up once, and serve the same requests at several rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

from ndpsim.base.options.serve import SERVE, ServiceLevel, service_level
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.inference.layers.given import Given, check_link, given_of
from ndpsim.inference.layers.weights import RunWeights, run_weights
from ndpsim.inference.processors import Processors
from ndpsim.inference.serving.asked import (
    EngineAsked,
    check_experts_fit,
    check_gpus,
    check_preemption,
    engine_asked,
    kv_asked,
    policy_asked,
    routing_asked,
)
from ndpsim.inference.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.inference.serving.hashes import prompt_hashes
from ndpsim.inference.serving.level import check_level
from ndpsim.inference.serving.log import ServingLog
from ndpsim.inference.serving.machines import (
    Gpus,
    Machine,
    UnderPolicy,
    default_policy,
    gpus_of,
    parallelism,
    part_of,
)
from ndpsim.inference.serving.observer import ServingObserver
from ndpsim.inference.serving.room import KvRoom, kv_room
from ndpsim.inference.serving.scheduler import Limits, scheduler_named
from ndpsim.inference.serving.sequence import Sequence as Served
from ndpsim.inference.serving.steps import Steps
from ndpsim.inference.serving.summary import served, summary
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import Policy
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing import Routing, generate_routing

#: Keys of the configuration for observers.
_TOLD = (
    "policy", "model", "scheduler", "preemption", "engines", "block_tokens", "max_batch", "max_tokens",
    "prefix_cache", "async_scheduling", "closed_loop",
)  # fmt: skip
_OFFLINE_STEPS = 16  # seed of the trace from which policies may learn


@dataclass(frozen=True, eq=False)
class Server:
    """A machine with an engine and its requests; runs do not affect each other.

    Attributes:
        model: name of the model.
        requests: the requests with their original arrivals.
        room: the room of the KV cache.
        seed, kv_bits, arbitration: as in `run_serving`.
    """

    hardware: Hardware
    model: str
    requests: Requests
    engine: EngineAsked
    room: KvRoom
    machine: Machine
    level: ServiceLevel | None
    weights: RunWeights
    seed: int
    kv_bits: int
    arbitration: str

    def serve(
        self,
        rate: float | None = None,
        log: ServingLog | None = None,
        observer: ServingObserver | None = None,
        progress: Callable[[float], None] = lambda share: None,
        watch: Stopwatch | None = None,
    ) -> ServingResult:
        """Serve the requests, at a rate if one is given; for arguments see `run_serving`.

        watch: measures the time of the run; None begins now.

        Raises:
            InputError: the requests have no rate, or a policy gives an impossible answer.
        """
        watch = watch or Stopwatch()
        requests = self.requests if rate is None else self.requests.at_rate(SERVE["rate"].checked(rate))
        config = self._config(requests)
        observers = [one for one in (log, observer) if one is not None]
        steps = self.machine.steps_for(requests, None if observer is None else observer.layer)
        engines = self._engines(requests, steps, config, observers, progress)
        engines.run()
        per_request = served(requests, engines.sequences)
        time_ns = steps.clock_ns - per_request[0].arrival_ns
        of_machine = {**steps.results(time_ns), **watch.times()}
        return summary(config, requests, per_request, engines.history, self.level, of_machine)

    def _config(self, requests: Requests) -> dict[str, Any]:
        """Everything that was used, with the arrivals of requests."""
        engine, room, level = self.engine, self.room, self.level
        return {
            "hardware": self.hardware.to_dict(),
            "model": self.model,
            "requests": dict(requests.source or {}),
            "closed_loop": requests.closed_loop,
            **engine.config,
            "slo": None if level is None else asdict(level),
            "seed": self.seed,
            **self.weights.to_dict(),
            **self.machine.config,
            "kv": room.memory.kv,
            "kv_bits": self.kv_bits,
            "kv_blocks": room.blocks,
            "block_tokens": room.block_tokens,
            "prefix_cache": engine.prefix_cache,
            "async_scheduling": engine.ahead,
            "gpu_bytes": dict(room.memory.parts),
            "shared_bytes": None if room.shared is None else room.shared.room,
            "arbitration": self.arbitration,
        }

    def _engines(
        self,
        requests: Requests,
        steps: Steps,
        config: Mapping[str, Any],
        observers: Sequence[ServingObserver],
        progress: Callable[[float], None],
    ) -> Engines:
        """The engines, before they run; observers receive the beginning of the run."""
        schedulers = self.engine.schedulers(self.machine.engines, self.room, steps)
        total, done = int(requests.output_tokens.sum()), 0
        for observer in observers:
            observer.begin(self._header(config, steps), requests.ids)

        def arrived(sequence: Served) -> None:
            for observer in observers:
                observer.arrived(sequence)

        def stepped(step: DoneStep) -> None:
            nonlocal done
            done += sum(one.produces for one in step.formed.chunks)
            progress(min(done / total, 1.0))
            for observer in observers:
                observer.done(step)

        arrivals = Arrivals(requests, prompt_hashes(requests, self.room.block_tokens))
        return Engines(schedulers, steps, arrivals, arrived, stepped, self.engine.ahead)

    def _header(self, config: Mapping[str, Any], steps: Steps) -> dict[str, Any]:
        """The header for observers: see `ServingObserver.begin`."""
        shared = None if self.room.shared is None else self.room.shared._asdict()
        sizes = {} if shared is None else {f"{name}_bytes": size for name, size in shared.items()}
        if self.engine.preemption == "swap":
            room = self.room
            sizes |= {"block_bytes": room.block_bytes, "state_bytes": room.state_bytes}
            sizes |= {"host_bytes": steps.host_bytes}
        together = {"lockstep": True} if self.machine.engines > 1 else {}
        return {**{name: config[name] for name in _TOLD}, "blocks": self.room.blocks, **together, **sizes}


class _Site(NamedTuple):
    """Hardware, model, parallelism of GPUs, and policy (None: GPUs hold all weights)."""

    processors: Processors
    shape: MoeShape
    parallel: str | None
    chosen: ChosenPolicy | None

    @property
    def part(self) -> MoeShape:
        """The model, or a GPU's part of it."""
        return part_of(self.shape, gpus_of(self.processors.hardware), self.parallel)

    @property
    def spread(self) -> int:
        """The number of GPUs that share the experts."""
        return gpus_of(self.processors.hardware) if self.parallel == "data" else 1


def set_up(
    hw: str | PathLike[str] | Hardware,
    model: str | PathLike[str] | MoeShape,
    requests: Requests,
    policy: str | type[Policy] | ChosenPolicy | None,
    slo: str | ServiceLevel | None,
    scheduler: str,
    max_batch: int,
    max_tokens: int,
    preemption: str,
    parallel: str | None,
    kv: str,
    kv_bits: int,
    kv_blocks: int | None,
    block_tokens: int,
    prefix_cache: bool,
    async_scheduling: bool,
    routing: str | PathLike[str] | Routing | None,
    seed: int,
    sets: Sequence[str],
    bits: int | None,
    dense_bits: int | None,
    weights: str | None,
    gpu_experts: int | None,
    arbitration: str,
    cache: bool | ResultCache,
) -> Server:
    """A server for requests; for arguments see `run_serving`.

    Raises:
        InputError: as for `run_serving`.
    """
    site = _site(hw, model, sets, policy, parallel)
    shape, chosen = site.shape, site.chosen
    if chosen is None:
        of_experts = {"bits": bits, "weights": weights, "routing": routing} if not shape.has_experts else {}
        check_gpus(shape, kv, {"policy": policy, "gpu_experts": gpu_experts, **of_experts})
    engine = engine_asked(scheduler, max_batch, max_tokens, preemption, prefix_cache, async_scheduling)
    asked = kv_asked(chosen, kv, kv_bits, block_tokens, kv_blocks, gpu_experts)
    level = None if slo is None else service_level(slo)
    checked_arbitration(arbitration)
    check_link(site.processors.hardware, None, arbitration)
    written = run_weights(shape, bits, dense_bits, weights)
    room = kv_room(site.processors, site.part, written, requests, engine.limits, asked, site.spread)
    check_preemption(preemption, chosen is not None, room)
    routed = routing_asked(routing, shape, seed)
    machine: Machine
    if chosen is None or routed is None:
        check_experts_fit(site.part, room, site.spread)
        limit = engine.limits.tokens
        machine = Gpus(site.processors, site.parallel, site.part, written, routed, kv_bits, limit)
    else:
        given = _given(
            site.processors, shape, written, room, requests, engine.limits, kv_bits, routed.offline, seed,
            gpu_experts, arbitration, cache,
        )  # fmt: skip
        machine = UnderPolicy(chosen, given, routed, written, room, kv_bits)
    if level is not None:
        usually = replace(engine, scheduler=scheduler_named("vllm"), prefix_cache=True)
        check_level(level, requests, machine.steps_for, partial(usually.schedulers, machine.engines, room))
    return Server(
        site.processors.hardware, shape.name, requests, engine, room, machine, level, written, seed, kv_bits,
        arbitration,
    )  # fmt: skip


def _site(
    hw: str | PathLike[str] | Hardware,
    model: str | PathLike[str] | MoeShape,
    sets: Sequence[str],
    policy: str | type[Policy] | ChosenPolicy | None,
    parallel: str | None,
) -> _Site:
    """See `run_serving`."""
    shape = load_model(model)
    hardware = load_hardware(hw, sets, "moe" if shape.has_experts else None)
    usual = default_policy(shape, hardware)
    parallel = parallelism(shape, gpus_of(hardware), SERVE["parallel"].checked(parallel))
    chosen = None if usual is None else policy_asked(usual if policy is None else policy)
    return _Site(Processors(hardware), shape, parallel, chosen)


def _given(
    processors: Processors,
    shape: MoeShape,
    weights: RunWeights,
    room: KvRoom,
    requests: Requests,
    limits: Limits,
    kv_bits: int,
    spec: str,
    seed: int,
    gpu_experts: int | None,
    arbitration: str,
    cache: bool | ResultCache,
) -> Given:
    """The machine for policies, which expect decode steps with the maximum number of sequences."""
    sequences = min(limits.sequences, len(requests), requests.closed_loop or limits.sequences)
    context = round(float((requests.prompt_tokens + requests.output_tokens / 2).mean())) + 1
    decode = processors.dense_time(
        shape, sequences, context, kv=room.memory.kv, kv_bits=kv_bits, bits=weights.dense
    )
    offline = generate_routing(spec, shape, sequences, _OFFLINE_STEPS, 0, seed, offline=True)
    return given_of(
        processors, shape, tuple(range(shape.layers)), weights, room.memory, decode, offline,
        sequences, 0, limits.tokens, gpu_experts, arbitration, cache,
    )  # fmt: skip
