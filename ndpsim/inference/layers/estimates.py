"""The estimates of policies: times of experts, copies and reads alone, and their mutual slowdown."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.shared_dimm import simulation_threads
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.inference.processors import DenseTime, Processors
from ndpsim.inference.processors.operations import ACTIVATION_BYTES
from ndpsim.policies.views import Estimates, Machine

Floats = NDArray[np.float64]

_EACH_SHARDED = 128  # tokens: for units with four tokens at once, interpolation would smooth steps
_EXACT_TOKENS = 1024  # larger numbers are interpolated between powers of two


def by_tokens(time_ns: Callable[[int], float], most: int) -> Floats:
    """Times of 0 to `most` tokens: exact for the first ones, then interpolated between powers of two."""
    exact = range(1, min(most, _EXACT_TOKENS) + 1)
    points = [
        *exact,
        *(1 << n for n in range(11, most.bit_length())),
        *([most] if most > _EXACT_TOKENS else []),
    ]
    points = sorted(set(points))
    return np.interp(np.arange(most + 1), [0, *points], [0.0, *(time_ns(one) for one in points)])


def estimates_of(
    processors: Processors,
    costs: Costs,
    transfers: Transfers,
    machine: Machine,
    decode: DenseTime,
    most: int,
) -> Estimates:
    """The estimates for policies."""
    expert = machine.model.expert
    ndp_ns, error = costs.expected_ns(most) if machine.dimms else (np.full(most + 1, np.inf), 0.0)
    striped, localized = costs.host_read(None).time_ns, costs.host_read(1).time_ns
    moves = (0.0, 0.0, 0.0)
    if machine.dimms > 1 and machine.has_links:
        ends = (("localized 0", "striped"), ("striped", "localized 0"), ("localized 0", "localized 1"))
        with simulation_threads() as pool:
            moves = tuple(pool.map(lambda one: costs.relayout(*one).time_ns, ends))  # type: ignore[assignment]
    cpu_ns = np.full(most + 1, np.inf)
    if machine.has_cpu:
        cpu_ns = by_tokens(lambda n: processors.cpu.expert_time(expert, n, machine.weights).time_ns, most)
    on_gpu = processors.gpu_expert(expert)
    gpu_ns = by_tokens(lambda n: processors.gpu.expert_time(on_gpu, n, machine.weights).time_ns, most)
    arrays = (gpu_ns, cpu_ns, ndp_ns)
    for array in arrays:
        array.flags.writeable = False
    vector = machine.model.hidden * ACTIVATION_BYTES
    banks_ns, links_ns = _in_banks_ns(decode, transfers)
    cache_bytes = decode.host_read_bytes, decode.host_write_bytes
    to_gpu_ns, to_host_ns = (transfers.pcie_ns(size) if size else 0.0 for size in cache_bytes)
    read_ns, written_ns = (striped * transfers.gpus * size / machine.expert_bytes for size in cache_bytes)
    sharded_ns = functools.cache(lambda dimms: costs.expected_ns(most, dimms, _EACH_SHARDED)[0])
    return Estimates(
        *arrays,
        error,
        transfers.copy_ns(machine.expert_bytes),
        striped,
        localized,
        *moves,
        window_ns=max(
            decode.attention_ns + decode.router_ns + links_ns, to_gpu_ns, to_host_ns, read_ns, written_ns
        ),
        banks_ns=banks_ns,
        cache_ns=max(to_gpu_ns, read_ns + written_ns),
        shared_ns=decode.shared_ns + processors.gpu.call_ns,
        call_ns=processors.gpu.call_ns,
        hand_over_ns=processors.cpu.layer_overhead_ns if machine.has_cpu else 0.0,
        token_ns=transfers.pcie_ns(1024 * vector) / 1024,
        vector_ns=transfers.pcie_ns(vector),
        sharded_ns=sharded_ns,
        gpu_part_ns=_part_ns(
            lambda share: processors.gpu.expert_time(on_gpu, 1, machine.weights, share).time_ns
        ),
        cpu_part_ns=_part_ns(
            lambda share: processors.cpu.expert_time(expert, 1, machine.weights, share).time_ns
        )
        if machine.has_cpu
        else 0.0,
        pcie_part_ns=_part_ns(lambda share: transfers.copy_ns(round(share * machine.expert_bytes))),
        ndp_part_ns=functools.cache(
            lambda dimms: _part_ns(lambda share: costs.expert(1, dimms, share).time_ns)
        ),
        sharded_read_ns=functools.cache(lambda dimms: costs.host_read(dimms).time_ns),
        **_beside_reads(costs, machine, most, sharded_ns),
    )


def _in_banks_ns(decode: DenseTime, transfers: Transfers) -> tuple[float, float]:
    """Times of devices with units in their banks, and of transfers to and from them: means over layers."""
    layers = sum(kind.layers for kind in decode.attention)
    banks_ns = links_ns = 0.0
    for kind in decode.attention:
        if kind.in_banks is not None:
            banks_ns += kind.layers * kind.in_banks.time_ns
            sizes = kind.in_banks.in_bytes, kind.in_banks.out_bytes
            links_ns += kind.layers * sum(transfers.bank_ns(size) for size in sizes if size)
    return banks_ns / layers, links_ns / layers


def _part_ns(time_ns: Callable[[float], float]) -> float:
    """The additional time of two parts of an expert over the whole."""
    return max(0.0, 2 * time_ns(0.5) - time_ns(1.0))


def _beside_reads(
    costs: Costs, machine: Machine, most: int, sharded_ns: Callable[[int], Floats]
) -> dict[str, Any]:
    """The `Estimates` of the mutual losses of NDP units and host reads of their DIMMs.

    See `ndpsim.inference.layers.contention`. If the host does not read these DIMMs, there are no losses.
    """
    if not machine.dimms or not costs.hardware.host_reads_dimms:
        return {}

    def lost_ns(dimms: int, read_ns: float, other_ns: float) -> Floats:
        read, table = costs.host_read(dimms), costs.contention(dimms)
        of_channel = read.bytes / read.channels
        gbps = min(of_channel / read_ns + of_channel / other_ns, read.gbps_per_channel)
        of_one = max(1.0, dimms / read.channels)  # streams: one on each DIMM of a channel
        streams = of_one if other_ns == math.inf else 2 * of_one
        return of_channel / gbps / of_one * (1.0 - table.ndp_speed_of(most, gbps, streams))

    def read_delay_ns(dimms: int) -> Floats:
        table, channels = costs.contention(dimms), len({*machine.channel[:dimms]})
        bus_ns = by_tokens(lambda tokens: table.vectors_ns(tokens)[0], most)
        slower_ns = (1.0 - table.host_speed_of(most)) * sharded_ns(dimms)
        return dimms / channels * bus_ns + dimms / machine.dimms * slower_ns

    return {"lost_ns": functools.cache(lost_ns), "read_delay_ns": functools.cache(read_delay_ns)}
