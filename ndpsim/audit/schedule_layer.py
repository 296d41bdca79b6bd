"""Rules for a layer's pairs and jobs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ndpsim.audit.schedule_rules import Fault, Header, close, dimms_of, fits, is_later, microseconds

# ---- The kinds of jobs in a log: engine, expert and share of the expert


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
    location = line["placement"].get(str(expert))
    return None if location is None else str(location["lies"])


# ---- Layers


_ALONE = 1e-3  # relative rounding of the time of a job alone


def layer_findings(
    machine: Header, line: Mapping[str, Any], arrivals: Mapping[int, float], replicas: Mapping[int, int]
) -> Iterator[Fault]:
    """All faults of a layer's pairs and jobs.

    `arrivals`: arrival times of experts that came into the GPU's memory after the layer was routed.
    `replicas`: bytes of the replicas that the GPU's memory has or gets, by expert.
    """
    jobs = line["jobs"]
    yield from _load_faults(machine, line)
    yield from _share_faults(line)
    yield from _name_faults(machine, jobs)
    yield from _assignment_faults(line, jobs)
    yield from _order_faults(machine, line, jobs)
    yield from _place_faults(machine, line, jobs)
    yield from _inside_faults(line, jobs)
    yield from _exclusive_faults(jobs)
    yield from _alone_faults(jobs)
    yield from _copy_faults(machine, line, jobs, arrivals)
    yield from _host_faults(jobs)
    yield from vector_faults(machine, line, jobs)
    yield from byte_faults(machine, line, jobs, replicas)
    yield from rate_faults(machine, line, jobs)
    yield from _path_faults(line, jobs, arrivals)


# ---- the engine of each expert ----


def _load_faults(machine: Header, line: Mapping[str, Any]) -> Iterator[Fault]:
    loads, tokens = line["loads"], line["tokens"]
    expected = machine.prompt_tokens if line["phase"] == "prefill" else machine.batch
    if tokens != expected:
        yield "loads", f"{tokens} tokens, where the run has {expected}"
    if len(loads) != machine.experts:
        yield "loads", f"loads of {len(loads)} experts, where a layer has {machine.experts}"
    if any(not 0 <= load <= tokens for load in loads):
        yield "loads", f"an expert has fewer than 0 or more than {tokens} tokens"
    pairs = tokens * machine.experts_per_token
    if sum(loads) > pairs or (sum(loads) < pairs and not machine.zero_experts):
        yield "loads", f"{sum(loads)} pairs, where {tokens} tokens choose {pairs}"


def _share_faults(line: Mapping[str, Any]) -> Iterator[Fault]:
    """Every pair is computed once: the shares of an expert add up to 1, or to 0 without tokens."""
    assigned: dict[int, float] = defaultdict(float)
    for engine in line["assign"]:
        if engine not in ENGINES:
            yield "assign", f"there is no engine {engine!r}"
    for expert, share in assigned_shares(line):
        if not 0 < share <= 1 + SHARE:
            yield "assign", f"expert {expert} has a share of {share}"
        assigned[expert] += share
    for expert, load in enumerate(line["loads"]):
        share = assigned.pop(expert, 0.0)
        if abs(share - (load > 0)) > SHARE:
            yield "pairs", f"expert {expert} with {load} tokens is assigned {share:g} times"
    for expert in assigned:
        yield "pairs", f"expert {expert}, which does not exist, is assigned"


def _name_faults(machine: Header, jobs: Iterable[Job]) -> Iterator[Fault]:
    for job in jobs:
        resource = job["resource"]
        if resource not in ("gpu", "cpu", *PCIE) and not (
            resource.startswith("ndp ") and resource[4:].isdecimal() and int(resource[4:]) < machine.dimms
        ):
            yield "resource", f"the machine has no {resource!r}, which runs {name_of(job)}"


def _assignment_faults(line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    """Every assigned expert was computed as assigned, with all of its tokens."""
    assigned: dict[tuple[str, int], float] = defaultdict(float)
    for engine, parts in line["assign"].items():
        for expert, share in parts:
            assigned[engine, expert] += share
    loads = line["loads"]
    for job in computed(jobs):
        assigned[engine_of(job), job["expert"]] -= share_of(line, job)
        load = loads[job["expert"]] if 0 <= job["expert"] < len(loads) else 0
        if job["tokens"] != load:
            yield "pairs", f"{name_of(job)} computes {job['tokens']} tokens of {load}"
    for (engine, expert), left in assigned.items():
        if abs(left) > SHARE:
            done = "not computed" if left > 0 else "computed and not assigned"
            yield "pairs", f"{abs(left):g} of expert {expert} on {engine} is {done}"


def _order_faults(machine: Header, line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    """Each engine computes its experts in the order of the assignment, and each DIMM the experts on it.

    A GPU with the order of arrival has three such orders: residents, awaited experts, and copied ones, which
    come as their copies end: of two copies at once the smaller part of an expert ends first.
    """
    jobs = list(jobs)
    copied = {job["expert"]: job["end_ns"] for job in jobs if job["kind"] == "copy"}
    started: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for job in computed(jobs):
        resource, expert, kind = job["resource"], job["expert"], ""
        if machine.gpu_order == "arrived" and resource == "gpu":
            kind = "resident" if is_resident(line, expert) else "copied" if expert in copied else "awaited"
        started[resource, kind].append((job["start_ns"], expert))
    for (resource, kind), computed_experts in started.items():
        experts = [expert for _, expert in sorted(computed_experts)]
        order = [expert for expert, _ in line["assign"].get(resource.partition(" ")[0], ())]
        due = [expert for expert in order if expert in experts]
        if kind == "copied":
            due.sort(key=lambda expert: copied[expert])
        if experts != due and sorted(experts) == sorted(due):
            yield "order of experts", f"{resource} computes {experts}, which were assigned as {due}"


def _place_faults(machine: Header, line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    """NDP units compute the experts on their DIMM, each shard on its own."""
    shares: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for job in computed(jobs):
        if engine_of(job) == "ndp":
            shares[job["expert"]][int(job["resource"][4:])] += share_of(line, job)
    for expert, by_dimm in shares.items():
        location = location_of(line, expert)
        dimms = None if location is None else dimms_of(location)
        if dimms is None:
            yield "engine", f"expert {expert} is computed on DIMMs, and is {location}"
            continue
        whole = sum(by_dimm.values())
        for dimm in sorted({*by_dimm, *dimms}):
            due = whole / len(dimms) if dimm in dimms else 0.0
            if abs(by_dimm.get(dimm, 0.0) - due) > SHARE:
                got = by_dimm.get(dimm, 0.0)
                yield (
                    "engine",
                    f"expert {expert} is {location}; DIMM {dimm} computes {got:g} of it, not {due:g}",
                )


# ---- the time of each job ----


def _inside_faults(line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    start, end, window = line["start_ns"], line["end_ns"], line["window_ns"]
    for job in jobs:
        first, last = (start - window, start) if job["kind"] == "attention" else (start, end)
        if (
            is_later(first, job["start_ns"])
            or is_later(job["end_ns"], last)
            or job["end_ns"] < job["start_ns"]
        ):
            yield (
                "within the layer",
                f"{name_of(job)} goes from {microseconds(job['start_ns'])} to {microseconds(job['end_ns'])}, "
                f"outside {microseconds(first)} to {microseconds(last)}",
            )


def _exclusive_faults(jobs: Iterable[Job]) -> Iterator[Fault]:
    """The GPU, the CPU and each NDP unit compute one job at a time."""
    jobs_by_resource: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job["resource"] not in PCIE:
            jobs_by_resource[job["resource"]].append(job)
    for resource_jobs in jobs_by_resource.values():
        resource_jobs.sort(key=lambda job: (job["start_ns"], job["end_ns"]))
        for earlier, later in itertools.pairwise(resource_jobs):
            if is_later(earlier["end_ns"], later["start_ns"]):
                yield (
                    "exclusive",
                    f"{name_of(later)} begins at {microseconds(later['start_ns'])}, and {name_of(earlier)} "
                    f"ends at {microseconds(earlier['end_ns'])}",
                )


def _alone_faults(jobs: Iterable[Job]) -> Iterator[Fault]:
    """No job is faster beside other jobs than alone."""
    for job in jobs:
        took = job["end_ns"] - job["start_ns"]
        if took < job["alone_ns"] * (1 - _ALONE) and not close(took, job["alone_ns"]):
            alone = microseconds(job["alone_ns"])
            yield "alone", f"{name_of(job)} takes {microseconds(took)}, and would take {alone} alone"


def _copy_faults(
    machine: Header, line: Mapping[str, Any], jobs: Sequence[Job], arrivals: Mapping[int, float]
) -> Iterator[Fault]:
    """The GPU computes only experts in its memory: resident, arrived, or copied before."""
    copies = [job for job in jobs if job["kind"] == "copy"]
    copied = {job["expert"]: job for job in copies}
    changes: list[tuple[float, int]] = []
    for job in computed(jobs):
        if job["resource"] != "gpu":
            continue
        expert = job["expert"]
        if expert in copied:
            changes += [(copied[expert]["end_ns"], 1), (job["end_ns"], -1)]
        resident = is_resident(line, expert)
        arrival = copied[expert]["end_ns"] if expert in copied else arrivals.get(expert)
        if not resident and (arrival is None or is_later(arrival, job["start_ns"])):
            when = "is never copied there" if arrival is None else f"arrives at {microseconds(arrival)}"
            yield "copy", f"{name_of(job)} begins at {microseconds(job['start_ns'])}, and the expert {when}"
    on_gpu = {job["expert"] for job in computed(jobs) if job["resource"] == "gpu"}
    for expert in sorted(copied.keys() - on_gpu):
        yield "copy", f"expert {expert} is copied to the GPU, which does not compute it"
    yield from _most(changes, machine.expert_buffers, "GPU memory", "experts are copied and not computed")
    under_way = [(job[end], change) for job in copies for end, change in (("start_ns", 1), ("end_ns", -1))]
    yield from _most(under_way, machine.copy_engines, "copy", "copies are under way at once")


def _most(changes: Iterable[tuple[float, int]], limit: int, rule: str, what: str) -> Iterator[Fault]:
    """A fault if a count goes above a limit at any time; times that differ by rounding are equal."""
    count = highest = 0
    for _, change in sorted((round(time, 2), change) for time, change in changes):
        count += change
        highest = max(highest, count)
    if highest > limit:
        yield rule, f"{highest} {what}, of at most {limit}"


def _host_faults(jobs: Sequence[Job]) -> Iterator[Fault]:
    """Activations reach the host before CPU and NDP compute; results leave it when all have ended."""
    beside = [job for job in computed(jobs) if job["resource"] != "gpu"]
    if not beside:
        return
    for kind in ("activations", "results"):
        if not any(job["kind"] == kind for job in jobs):
            yield "activations", f"experts are computed beside the GPU, and there are no {kind}"
    sent = max((job["end_ns"] for job in jobs if job["kind"] == "activations"), default=None)
    if sent is not None:
        for job in beside:
            if is_later(sent, job["start_ns"]):
                when, arrived = microseconds(job["start_ns"]), microseconds(sent)
                yield "activations", f"{name_of(job)} begins at {when}, and they arrive at {arrived}"
    back = min((job["start_ns"] for job in jobs if job["kind"] == "results"), default=None)
    if back is not None:
        for job in beside:
            if is_later(job["end_ns"], back):
                when, left = microseconds(job["end_ns"]), microseconds(back)
                yield "activations", f"{name_of(job)} ends at {when}, and results leave at {left}"


# ---- the critical path ----


def _path_faults(
    line: Mapping[str, Any], jobs: Sequence[Job], arrivals: Mapping[int, float]
) -> Iterator[Fault]:
    """The critical path goes from the beginning of the layer to its end without a gap.

    Each job begins when the one before it ends, or when its expert arrives in the GPU's memory, and the layer
    ends with the last job, or with an arrival.
    """
    path, end = line["critical_path"], line["end_ns"]
    awaited = any(close(arrival, end) for arrival in arrivals.values())
    if any(not 0 <= index < len(jobs) for index in path) or not (path or awaited):
        yield "critical path", f"it has {len(path)} jobs, and some that the layer does not have"
        return
    now = line["start_ns"]
    times: dict[str, float] = defaultdict(float)
    for index in path:
        job = jobs[index]
        times[engine_of(job)] += job["end_ns"] - max(job["start_ns"], line["start_ns"])
        times["pcie-down"] += max(0.0, job["start_ns"] - now)  # until an expert arrives
        arrival = arrivals.get(job["expert"])
        if not close(job["start_ns"], now) and (arrival is None or not close(job["start_ns"], arrival)):
            began = microseconds(job["start_ns"])
            yield "critical path", f"{name_of(job)} begins at {began}, and not at {microseconds(now)}"
        now = job["end_ns"]
    if awaited:
        times["pcie-down"] += max(0.0, end - now)
    named = times.get(line["bottleneck"], 0.0)
    if not close(named, max(times.values())):
        longest = max(times, key=times.__getitem__)
        words = f"{line['bottleneck']} has {microseconds(named)} of the critical path"
        yield "bottleneck", f"{words}, and {longest} {microseconds(times[longest])}"
    if not close(now, end) and not awaited:
        yield "critical path", f"it ends at {microseconds(now)}, the layer at {microseconds(end)}"


# ---- Rules for the bytes that a layer's jobs move, and for their rates


def vector_faults(machine: Header, line: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[Fault]:
    """The bytes of activations and results are those of the tokens with an expert outside the GPU, each once.

    The log does not contain the number of these tokens. Its minimum is the load of the busiest of these
    experts, or their loads together over k, if that is more. Its maximum is their loads together, or the
    tokens of the layer, if these are fewer.
    """
    loads = line["loads"]
    experts = {expert for engine, parts in line["assign"].items() if engine != "gpu" for expert, _ in parts}
    beside = [loads[expert] for expert in experts if 0 <= expert < len(loads)]
    total = sum(beside)
    least = max(max(beside, default=0), -(-total // machine.experts_per_token))
    most = min(total, line["tokens"])
    sizes = {job["kind"]: job["bytes"] for job in jobs if job["kind"] in ("activations", "results")}
    for kind, size in sizes.items():
        tokens, rest = divmod(size, machine.token_bytes)
        if rest or not least <= tokens <= most:
            between = f"{least * machine.token_bytes} to {most * machine.token_bytes}"
            yield "bytes", f"{kind} have {size} bytes, and {least} to {most} tokens have {between}"
    if len(set(sizes.values())) > 1:
        yield "bytes", f"activations have {sizes['activations']} bytes, and results {sizes['results']}"


def byte_faults(
    machine: Header, line: Mapping[str, Any], jobs: Iterable[Job], replicas: Mapping[int, int]
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


def rate_faults(machine: Header, line: Mapping[str, Any], jobs: Sequence[Job]) -> Iterator[Fault]:
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
    moved = 0.0
    for start, _, size in sorted(transfers, reverse=True):
        moved += size
        if not fits(moved, gbps, last - start):
            return True
    moved = 0.0
    for _, end, size in sorted(transfers, key=lambda transfer: transfer[1]):
        moved += size
        if not fits(moved, gbps, end - first):
            return True
    return False
