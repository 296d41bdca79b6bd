"""``run_serving``: requests served by a machine, with experts where a policy wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any

from ndpsim.arguments import flag, instance, progress_function, shown
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.errors import InputError
from ndpsim.moe import MoeShape, load_model
from ndpsim.orchestrator.given import Given, check_link, given_of
from ndpsim.orchestrator.weights import RunWeights, run_weights
from ndpsim.parameters.serve import SERVE, ServiceLevel, service_level
from ndpsim.policies.choose import ChosenPolicy, choose_policies
from ndpsim.policies.interface import Policy
from ndpsim.processors import DenseTime, Processors
from ndpsim.processors.operations import MixedStep
from ndpsim.results.cache import ResultCache
from ndpsim.results.serving import ServingResult
from ndpsim.results.stopwatch import Stopwatch
from ndpsim.routing import Routing, default_routing, generate_routing, load_routing
from ndpsim.routing.generate import existing_file, is_spec
from ndpsim.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.serving.hashes import prompt_hashes
from ndpsim.serving.kv import KvCache
from ndpsim.serving.level import check_level
from ndpsim.serving.log import ServingLog
from ndpsim.serving.machines import Gpus, Machine, UnderPolicy, default_policy, gpus_of, parallelism, part_of
from ndpsim.serving.observer import ServingObserver
from ndpsim.serving.room import KvAsked, KvRoom, kv_room
from ndpsim.serving.scheduler import Limits, Scheduler, scheduler_named
from ndpsim.serving.sequence import Sequence as Served
from ndpsim.serving.steps import Steps
from ndpsim.serving.summary import served, summary
from ndpsim.workloads import Requests, load_requests

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
        preemption: of a sequence whose blocks are taken away: "recompute": all of its tokens are computed
            again; "swap": its blocks are moved to the host's memory and back.
        parallel: how several GPUs (`gpu.count`) share the model: "data": each has an engine and a part of the
            experts, "tensor": each has a part of every matrix; None: data, or tensor for a dense model. They
            hold all weights, and no policy runs. See `ndpsim.serving.gpus`.
        kv: location of the KV cache: "gpu", "host", or "auto"; see `ndpsim.serving.room`.
        kv_bits: of a value in it.
        kv_blocks: its blocks; None: see `ndpsim.serving.room`.
        block_tokens: tokens of a block.
        prefix_cache: whole blocks of a prompt that begins as another did are found again.
        async_scheduling: a step is formed when the one before it begins, see `ndpsim.serving.engine`; only
            schedulers that work ahead do so, and not with "swap".
        routing: a trace, its file, or a SPEC of `generate_routing`; None: `default_routing` of the model.
            Experts are drawn by sequence, see `ndpsim.routing.sequences` and `ndpsim.routing.replayed`.
        seed: of the routing, and of generated requests.
        bits, dense_bits, weights, gpu_experts, arbitration: as in `run_moe`.
        log: is told of each request and of each step.
        observer: is told of each request, layer and step.
        progress: called with the share of the output tokens that there are.
        cache: as in `run_moe`.

    Raises:
        InputError: an argument makes no sense, a request or something else does not fit into memory, or a
            policy gives an impossible answer.
    """
    watch, progress = Stopwatch(), progress_function(progress)
    shape = load_model(model)
    hardware = load_hardware(hw, sets, "moe" if shape.has_experts else None)
    processors, gpus, usual = Processors(hardware), gpus_of(hardware), default_policy(shape, hardware)
    parallel = parallelism(shape, gpus, SERVE["parallel"].checked(parallel))
    chosen = None if usual is None else _policy(usual if policy is None else policy)
    if chosen is None:
        of_experts = {"bits": bits, "weights": weights, "routing": routing} if not shape.has_experts else {}
        _check_gpus(shape, kv, {"policy": policy, "gpu_experts": gpu_experts, **of_experts})
    limits = _limits(max_batch, max_tokens)
    asked = KvAsked(
        SERVE["kv"].checked(kv) if chosen else "gpu",
        SERVE["kv-bits"].checked(kv_bits),
        SERVE["block-tokens"].checked(block_tokens),
        SERVE["kv-blocks"].checked(kv_blocks),
    )
    seed, level = SERVE["seed"].checked(seed), None if slo is None else service_level(slo)
    of_scheduler = scheduler_named(SERVE["scheduler"].checked(scheduler))
    checked_arbitration(arbitration)
    check_link(hardware, None, arbitration)
    prefix_cache = flag(prefix_cache, "prefix_cache")
    preemption = SERVE["preemption"].checked(preemption)
    swaps = preemption == "swap"
    ahead = flag(async_scheduling, "async_scheduling") and of_scheduler.works_ahead and not swaps
    if log is not None:
        instance(log, "log", ServingLog)
    if observer is not None:
        instance(observer, "observer", ServingObserver)
    if requests is None:
        raise InputError("are needed: a file, a SPEC, or Requests", "missing", key="requests")
    arriving = load_requests(requests, seed)
    if rate is not None:
        arriving = arriving.at_rate(SERVE["rate"].checked(rate))
    written = run_weights(shape, bits, dense_bits, weights)
    part = part_of(shape, gpus, parallel)
    spread = gpus if parallel == "data" else 1
    room = kv_room(processors, part, written, arriving, limits, asked, gpu_experts, spread)
    _check_preemption(preemption, chosen is not None, room)
    given_routing, routed = _routing(routing, shape) if shape.has_experts else (None, None)
    machine: Machine
    if chosen is None or given_routing is None or routed is None:
        _check_experts_fit(part, room, spread)
        machine = Gpus(
            processors, parallel, part, written, given_routing, routed, seed, kv_bits, limits.tokens
        )
    else:
        given = _given(
            processors,
            shape,
            written,
            room,
            arriving,
            limits,
            kv_bits,
            given_routing if isinstance(given_routing, str) else default_routing(shape),
            seed,
            gpu_experts,
            arbitration,
            cache,
        )

        def dense_time(step: MixedStep) -> DenseTime:
            return processors.step_time(shape, step, kv=room.memory.kv, bits=written.dense)

        machine = UnderPolicy(
            chosen, given, given_routing, routed, seed, dense_time, kv_bits, room.kept_bytes
        )

    def schedulers(kind: type[Scheduler], finds: bool) -> list[Scheduler]:
        return [
            kind(KvCache(room.blocks, asked.block_tokens, finds), limits, swaps)
            for _ in range(machine.engines)
        ]

    if level is not None:
        check_level(level, arriving, machine.steps_for, schedulers(scheduler_named("vllm"), True))
    steps = machine.steps_for(arriving, None if observer is None else observer.layer)
    formers = schedulers(of_scheduler, prefix_cache)
    config = {
        "hardware": hardware.to_dict(),
        "model": shape.name,
        "requests": dict(arriving.source or {}),
        "closed_loop": arriving.closed_loop,
        "scheduler": of_scheduler.name,
        "max_batch": limits.sequences,
        "max_tokens": limits.tokens,
        "preemption": preemption,
        "slo": None if level is None else asdict(level),
        "seed": seed,
        **written.to_dict(),
        **machine.config,
        "kv": room.memory.kv,
        "kv_bits": kv_bits,
        "kv_blocks": room.blocks,
        "block_tokens": asked.block_tokens,
        "prefix_cache": prefix_cache,
        "async_scheduling": ahead,
        "gpu_bytes": dict(room.memory.parts),
        "arbitration": arbitration,
    }
    observers = [one for one in (log, observer) if one is not None]
    engine = _served(formers, steps, arriving, config, observers, progress)
    per_request = served(arriving, engine.sequences)
    time_ns = steps.clock_ns - per_request[0].arrival_ns
    of_machine = {**steps.results(time_ns), **watch.times()}
    return summary(config, arriving, per_request, engine.history, level, of_machine)


