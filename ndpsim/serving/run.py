"""``run_serving``: requests served by a machine, with experts where a policy wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import Any

from ndpsim.arguments import instance, progress_function
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.moe import MoeShape, load_model
from ndpsim.orchestrator.given import Given, check_link, given_of
from ndpsim.orchestrator.weights import RunWeights, run_weights
from ndpsim.parameters.serve import SERVE, ServiceLevel, service_level
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import GivesRoom, Policy
from ndpsim.processors import Processors
from ndpsim.results.cache import ResultCache
from ndpsim.results.serving import ServingResult
from ndpsim.results.stopwatch import Stopwatch
from ndpsim.routing import Routing, generate_routing
from ndpsim.serving.asked import (
    check_experts_fit,
    check_gpus,
    check_preemption,
    engine_asked,
    policy_asked,
    requests_asked,
    routing_asked,
)
from ndpsim.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.serving.hashes import prompt_hashes
from ndpsim.serving.level import check_level
from ndpsim.serving.log import ServingLog
from ndpsim.serving.machines import Gpus, Machine, UnderPolicy, default_policy, gpus_of, parallelism, part_of
from ndpsim.serving.observer import ServingObserver
from ndpsim.serving.room import KvAsked, KvRoom, kv_room
from ndpsim.serving.scheduler import Limits, Scheduler, scheduler_named
from ndpsim.serving.sequence import Sequence as Served
from ndpsim.serving.shared_room import SharedSizes
from ndpsim.serving.steps import Steps
from ndpsim.serving.summary import served, summary
from ndpsim.workloads import Requests

_OFFLINE_STEPS = 16  # of the trace that policies may learn from


def run_serving(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape = "deepseek-v2",
    requests: str | PathLike[str] | Requests | None = None,
    policy: str | type[Policy] | ChosenPolicy | None = None,
    rate: float | None = None,
    slo: str | ServiceLevel | None = None,
    scheduler: str = "vllm",
    max_batch: int = 128,
    max_tokens: int = 2048,
    preemption: str = "recompute",
    parallel: str | None = None,
    kv: str = "auto",
    kv_bits: int = 16,
    kv_blocks: int | None = None,
    block_tokens: int = 16,
    prefix_cache: bool = True,
    async_scheduling: bool = True,
    routing: str | PathLike[str] | Routing | None = None,
    seed: int = 1,
    sets: Sequence[str] = (),
    bits: int | None = None,
    dense_bits: int | None = None,
    weights: str | None = None,
    gpu_experts: int | None = None,
    arbitration: str = "host-first",
    log: ServingLog | None = None,
    observer: ServingObserver | None = None,
    progress: Callable[[float], None] | None = None,
    cache: bool | ResultCache = True,
) -> ServingResult:
    """Serve requests: a scheduler forms steps, a policy places the experts of their layers.

    Args:
        hw, model, sets: as in `simulate_expert`.
        requests: `Requests`, a file of them, or a SPEC of `generate_requests`.
        policy: as one of `run_moe`, none that rehearses; None: "trimoe", or none for a dense model, which
            needs only a GPU, and for several GPUs.
        rate: requests a second: arrivals are moved apart or together to this mean; None: as they are.
        slo: limits of a request, ``ttft=1s,tpot=50ms``; None: there are none.
        scheduler: forms the steps: a name of `ndpsim.serving.schedulers`.
        max_batch: sequences that have blocks of the KV cache at a time.
        max_tokens: tokens that a step computes, at least as many as `max_batch`.
        preemption: what happens to a sequence whose blocks are taken: "recompute": all of its tokens are
            computed again; "swap": its blocks are moved to the host's memory and back.
        parallel: the way in which several GPUs (`gpu.count`) share the model: "data": each has an engine and
            a part of the experts, "tensor": each has a part of every matrix; None: data, or tensor for a
            dense model. They hold all weights, and no policy runs. See `ndpsim.serving.gpus`.
        kv: location of the KV cache: "gpu", "host", or "auto"; see `ndpsim.serving.room`.
        kv_bits: bits of a value in it.
        kv_blocks: its blocks; None: see `ndpsim.serving.room`.
        block_tokens: tokens of a block.
        prefix_cache: whole blocks of a prompt that begins as another did are found again.
        async_scheduling: a step is formed when the one before it begins, see `ndpsim.serving.engine`; only
            schedulers that work ahead do so, and not with "swap".
        routing: a trace, its file, or a SPEC of `generate_routing`; None: `default_routing` of the model.
            Experts are drawn by sequence, see `ndpsim.routing.sequences` and `ndpsim.routing.replayed`.
        seed: the seed of the routing, and of generated requests.
        bits, dense_bits, weights, gpu_experts, arbitration: as in `run_moe`.
        log: a log that receives each request and each step.
        observer: receives each request, layer and step.
        progress: called with the share of the output tokens that there are.
        cache: as in `run_moe`.

    Raises:
        InputError: an argument makes no sense, a request or something else does not fit into memory, or a
            policy gives an impossible answer.
    """
    watch, progress = Stopwatch(), progress_function(progress)
    observers = _observers(log, observer)
    shape = load_model(model)
    hardware = load_hardware(hw, sets, "moe" if shape.has_experts else None)
    processors, gpus, usual = Processors(hardware), gpus_of(hardware), default_policy(shape, hardware)
    parallel = parallelism(shape, gpus, SERVE["parallel"].checked(parallel))
    chosen = None if usual is None else policy_asked(usual if policy is None else policy)
    if chosen is None:
        of_experts = {"bits": bits, "weights": weights, "routing": routing} if not shape.has_experts else {}
        check_gpus(shape, kv, {"policy": policy, "gpu_experts": gpu_experts, **of_experts})
    engine = engine_asked(scheduler, max_batch, max_tokens, preemption, prefix_cache, async_scheduling)
    asked = KvAsked(
        SERVE["kv"].checked(kv) if chosen else "gpu",
        SERVE["kv-bits"].checked(kv_bits),
        SERVE["block-tokens"].checked(block_tokens),
        SERVE["kv-blocks"].checked(kv_blocks),
        gpu_experts,
        chosen is not None and issubclass(chosen.policy, GivesRoom),
    )
    seed, level = SERVE["seed"].checked(seed), None if slo is None else service_level(slo)
    checked_arbitration(arbitration)
    check_link(hardware, None, arbitration)
    arriving = requests_asked(requests, rate, seed)
    written = run_weights(shape, bits, dense_bits, weights)
    part, spread = part_of(shape, gpus, parallel), gpus if parallel == "data" else 1
    room = kv_room(processors, part, written, arriving, engine.limits, asked, spread)
    check_preemption(preemption, chosen is not None, room)
    routed = routing_asked(routing, shape, seed)
    machine: Machine
    if chosen is None or routed is None:
        check_experts_fit(part, room, spread)
        machine = Gpus(processors, parallel, part, written, routed, kv_bits, engine.limits.tokens)
    else:
        given = _given(
            processors, shape, written, room, arriving, engine.limits, kv_bits, routed.offline, seed,
            gpu_experts, arbitration, cache,
        )  # fmt: skip
        machine = UnderPolicy(chosen, given, routed, written, room, kv_bits)
    if level is not None:
        usually = replace(engine, scheduler=scheduler_named("vllm"), prefix_cache=True)
        check_level(level, arriving, machine.steps_for, partial(usually.schedulers, machine.engines, room))
    config = {
        "hardware": hardware.to_dict(),
        "model": shape.name,
        "requests": dict(arriving.source or {}),
        "closed_loop": arriving.closed_loop,
        **engine.config,
        "slo": None if level is None else asdict(level),
        "seed": seed,
        **written.to_dict(),
        **machine.config,
        "kv": room.memory.kv,
        "kv_bits": kv_bits,
        "kv_blocks": room.blocks,
        "block_tokens": room.block_tokens,
        "prefix_cache": engine.prefix_cache,
        "async_scheduling": engine.ahead,
        "gpu_bytes": dict(room.memory.parts),
        "shared_bytes": None if room.shared is None else room.shared.room,
        "arbitration": arbitration,
    }
    steps = machine.steps_for(arriving, None if observer is None else observer.layer)
    formers = engine.schedulers(machine.engines, room, steps)
    engines = _served(formers, steps, arriving, config, room.shared, observers, progress)
    per_request = served(arriving, engines.sequences)
    time_ns = steps.clock_ns - per_request[0].arrival_ns
    of_machine = {**steps.results(time_ns), **watch.times()}
    return summary(config, arriving, per_request, engines.history, level, of_machine)


def _observers(log: ServingLog | None, observer: ServingObserver | None) -> list[ServingObserver]:
    """Those that are told of the run."""
    if log is not None:
        instance(log, "log", ServingLog)
    if observer is not None:
        instance(observer, "observer", ServingObserver)
    return [one for one in (log, observer) if one is not None]


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
    """The machine as policies see it: they expect decode steps of as many sequences as there can be."""
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


def _served(
    schedulers: Sequence[Scheduler],
    steps: Steps,
    requests: Requests,
    config: Mapping[str, Any],
    shared: SharedSizes | None,
    observers: Sequence[ServingObserver],
    progress: Callable[[float], None],
) -> Engines:
    """The engine when all requests are served."""
    total, done = int(requests.output_tokens.sum()), 0
    kv = ("block_tokens", "max_batch", "max_tokens", "prefix_cache", "async_scheduling", "closed_loop")
    names = ("policy", "model", "scheduler", "preemption", "engines")
    header = {**{name: config[name] for name in names}, "blocks": config["kv_blocks"]}
    together: dict[str, Any] = {"lockstep": True} if len(schedulers) > 1 else {}
    if shared is not None:
        together |= {f"{name}_bytes": size for name, size in shared._asdict().items()}
    for observer in observers:
        observer.begin({**header, **{name: config[name] for name in kv}, **together}, requests.ids)

    def arrived(sequence: Served) -> None:
        for observer in observers:
            observer.arrived(sequence)

    def stepped(step: DoneStep) -> None:
        nonlocal done
        done += sum(one.produces for one in step.formed.chunks)
        progress(min(done / total, 1.0))
        for observer in observers:
            observer.done(step)

    hashes = prompt_hashes(requests, config["block_tokens"])
    ahead = config["async_scheduling"]
    residents = None if steps.residents is None else steps.residents.now
    engine = Engines(schedulers, steps, Arrivals(requests, hashes), arrived, stepped, ahead, residents)
    engine.run()
    return engine
