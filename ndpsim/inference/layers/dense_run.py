"""A dense model in ``run_moe``: a step is attention and the network of each layer, all on the GPU.

There are no experts, so no policy has anything to assign, and its steps are those of ``run_serving`` on one
GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.moe import MoeSettings
from ndpsim.base.options.routing import BATCH, STEPS
from ndpsim.config import Hardware
from ndpsim.dram.energy import add_up
from ndpsim.inference.layers.setup import decode_context
from ndpsim.inference.layers.visits import windows_of_step
from ndpsim.inference.layers.weights import RunWeights, run_weights
from ndpsim.inference.processors import Processors, Step
from ndpsim.simulate.results.moe import ENGINES, MoeResult, PolicyRun
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import MoeShape

#: The name of the run, in place of a policy's.
NO_POLICY = "none"

_NOTE = "the energy of GPUs is not known"
_OF_EXPERTS = ("routing", "bits", "gpu_experts", "host_gbps")


def run_dense(
    settings: MoeSettings, hardware: Hardware, shape: MoeShape, layers: tuple[int, ...] | None
) -> MoeResult:
    """Run a dense model's layers on the GPU; the arguments are those of `run_moe`, checked.

    layers: those that are run; None: all.

    Raises:
        InputError: an argument is about experts, something else than the GPU has the KV cache or computes
            attention, or the model does not fit into the GPU's memory.
    """
    watch = Stopwatch()
    _check(settings, shape)
    weights = run_weights(shape, None, settings.dense_bits, settings.weights)
    batch, steps = settings.batch or BATCH.default, settings.steps or STEPS.default
    processors, context = Processors(hardware), decode_context(settings)
    part = processors.gpu_part(shape)
    memory = processors.gpu_memory(
        part, batch, context, kv="gpu", kv_bits=settings.kv_bits, dense_bits=weights.dense
    )
    layers = layers or tuple(range(shape.layers))

    def step_ns(context: int, new_tokens: int) -> float:
        step = Step(batch, context, new_tokens, settings.kv_bits)
        time = processors.part_time(part, step, bits=weights.dense)
        return windows_of_step((), layers, "", time)[1].gpu_ns

    prompt = settings.prompt
    prefill_ns = step_ns(settings.prefix + prompt, prompt) if prompt else 0.0
    run = _run(prefill_ns, steps * step_ns(context, 1), steps * batch, watch)
    sizes = {"batch": batch, "steps": steps, "layers": list(layers), "gpu_bytes": dict(memory.parts)}
    return MoeResult(_config(settings, hardware, shape, weights, sizes), {}, (run,), {})


def _check(settings: MoeSettings, shape: MoeShape) -> None:
    """Refuse settings of experts, and a KV cache that is not in the GPU's memory."""
    for key in _OF_EXPERTS:
        if getattr(settings, key) is not None:
            problem = f"does not apply to {shape.name}: it is a dense model, without experts"
            raise InputError(problem, "conflict", key=key)
    for key, value in (("kv", settings.kv), ("attention", settings.attention)):
        if value in ("host", "ndp"):
            problem = f"{value} is not modelled for {shape.name}, a dense model: the GPU has its KV cache"
            raise InputError(problem, "unsupported", key=key)


def _config(
    settings: MoeSettings, hardware: Hardware, shape: MoeShape, weights: RunWeights, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that was used; what is of experts alone is missing, or has no value."""
    of_weights = weights.to_dict()
    bits = of_weights["dense_bits"]
    return {
        "hardware": hardware.to_dict(),
        "model": shape.name,
        "prompt": settings.prompt or 0,
        "prefix": settings.prefix,
        "routing": None,
        **of_weights,
        "bits": bits if isinstance(bits, int) else {part: width for part, width in bits.items() if width},
        "attention": settings.attention,
        "kv": "gpu",
        "kv_bits": settings.kv_bits,
        "context": decode_context(settings),
        **sizes,
    }


def _run(prefill_ns: float, decode_ns: float, decoded: int, watch: Stopwatch) -> PolicyRun:
    """The run, in which the GPU is always busy and nothing has experts."""
    none = dict.fromkeys(ENGINES, 0.0)
    return PolicyRun(
        policy=NO_POLICY,
        parameters={},
        time_ns=prefill_ns + decode_ns,
        prefill_ns=prefill_ns,
        decode_ns=decode_ns,
        moe_ns=0.0,
        prefill_moe_ns=0.0,
        decode_moe_ns=0.0,
        shared_ns=0.0,
        layer_ns={},
        tokens_per_s=decoded / decode_ns * 1e9,
        speedup=1.0,
        speedup_prefill=1.0 if prefill_ns else None,
        speedup_decode=1.0,
        speedup_moe=1.0,
        bound=None,
        bound_ns=None,
        pairs=0,
        experts=none,
        pairs_by_engine=none,
        weight_bits=dict.fromkeys(ENGINES),
        utilization={"gpu": 1.0},
        migrations={},
        cache={"hits": 0.0, "misses": 0.0, "hit_rate": None},
        prediction=None,
        estimated_ns=None,
        policy_wall_s=0.0,
        bottleneck={},
        energy_nj=add_up({"gpu": None}),
        energy_note=_NOTE,
        **watch.times(),
    )
