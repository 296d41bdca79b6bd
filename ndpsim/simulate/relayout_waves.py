"""Waves of experts of a relayout, if not all can move at the same time.

Experts that share a link or a lane wait for each other, so each wave should use links and lanes evenly. A
wave takes at least the time of its busiest link or lane; waves are chosen for a small sum of these times. The
order of the given experts makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ndpsim.simulate.relayout_run import Access, Transfer

Floats = NDArray[np.float64]
Waves = list[list[int]]

_BETTER = 1 - 1e-9  # A time below this share of another is shorter by more than rounding.


def _uses_ns(access: Access, transfer: Transfer) -> Floats:
    """The time for which an expert uses each lane, then each wire, as if spread evenly over its DIMMs."""
    network, (source, target) = access.network, transfer
    lane_ns = np.zeros(access.network.dimms * access.lanes)
    burst_ns = access.timebase.to_ns(access.tables.burst * access.timebase.ticks[0])
    node = access.dimm_lanes.node.reshape(-1, source.geometry.lanes)[:, 0]
    lane = access.dimm_lanes.lane.reshape(-1, source.geometry.lanes)
    for layout in transfer:
        of = lane[list(layout.dimms)].ravel()
        np.add.at(lane_ns, of, layout.bursts * burst_ns / len(of))
    wire_ns = np.zeros(len(network.wire_names))
    between = len(source.dimms) * len(target.dimms)
    flow_bytes = sum(source.weights.matrix_bits()) / 8 / between
    for one in source.dimms:
        for other in target.dimms:
            for hop in network.route(int(node[one]), int(node[other])):
                wire_ns[network.hops[hop].wire] += flow_bytes / network.hops[hop].gbps
    return np.concatenate((lane_ns, wire_ns))


def _time_ns(uses_ns: Floats, wave: Sequence[int]) -> tuple[float, float]:
    """The least time of a wave, and for ties, the imbalance in its use of links and DRAM."""
    total = uses_ns[list(wave)].sum(axis=0)
    return float(total.max()), float(total @ total)


def _is_less(pair: tuple[float, float], than: tuple[float, float]) -> bool:
    return pair[0] < than[0] * _BETTER or (pair[0] * _BETTER <= than[0] and pair[1] < than[1] * _BETTER)


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _exchange(uses_ns: Floats, waves: Waves) -> None:
    """Exchange experts, or free places, of two waves as long as this improves their sum.

    The last expert of `uses_ns` represents a free place.
    """
    times = [_time_ns(uses_ns, wave) for wave in waves]
    changed = True
    while changed:
        changed = False
        for first, second in ((a, b) for b in range(len(waves)) for a in range(b)):
            for m in range(len(waves[first])):
                for n in range(len(waves[second])):
                    one, other = waves[first].copy(), waves[second].copy()
                    one[m], other[n] = other[n], one[m]
                    after = _time_ns(uses_ns, one), _time_ns(uses_ns, other)
                    if _is_less(_sum(*after), _sum(times[first], times[second])):
                        waves[first], waves[second] = one, other
                        times[first], times[second] = after
                        changed = True


def choose_waves(access: Access, transfers: Sequence[Transfer], at_once: int) -> Waves:
    """The numbers of the experts in consecutive waves.

    Args:
        access: the way in which experts are moved.
        transfers: sorted transfers, as from `relayout_plan.plan_transfers`.
        at_once: maximum experts of a wave.

    Returns:
        The fewest possible waves. Two initial choices, with neighbours in the same or in different waves, are
        improved by exchanges, and the one with the lower bound of times is taken.
    """
    count = -(-len(transfers) // at_once)
    if count < 2:
        return [list(range(len(transfers)))] if transfers else []
    uses_ns = np.array([_uses_ns(access, transfer) for transfer in transfers])
    uses_ns = np.vstack((uses_ns, np.zeros_like(uses_ns[0])))
    none = len(transfers)
    experts = list(range(none)) + [none] * (count * at_once - none)
    one = [experts[n::count] for n in range(count)]
    other = [experts[n : n + at_once] for n in range(0, len(experts), at_once)]
    for waves in (one, other):
        _exchange(uses_ns, waves)
    times = [reduce(_sum, (_time_ns(uses_ns, wave) for wave in waves)) for waves in (one, other)]
    best = other if _is_less(times[1], times[0]) else one
    return [sorted(expert for expert in wave if expert < none) for wave in best]
