"""``serve``: requests served by a machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ndpsim.base.arguments import text
from ndpsim.base.errors import InputError
from ndpsim.base.options.generated import SEED
from ndpsim.base.options.hardware import HW, model_of
from ndpsim.base.options.host import ARBITRATION
from ndpsim.base.options.kinds import Choice, Flag, Kind, Own, Real, Whole
from ndpsim.base.options.moe import MOE
from ndpsim.base.options.table import Parameter, table
from ndpsim.base.plugins import option_names

PREEMPTIONS = ("recompute", "swap")
_SCHEDULERS = option_names("inference/serving/schedulers", "vllm")
_LIMIT = re.compile(r"\s*(ttft|tpot)\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(us|ms|s)\s*", re.ASCII)
_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class ServiceLevel:
    """Limits of a request: time to its first token, and mean time between tokens; None: no limit."""

    ttft_ns: float | None = None
    tpot_ns: float | None = None

    def is_met(self, ttft_ns: float, tpot_ns: float | None) -> bool:
        """Whether a request is within both limits; `tpot_ns` is None for a request with one token."""
        pairs = (ttft_ns, self.ttft_ns), (tpot_ns, self.tpot_ns)
        return all(value is None or limit is None or value <= limit for value, limit in pairs)


def service_level(value: Any, key: str = "slo") -> ServiceLevel:
    """The limits in a text.

    Raises:
        InputError: it is not of the form.
    """
    if isinstance(value, ServiceLevel):
        return value
    limits: dict[str, float] = {}
    for part in text(value, key).split(","):
        found = _LIMIT.fullmatch(part)
        if found is None or f"{found[1]}_ns" in limits or not float(found[2]):
            problem = f"'{value[:40]}' is not of the form ttft=1s,tpot=50ms"
            raise InputError(problem, key=key, code="form")
        limits[f"{found[1]}_ns"] = float(found[2]) * _NS[found[3]]
    return ServiceLevel(**limits)


def _level(value: Any, key: str) -> Any:
    """The text, if it has the form of limits."""
    service_level(value, key)
    return value


SERVE = table(
    {
        "What is simulated": (
            HW,
            model_of("deepseek-v2"),
            Parameter(
                "requests",
                "Requests: a file, or a SPEC of ndpsim requests generate.",
                Kind(form="FILE|SPEC"),
                names="workloads",
                files=("",),
            ),
            replace(MOE["policy"], default=None, otherwise="trimoe, or none for a dense model"),
            Parameter(
                "rate",
                "Mean rate in requests a second; times between arrivals are scaled to it.",
                Real(1e-9, 1e9, form="R"),
                otherwise="as the requests arrive",
            ),
            Parameter(
                "slo",
                "Service level of a request: limits of time to first token, and of mean time between tokens.",
                Own(_level, form="ttft=1s,tpot=50ms"),
            ),
        ),
        "Engine": (
            Parameter(
                "scheduler",
                f"Forms the steps: {', '.join(_SCHEDULERS)}.",
                Choice(_SCHEDULERS, "scheduler"),
                "vllm",
            ),
            Parameter("max-batch", "Maximum number of running sequences.", Whole(1, 1 << 16), 128),
            Parameter("max-tokens", "Maximum number of tokens in a step.", Whole(1, 1 << 20), 2048),
            Parameter(
                "preemption",
                "Treatment of a sequence if the KV cache is full; recompute: compute it again later; swap: "
                "move its cache to host memory and back, while that has room.",
                Choice(PREEMPTIONS, "preemption"),
                "recompute",
            ),
            Parameter(
                "parallel",
                "With several GPUs: data (each GPU is an engine and has a part of the experts) or tensor "
                "(each GPU has a part of each matrix).",
                Choice(("data", "tensor"), "parallelism"),
                otherwise="data, or tensor for a dense model",
            ),
            MOE["kv"],
            MOE["kv-bits"],
            Parameter(
                "kv-blocks",
                "Number of blocks in the KV cache.",
                Whole(1, 1 << 32),
                otherwise="as many as fit, or as the longest requests need",
            ),
            Parameter("block-tokens", "Tokens of a block of the KV cache.", Whole(1, 1 << 16), 16),
            Parameter("no-prefix-cache", "Do not reuse blocks of earlier prompts.", Flag()),
            Parameter(
                "no-async-scheduling",
                "Form a step after the previous step has ended, not when that step begins.",
                Flag(),
            ),
            MOE["gpu-experts"],
        ),
        "Weights": (MOE["bits"], MOE["dense-bits"], MOE["weights"]),
        "Host traffic": (ARBITRATION,),
        "Routing": (MOE["routing"], SEED),
    }
)

#: Parameters of the search for a rate.
FIND = table(
    {
        "What is simulated": (
            Parameter("find-rate", "Find the highest rate within --slo, by bisection.", Flag(), needs="slo"),
            Parameter(
                "attainment",
                "With --find-rate: share of requests that must be within --slo.",
                Real(0, 1, form="SHARE"),
                0.9,
                needs="find-rate",
            ),
        )
    }
)
