"""``moe``: the layers of a model under policies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.generated import BATCH, MOST, SEED, STEPS
from ndpsim.base.options.hardware import HW, model_of
from ndpsim.base.options.host import ARBITRATION
from ndpsim.base.options.kinds import Choice, Kind, Own, Real, Whole
from ndpsim.base.options.table import Parameter, table

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


def _layers(value: Any, key: str) -> list[int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return sorted({Whole(0).take(one, key) for one in value})
    numbers: set[int] = set()
    for part in str(value).replace(" ", "").split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            problem = f"'{str(value)[:40]}' is not of the form 0-7 or 3,5,8-11"
            raise InputError(problem, key=key, code="form")
        numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return sorted(numbers)


def _step_and_layer(value: Any, key: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*", str(value), re.ASCII)
    if found is None:
        problem = f"'{str(value)[:40]}' is not of the form STEP,LAYER, for instance 3,12"
        raise InputError(problem, key=key, code="form")
    return int(found[1]), int(found[2])


MOE = table(
    {
        "What is simulated": (
            HW,
            model_of("deepseek-v2"),
            Parameter(
                "policy",
                "A policy, or FILE.py:CLASS.",
                Kind(form="NAME[:KEY=VALUE,...]"),
                "trimoe",
                names="policies",
                files=(".py",),
            ),
            Parameter(
                "layers",
                "Simulate only these layers of the model; the first is 0.",
                Own(_layers, form="N-N,..."),
                otherwise="those of the trace, else all",
            ),
            Parameter(
                "kv",
                "Location of the KV cache: auto, gpu or host.",
                Choice(("auto", "gpu", "host"), "place of the cache"),
                "auto",
            ),
            Parameter("context", "Tokens that a decoded token attends to.", Whole(), 512),
            Parameter(
                "gpu-experts", "Experts of a layer in the GPU's memory.", Whole(0), otherwise="as many as fit"
            ),
        ),
        "Weights": (
            Parameter("bits", "Bits of a weight of a routed expert.", Whole(1, 16), 16),
            Parameter("dense-bits", "Bits of all other weights.", Whole(1, 32), 16),
            Parameter(
                "weights",
                "A weight file with the bits of all weights, e.g. q4_k_m: ndpsim list weights.",
                Kind(form="NAME"),
                names="weights",
            ),
            Parameter("kv-bits", "Bits of a value in the KV cache.", Whole(1, 32), 16),
        ),
        "Host traffic": (ARBITRATION,),
        "Routing": (
            Parameter(
                "routing",
                "Experts that tokens choose: a trace, or a SPEC of ndpsim routing generate.",
                Kind(form="SPEC|FILE"),
                otherwise="the model's bundled counts, else its load curve, else skewed",
                names="routing",
                files=(".npz",),
            ),
            replace(BATCH, default=None, otherwise=f"those of the trace, else {BATCH.default}"),
            replace(
                STEPS,
                kind=Whole(1, MOST),
                default=None,
                otherwise=f"those of the trace, else {STEPS.default}",
            ),
            SEED,
            Parameter("prompt", "Prompt tokens of each sequence.", Whole(1, MOST), otherwise="no prefill"),
            Parameter(
                "prefix",
                "Tokens of each sequence that are in the KV cache before the prompt.",
                Whole(0, MOST),
                0,
            ),
        ),
    }
)

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
