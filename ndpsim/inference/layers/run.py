"""``run_moe``: runs a model's layers, with experts on the engines of a machine, under policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import flag, progress_function, several, whole_number
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.moe import CHECKS, MoeSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.inference.layers.bounds import Bounds, RunBound
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.dense_run import run_dense
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.record import LayerRecord, Observer
from ndpsim.inference.layers.recorder import Recorder
from ndpsim.inference.layers.rehearsals import Rehearsals, ScriptWriter
from ndpsim.inference.layers.setup import (
    RunSize,
    Setup,
    attention_devices,
    check_gpus,
    check_link,
    check_machine,
    decode_context,
    set_up_machine,
)
from ndpsim.inference.layers.totals import ENGINES, Totals, machine_results
from ndpsim.inference.layers.visits import itinerary
from ndpsim.inference.layers.weights import run_weights
from ndpsim.inference.processors import DenseTime, Processors, Step
from ndpsim.inference.processors.memory import cache_of
from ndpsim.policies.choose import ChosenPolicy, choose_policies
from ndpsim.policies.script import Rehearsed
from ndpsim.simulate.results.moe import LayerCheck, MoeResult, PolicyRun
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.routing import Routing, default_routing, generate_routing
from ndpsim.workload.routing.generate import AskedRouting, asked_routing, is_spec
from ndpsim.workload.routing.statistics import DescribedLater
from ndpsim.workload.routing.trace import row_of

Floats = NDArray[np.float64]


@called_with(MoeSettings)
def run_moe(
    settings: MoeSettings,
    *,
    observer: Observer | None = None,
    check_layer: tuple[int, int] | None = None,
    check_limit: float = 0.05,
    bounds: bool = True,
    progress: Callable[[float], None] | bool | None = None,
) -> MoeResult:
    """Run a model's layers; a policy places the experts, and the work of DIMMs has cycle-level times.

    >>> result = ndpsim.run_moe("trimoe", "deepseek-v2", ["trimoe", "monde"], batch=64)  # doctest: +SKIP
    >>> result.best.policy  # doctest: +SKIP
    'trimoe'

    Args:
        observer: is called with every layer when it is done; a dense model has none that it could show.
        check_layer: (step, layer) that is run again in the cycle-level session, under each policy.
        check_limit: largest error of the end of an expert or a read, as a share of the layer's time, or, on
            the critical path, of its own time. The error of the layer's time may be 2% at most.
        bounds: whether to compute lower bounds of layers and of runs, which may take longer than the runs.
        progress: called with the share of the work that is done.

    Raises:
        InputError: an argument makes no sense, the trace does not fit the model, something does not fit into
            memory, or a policy gives an impossible answer.
    """
    progress = progress_function(progress)
    shape = load_model(settings.model)
    hardware = load_hardware(settings.hw, settings.sets, "moe" if shape.has_experts else None)
    chosen = choose_policies(settings.policies)
    checked_arbitration(settings.arbitration)
    check_link(hardware, check_layer, settings.arbitration)
    check_gpus(hardware, settings.attention)
    check_limit, bounds = CHECKS["check-limit"].checked(check_limit), flag(bounds, "bounds")
    layers = None if settings.layers is None else _layers(settings.layers, shape)
    if not shape.has_experts:
        _check_not_observed(observer, check_layer, shape)
        return run_dense(settings, hardware, shape, layers)
    prompt = settings.prompt or 0
    asked = asked_routing(
        settings.routing, shape, settings.batch, settings.steps, prompt, settings.seed, layers
    )
    if not asked.steps:
        raise InputError("the trace has no decode steps", key="routing", code="missing")
    check_layer = _checked_layer(check_layer, asked)
    if observer is not None and not callable(observer):
        raise InputError(f"{shown(observer)} is not a function of a run and a layer", "type", key="observer")
    named = [policy for policy, is_named in chosen if is_named]
    setup = _set_up(settings, hardware, shape, asked, layers or _layers_of(asked, shape), named, bounds)
    runs, not_run = _runs(setup, chosen, observer, check_layer, check_limit, progress)
    config = _config(settings, setup)
    return MoeResult(config, DescribedLater(setup.known_trace), tuple(runs), not_run)


def _check_not_observed(
    observer: Observer | None, check_layer: tuple[int, int] | None, shape: MoeShape
) -> None:
    """Refuse to show or to check experts of a dense model."""
    for key, value in (("check_layer", check_layer), ("observer", observer)):
        if value is not None:
            problem = f"does not apply to {shape.name}: it is a dense model, whose layers have no experts"
            files = " (--log, --timeline, --plot and --report show those)" if key == "observer" else ""
            raise InputError(problem + files, "conflict", key=key)


def _config(settings: MoeSettings, setup: Setup) -> dict[str, Any]:
    """Everything that was used."""
    trace = setup.known_trace
    return {
        "hardware": setup.hardware.to_dict(),
        "model": setup.machine.model.name,
        "batch": trace.batch,
        "steps": trace.steps,
        "prompt": settings.prompt or 0,
        "prefix": settings.prefix,
        "layers": list(setup.size.layers),
        "routing": dict(trace.source or {}),
        "seed": settings.seed,
        **setup.weights.to_dict(),
        "attention": settings.attention,
        "kv": setup.decode.kv,
        "kv_bits": settings.kv_bits,
        "context": decode_context(settings),
        "gpu_experts": setup.machine.gpu_experts,
        "gpu_bytes": dict(setup.memory.parts),
        "arbitration": settings.arbitration,
        "host_gbps": setup.costs.host_gbps,
        "window_ns": setup.estimates.window_ns,
        "ndp_estimate_error": setup.estimates.ndp_error,
    }


def _runs(
    setup: Setup,
    chosen: Sequence[tuple[ChosenPolicy, bool]],
    observer: Observer | None,
    check_layer: tuple[int, int] | None,
    check_limit: float,
    progress: Callable[[float], None],
) -> tuple[list[PolicyRun], dict[str, str]]:
    """The runs of all policies, and the reasons why others could not run.

    Policies that rehearse run last, and get the runs of the others; the results keep their order.
    """
    works = [one.policy.whole_runs(one.parameters) for one, _ in chosen]
    done = 0
    runs: dict[int, tuple[PolicyRun, Rehearsed]] = {}
    not_run: dict[str, str] = {}
    for place in sorted(range(len(chosen)), key=lambda place: chosen[place][0].policy.rehearses):
        (one, named), work = chosen[place], works[place]

        def tell(share: float, done: int = done, work: int = work) -> None:
            progress((done + share * work) / sum(works))

        others = [tried for _, tried in runs.values() if not _rehearses(tried)]
        try:
            runs[place] = _run(setup, one, observer, check_layer, check_limit, tell, others, work)
        except InputError as error:
            if named or len(not_run) == len(chosen) - 1:
                raise
            not_run[one.name] = str(error)
        done += work
    return _beside_each_other([runs[place] for place in sorted(runs)]), not_run


def _rehearses(run: Rehearsed) -> bool:
    return run.chosen is not None and run.chosen.policy.rehearses


def _beside_each_other(runs: Sequence[tuple[PolicyRun, Rehearsed]]) -> list[PolicyRun]:
    """The runs with speed-ups over the first, and with the best known time."""
    first = runs[0][0]
    best_ns = min((run.time_ns for run, tried in runs if _rehearses(tried)), default=None)
    return [
        replace(
            run,
            speedup=first.time_ns / run.time_ns,
            speedup_prefill=first.prefill_ns / run.prefill_ns if run.prefill_ns else None,
            speedup_decode=first.decode_ns / run.decode_ns if run.decode_ns else None,
            speedup_moe=first.moe_ns / run.moe_ns,
            best_known_ns=best_ns if tried.script.comparable else None,
        )
        for run, tried in runs
    ]


def _layers_of(trace: AskedRouting, shape: MoeShape) -> tuple[int, ...]:
    """All layers of the model if the trace has all layers with experts; otherwise those of the trace."""
    return tuple(range(shape.layers)) if len(trace.layers) == shape.moe_layers else trace.layers


def _layers(layers: Sequence[int], shape: MoeShape) -> tuple[int, ...]:
    asked = several(layers, "layers", lambda one, name: whole_number(one, name, 0, shape.layers - 1))
    chosen = tuple(sorted(set(asked)))
    if shape.has_experts and not set(chosen) - set(shape.dense_layers):
        raise InputError(f"{shape.name} has no experts in them", "invalid", key="layers")
    return chosen


def _checked_layer(check_layer: tuple[int, int] | None, trace: AskedRouting) -> tuple[int, int] | None:
    if check_layer is None:
        return None
    pair = several(check_layer, "check_layer", lambda one, name: whole_number(one, name, 0))
    if len(pair) != 2:
        raise InputError(f"{shown(check_layer)} is not a step and a layer", "form", key="check_layer")
    whole_number(pair[0], "check_layer", 0, trace.steps - 1)
    try:
        row_of(trace.layers, pair[1])
    except InputError as error:
        raise error.at(key="check_layer") from None
    return pair[0], pair[1]


def _offline(settings: MoeSettings, shape: MoeShape, trace: Routing) -> Routing:
    """The routing that policies may learn from: never the trace itself."""
    routing = settings.routing
    spec = routing if isinstance(routing, str) and is_spec(routing) else default_routing(shape)
    offline = generate_routing(str(spec), shape, trace.batch, trace.steps, 0, settings.seed, offline=True)
    return offline.for_model(shape, layers=trace.layers)


def _set_up(
    settings: MoeSettings,
    hardware: Hardware,
    shape: MoeShape,
    asked: AskedRouting,
    layers: tuple[int, ...],
    policies: Sequence[ChosenPolicy],
    with_bounds: bool,
) -> Setup:
    """The machine that all policies share, and the routing; `policies`: those that were named."""
    weights = run_weights(shape, settings.bits, settings.dense_bits, settings.weights)
    processors, context, prompt = Processors(hardware), decode_context(settings), settings.prompt
    devices, part = attention_devices(settings, hardware, shape), processors.gpu_part(shape)
    # A prefill computes attention and dense parts in pieces that need no more memory than a decode step.
    memory = processors.gpu_memory(
        part,
        asked.batch,
        context,
        kv=settings.kv if devices is None else "ndp",
        kv_bits=settings.kv_bits,
        bits=weights.expert,
        dense_bits=weights.dense,
    )
    if memory.kv == "host":  # which has the whole cache
        whole = cache_of(shape, Step(asked.batch, context, 1, settings.kv_bits), "host")
        memory = replace(memory, host_kv_bytes=whole.bytes)
    in_banks = 0 if devices is None else devices.check_room(asked.batch, context)
    checked = check_machine(settings, processors, shape, weights, memory, asked.layers, in_banks, policies)
    trace = asked.draw()

    def dense_time(context: int, new_tokens: int = 1) -> DenseTime:
        step = Step(trace.batch, context, new_tokens, settings.kv_bits)
        return processors.part_time(part, step, kv=memory.kv, bits=weights.dense, devices=devices)

    prefill = dense_time(settings.prefix + prompt, prompt) if prompt else None
    size = RunSize(layers, trace.batch, trace.prefill_tokens, int(max(trace.batch, trace.prefill_tokens)))
    offline = _offline(settings, shape, trace)
    setup = set_up_machine(
        checked, processors, weights, memory, dense_time(context), offline, size, devices, in_banks
    )
    bounds = None
    if with_bounds:
        costs, transfers = setup.costs, setup.transfers
        bounds = Bounds(costs.memory, processors, costs, transfers, setup.machine, settings.cache)
    return replace(setup, trace=trace, prefill=prefill, bounds=bounds)


def _run(
    setup: Setup,
    chosen: ChosenPolicy,
    observer: Observer | None,
    check_layer: tuple[int, int] | None,
    check_limit: float,
    progress: Callable[[float], None],
    others: Sequence[Rehearsed],
    work: int,
) -> tuple[PolicyRun, Rehearsed]:
    """The run of one policy.

    others: runs for a policy that rehearses. work: number of whole runs, including its own.
    """
    watch = Stopwatch()
    policy = chosen.start(setup.machine, setup.estimates)
    if chosen.policy.rehearses:
        policy.rehearse(Rehearsals(setup, chosen.name, others, progress, work))
    parameters, trace = policy.parameters.model_dump(), setup.known_trace
    run, totals, bound = LayerRun(setup, policy), Totals.of(setup), None
    script = ScriptWriter(run)
    run.listeners += [totals, script]
    if setup.bounds is not None:
        bound = RunBound(setup.bounds, run.slowdown, run.placed.replicas, len(trace.layers))
        run.listeners.append(bound)
    if observer is not None:
        run.listeners.append(Recorder(run, parameters, observer, bound))
    checked: list[LayerRecord] = []
    if check_layer is not None:
        recorder = Recorder(run, parameters, lambda _, layer: checked.append(layer), bound, check_layer)
        run.listeners.append(recorder)
    visits, tail = itinerary(
        trace, setup.machine.model.routed_experts, setup.size.layers, setup.decode, setup.prefill
    )
    for number, visit in enumerate(visits, 1):
        run.run_layer(visit)
        progress(1 - (1 - number / len(visits)) / work)
    run.run_windows(tail)
    check = _check(setup.costs, checked[0], check_limit) if checked else None
    bound_kind, bound_ns = bound.total_ns() if bound else (None, None)
    times = _times(totals, run.clock_ns, trace)
    result = PolicyRun(
        policy=chosen.name,
        parameters=parameters,
        speedup=1.0,
        speedup_prefill=None,
        speedup_decode=None,
        speedup_moe=1.0,
        bound=bound_kind,
        bound_ns=bound_ns,
        prediction=policy.prediction(),
        check=check,
        **times,
        **_counts(totals, policy.cache_counts()),
        **machine_results(run, totals, times["time_ns"]),
        **watch.times(),
    )
    return result, Rehearsed(run.clock_ns, script.script(), chosen)


def _check(costs: Costs, layer: LayerRecord, limit: float) -> LayerCheck:
    from ndpsim.inference.layers.exact_layer import check_layer  # noqa: PLC0415 (rarely needed)

    return check_layer(costs, layer, limit)


def _times(totals: Totals, end_ns: float, trace: Routing) -> dict[str, Any]:
    """Fields of `PolicyRun` on the times of a run that ended at `end_ns`."""
    prefill_ns, decode_ns = totals.prefill_ns, end_ns - totals.prefill_ns
    prefill_moe_ns, decode_moe_ns = (sum(totals.layer_ns[phase]) for phase in ("prefill", "decode"))
    of_layers = np.array(totals.layer_ns["decode"] or totals.layer_ns["prefill"])
    return {
        "time_ns": prefill_ns + decode_ns,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        "moe_ns": prefill_moe_ns + decode_moe_ns,
        "prefill_moe_ns": prefill_moe_ns,
        "decode_moe_ns": decode_moe_ns,
        "shared_ns": totals.shared_ns,
        "estimated_ns": totals.estimated_ns,
        "layer_ns": {
            "mean": float(of_layers.mean()),
            "p50": float(np.percentile(of_layers, 50)),
            "p99": float(np.percentile(of_layers, 99)),
            "max": float(of_layers.max()),
        },
        "tokens_per_s": trace.steps * trace.batch / decode_ns * 1e9,
    }


def _counts(totals: Totals, cache: Mapping[str, float | None] | None) -> dict[str, Any]:
    """Fields of `PolicyRun` on experts; `cache`: those of the policy, if it counts its own."""
    experts, pairs, bits = totals.experts, totals.pairs, totals.bits
    hits, misses = experts["gpu_hit"], experts["gpu_miss"]
    hit_rate = hits / (hits + misses) if hits + misses else None
    return {
        "pairs": round(sum(pairs.values())),
        "experts": experts,
        "weight_bits": {name: bits[name] / pairs[name] if pairs[name] else None for name in ENGINES},
        "cache": cache or {"hits": hits, "misses": misses, "hit_rate": hit_rate},
    }
