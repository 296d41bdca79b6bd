"""``moe``: the layers of a model under policies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ndpsim.base.arguments import Sets
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.hardware import HW, SET, model_of
from ndpsim.base.options.host import ARBITRATION, HOST_TRAFFIC, MACHINE_TRAFFIC, MACHINE_TRAFFIC_TOLD
from ndpsim.base.options.routing import BATCH, MOST, SEED, STEPS
from ndpsim.base.options.settings import Settings, argument, like, option, table_of
from ndpsim.base.options.table import Choice, Kind, Own, Parameter, Real, Whole, table

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


def _layers(value: Any, key: str) -> list[int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return sorted({Whole(0).take(layer, key) for layer in value})
    numbers: set[int] = set()
    for part in str(value).replace(" ", "").split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            problem = f"{shown(value)} is not of the form 0-7 or 3,5,8-11"
            raise InputError(problem, key=key, code="form")
        numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return sorted(numbers)


def _step_and_layer(value: Any, key: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*", str(value), re.ASCII)
    if found is None:
        problem = f"{shown(value)} is not of the form STEP,LAYER, for instance 3,12"
        raise InputError(problem, key=key, code="form")
    return int(found[1]), int(found[2])


SIMULATED, WEIGHTS, ROUTING = "What is simulated", "Weights", "Routing"
CACHE = "Whether to reuse costs of earlier calls, or the cache to use."
POLICY = Parameter(
    "policy",
    "A policy, or FILE.py:CLASS.",
    Kind(form="NAME[:KEY=VALUE,...]"),
    "trimoe",
    names="policies",
    files=(".py",),
)


class MoeSettings(Settings):
    """What is run: the layers of a model on a machine, under policies."""

    sections = SIMULATED, WEIGHTS, HOST_TRAFFIC, ROUTING

    hw: Any = like(HW, SIMULATED, accepts="str | PathLike[str] | Mapping[str, Any] | Hardware")
    model: Any = like(model_of("deepseek-v2"), SIMULATED, accepts="str | PathLike[str] | MoeShape")
    policies: Any = like(
        POLICY,
        SIMULATED,
        default=("trimoe",),
        accepts="Sequence[str | type[Policy] | ChosenPolicy]",
        told="names of policies with parameters, trimoe:refine=false, classes of a file, policy.py:Mine, or "
        "classes, each on the same trace; all: all bundled ones that can be run. Speed-ups are against the "
        "first",
    )
    batch: int | None = like(
        replace(BATCH, default=None, otherwise=f"those of the trace, else {BATCH.default}"), ROUTING
    )
    steps: int | None = like(
        replace(
            STEPS, kind=Whole(1, MOST), default=None, otherwise=f"those of the trace, else {STEPS.default}"
        ),
        ROUTING,
    )
    routing: Any = option(
        None,
        Kind(form="SPEC|FILE"),
        "Experts that tokens choose: a trace, or a SPEC of ndpsim routing generate.",
        ROUTING,
        "str | PathLike[str] | Routing | None",
        otherwise="the model's bundled counts, else its load curve, else skewed",
        names="routing",
        files=(".npz",),
    )
    seed: int = like(SEED, ROUTING)
    prompt: int | None = option(
        None, Whole(1, MOST), "Prompt tokens of each sequence.", ROUTING, otherwise="no prefill"
    )
    prefix: int = option(
        0, Whole(0, MOST), "Tokens of each sequence that are in the KV cache before the prompt.", ROUTING
    )
    layers: Any = option(
        None,
        Own(_layers, form="N-N,..."),
        "Simulate only these layers of the model; the first is 0.",
        SIMULATED,
        "Sequence[int] | None",
        otherwise="those of the trace, else all",
    )
    sets: Sets = argument((), SET.help, "Sets")
    bits: int | None = option(None, Whole(1, 16), "Bits of a weight of a routed expert.", WEIGHTS, stated=16)
    dense_bits: int | None = option(None, Whole(1, 32), "Bits of all other weights.", WEIGHTS, stated=16)
    weights: str | None = option(
        None,
        Kind(form="NAME"),
        "A weight file with the bits of all weights, e.g. q4_k_m: ndpsim list weights.",
        WEIGHTS,
        names="weights",
    )
    kv: str = option(
        "auto",
        Choice(("auto", "gpu", "host"), "place of the cache"),
        "Location of the KV cache: auto, gpu or host.",
        SIMULATED,
    )
    attention: str = option(
        "gpu",
        Choice(("gpu", "ndp"), "place of attention"),
        "Where decoded tokens attend to others: gpu, or ndp: devices with units in their banks, which have "
        "the KV cache.",
        SIMULATED,
    )
    kv_bits: int = option(16, Whole(1, 32), "Bits of a value in the KV cache.", WEIGHTS)
    context: int = option(512, Whole(), "Tokens that a decoded token attends to.", SIMULATED)
    gpu_experts: int | None = option(
        None, Whole(0), "Experts of a layer in the GPU's memory.", SIMULATED, otherwise="as many as fit"
    )
    host_gbps: Any = like(
        MACHINE_TRAFFIC, HOST_TRAFFIC, accepts="float | str | None", told=MACHINE_TRAFFIC_TOLD
    )
    arbitration: str = like(ARBITRATION, HOST_TRAFFIC)
    cache: Any = argument(True, CACHE, "bool | ResultCache")


MOE = table_of(MoeSettings)

#: Parameters of the call that do not change the simulation.
CHECKS = table(
    {
        "Results": (
            Parameter(
                "check-layer",
                "Simulate this layer again in the cycle-level session, and compare.",
                Own(_step_and_layer, form="STEP,LAYER"),
            ),
            Parameter(
                "check-limit",
                "With --check-layer: largest error of an end time, as a share of the layer's time.",
                Real(0, form="SHARE"),
                0.05,
                needs="check-layer",
            ),
        )
    }
)
