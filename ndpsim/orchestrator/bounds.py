"""Bounds of a run's layers: peaks of the machine, in every number of bits in which weights may be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.layout import ExpertFormat
from ndpsim.policies.bound import BoundTimes, bound_ns
from ndpsim.policies.interface import Machine
from ndpsim.processors import Processors
from ndpsim.processors.devices import expert_format, weight_bytes
from ndpsim.results.cache import ResultCache
from ndpsim.simulate import simulate_expert

__all__ = ["Bounds"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Bounds:
    """What no assignment of a layer's loads beats; see `ndpsim.policies.bound`.

    Args:
        by_tokens: makes an array by tokens of a function of a number of tokens.
        pcie_gbps, host_gbps: peaks of the GPU's link, and of all channels of the host.
        cache: as in `simulate_expert`.
    """

    def __init__(
        self,
        hardware: Hardware,
        processors: Processors,
        machine: Machine,
        by_tokens: Callable[[Callable[[int], float]], Floats],
        pcie_gbps: float,
        host_gbps: float,
        cache: bool | ResultCache,
    ) -> None:
        self._hardware, self._processors, self._machine = hardware, processors, machine
        self._by_tokens, self._gbps, self._cache = by_tokens, (pcie_gbps, host_gbps), cache
        self._times: dict[tuple[int | ExpertFormat, ...], BoundTimes] = {}
        self._found: dict[tuple[bytes, float, tuple[int | ExpertFormat, ...]], float] = {}

    def of_layer(self, loads: Ints, shared_ns: float, replicas: Sequence[int] = ()) -> float:
        """In ns.

        Args:
            loads: tokens by expert.
            shared_ns: of the shared experts on the GPU.
            replicas: bits of copies that may be read in place of the experts.
        """
        bits = self._machine.weights, *sorted({*replicas} - {self._machine.bits})
        key = np.sort(loads).tobytes(), shared_ns, bits
        found = self._found.get(key)
        if found is None:
            times = self._times.get(bits)
            if times is None:
                times = self._times[bits] = _fastest([self._of_bits(one) for one in bits])
            room = min(self._machine.gpu_experts, self._machine.model.routed_experts)
            found = self._found[key] = bound_ns(loads, replace(times, shared_ns=shared_ns), room)
        return found

    def _of_bits(self, bits: int | ExpertFormat) -> BoundTimes:
        """Peaks instead of simulations."""
        machine, processors = self._machine, self._processors
        expert = machine.model.expert
        size = weight_bytes(expert, expert_format(bits))
        # The longer of compute and memory: on a line between two counts, and so never above the GPU's time.
        gpu = replace(processors.gpu, roofline_power=None)
        gpu_ns = self._by_tokens(lambda n: gpu.expert_time(expert, n, bits).time_ns)
        cpu_ns = ndp_ns = None
        if machine.has_cpu:
            cpu_ns = self._by_tokens(lambda n: processors.cpu.expert_time(expert, n, bits).time_ns)
        if machine.dimms:
            one = simulate_expert(self._hardware, machine.model, 1, bits=bits, cache=self._cache)
            products = 2.0 * expert.weights * np.arange(len(gpu_ns))
            ndp_ns = np.maximum(size / one.peak_bandwidth_gbps, products / one.peak_gflops)
        pcie_gbps, host_gbps = self._gbps
        return BoundTimes(gpu_ns, cpu_ns, ndp_ns, size / pcie_gbps, size / host_gbps, 0.0, machine.dimms)


def _fastest(times: Sequence[BoundTimes]) -> BoundTimes:
    """The shortest of each time."""

    def shortest(arrays: Sequence[Floats | None]) -> Floats | None:
        there = [array for array in arrays if array is not None]
        return np.minimum.reduce(there) if there else None

    first = times[0]
    return BoundTimes(
        np.minimum.reduce([one.gpu_ns for one in times]),
        shortest([one.cpu_ns for one in times]),
        shortest([one.ndp_ns for one in times]),
        min(one.pcie_ns for one in times),
        min(one.read_ns for one in times),
        first.shared_ns,
        first.ndp_units,
    )
