"""Times of experts on GPU, CPU and DIMMs, and of a layer: equations 1 to 7 of TriMoE.

`ndpsim.policies.assignment` has the kernels. As the paper's equations, this model
includes neither activations on PCIe nor the host's sum of results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.assignment.bottleneck import ARRIVING, CPU, DIMM, GPU, MISSING, RESIDENT, Scheduling
from ndpsim.policies.assignment.relocation import COLD, HOT, WARM, Prediction
from ndpsim.policies.offline import descending
from ndpsim.policies.views import STRIPED, Estimates, Flags, Floats, Ints


@dataclass(eq=False)
class ExpertCosts:
    """Times in a step of each expert of a layer, by its location: arrays [expert], in ns.

    They are times on the engine that equations 2 to 4 choose. DIMMs work at the same time: a time on one of n
    DIMMs counts as an n-th.

    Attributes:
        striped, localized: time with this location, outside the GPU's memory.
        resident: time in the GPU's memory.
        ndp: time on its DIMM if it is localized and NDP is its best engine, else 0.
        cold: flags of experts that are better localized, because NDP is then their best engine.
    """

    striped: Floats
    localized: Floats
    resident: Floats
    ndp: Floats
    cold: Flags

    @cached_property
    def most_gain(self) -> Floats:
        """The minimum gain of each expert in the GPU's memory, over its locations."""
        return np.asarray(np.minimum(self.striped, self.localized) - self.resident)

    def classes(self, room: int) -> Ints:
        return classes_of(self.most_gain, self.cold, room)

    def gain(self, dimm: NDArray[np.integer]) -> Floats:
        """The gain of each expert in the GPU's memory, relative to its location."""
        return np.where(dimm == STRIPED, self.striped, self.localized) - self.resident


def classes_of(most_gain: Floats, cold: Flags, room: int) -> Ints:
    """`COLD`, `WARM` or `HOT` for each expert; at most `room` experts with the largest gains are hot."""
    hottest = descending(most_gain)[:room]
    classes = np.where(cold, COLD, WARM)
    classes[hottest[most_gain[hottest] > 0]] = HOT
    return classes


