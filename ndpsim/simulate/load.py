"""Latency by load: a trace offered at several rates, from almost idle to the capacity of the bus."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ndpsim.base.arguments import Progress, flag, instance, number, progress_function, several
from ndpsim.base.reported import quantity
from ndpsim.dram.traces import Requests
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.trace import run_requests

#: Offered load as a share of the peak bandwidth.
LOADS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)

_LEAST_LOAD, _MOST_LOAD = 1e-6, 1000  # so that clocks of 2**40 requests fit into 64 bits


@dataclass(frozen=True)
class LoadPoint:
    """The result at one load: bandwidths in GB/s, and read latency in ns, from the entry into the queue."""

    load: float
    offered_gbps: float = field(metadata=quantity("offered load"))
    bandwidth_gbps: float = field(metadata=quantity("bandwidth"))
    mean_ns: float | None = field(metadata=quantity("mean read latency"))
    p99_ns: float | None = field(metadata=quantity("p99 read latency"))


def _load(value: float, name: str) -> float:
    return number(value, name, _LEAST_LOAD, _MOST_LOAD)


def sweep_load(
    requests: Requests,
    memory: Memory,
    loads: Sequence[float] | None = None,
    wrap: bool = False,
    progress: Progress | bool | None = None,
) -> list[LoadPoint]:
    """Run the requests evenly spaced at each of several loads; their own times are ignored.

    A request waits at the front end while its queue is full; this wait is not part of its latency.

    >>> from pathlib import Path
    >>> _ = Path("two.trace").write_text("LD 0x0\\nST 0x40\\n")
    >>> requests = ndpsim.read_requests("two.trace")
    >>> len(ndpsim.sweep_load(requests, ndpsim.Memory.named(), loads=[0.5]))
    1

    Args:
        requests: the requests.
        memory: the channels and their controllers.
        loads: shares of the peak bandwidth, each from 0.000001 to 1000; None: `LOADS`.
        wrap: take addresses beyond the memory modulo its size, instead of refusing them.
        progress: called with the share of the loads that are done; None: no calls.

    Raises:
        InputError: an argument is invalid, or a request is beyond the memory.
    """
    requests, memory = instance(requests, "requests", Requests), instance(memory, "memory", Memory)
    loads = LOADS if loads is None else several(loads, "loads", _load)
    wrap, progress = flag(wrap, "wrap"), progress_function(progress)
    points = []
    number = np.arange(len(requests.write), dtype=np.float64)
    clocks_per_request = memory.device.burst_clocks / memory.channels
    peak_gbps = memory.channels * memory.device.peak_gbps
    for done, load in enumerate(loads):
        progress(done / len(loads))
        paced = dataclasses.replace(requests, cycle=(number * (clocks_per_request / load)).astype(np.int64))
        result = run_requests(paced, memory, wrap)
        latency = result.read_latency_ns
        mean_ns, p99_ns = (None, None) if latency is None else (latency["mean"], latency["p99"])
        points.append(LoadPoint(load, load * peak_gbps, result.bandwidth_gbps, mean_ns, p99_ns))
    progress(1.0)
    return points
