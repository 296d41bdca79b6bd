"""A time that no assignment of a layer's experts can beat.

Relaxed: every expert may be split over engines in any shares, every engine is never idle, nothing waits for
weights, activations or results, and NDP units and host do not slow each other down. What is left is a linear
programme, for x[i, m] of expert i computed in the way m:

    T >= use of GPU compute, PCIe, the CPU, the NDP units together, and the host's channels together,
    sum over m of x[i, m] = 1, and experts in the GPU's memory <= those that its memory has room for.

Any multipliers z >= 0 of these resources, with those of times adding up to 1, give a lower bound by weak
duality: the sum over experts of the cheapest way at prices z, plus what is fixed. Good prices are found by a
primal-dual interior point method that starts with feasible shares and prices and ends when the bound is
within 1% of what the shares reach. Wherever it ends, the bound holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Columns of what a way uses, and of the prices.
_GPU, _PCIE, _CPU, _NDP, _HOST, _ROOM = range(6)

_MOST_ROUNDS = 40
_GAP = 0.01  # between the bound and what the shares of the search reach, as a share of the bound
_CENTRING = 0.1  # products of shares and slacks fall to this part in a full step
_TO_EDGE = 0.95  # of the way to where a share or a price becomes 0


@dataclass(frozen=True, eq=False)
class BoundTimes:
    """Times that no performance of a whole expert beats, in ns; a share s of it takes at least s of them.

    Attributes:
        gpu_ns: on the GPU, with its weights there: an entry for each number of tokens.
        cpu_ns: on the CPU; None: the machine has none that computes experts.
        ndp_ns: on one NDP unit: the longer of its bytes at the peak of the DIMM's lanes and its products at
            the peak of the unit; None: there is none.
        pcie_ns: its weights over PCIe; infinite: there is none.
        read_ns: its weights from all channels of the host at their peak.
        shared_ns: the shared experts on the GPU.
        ndp_units: the number of NDP units.
    """

    gpu_ns: Floats
    cpu_ns: Floats | None
    ndp_ns: Floats | None
    pcie_ns: float
    read_ns: float
    shared_ns: float
    ndp_units: int


def bound_ns(loads: NDArray[Any], times: BoundTimes, room: int) -> float:
    """No assignment of these loads to these engines is faster, in ns.

    Args:
        loads: tokens by expert.
        room: experts that may be in the GPU's memory when the layer begins.
    """
    tokens, counts = np.unique(loads[loads > 0], return_counts=True)
    if not len(tokens):
        return times.shared_ns
    uses = _uses(tokens, times, room)
    fixed = np.zeros(6)
    fixed[_GPU], fixed[_ROOM] = times.shared_ns, -float(room)
    if uses.shape[1] < 2:
        return float((fixed + counts @ uses.sum(axis=1))[:_ROOM].max())
    used = np.asarray((uses > 0).any(axis=(0, 1)))
    if not used[:_ROOM].any():
        return times.shared_ns
    used[_GPU] = True
    return _Search(uses[:, :, used], counts.astype(float), fixed[used], bool(used[_ROOM])).bound()


def _uses(tokens: NDArray[np.int64], times: BoundTimes, room: int) -> Floats:
    """Use of resources by each way of computing an expert: [number of tokens, way, resource]."""
    ways = np.zeros((4, len(tokens), 6))
    present, missing, cpu, ndp = ways
    present[:, _GPU] = missing[:, _GPU] = times.gpu_ns[tokens]
    present[:, _ROOM] = 1
    missing[:, _PCIE], missing[:, _HOST] = times.pcie_ns, times.read_ns
    possible = [missing] if times.pcie_ns < np.inf else []
    if room > 0:
        possible.insert(0, present)
    if times.cpu_ns is not None:
        cpu[:, _CPU], cpu[:, _HOST] = times.cpu_ns[tokens], times.read_ns
        possible.append(cpu)
    if times.ndp_ns is not None and times.ndp_units:
        ndp[:, _NDP] = times.ndp_ns[tokens] / times.ndp_units
        possible.append(ndp)
    return np.stack(possible, axis=1) if possible else np.zeros((len(tokens), 0, 6))


class _Search:
    """Shares x and prices z that close in on each other.

    With costs uses @ z, `slack` s is how far each way is above the value v of its expert, `left` y what a
    resource has left of `time` T: x s and y z become 0.
    """

    def __init__(self, uses: Floats, counts: Floats, fixed: Floats, with_room: bool) -> None:
        largest = uses.max(axis=(0, 1)) * counts.sum()
        timed = np.ones(len(fixed))
        if with_room:
            timed[-1] = 0
        # Prices of one magnitude: times in parts of the largest, room in parts of all experts.
        self.unit = float((largest * timed).max())
        scale = np.where(timed > 0, self.unit, largest)
        self.groups, self.ways = uses.shape[:2]
        self.uses = np.ascontiguousarray((uses / scale).reshape(-1, len(fixed)))
        self.counts, self.fixed, self.timed = counts, fixed / scale, timed
        self.prices = np.full(len(fixed), 1 / timed.sum())
        costs = self._costs()
        value = costs.min(axis=1) - costs.mean(axis=1)
        self.slack = (costs - value[:, None]).ravel()
        begun = np.full(self.ways, 1 / self.ways)
        if with_room:  # the first way is that of experts in the GPU's memory
            begun[0] = min(begun[0], -0.5 * fixed[-1] / counts.sum())
            begun[1:] = (1 - begun[0]) / (self.ways - 1)
        self.shares = np.outer(counts, begun).ravel()
        load = self.fixed + self.shares @ self.uses
        self.time = 1.5 * float(load[timed > 0].max())
        self.left = self.time * timed - load

    def _costs(self) -> Floats:
        return np.asarray((self.uses @ self.prices).reshape(self.groups, self.ways))

    def bound(self) -> float:
        """The bound in ns."""
        best = 0.0
        for _ in range(_MOST_ROUNDS):
            best = max(best, float(self.fixed @ self.prices + self.counts @ self._costs().min(axis=1)))
            if self.time - best <= _GAP * best:
                break
            self._step()
        return best * self.unit

    def _step(self) -> None:
        """A step of Newton's method towards products that are smaller and alike."""
        uses, slack, shares, prices, left = self.uses, self.slack, self.shares, self.prices, self.left
        products = shares @ slack + left @ prices
        target = _CENTRING * products / (len(slack) + len(left))
        of_ways = shares / slack
        of_groups = of_ways.reshape(self.groups, -1).sum(axis=1)
        wanted = target / slack - shares
        weighted = of_ways[:, None] * uses
        means = weighted.reshape(self.groups, self.ways, -1).sum(axis=1)
        of_mean = wanted.reshape(self.groups, -1).sum(axis=1)
        size = len(prices)
        system = np.zeros((size + 1, size + 1))
        system[:size, :size] = weighted.T @ uses - means.T @ (means / of_groups[:, None])
        system[np.arange(size), np.arange(size)] += left / prices
        system[:size, size] = system[size, :size] = self.timed
        right = np.zeros(size + 1)
        right[:size] = wanted @ uses - (of_mean / of_groups) @ means + target / prices - left
        solved = np.linalg.solve(system, right)
        price_step, time_step = solved[:size], float(solved[size])
        value_step = (means @ price_step - of_mean) / of_groups
        slack_step = uses @ price_step - np.repeat(value_step, self.ways)
        share_step = wanted - of_ways * slack_step
        left_step = target / prices - left - left / prices * price_step
        along = min(_length(slack, slack_step), _length(prices, price_step))
        self.slack, self.prices = slack + along * slack_step, prices + along * price_step
        along = min(_length(shares, share_step), _length(left, left_step))
        self.shares, self.left = shares + along * share_step, left + along * left_step
        self.time += along * time_step


def _length(values: NDArray[Any], step: NDArray[Any]) -> float:
    """The share of a step after which all values are still above 0, at most 1."""
    return min(1.0, _TO_EDGE / max(float((-step / values).max()), 1e-300))
