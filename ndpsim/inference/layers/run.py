"""``run_moe``: runs a model's layers, with experts on the engines of a machine, under policies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import flag, progress_function, several, shown, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.moe import CHECKS, MOE
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.inference.layers.bounds import Bounds
from ndpsim.inference.layers.given import check_link, check_one_gpu, given_of
from ndpsim.inference.layers.policy_run import PolicyRunner, RunGiven
from ndpsim.inference.layers.record import Observer
from ndpsim.inference.layers.rehearsals import Rehearsals, rehearsed
from ndpsim.inference.layers.totals import ENGINES
from ndpsim.inference.layers.weights import RunWeights, run_weights
from ndpsim.inference.processors import Processors
from ndpsim.policies.choose import ChosenPolicy, choose_policies
from ndpsim.policies.interface import Policy
from ndpsim.policies.rehearsal import Rehearsed
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.moe import MoeResult, PolicyRun
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape, load_moe_model
from ndpsim.workload.routing import Routing, default_routing, describe_routing, find_routing, generate_routing
from ndpsim.workload.routing.generate import is_spec

Floats = NDArray[np.float64]


def run_moe(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape = "deepseek-v2",
    policies: Sequence[str | type[Policy] | ChosenPolicy] = ("trimoe",),
    batch: int | None = None,
    steps: int | None = None,
    routing: str | PathLike[str] | Routing | None = None,
    seed: int = 1,
    prompt: int | None = None,
    prefix: int = 0,
    layers: Sequence[int] | None = None,
    sets: Sequence[str] = (),
    bits: int | None = None,
    dense_bits: int | None = None,
    weights: str | None = None,
    kv: str = "auto",
    kv_bits: int = 16,
    context: int = 512,
    gpu_experts: int | None = None,
    arbitration: str = "host-first",
    observer: Observer | None = None,
    check_layer: tuple[int, int] | None = None,
    check_limit: float = 0.05,
    bounds: bool = True,
    progress: Callable[[float], None] | None = None,
    cache: bool | ResultCache = True,
) -> MoeResult:
    """Run a model's layers; a policy places the experts, and the work of DIMMs has cycle-level times.

    Args:
        hw, model, sets: as in `simulate_expert`.
        policies: each runs on the same trace; names with parameters, ``trimoe:refine=false``, classes of a
            file, ``policy.py:Mine``, or classes; "all": all bundled ones that can be run. Speed-ups are
            against the first.
        batch, steps: sequences decoded together, and decode steps; None: those of a trace, else 512 and 16.
        routing: a trace, its file, or a SPEC of `generate_routing`; None: `default_routing` of the model.
        seed: the seed of a generated trace.
        prompt: prompt tokens of each sequence, which are prefilled; None: decode only.
        prefix: tokens before the prompt that are in the KV cache; prompt tokens attend to them.
        layers: the model's layers to run, from 0; None: all, or the layers of the trace.
        bits: bits of a weight of a routed expert; None: 16, or what `weights` says.
        dense_bits: bits of all other weights: attention, router, shared experts, dense layers, embedding and
            head; None: as `bits`.
        weights: a weight file, "q4_k_m", with the bits of each matrix of a routed expert and of each dense
            part (`ndpsim list weights`).
        kv: location of the KV cache: "gpu", "host", or "auto": in the GPU's memory if it fits.
        kv_bits: bits of a value in the KV cache.
        context: tokens that a decoded token attends to.
        gpu_experts: experts of a layer in the GPU's memory; None: as many as fit, over all layers.
        arbitration: how a DIMM serves its NDP unit and the host, a name of `ndpsim.dimm.arbitrations`.
        observer: is called with every layer when it is done.
        check_layer: (step, layer) that is run again in the cycle-level session, under each policy.
        check_limit: largest error of the end of an expert or a read, as a share of the layer's time, or, on
            the critical path, of its own time. The error of the layer's time may be 2% at most.
        bounds: whether to compute lower bounds of layers and of runs, which may take longer than the runs.
        progress: called with the share of the work that is done.
        cache: as in `simulate_expert`, for the cycle-level costs; runs are not cached.

    Raises:
        InputError: an argument makes no sense, the trace does not fit the model, something does not fit into
            memory, or a policy gives an impossible answer.
    """
    progress = progress_function(progress)
    hardware = load_hardware(hw, sets, "moe")
    shape = load_moe_model(model)
    chosen = choose_policies(policies)
    steps, batch = MOE["steps"].checked(steps), MOE["batch"].checked(batch)
    prompt, prefix = MOE["prompt"].checked(prompt) or 0, MOE["prefix"].checked(prefix)
    context = max(MOE["context"].checked(context), prefix + prompt)
    kv, kv_bits, seed = MOE["kv"].checked(kv), MOE["kv-bits"].checked(kv_bits), MOE["seed"].checked(seed)
    checked_arbitration(arbitration)
    check_link(hardware, check_layer, arbitration)
    check_one_gpu(hardware)
    check_limit, bounds = CHECKS["check-limit"].checked(check_limit), flag(bounds, "bounds")
    asked_layers = None if layers is None else _layers(layers, shape)
    trace = find_routing(routing, shape, batch, steps, prompt, seed, asked_layers)
    if not trace.steps:
        raise InputError("the trace has no decode steps", key="routing", code="missing")
    wanted_layers = asked_layers or _layers_of(trace, shape)
    check_layer = _checked_layer(check_layer, trace)
    if observer is not None and not callable(observer):
        raise InputError(f"{shown(observer)} is no function of a run and a layer", "type", key="observer")
    written = run_weights(shape, bits, dense_bits, weights)
    given = _given(
        hardware, shape, trace, _offline(routing, shape, trace, seed), wanted_layers,
        prompt, prefix, written, kv, kv_bits, context, gpu_experts, arbitration, bounds, cache,
    )  # fmt: skip
    runs, not_run = _runs(given, chosen, observer, check_layer, check_limit, progress)
    config = {
        "hardware": hardware.to_dict(),
        "model": shape.name,
        "batch": trace.batch,
        "steps": trace.steps,
        "prompt": prompt,
        "prefix": prefix,
        "layers": list(wanted_layers),
        "routing": dict(trace.source or {}),
        "seed": seed,
        **written.to_dict(),
        "kv": given.decode.kv,
        "kv_bits": kv_bits,
        "context": context,
        "gpu_experts": given.machine.gpu_experts,
        "gpu_bytes": dict(given.memory.parts),
        "arbitration": arbitration,
        "window_ns": given.estimates.window_ns,
        "ndp_estimate_error": given.estimates.ndp_error,
    }
    return MoeResult(config, describe_routing(trace).to_dict(), tuple(runs), not_run)


def _runs(
    given: RunGiven,
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
            runs[place] = _run(given, one, observer, check_layer, check_limit, tell, others, work)
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
            speedup_moe=first.moe_ns / run.moe_ns,
            best_known_ns=best_ns if tried.script.comparable else None,
        )
        for run, tried in runs
    ]


def _layers_of(trace: Routing, shape: MoeShape) -> tuple[int, ...]:
    """All layers of the model if the trace has all layers with experts; otherwise those of the trace."""
    return tuple(range(shape.layers)) if len(trace.layers) == shape.moe_layers else trace.layers


def _layers(layers: Sequence[int], shape: MoeShape) -> tuple[int, ...]:
    asked = several(layers, "layers", lambda one, name: whole_number(one, name, 0, shape.layers - 1))
    chosen = tuple(sorted(set(asked)))
    if not set(chosen) - set(shape.dense_layers):
        raise InputError(f"{shape.name} has no experts in them", "invalid", key="layers")
    return chosen


def _checked_layer(check_layer: tuple[int, int] | None, trace: Routing) -> tuple[int, int] | None:
    if check_layer is None:
        return None
    pair = several(check_layer, "check_layer", lambda one, name: whole_number(one, name, 0))
    if len(pair) != 2:
        raise InputError(f"{shown(check_layer)} is not a step and a layer", "form", key="check_layer")
    whole_number(pair[0], "check_layer", 0, trace.steps - 1)
    try:
        trace.row(pair[1])
    except InputError as error:
        raise error.at(key="check_layer") from None
    return pair[0], pair[1]


def _offline(
    routing: str | PathLike[str] | Routing | None, shape: MoeShape, trace: Routing, seed: int
) -> Routing:
    """The routing that policies may learn from: never the trace itself."""
    generated = routing is None or (isinstance(routing, str) and is_spec(routing))
    spec = routing if generated and routing is not None else default_routing(shape)
    offline = generate_routing(str(spec), shape, trace.batch, trace.steps, 0, seed, offline=True)
    return offline.for_model(shape, layers=trace.layers)


def _given(
    hardware: Hardware,
    shape: MoeShape,
    trace: Routing,
    offline: Routing,
    layers: tuple[int, ...],
    prompt: int,
    prefix: int,
    weights: RunWeights,
    kv: str,
    kv_bits: int,
    context: int,
    gpu_experts: int | None,
    arbitration: str,
    with_bounds: bool,
    cache: bool | ResultCache,
) -> RunGiven:
    """Costs, times and room that all policies share."""
    processors = Processors(hardware)
    # A prefill computes attention and dense parts in pieces that need no more memory than a decode step.
    memory = processors.gpu_memory(
        shape, trace.batch, context, kv=kv, kv_bits=kv_bits, bits=weights.expert, dense_bits=weights.dense
    )
    dense_time = functools.partial(
        processors.dense_time, shape, trace.batch, kv=memory.kv, kv_bits=kv_bits, bits=weights.dense
    )
    decode, prefill = dense_time(context), dense_time(prefix + prompt, prompt) if prompt else None
    most = max(int(loads) for loads in (trace.batch, trace.prefill_tokens))
    given = given_of(
        processors, shape, layers, weights, memory, decode, offline,
        trace.batch, trace.prefill_tokens, most, gpu_experts, arbitration, cache,
    )  # fmt: skip
    bounds = None
    if with_bounds:
        bounds = Bounds(given.costs.memory, processors, given.costs, given.transfers, given.machine, cache)
    return RunGiven(**vars(given), trace=trace, decode=decode, prefill=prefill, memory=memory, bounds=bounds)


def _run(
    given: RunGiven,
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
    policy = chosen.start(given.machine, given.estimates)
    if chosen.policy.rehearses:
        policy.rehearse(Rehearsals(given, chosen.name, others, progress, work))
    parameters: dict[str, Any] = policy.parameters.model_dump()
    runner = PolicyRunner(
        given, policy, parameters, observer, check_layer, lambda share: progress(1 - (1 - share) / work)
    )
    runner.run()
    check = None
    if runner.record is not None:
        from ndpsim.inference.layers.exact_layer import check_layer as exact  # noqa: PLC0415 (rarely needed)

        check = exact(given.costs, runner.record, check_limit)
    totals, trace = runner.totals, given.trace
    prefill_ns, decode_ns = runner.prefill_ns, runner.clock_ns - runner.prefill_ns
    time_ns = prefill_ns + decode_ns
    prefill_moe_ns, decode_moe_ns = (sum(totals.layer_ns[phase]) for phase in ("prefill", "decode"))
    moe_ns = prefill_moe_ns + decode_moe_ns
    of_layers = np.array(totals.layer_ns["decode"] or totals.layer_ns["prefill"])
    hits, misses = totals.experts["gpu_hit"], totals.experts["gpu_miss"]
    cache = {"hits": hits, "misses": misses, "hit_rate": hits / (hits + misses) if hits + misses else None}
    energy_nj, energy_note = runner.energy(time_ns)
    waited_ns = sum(totals.waited_ns.values())
    bound, bound_ns = runner.bound.total_ns() if runner.bound else (None, None)
    run = PolicyRun(
        policy=chosen.name,
        parameters=parameters,
        time_ns=time_ns,
        prefill_ns=prefill_ns,
        decode_ns=decode_ns,
        moe_ns=moe_ns,
        prefill_moe_ns=prefill_moe_ns,
        decode_moe_ns=decode_moe_ns,
        shared_ns=totals.shared_ns,
        layer_ns={
            "mean": float(of_layers.mean()),
            "p50": float(np.percentile(of_layers, 50)),
            "p99": float(np.percentile(of_layers, 99)),
            "max": float(of_layers.max()),
        },
        tokens_per_s=trace.steps * trace.batch / decode_ns * 1e9,
        speedup=1.0,
        speedup_moe=1.0,
        bound=bound,
        bound_ns=bound_ns,
        pairs=round(sum(totals.pairs.values())),
        experts={name: totals.experts[name] for name in ENGINES},
        pairs_by_engine={name: totals.pairs[name] for name in ENGINES},
        weight_bits={
            name: totals.bits[name] / totals.pairs[name] if totals.pairs[name] else None for name in ENGINES
        },
        utilization={name: ns / time_ns for name, ns in runner.busy_ns.items()},
        migrations=totals.migrations,
        cache=policy.cache_counts() or cache,
        prediction=policy.prediction(),
        estimated_ns=totals.estimated_ns,
        policy_wall_s=totals.policy_s,
        bottleneck={name: ns / waited_ns for name, ns in totals.waited_ns.most_common()},
        energy_nj=energy_nj,
        energy_note=energy_note,
        **watch.times(),
        check=check,
    )
    return run, rehearsed(runner, chosen)