def _check_gpus(shape: MoeShape, kv: str, of_policy: Mapping[str, object]) -> None:
    """Make sure that GPUs that hold all weights are asked for nothing that needs a policy or other memory.

    of_policy: values by the names of arguments; None: not given.
    """
    why = "GPUs hold all of its experts" if shape.has_experts else "it is a dense model, without experts"
    for key, value in of_policy.items():
        if value is not None:
            raise InputError(f"has no meaning for {shape.name}: {why}", "conflict", key=key)
    if kv == "host":
        problem = f"the KV cache of {shape.name} is in the memory of GPUs: {why}"
        raise InputError(problem, "unsupported", key="kv")


def _check_preemption(preemption: str, has_policy: bool, room: KvRoom) -> None:
    """Make sure that blocks can be moved to the host's memory, if they are to be."""
    if preemption == "swap" and not has_policy:
        problem = "swap is for a machine under a policy; without one sequences are computed again"
        raise InputError(problem, "unsupported", key="preemption")
    if preemption == "swap" and room.memory.kv == "host":
        problem = "the KV cache is in the host's memory, and so nothing can be moved there"
        raise InputError(problem, "conflict", key="preemption")


def _check_experts_fit(part: MoeShape, room: KvRoom, gpus: int) -> None:
    """Make sure that each GPU has room for its part of the experts."""
    needed, memory = part.moe_layers * -(-part.routed_experts // gpus), room.memory
    if memory.experts < needed:
        problem = (
            f"the experts of {part.name} need {needed * memory.expert_bytes:,} B of each GPU, which has "
            f"{memory.experts_bytes:,} B for them"
        )
        raise InputError(problem, "too-large", key="gpu.memory_gb")


def _policy(policy: str | type[Policy] | ChosenPolicy) -> ChosenPolicy:
    if not isinstance(policy, str | type | ChosenPolicy):
        raise InputError(f"{shown(policy)} is no policy", "type", key="policy")
    (chosen, _), *others = choose_policies((policy,))
    if others:
        raise InputError("a run has one policy; sweep over several", "unsupported", key="policy")
    if chosen.policy.rehearses:
        problem = f"{chosen.name} tries whole runs first, and the steps of serving are not known before"
        raise InputError(problem, "unsupported", key="policy")
    return chosen


def _limits(max_batch: int, max_tokens: int) -> Limits:
    limits = Limits(SERVE["max-batch"].checked(max_batch), SERVE["max-tokens"].checked(max_tokens))
    if limits.tokens < limits.sequences:
        problem = f"{limits.tokens} are fewer than the {limits.sequences} sequences of max_batch"
        raise InputError(problem, "conflict", key="max_tokens")
    return limits


def _routing(routing: str | PathLike[str] | Routing | None, shape: MoeShape) -> tuple[str | Routing, str]:
    """A SPEC, or a trace that has all layers with experts, and what it is called."""
    if routing is None:
        routing = default_routing(shape)
    if isinstance(routing, str) and is_spec(routing):
        return routing, routing
    if isinstance(routing, Routing):
        trace, called = routing, "a trace"
    else:
        trace, called = load_routing(existing_file(routing)), str(routing)
    if not trace.steps:
        raise InputError("the trace has no decode steps", "missing", key="routing")
    return trace.for_model(shape), called


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
    observers: Sequence[ServingObserver],
    progress: Callable[[float], None],
) -> Engines:
    """The engine when all requests are served."""
    total, done = int(requests.output_tokens.sum()), 0
    kv = ("block_tokens", "max_batch", "max_tokens", "prefix_cache", "async_scheduling", "closed_loop")
    names = ("policy", "model", "scheduler", "preemption", "engines")
    header = {**{name: config[name] for name in names}, "blocks": config["kv_blocks"]}
    together = {"lockstep": True} if len(schedulers) > 1 else {}
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
    engine = Engines(schedulers, steps, Arrivals(requests, hashes), arrived, stepped, ahead)
    engine.run()
    return engine