class CostModel:
    """Equations 1 to 4, and the terms of equation 6, from a policy's estimates.

    Without `cpu` no expert can run on the CPU. A striped read occupies each DIMM for the time of its part of
    the bytes; with `whole_reads` for the whole read.

    Numbers of tokens may be means: times are interpolated between whole numbers, and the cost of an expert
    with a mean below one token is that share of its cost with one.
    """

    def __init__(
        self, estimates: Estimates, dimms: int, cpu: bool = True, *, whole_reads: bool = False
    ) -> None:
        self.estimates = estimates
        self.dimms = dimms
        self.cpu = cpu
        self._calculated = np.stack((estimates.gpu_ns, estimates.cpu_ns, estimates.ndp_ns))
        self._slope = np.diff(self._calculated, append=self._calculated[:, -1:])
        if not cpu:
            self._calculated[CPU], self._slope[CPU] = np.inf, 0.0
        tokens = np.arange(estimates.most_tokens + 1)
        self._time, self._contention = self._engine_costs(tokens, whole_reads)
        self._by_tokens = self._expert_costs(tokens)

    def _times(self, loads: NDArray[np.floating | np.integer]) -> Floats:
        """f_calc_gpu, f_calc_cpu and equation 4, which is simulated with its read, for at least a token."""
        tokens = np.minimum(np.maximum(loads, 1), self.estimates.most_tokens)
        whole = tokens.astype(np.int64)
        between = self._slope.take(whole, axis=1) * (tokens - whole)
        return np.asarray(between + self._calculated.take(whole, axis=1))

    def _engine_costs(self, tokens: Ints, whole_reads: bool) -> tuple[Floats, Floats]:
        """Times in ns by engine, state and tokens, and reads by engine and state: see `Scheduling`.

        Times. GPU: equation 1 if its memory has the expert, else equation 2. CPU: equation 3. NDP: equation
        4. Reads are terms of equation 6.
        """
        gpu, cpu, ndp = self._times(tokens)
        estimates = self.estimates
        late_copy_ns = max(
            0.0, estimates.pcie_ns - estimates.window_ns
        )  # the part after the end of the window
        part_ns = estimates.localized_read_ns / max(self.dimms, 1)
        late = gpu + estimates.call_ns  # what is waited for is a call of its own
        time = np.empty((3, 3, 2, len(gpu)))
        for localized, read in enumerate((estimates.striped_read_ns, estimates.localized_read_ns)):
            time[GPU, MISSING, localized] = np.maximum(np.maximum(late, estimates.pcie_ns), read)  # eq. 2
            time[GPU, ARRIVING, localized] = np.maximum(late, late_copy_ns)
            time[GPU, RESIDENT, localized] = gpu  # eq. 1
            time[CPU, :, localized] = np.maximum(cpu, read)  # eq. 3
        time[DIMM, :, 0], time[DIMM, :, 1] = np.inf, ndp  # eq. 4
        contention = np.zeros((2, 3, 2))
        contention[CPU] = estimates.striped_read_ns if whole_reads else part_ns, estimates.localized_read_ns
        contention[GPU, MISSING] = contention[CPU, MISSING]
        return time.reshape(3, -1), contention.reshape(2, -1)

    def scheduling(self, experts: int) -> Scheduling:
        """The costs, and arrays to work with, for layers of so many experts."""
        most, dimms = self.estimates.most_tokens, self.dimms
        time, read = self._time.reshape(3, 6, most + 1), self._contention

        def numbers(size: int) -> Ints:
            return np.zeros(size, np.int64)

        costs = np.zeros((3, experts)), np.zeros((2, experts)), numbers(experts), numbers(experts)
        busy, tried = np.zeros((2, DIMM + dimms + 1))
        order = np.zeros(experts), numbers(experts), numbers(experts), numbers(RESIDENT + DIMM + dimms)
        return Scheduling(time, read, *costs, busy, tried, *order)

    def predicting(self, loads: NDArray[np.float32], room: Ints) -> Prediction:
        """What kernels need for predictions from these loads, [layer, expert]; `room` as in `Prediction`."""
        experts, by_tokens = loads.shape[1], self._by_tokens

        def floats() -> Floats:
            return np.zeros(experts)

        def flags() -> Flags:
            return np.zeros(experts, np.bool_)

        def numbers(*shape: int) -> Ints:
            return np.zeros(shape or (experts,), np.int64)

        return Prediction(
            loads,
            room,
            self._calculated,
            self._slope,
            by_tokens.most_gain,
            by_tokens.cold,
            striped=floats(),
            localized=floats(),
            resident=floats(),
            ndp=floats(),
            cold=flags(),
            gain=floats(),
            worth=floats(),
            classes=numbers(),
            classes_now=numbers(),
            dimm=numbers(),
            here=flags(),
            movable=flags(),
            busy=np.zeros(self.dimms),
            order=numbers(),
            victims=numbers(),
            spare=numbers(3 * experts),
            tasks=numbers(3 * experts, 4),
            benefit_ns=np.zeros(3 * experts),
            by_benefit=numbers(3 * experts),
            used=flags(),
            soon=numbers(experts, 2),
        )

    def expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        """Costs of each expert in a step with these numbers of tokens, which may be means."""
        if loads.dtype.kind != "i":
            return self._expert_costs(loads)
        known, tokens = self._by_tokens, np.minimum(loads, self.estimates.most_tokens)
        return ExpertCosts(
            known.striped[tokens],
            known.localized[tokens],
            known.resident[tokens],
            known.ndp[tokens],
            known.cold[tokens],
        )

    def _expert_costs(self, loads: NDArray[np.floating | np.integer]) -> ExpertCosts:
        gpu, cpu, ndp = self._times(loads)
        share = np.minimum(loads, 1.0)
        fetched = np.minimum(np.maximum(gpu, self.estimates.pcie_ns), cpu)
        striped = np.maximum(fetched, self.estimates.striped_read_ns)  # the smaller of eq. 2 and 3
        if not self.dimms:
            never = np.full(len(gpu), np.inf)
            return ExpertCosts(striped * share, never, gpu * share, np.zeros(len(gpu)), never < striped)
        read = np.maximum(fetched, self.estimates.localized_read_ns)
        near = ndp <= read
        localized = np.where(near, ndp / self.dimms, read)
        return ExpertCosts(
            striped * share,
            localized * share,
            gpu * share,
            np.where(near, ndp * share, 0.0),
            localized < striped,
        )
