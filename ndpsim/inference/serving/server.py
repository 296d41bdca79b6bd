"""A machine and an engine that are set up once, and serve the same requests at several rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ndpsim.base.arguments import instance, progress_function
from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import FIND, ServeSettings, ServiceLevel, service_level
from ndpsim.base.options.settings import called_with
from ndpsim.base.units import format_time
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.inference.layers.setup import (
    RunSize,
    attention_devices,
    check_gpus,
    check_link,
    check_machine,
    set_up_machine,
)
from ndpsim.inference.layers.weights import RunWeights, run_weights
from ndpsim.inference.processors import Processors, Step
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.serving.asked import (
    check_bank_link,
    check_experts_fit,
    check_preemption,
    check_without_policy,
    policy_asked,
    requests_asked,
    routing_asked,
)
from ndpsim.inference.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.inference.serving.kv import HostRoom, KvCache
from ndpsim.inference.serving.log import ServingLog, ServingObserver
from ndpsim.inference.serving.machines import (
    Gpus,
    ServingMachine,
    UnderPolicy,
    default_policy,
    parallelism,
    part_of,
)
from ndpsim.inference.serving.room import KvRoom, kv_room
from ndpsim.inference.serving.scheduler import Limits, Scheduler, scheduler_named
from ndpsim.inference.serving.sequence import Sequence as Served
from ndpsim.inference.serving.sequence import prompt_hashes
from ndpsim.inference.serving.steps import Steps
from ndpsim.inference.serving.summary import served, summary
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import GivesRoom
from ndpsim.simulate.results.serving import SERVED_SHARE, FoundRate, ServingResult, TriedRate
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing import generate_routing

# ---- Whether a machine can meet a service level at all


_MOST_OUTPUT = 4  # output tokens whose contexts are near that of the prompt, with the least time for a token


def check_level(
    level: ServiceLevel,
    requests: Requests,
    steps_for: Callable[[Requests], Steps],
    schedulers: Callable[[Steps], Sequence[Scheduler]],
    overhead_ns: float = 0.0,
) -> None:
    """Check that the request with the shortest prompt, alone, is within the level.

    Raises:
        InputError: it exceeds the level.
    """
    shortest = int(np.argmin(requests.prompt_tokens))
    output = np.minimum(requests.output_tokens[[shortest]], _MOST_OUTPUT)
    alone = Requests(np.zeros(1), requests.prompt_tokens[[shortest]], output)
    steps, arrivals = steps_for(alone), Arrivals(alone, lambda _: ())
    engine = Engines(
        schedulers(steps), steps, arrivals, lambda _: None, lambda _: None, overhead_ns=overhead_ns
    )
    engine.run()
    (one,) = engine.sequences
    ttft_ns, between = one.first_token_ns, one.output_tokens - 1
    tpot_ns = (one.last_token_ns - ttft_ns) / between if between else None
    if not level.is_met(ttft_ns, tpot_ns):
        then = f", and a token every {format_time(tpot_ns)}" if tpot_ns else ""
        problem = (
            f"no request can be within it: alone, the one with the shortest prompt "
            f"('{requests.ids[shortest]}') has its first token after {format_time(ttft_ns)}{then}"
        )
        raise InputError(problem, "range", key="slo")


# ---- The server


#: Keys of the configuration for observers.
_TOLD = (
    "policy", "model", "scheduler", "preemption", "engines", "block_tokens", "max_batch", "max_tokens",
    "prefix_cache", "async_scheduling", "closed_loop",
)  # fmt: skip
_OFFLINE_STEPS = 16  # of the trace from which policies may learn


@dataclass(frozen=True, eq=False)
class ServingSetup:
    """A machine and requests, set up once from settings.

    Attributes:
        requests: the requests with their original arrivals.
        room: the room of the KV cache.
        weights: the bits of all weights.
    """

    hardware: Hardware
    model: str
    requests: Requests
    room: KvRoom
    machine: ServingMachine
    weights: RunWeights
    level: ServiceLevel | None


@dataclass(frozen=True, eq=False)
class Server:
    """Serves the same requests at several rates; runs do not affect each other."""

    settings: ServeSettings
    setup: ServingSetup

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
        requests = self.setup.requests if rate is None else self.setup.requests.at_rate(rate)
        config = self._config(requests)
        observers = [one for one in (log, observer) if one is not None]
        steps = self.setup.machine.steps_for(requests, None if observer is None else observer.layer)
        engines = self._engines(requests, steps, config, observers, progress)
        engines.run()
        per_request = served(requests, engines.sequences)
        time_ns = steps.clock_ns - per_request[0].arrival_ns
        of_machine = {**steps.results(time_ns), **watch.times()}
        return summary(config, requests, per_request, engines.history, self.setup.level, of_machine)

    def _config(self, requests: Requests) -> dict[str, Any]:
        """Everything that was used, with the arrivals of requests."""
        settings, setup = self.settings, self.setup
        room, level = setup.room, setup.level
        return {
            "hardware": setup.hardware.to_dict(),
            "model": setup.model,
            "requests": dict(requests.source or {}),
            "closed_loop": requests.closed_loop,
            "scheduler": settings.scheduler,
            "max_batch": settings.max_batch,
            "max_tokens": settings.max_tokens,
            "preemption": settings.preemption,
            "slo": None if level is None else asdict(level),
            "seed": settings.seed,
            **setup.weights.to_dict(),
            **setup.machine.config,
            "attention": settings.attention,
            "kv": room.memory.kv,
            "kv_bits": settings.kv_bits,
            "kv_blocks": room.blocks,
            "block_tokens": room.block_tokens,
            "prefix_cache": settings.prefix_cache,
            "async_scheduling": works_ahead(settings),
            "step_overhead_us": settings.step_overhead_us,
            "gpu_bytes": dict(room.memory.parts),
            "shared_bytes": None if room.shared is None else room.shared.room,
            "arbitration": settings.arbitration,
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
        formers = schedulers(self.settings, self.setup.machine.engines, self.setup.room, steps)
        total, done = int(requests.output_tokens.sum()), 0
        for observer in observers:
            observer.begin(self._header(config, steps), tuple(requests.ids))

        def arrived(sequence: Served) -> None:
            for observer in observers:
                observer.arrived(sequence)

        def stepped(step: DoneStep) -> None:
            nonlocal done
            done += sum([chunk.produces for chunk in step.formed.chunks])
            progress(min(done / total, 1.0))
            for observer in observers:
                observer.done(step)

        arrivals = Arrivals(requests, prompt_hashes(requests, self.settings.block_tokens))
        ahead, observed = works_ahead(self.settings), bool(observers)
        overhead_ns = self.settings.step_overhead_us * 1e3
        return Engines(formers, steps, arrivals, arrived, stepped, ahead, observed, overhead_ns)

    def _header(self, config: Mapping[str, Any], steps: Steps) -> dict[str, Any]:
        """The header for observers: see `ServingObserver.begin`."""
        room = self.setup.room
        shared = {} if room.shared is None else room.shared._asdict()
        sizes = {f"{name}_bytes": size for name, size in shared.items()}
        if self.settings.preemption == "swap":
            sizes |= {"block_bytes": room.block_bytes, "state_bytes": room.state_bytes}
            sizes |= {"host_bytes": steps.host_bytes}
        together = {"lockstep": True} if self.setup.machine.engines > 1 else {}
        return {**{name: config[name] for name in _TOLD}, "blocks": room.blocks, **together, **sizes}


def works_ahead(settings: ServeSettings) -> bool:
    """Whether a step is formed when the previous one begins."""
    former = scheduler_named(settings.scheduler)
    return settings.async_scheduling and former.works_ahead and settings.preemption != "swap"


def schedulers(settings: ServeSettings, engines: int, room: KvRoom, steps: Steps) -> list[Scheduler]:
    """A scheduler for each engine."""
    former, swaps = scheduler_named(settings.scheduler), settings.preemption == "swap"
    limits, sizes = Limits(settings.max_batch, settings.max_tokens), (room.blocks, room.block_tokens)
    residents = steps.residents
    shared = None if residents is None else room.shared_with(residents)
    host = HostRoom(steps.host_bytes, room.kept_bytes) if swaps else None
    return [
        former(KvCache(*sizes, settings.prefix_cache, shared, host), limits, swaps) for _ in range(engines)
    ]


def set_up(settings: ServeSettings) -> ServingSetup:
    """The machine and the requests of settings.

    Raises:
        InputError: as for `run_serving`.
    """
    requests, shape = requests_asked(settings), load_model(settings.model)
    hardware = load_hardware(settings.hw, settings.sets, "moe" if shape.has_experts else None)
    processors, named = Processors(hardware), settings.policy
    gpus = processors.gpus
    asked = default_policy(shape, hardware) if named is None else named
    chosen = None if asked is None or not shape.has_experts else policy_asked(asked)
    parallel = parallelism(shape, gpus, settings.parallel, chosen is not None)
    if chosen is None:
        check_without_policy(shape, settings)
    else:
        check_gpus(hardware, settings.attention)
    level = None if settings.slo is None else service_level(settings.slo)
    checked_arbitration(settings.arbitration)
    check_link(hardware, None, settings.arbitration)
    weights = run_weights(shape, settings.bits, settings.dense_bits, settings.weights)
    part = part_of(shape, gpus, parallel)
    spread = gpus if parallel == "data" else 1  # GPUs that share the experts
    gives_room = None if chosen is None else issubclass(chosen.policy, GivesRoom)
    devices = attention_devices(settings, hardware, part)
    room = kv_room(settings, processors, shape, part, weights, requests, gives_room, spread, devices)
    check_preemption(settings.preemption, chosen is not None, room, gpus)
    machine: ServingMachine
    if chosen is None:
        check_experts_fit(part, room, spread)
        check_bank_link(hardware, devices)
        routed = routing_asked(settings.routing, shape, settings.seed)
        limit, bits = settings.max_tokens, settings.kv_bits
        machine = Gpus(processors, parallel, part, weights, routed, bits, limit, devices)
    else:
        machine = _under_policy(settings, processors, shape, part, weights, room, requests, chosen, devices)
    if level is not None:
        usually = replace(settings, scheduler="vllm", prefix_cache=True)
        former = partial(schedulers, usually, machine.engines, room)
        check_level(level, requests, machine.steps_for, former, settings.step_overhead_us * 1e3)
    return ServingSetup(hardware, shape.name, requests, room, machine, weights, level)


def _under_policy(
    settings: ServeSettings,
    processors: Processors,
    shape: MoeShape,
    part: MoeShape,
    weights: RunWeights,
    room: KvRoom,
    requests: Requests,
    chosen: ChosenPolicy,
    devices: AttentionDevices | None,
) -> UnderPolicy:
    """The machine under a policy, which expects decode steps with the maximum number of sequences."""
    layers = tuple(layer for layer in range(shape.layers) if layer not in shape.dense_layers)
    memory, in_banks = room.memory, 0 if devices is None else room.blocks * room.block_bytes
    checked = check_machine(settings, processors, shape, weights, memory, layers, in_banks, [chosen])
    routed = routing_asked(settings.routing, shape, settings.seed)
    assert routed is not None
    most = settings.max_batch
    sequences = min(most, len(requests), requests.closed_loop or most)
    context = round(float((requests.prompt_tokens + requests.output_tokens / 2).mean())) + 1
    step = Step(sequences, context, kv_bits=settings.kv_bits)
    decode = processors.part_time(part, step, kv=memory.kv, bits=weights.dense, devices=devices)
    spec = routed.offline
    offline = generate_routing(spec, shape, sequences, _OFFLINE_STEPS, 0, settings.seed, offline=True)
    size = RunSize(tuple(range(shape.layers)), sequences, 0, settings.max_tokens)
    setup = set_up_machine(checked, processors, weights, memory, decode, offline, size, devices, in_banks)
    return UnderPolicy(chosen, setup, part, routed, room, settings.kv_bits)


# ---- ``run_serving``: requests served by a machine, with experts placed by a policy


@called_with(ServeSettings)
def run_serving(
    settings: ServeSettings,
    *,
    log: ServingLog | None = None,
    observer: ServingObserver | None = None,
    progress: Callable[[float], None] | bool | None = None,
) -> ServingResult:
    """Serve requests: a scheduler forms steps, a policy places the experts of their layers.

    A policy that rehearses cannot serve. Experts are drawn by sequence, see `workload.routing.sequences`.

    >>> requests = "poisson:rate=2,requests=100"
    >>> ndpsim.run_serving("trimoe", "deepseek-v2", requests, slo="ttft=1s")  # doctest: +SKIP

    Args:
        log: a log that receives each request and each step.
        observer: receives each request, layer and step.
        progress: called with the share of the output tokens that have been generated.

    Raises:
        InputError: an argument makes no sense, a request or something else does not fit into memory, or a
            policy gives an impossible answer.
    """
    watch, progress = Stopwatch(), progress_function(progress)
    if log is not None:
        instance(log, "log", ServingLog)
    if observer is not None:
        instance(observer, "observer", ServingObserver)
    return Server(settings, set_up(settings)).serve(settings.rate, log, observer, progress, watch)


# ---- ``find_rate``: the highest rate of arrivals at which requests are served within a service level


_AT_ONCE = 1e9  # requests a second
_FEWEST = 4  # requests: fewer have no steady part, however slowly they arrive
_MOST_HALVINGS = 12
_BISECTIONS = 6  # bisections of a factor of 2, to within 1.1%


def find_rate(
    slo: Any, attainment: float = 0.9, progress: Callable[[float], None] | bool | None = None, **asked: Any
) -> FoundRate:
    """Find the highest rate that a machine serves with a given share of requests within a service level.

    A rate counts if enough requests are within the level and at least 95% of what arrives in the steady part
    of the run is served in it (`ServingResult.steady_share`). A run shorter than two latencies has no steady
    part, and its rate does not count: use enough requests.

    In the first try, all requests arrive at once, which gives the throughput of the machine. From there, the
    rate is halved until it counts, and then bisected. The pattern of arrivals is always the same.

    >>> requests = "poisson:requests=600,input_tokens=256,output_tokens=64"
    >>> ndpsim.find_rate("tpot=50ms", model="qwen3-30b-a3b", requests=requests)  # doctest: +SKIP

    Args:
        slo: as in `run_serving`.
        attainment: share of the requests that must be within the level: 90% as in DistServe (Zhong et al.,
            OSDI 2024).
        progress: called with the number of finished runs, as a share of their maximum number.
        asked: settings of the server, the arguments of `run_serving` that are no listeners, except `rate`.

    Raises:
        InputError: as for `run_serving`; or no rate is low enough; or requests have no rate or are
            fewer than 4.
    """
    progress = progress_function(progress)
    if slo is None:
        raise InputError(
            "is missing; the rate is the highest within it, for instance ttft=1s,tpot=50ms",
            "missing",
            key="slo",
        )
    service_level(slo)
    attainment = FIND["attainment"].checked(attainment)
    tries: list[tuple[TriedRate, ServingResult]] = []
    settings = ServeSettings(slo=slo, **asked)
    if settings.rate is not None:
        raise InputError("cannot be given; find_rate searches for it", "conflict", key="rate")
    requests = requests_asked(settings)
    try:
        requests.at_rate(_AT_ONCE)
    except InputError as error:
        raise error.at(key="requests") from None
    if len(requests) < _FEWEST:
        problem = f"has {len(requests)} requests; a rate is found with {_FEWEST} at least, better hundreds"
        raise InputError(problem, "range", key="requests")
    settings = replace(settings, requests=requests)
    server = Server(settings, set_up(settings))

    def tried(rate: float) -> bool:
        result = server.serve(rate)
        share = (result.goodput_per_s or 0.0) / result.requests_per_s
        found = TriedRate(rate, share, result.steady_share, result.ttft_ns, result.tpot_ns)
        tries.append((found, result))
        progress(len(tries) / (_MOST_HALVINGS + _BISECTIONS + 1))
        return share >= attainment and (result.steady_share or 0.0) >= SERVED_SHARE

    tried(_AT_ONCE)
    high = 2 * tries[0][1].requests_per_s
    low = high / 2
    while not tried(low):
        high, low = low, low / 2
        if len(tries) > _MOST_HALVINGS:
            problem = f"{low:.3g} requests/s are too many for {100 * attainment:g}% of them to be within it"
            raise InputError(problem, "range", key="slo")
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if tried(middle) else (low, middle)
    progress(1.0)
    best, run = next((found, result) for found, result in tries if found.rate_per_s == low)
    ordered = sorted((found for found, _ in tries[1:]), key=lambda found: found.rate_per_s)
    return FoundRate(low, high, attainment, best.within_share, tuple(ordered), run)
