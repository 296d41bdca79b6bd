"""The kinds of jobs in a log: engine, expert and share of the expert."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ndpsim.audit.schedule_rules import dimms_of

ENGINES = ("gpu", "cpu", "ndp")
PCIE = ("pcie-down", "pcie-up")
SHARE = 1e-9  # rounding of the sum of an expert's shares

Job = Mapping[str, Any]


def assigned_shares(line: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """The experts of all engines, with their shares."""
    for parts in line["assign"].values():
        yield from parts


def name_of(job: Job) -> str:
    """A job in words."""
    expert = f" {job['expert']}" if job["expert"] >= 0 else ""
    return f"{job['kind']}{expert} on {job['resource']}"


def computed(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs that compute an expert."""
    return (job for job in jobs if job["kind"] == "expert")


def engine_of(job: Job) -> str:
    """The engine, or the direction of PCIe, that a job runs on."""
    return str(job["resource"]).partition(" ")[0]


def share_of(line: Mapping[str, Any], job: Job) -> float:
    """The share of its expert that a job computes; the DIMMs of a sharded expert compute equal shares."""
    location = location_of(line, job["expert"]) if engine_of(job) == "ndp" else None
    dimms = None if location is None else dimms_of(location)
    return float(job["share"]) / (len(dimms) if dimms else 1)


def is_resident(line: Mapping[str, Any], expert: int) -> bool:
    """Whether the GPU's memory has the expert when the layer begins."""
    return bool(line["placement"].get(str(expert), {}).get("gpu", False))


def location_of(line: Mapping[str, Any], expert: int) -> str | None:
    """The DRAM layout of an expert, None: the log has none."""
    place = line["placement"].get(str(expert))
    return None if place is None else str(place["lies"])
