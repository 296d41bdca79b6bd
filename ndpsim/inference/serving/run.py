"""``run_serving``: requests served by a machine, with experts placed by a policy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from ndpsim.base.arguments import instance, progress_function
from ndpsim.base.options.serve import SERVE, ServiceLevel
from ndpsim.config import Hardware
from ndpsim.inference.serving.asked import requests_asked
from ndpsim.inference.serving.log import ServingLog
from ndpsim.inference.serving.observer import ServingObserver
from ndpsim.inference.serving.server import Server, set_up
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.interface import Policy
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing import Routing

#: Arguments of `run_serving` for a run, not for the server.
_OF_A_RUN = ("rate", "log", "observer", "progress")


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
        policy: a policy as in `run_moe`, but none that rehearses; None: "trimoe", or no policy for a dense
            model or several GPUs.
        rate: mean rate in requests a second, to which the times between arrivals are scaled; None: as they
            are.
        slo: limits of a request, ``ttft=1s,tpot=50ms``; None: there are none.
        scheduler: forms the steps: a name of `ndpsim.inference.serving.schedulers`.
        max_batch: maximum number of sequences with blocks of the KV cache.
        max_tokens: maximum number of tokens of a step, at least `max_batch`.
        preemption: what happens to a sequence whose blocks are taken: "recompute": all of its tokens are
            computed again; "swap": its blocks are moved to the host's memory and back.
        parallel: the way in which several GPUs (`gpu.count`) share the model: "data": each GPU has an engine
            and a part of the experts; "tensor": each GPU has a part of every matrix; None: data, or tensor
            for a dense model. The GPUs hold all weights, and no policy runs. See
            `ndpsim.inference.serving.gpus`.
        kv: location of the KV cache: "gpu", "host", or "auto"; see `ndpsim.inference.serving.room`.
        kv_bits: bits of a value in the KV cache.
        kv_blocks: number of blocks in the KV cache; None: see `ndpsim.inference.serving.room`.
        block_tokens: tokens of a block.
        prefix_cache: whether a prompt reuses whole blocks of an earlier prompt with the same first tokens.
        async_scheduling: whether a step is formed when the previous step begins
        (`ndpsim.inference.serving.engine`).
            Schedulers that do not work ahead, and "swap", form it when the previous step has ended.
        routing: a trace, its file, or a SPEC of `generate_routing`; None: `default_routing` of the model.
            Experts are drawn by sequence, see `ndpsim.workload.routing.sequences` and
            `ndpsim.workload.routing.replayed`.
        seed: the seed of the routing, and of generated requests.
        bits, dense_bits, weights, gpu_experts, arbitration: as in `run_moe`.
        log: a log that receives each request and each step.
        observer: receives each request, layer and step.
        progress: called with the share of the output tokens that have been generated.
        cache: as in `run_moe`.

    Raises:
        InputError: an argument makes no sense, a request or something else does not fit into memory, or a
            policy gives an impossible answer.
    """
    watch, progress = Stopwatch(), progress_function(progress)
    if log is not None:
        instance(log, "log", ServingLog)
    if observer is not None:
        instance(observer, "observer", ServingObserver)
    seed = SERVE["seed"].checked(seed)
    arriving = requests_asked(requests, seed)
    if rate is not None:
        arriving.at_rate(SERVE["rate"].checked(rate))  # refused before the machine is set up
    server = set_up(
        hw, model, arriving, policy, slo, scheduler, max_batch, max_tokens, preemption, parallel, kv, kv_bits,
        kv_blocks, block_tokens, prefix_cache, async_scheduling, routing, seed, sets, bits, dense_bits,
        weights, gpu_experts, arbitration, cache,
    )  # fmt: skip
    return server.serve(rate, log, observer, progress, watch)


def server_for(**asked: Any) -> Server:
    """The server of `run_serving` with these arguments, which can serve at several rates.

    Args:
        asked: arguments of `run_serving` except those for a run.

    Raises:
        InputError: as for `run_serving`.
    """
    given = inspect.signature(run_serving).bind(**asked)
    given.apply_defaults()
    of_server = {name: value for name, value in given.arguments.items() if name not in _OF_A_RUN}
    seed = SERVE["seed"].checked(of_server["seed"])
    requests = requests_asked(of_server["requests"], seed)
    return set_up(**of_server | {"requests": requests, "seed": seed})
