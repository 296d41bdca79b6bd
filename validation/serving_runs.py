"""Simulated runs of validation/serving.py, each one call of `run_serving`."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpsim.inference.serving.server import run_serving
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.workload.requests import Requests, import_requests

MEASURED = Path(__file__).parent / "serving_measured"
MAX_TOKENS = 2048  # in a step of an engine, in all runs
# vLLM leaves a tenth of the memory free. The authors' own configuration of this card has 1597 GB/s.
RTX_PRO_6000 = ("gpu.part=rtx-pro-6000-blackwell", "gpu.memory_tbps=1.597", "gpu.reserved_gb=9.6")
RTX_4090 = ("gpu.part=rtx-4090", "pcie.part=pcie-4-x16", "gpu.reserved_gb=2.4")


class Case(NamedTuple):
    """The assumptions of a run: in words, as settings of the hardware, of the choice of experts, of steps."""

    title: str
    sets: tuple[str, ...] = ()
    routing: str | None = None
    step_overhead_us: float = 0.0


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes:
        name: of its files; `title` in words.
        cases: what is assumed, in several ways.
        card: settings of the hardware for each GPU.
        max_batch: sequences of an engine.
        kv_blocks: blocks of the KV cache, where the run records them.
    """

    name: str
    title: str
    model: str
    cases: tuple[Case, ...]
    gpus: int = 1
    card: tuple[str, ...] = RTX_PRO_6000
    max_batch: int = 128
    kv_blocks: int | None = None


# vLLM's own code between kernels takes 2 to 3 ms a step in this version.
STEP_US = 2500.0


def slower(case: Case) -> Case:
    """The case with the time of vLLM's own code."""
    return case._replace(title=f"{case.title}, {STEP_US / 1e3:g} ms a step", step_overhead_us=STEP_US)


# The authors' configuration of the card, with the time of vLLM's own code, and the part's.
CARDS = (
    Case("1597 GB/s"), slower(Case("1597 GB/s")), Case("1792 GB/s", ("gpu.memory_tbps=1.792",))
)  # fmt: skip
# What the authors' simulator has, what 16 lanes of PCIe 5 carry without delay, and a link that costs nothing.
LINKS = (
    Case("link of 16 GB/s, 20 us", ("gpu.link_gbps=16", "gpu.link_latency_us=20")),
    Case("64 GB/s, 0 us", ("gpu.link_gbps=64", "gpu.link_latency_us=0")),
    Case("no link", ("gpu.link_gbps=1e6", "gpu.link_latency_us=0")),
)
TWO_CARDS = (LINKS[0], slower(LINKS[0]), *LINKS[1:])
# Every expert as popular as the others; and the load curve that was measured of a model of the same family
# with as many experts in a layer.
EVEN = "skewed:hot_experts=0.25,warm_experts=0.25,hot_share=0.25,warm_share=0.25"
CURVE = "ranks:qwen3-235b-a22b"
EXPERTS = (
    *(case._replace(routing=EVEN) for case in TWO_CARDS),
    Case(f"{LINKS[0].title}, uneven experts", LINKS[0].sets, CURVE),
)
RUNS = (
    Run("llama-3.1-8b", "Llama-3.1-8B on one card", "llama-3.1-8b", CARDS),
    Run(
        "llama-3.1-8b-rtx-4090",
        "Llama-3.1-8B on an RTX 4090, where the KV cache is full",
        "llama-3.1-8b",
        (Case("1008 GB/s"), slower(Case("1008 GB/s"))),
        card=RTX_4090,
        max_batch=256,
        kv_blocks=2588,
    ),
    Run("qwen3-32b-tp2", "Qwen3-32B, tensor parallel on two cards", "qwen3-32b", TWO_CARDS, 2),
    Run(
        "qwen3-30b-a3b-dp2",
        "Qwen3-30B-A3B, data and expert parallel on two cards",
        "qwen3-30b-a3b",
        EXPERTS,
        2,
    ),
)


def table(name: str) -> list[dict[str, str]]:
    """The rows of a measured table; those of requests by when the engine got them."""
    with (MEASURED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def column(rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    """A column as numbers."""
    return np.array([float(row[name]) for row in rows])


def sets_of(run: Run, case: Case) -> list[str]:
    """The card's part, with the fitted values of its family; experts of a layer are one call."""
    return [*run.card, "gpu.expert_calls=fused", f"gpu.count={run.gpus}", *case.sets]


def requests_of(run: Run) -> Requests:
    """The requests of a run, which come when vLLM's engine got them."""
    return import_requests(MEASURED / f"{run.name}-requests.csv")


@functools.cache
def served(run: Run, case: Case) -> ServingResult:
    """The run, simulated."""
    return run_serving(
        "trimoe",
        run.model,
        requests_of(run),
        max_batch=run.max_batch,
        max_tokens=MAX_TOKENS,
        kv_blocks=run.kv_blocks,
        routing=case.routing,
        step_overhead_us=case.step_overhead_us,
        sets=sets_of(run, case),
    )
