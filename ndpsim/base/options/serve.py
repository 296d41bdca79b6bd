"""``serve``: requests served by a machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ndpsim.base.arguments import Sets, text
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.hardware import HW, SET, model_of
from ndpsim.base.options.host import ARBITRATION, HOST_TRAFFIC, MACHINE_TRAFFIC, MACHINE_TRAFFIC_TOLD
from ndpsim.base.options.moe import CACHE, MOE, POLICY, ROUTING, SIMULATED, WEIGHTS
from ndpsim.base.options.routing import SEED, file_or_spec, format_of, recording_of, spec_of, written
from ndpsim.base.options.routing import SEED as ANY_SEED
from ndpsim.base.options.settings import Settings, argument, like, option, table_of
from ndpsim.base.options.table import Choice, Flag, Kind, Own, Parameter, Real, Whole, table
from ndpsim.base.plugins import option_names

_ENGINE = "Engine"
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
            problem = f"{shown(value)} is not of the form ttft=1s,tpot=50ms"
            raise InputError(problem, key=key, code="form")
        limits[f"{found[1]}_ns"] = float(found[2]) * _NS[found[3]]
    return ServiceLevel(**limits)


def _level(value: Any, key: str) -> Any:
    """The text, if it has the form of limits."""
    service_level(value, key)
    return value


class ServeSettings(Settings):
    """What a server is, and which requests it serves."""

    sections = SIMULATED, _ENGINE, WEIGHTS, HOST_TRAFFIC, ROUTING

    hw: Any = like(HW, SIMULATED, accepts="str | PathLike[str] | Mapping[str, Any] | Hardware")
    model: Any = like(model_of("deepseek-v2"), SIMULATED, accepts="str | PathLike[str] | MoeShape")
    requests: Any = option(
        None,
        Kind(form="FILE|SPEC"),
        "Requests: a file, or a SPEC of ndpsim requests generate.",
        SIMULATED,
        "str | PathLike[str] | Requests | None",
        told="what arrives: a file, or a SPEC of `generate_requests`; needed",
        names="workloads",
        files=("",),
    )
    policy: Any = option(
        None,
        POLICY.kind,
        POLICY.help,
        SIMULATED,
        "str | type[Policy] | ChosenPolicy | None",
        otherwise="trimoe, or none for a dense model",
        names=POLICY.names,
        files=POLICY.files,
    )
    rate: float | None = option(
        None,
        Real(1e-9, 1e9, form="R"),
        "Mean rate in requests a second; times between arrivals are scaled to it.",
        SIMULATED,
        otherwise="as the requests arrive",
    )
    slo: Any = option(
        None,
        Own(_level, form="ttft=1s,tpot=50ms"),
        "Service level of a request: limits of time to first token, and of mean time between tokens.",
        SIMULATED,
        "str | ServiceLevel | None",
    )
    scheduler: str = option(
        "vllm",
        Choice(_SCHEDULERS, "scheduler"),
        f"Forms the steps: {', '.join(_SCHEDULERS)}.",
        _ENGINE,
    )
    max_batch: int = option(128, Whole(1, 1 << 16), "Maximum number of running sequences.", _ENGINE)
    max_tokens: int = option(2048, Whole(1, 1 << 20), "Maximum number of tokens in a step.", _ENGINE)
    preemption: str = option(
        "recompute",
        Choice(PREEMPTIONS, "preemption"),
        "Treatment of a sequence if the KV cache is full; recompute: compute it again later; swap: "
        "move its cache to host memory and back, while that has room.",
        _ENGINE,
    )
    parallel: str | None = option(
        None,
        Choice(("data", "tensor"), "parallelism"),
        "With several GPUs: data (each GPU is an engine and has a part of the experts) or tensor "
        "(each GPU has a part of each matrix).",
        _ENGINE,
        otherwise="data, or tensor for a dense model and under a policy",
    )
    kv: str = like(MOE["kv"], _ENGINE)
    attention: str = like(MOE["attention"], _ENGINE)
    kv_bits: int = like(MOE["kv-bits"], _ENGINE)
    kv_blocks: int | None = option(
        None,
        Whole(1, 1 << 32),
        "Number of blocks in the KV cache.",
        _ENGINE,
        otherwise="as many as fit, or as the longest requests need",
    )
    block_tokens: int = option(16, Whole(1, 1 << 16), "Tokens of a block of the KV cache.", _ENGINE)
    prefix_cache: bool = option(
        True,
        Flag(),
        "Do not reuse blocks of earlier prompts.",
        _ENGINE,
        told="whether a prompt reuses whole blocks of an earlier prompt with the same first tokens",
        name="no-prefix-cache",
        stated=None,
        negates=True,
    )
    async_scheduling: bool = option(
        True,
        Flag(),
        "Form a step after the previous step has ended, not when that step begins.",
        _ENGINE,
        told="whether a step is formed when the previous step begins; schedulers that do not work ahead, and "
        "swap, form it when the previous step has ended",
        name="no-async-scheduling",
        stated=None,
        negates=True,
    )
    step_overhead_us: float = option(
        0.0,
        Real(0, 1e6),
        "Time of each step that the program spends outside kernels, in us: scheduling, sampling, launches. "
        "vLLM 0.19: 2000 to 3000.",
        _ENGINE,
    )
    routing: Any = like(MOE["routing"], ROUTING, accepts="str | PathLike[str] | Routing | None")
    seed: int = like(SEED, ROUTING)
    sets: Sets = argument((), SET.help, "Sets")
    bits: int | None = like(MOE["bits"], WEIGHTS, default=None)
    dense_bits: int | None = like(MOE["dense-bits"], WEIGHTS, default=None)
    weights: str | None = like(MOE["weights"], WEIGHTS)
    gpu_experts: int | None = like(MOE["gpu-experts"], _ENGINE)
    host_gbps: Any = like(
        MACHINE_TRAFFIC, HOST_TRAFFIC, accepts="float | str | None", told=MACHINE_TRAFFIC_TOLD
    )
    arbitration: str = like(ARBITRATION, HOST_TRAFFIC)
    cache: Any = argument(True, CACHE, "bool | ResultCache")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < self.max_batch:
            problem = f"{self.max_tokens} are fewer than the {self.max_batch} sequences of max_batch"
            raise InputError(problem, "conflict", key="max_tokens")


SERVE = table_of(ServeSettings)

#: Parameters of the search for a rate.
FIND = table(
    {
        SIMULATED: (
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


_RESULTS = (written("requests here, as CSV"),)
_SEED = replace(ANY_SEED, help="Seed; equal seeds give equal requests.")

#: Parameters of a recorded file.
RECORDED = table(
    {
        "Requests": (
            format_of("file", "workload-formats"),
            Parameter("first", "Use only the first N requests.", Whole(1), otherwise="all"),
            Parameter("run", "Use the N-th run of a file with several.", Whole(1), otherwise="the only one"),
        )
    }
)
COMPARE = table({"Requests": (recording_of(), *RECORDED.values())})
GENERATE = table({"Requests": (spec_of("workloads", "poisson"), _SEED), "Results": _RESULTS})
IMPORT = table({"Requests": (recording_of(), *RECORDED.values()), "Results": _RESULTS})
DESCRIBE = table(
    {"Requests": (file_or_spec("requests", "The requests.", "workloads"), *RECORDED.values(), _SEED)}
)
