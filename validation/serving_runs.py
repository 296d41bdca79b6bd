"""Simulated runs of validation/serving.py, each one call of `run_serving`."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpsim.processors.fitted import fitted_values
from ndpsim.results.serving import ServingResult
from ndpsim.serving.run import run_serving
from ndpsim.workloads import Requests, import_requests

MEASURED = Path(__file__).parent / "serving_measured"
PART, FAMILY = "rtx-pro-6000-blackwell", "blackwell"
MAX_BATCH, MAX_TOKENS = 128, 2048  # of each engine, in all runs
MEMORY_GB, MEMORY_SHARE = 96, 0.9  # of the card, and what vLLM uses of it by default
AUTHORS_TBPS = 1.597  # bandwidth of a card's memory, as the authors' simulator has it


class Case(NamedTuple):
    """The assumptions of a run: in words, as settings of the hardware, and of the choice of experts."""

    title: str
    sets: tuple[str, ...] = ()
    routing: str | None = None


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes:
        name: of its files; `title` in words.
        cases: what is assumed, in several ways.
    """

    name: str
    title: str
    model: str
    cases: tuple[Case, ...]
    gpus: int = 1


# The authors' configuration of the card, and the part's.
CARDS = (Case("1597 GB/s"), Case("1792 GB/s", ("gpu.memory_tbps=1.792",)))
# What the authors' simulator has, what 16 lanes of PCIe 5 carry without delay, and a link that costs nothing.
LINKS = (
    Case("link of 16 GB/s, 20 us", ("gpu.link_gbps=16", "gpu.link_latency_us=20")),
    Case("64 GB/s, 0 us", ("gpu.link_gbps=64", "gpu.link_latency_us=0")),
    Case("no link", ("gpu.link_gbps=1e6", "gpu.link_latency_us=0")),
)
# Every expert as popular as the others; and the load curve that was measured of a model of the same family
# with as many experts in a layer.
EVEN = "skewed:hot_experts=0.25,warm_experts=0.25,hot_share=0.25,warm_share=0.25"
CURVE = "ranks:qwen3-235b-a22b"
EXPERTS = (
    *(case._replace(routing=EVEN) for case in LINKS),
    Case(f"{LINKS[0].title}, uneven experts", LINKS[0].sets, CURVE),
)
RUNS = (
    Run("llama-3.1-8b", "Llama-3.1-8B on one card", "llama-3.1-8b", CARDS),
    Run("qwen3-32b-tp2", "Qwen3-32B, tensor parallel on two cards", "qwen3-32b", LINKS, 2),
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
    """The card's part, with the values that its family was fitted to; experts of a layer are one call."""
    fitted = [f"gpu.{key}={value:g}" for key, value in fitted_values("gpu", FAMILY).items()]
    reserved_gb = (1 - MEMORY_SHARE) * MEMORY_GB
    card = [f"gpu.part={PART}", f"gpu.memory_tbps={AUTHORS_TBPS}", f"gpu.reserved_gb={reserved_gb:g}"]
    return [*card, "gpu.expert_calls=fused", *fitted, f"gpu.count={run.gpus}", *case.sets]


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
        max_batch=MAX_BATCH,
        max_tokens=MAX_TOKENS,
        routing=case.routing,
        sets=sets_of(run, case),
    )
