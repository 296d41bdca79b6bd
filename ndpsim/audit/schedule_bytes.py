"""Rules for the bytes that a layer's jobs move, and for their rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ndpsim.audit.schedule_jobs import (
    PCIE,
    Job,
    engine_of,
    location_of,
    name_of,
    share_of,
)
from ndpsim.audit.schedule_rules import Fault, Machine, fits, microseconds


def vector_faults(machine: Machine, line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    """The bytes of activations and results are those of the tokens with an expert outside the GPU, each once.

    The log does not contain the number of these tokens. Its minimum is the load of the busiest of these
    experts, or their loads together over k, if that is more. Its maximum is their loads together, or the
    tokens of the layer, if these are fewer.
    """
    loads = line["loads"]
    experts = {expert for engine, parts in line["assign"].items() if engine != "gpu" for expert, _ in parts}
    beside = [loads[expert] for expert in experts if 0 <= expert < len(loads)]
    together = sum(beside)
    least = max(max(beside, default=0), -(-together // machine.experts_per_token))
    most = min(together, line["tokens"])
    sizes = {job["kind"]: job["bytes"] for job in jobs if job["kind"] in ("activations", "results")}
    for kind, size in sizes.items():
        tokens, rest = divmod(size, machine.token_bytes)
        if rest or not least <= tokens <= most:
            between = f"{least * machine.token_bytes} to {most * machine.token_bytes}"
            yield "bytes", f"{kind} have {size} bytes, and {least} to {most} tokens have {between}"
    if len(set(sizes.values())) > 1:
        yield "bytes", f"activations have {sizes['activations']} bytes, and results {sizes['results']}"


def byte_faults(
    machine: Machine, line: Mapping[str, Any], jobs: Iterable[Job], replicas: Mapping[int, int]
) -> Iterator[Fault]:
    """Copies, GPU and CPU read the bytes of the expert's share, or its replica; NDP units read no fewer."""
    for job in jobs:
        expert = str(job["expert"])
        bits = line["bits"].get(expert, machine.bits)
        if job["resource"] == "gpu" and line["placement"].get(expert, {}).get("gpu", False):
            bits = machine.bits
        size = machine.bytes_of(bits)
        if job["resource"] == "gpu":
            size = replicas.get(job["expert"], size)
        if size is None:
            yield "bytes", f"{name_of(job)} reads {bits} bits of a weight, of which there is no replica"
            continue
        due = size * share_of(line, job)
        at_least = job["kind"] == "expert" and engine_of(job) == "ndp"
        exactly = job["kind"] in ("copy", "expert") and not at_least
        if (exactly and abs(job["bytes"] - due) > 1) or (at_least and job["bytes"] < due - 1):
            yield "bytes", f"{name_of(job)} reads {job['bytes']} bytes of {due:.0f}"


def rate_faults(machine: Machine, line: Mapping[str, Any], jobs: Sequence[Job]) -> Iterator[Fault]:
    """No transfer is faster than its link, and all transfers on a link together are not faster either."""
    carried: dict[str, list[tuple[float, float, float]]] = defaultdict(list)  # start, end, bytes
    for job in jobs:
        times = job["start_ns"], job["end_ns"]
        limits = {}
        if job["resource"] in PCIE:
            limits[job["resource"]] = machine.gbps["pcie"]
            carried[job["resource"]].append((*times, job["bytes"]))
        if job["kind"] == "copy" or (job["kind"] == "expert" and job["resource"] == "cpu"):
            location = location_of(line, job["expert"])
            if location is not None:
                limits[f"the host's channels ({location})"] = machine.read_gbps(location)
                for channel, share in machine.channels_of(location).items():
                    carried[f"channel {channel}"].append((*times, share * job["bytes"]))
        elif job["kind"] == "expert" and engine_of(job) == "ndp":
            limits["the DIMM"] = machine.gbps["dimm"]
        for what, gbps in limits.items():
            if not fits(job["bytes"], gbps, times[1] - times[0]):
                took = microseconds(times[1] - times[0])
                yield (
                    "rate",
                    f"{name_of(job)} moves {job['bytes']} bytes in {took}; {what} carries {gbps:g} GB/s",
                )
    for resource, transfers in carried.items():
        gbps = machine.gbps["pcie" if resource in PCIE else "channel"]
        if _is_too_fast(transfers, gbps):
            yield "rate", f"all jobs of {resource} together move more than {gbps:g} GB/s"


def _is_too_fast(transfers: Sequence[tuple[float, float, float]], gbps: float) -> bool:
    """Whether the transfers after any start, or before any end, move more than the link can in that time."""
    last = max(end for _, end, _ in transfers)
    first = min(start for start, _, _ in transfers)
    together = 0.0
    for start, _, size in sorted(transfers, reverse=True):
        together += size
        if not fits(together, gbps, last - start):
            return True
    together = 0.0
    for _, end, size in sorted(transfers, key=lambda one: one[1]):
        together += size
        if not fits(together, gbps, end - first):
            return True
    return False
