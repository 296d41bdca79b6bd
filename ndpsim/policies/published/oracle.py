"""The oracle: each layer's assignment by integer programming, migrations with the next loads known.

Not a system that can be built: it is shown the loads of a layer before its tokens are routed. It
minimises the makespan of TriMoE, equations 1 to 7, on the placement as it stands. It stops at a gap and at a
number of nodes, so that its answers do not depend on how fast a machine is; it is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ndpsim.policies.cpu_gpu import milp_solver
from ndpsim.policies.interface import (
    STRIPED,
    Assignment,
    BackgroundView,
    Estimates,
    LayerPlacement,
    LayerView,
    Machine,
    Migration,
    OfflineView,
    Placement,
    Policy,
    PolicyParameters,
)
from ndpsim.policies.offline import hottest, mean_loads, spread
from ndpsim.policies.prefetched import to_give_up

__all__ = ["POLICY"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_GAIN = 1e-6  # of a copy's time: less is rounding
_ROUNDING = 1e-9  # of a makespan: the solver's


class OracleParameters(PolicyParameters):
    """What can be set of the oracle."""

    gap: float = Field(0.01, ge=0, le=1, description="a solution so close to the best is good enough")
    nodes: int = Field(1000, ge=1, le=1_000_000, description="of the search tree, at most")
    makespan: Literal["overlapped", "serial"] = Field(
        "overlapped",
        description="of the GPU and the host. serial: TriMoE, eq. 5, experts one after the other, each the "
        "longest of its computing, copy and read; overlapped: copies beside computing, on PCIe and the "
        "host's channels, each of which may be the slowest",
    )
    contention: float = Field(
        1.0,
        ge=0,
        le=1,
        description="of the time in which the host reads a DIMM, the part that its NDP unit waits (TriMoE, "
        "eq. 6: all of it)",
    )
    window: float = Field(
        1.0,
        ge=0,
        le=100,
        description="of the time between two layers, the part that migrations fill, on PCIe and on the "
        "links each (TriMoE, section 4.3)",
    )


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways in which groups of like experts of a layer can be computed: arrays [way].

    `uses` [resource, way]: the time of a resource that an expert takes so. `groups`: whose way it is;
    `engines`: 0 GPU, 1 CPU, 2 NDP; `alone`: what an expert takes so with all resources to itself.
    """

    uses: Floats
    groups: Ints
    engines: Ints
    alone: Floats


@dataclass(frozen=True, eq=False)
class _Prices:
    """Of a layer's relaxed programme.

    `worth`: what a part of each resource's time is worth; adds up to 1. `spare`: what a resource has left; 0
    of those that are worth something. `used` [expert, resource]: what an expert takes.
    """

    worth: Floats
    spare: Floats
    used: Floats

    def of(self, expert: int, uses: Floats) -> float:
        """What an expert costs that comes to use so much; what is not there delays the layer by as much."""
        short = np.where(self.spare > 0, uses - self.used[expert] - self.spare, 0.0)
        return float(self.worth @ uses) + max(0.0, float(short.max()))


class Oracle(Policy):
    """Assignments of least makespan; what moves in a window is what the next layer gains most from."""

    name = "oracle"
    title = "Oracle: assignments by integer programming, the next layer's loads known"
    paper = "none; makespan of TriMoE, equations 1 to 7"
    Parameters = OracleParameters
    sees_the_future = True

    parameters: OracleParameters

    def __init__(self, machine: Machine, estimates: Estimates, parameters: OracleParameters) -> None:
        super().__init__(machine, estimates, parameters)
        self.solvers: Any = milp_solver(self.name)
        self.serial = parameters.makespan == "serial"
        self.channels = max(machine.channel, default=0) + 1
        self.budget_ns = parameters.window * estimates.window_ns
        self.transient = min(math.ceil(self.budget_ns / self._copy_ns()), machine.gpu_experts)
        self.prefetched: list[tuple[int, int]] = []

    def _copy_ns(self) -> float:
        return self.estimates.copy_ns

    # Before the first step

    def place(self, view: OfflineView) -> Placement:
        """The hottest experts in the GPU's memory, beside room for prefetches; the coldest localized.

        Cold is what all NDP units, each with an expert, compute faster than another engine, at its mean load.
        """
        placement, estimates = super().place(view), self.estimates
        loads = mean_loads(view)
        placement.resident[:] = hottest(loads, self.machine.gpu_experts - self.transient)
        if self.machine.dimms:
            tokens = np.clip(np.rint(loads).astype(np.int64), 1, estimates.most_tokens)
            elsewhere = np.minimum(
                estimates.on_cpu_ns,
                np.maximum(estimates.gpu_ns, self._copy_ns()),
            )
            cold = (estimates.ndp_ns < self.machine.dimms * elsewhere)[tokens] & ~placement.resident
            for row, of_row in enumerate(cold):
                work = estimates.ndp_ns[tokens[row, of_row]]
                placement.dimm[row, of_row] = spread(work, self.machine.dimms)
        return placement

    # A layer

    def assign(self, view: LayerView) -> Assignment:
        """The assignment of least makespan: the best that was found, or each expert's fastest engine."""
        active = np.flatnonzero(view.loads)
        if not len(active):
            return Assignment(estimated_ns=self.estimates.shared_ns)
        here = view.placement.resident | view.arriving
        groups, members = _grouped(active, view.loads, here, view.placement)
        counts = np.bincount(members)
        ways = self._ways(view.loads, here, view.placement, groups)
        numbers, makespan = self._fastest(ways, counts)
        found = self._solved(ways, counts, makespan)
        if found is not None and self._makespan(ways, found) < makespan:
            numbers, makespan = found, self._makespan(ways, found)
        engines = np.empty(len(active), np.int64)
        for group in range(len(groups)):
            of_group = np.flatnonzero(ways.groups == group)
            engines[members == group] = np.repeat(ways.engines[of_group], numbers[of_group])
        order = np.lexsort((active, -view.loads[active], ~here[active]))
        gpu, cpu, ndp = (active[order][engines[order] == engine].tolist() for engine in range(3))
        return Assignment(gpu, cpu, ndp, estimated_ns=makespan)

    def _ways(self, loads: Ints, here: NDArray[np.bool_], lies: LayerPlacement, experts: Ints) -> _Ways:
        """All ways of `experts`, each for a group: rows are GPU, PCIe, CPU, the channels, then the DIMMs."""
        estimates, ways = self.estimates, []
        for group, expert in enumerate(experts.tolist()):
            tokens, dimm = int(loads[expert]), int(lies.dimm[expert])
            gpu, cpu = float(estimates.gpu_ns[tokens]), float(estimates.cpu_ns[tokens])
            reads, read_ns = self._reads(dimm)
            if here[expert]:
                ways.append((self._row(gpu=gpu), group, 0, gpu))
            else:
                copied = max(gpu, estimates.pcie_ns, read_ns)
                if self.serial:
                    ways.append((reads + self._row(gpu=copied), group, 0, copied))
                else:
                    ways.append((reads + self._row(gpu=gpu, pcie=estimates.pcie_ns), group, 0, copied))
            if self.machine.has_cpu:
                alone = max(cpu, read_ns)
                ways.append((reads + self._row(cpu=alone), group, 1, alone))
            if dimm != STRIPED and lies.shards[expert] == 1:
                alone = float(estimates.ndp_ns[tokens])
                ways.append((self._row(dimm=dimm, ndp=alone), group, 2, alone))
        uses, groups, engines, times = zip(*ways, strict=True)
        return _Ways(np.array(uses).T, np.array(groups), np.array(engines), np.array(times))

    def _row(
        self, gpu: float = 0.0, pcie: float = 0.0, cpu: float = 0.0, dimm: int = 0, ndp: float = 0.0
    ) -> Floats:
        row = np.zeros(3 + self.channels + self.machine.dimms)
        row[:3] = gpu, pcie, cpu
        if ndp:
            row[3 + self.channels + dimm] = ndp
        return row

    def _reads(self, dimm: int) -> tuple[Floats, float]:
        """What a host read of an expert takes of channels and DIMMs, and how long it is alone."""
        row, channel = self._row(), self.machine.channel
        if dimm == STRIPED:
            alone = self.estimates.striped_read_ns
            row[3 : 3 + self.channels] = alone
            sharing = np.bincount(channel)[list(channel)] if channel else 1  # DIMMs of a channel take turns
            row[3 + self.channels :] = self.parameters.contention * alone / sharing
        else:
            alone = self.estimates.localized_read_ns
            row[3 + channel[dimm]] = alone
            row[3 + self.channels + dimm] = self.parameters.contention * alone
        if self.serial:
            row[3 : 3 + self.channels] = 0
        return row, alone

    def _makespan(self, ways: _Ways, numbers: Ints) -> float:
        return float((ways.uses @ numbers + self._fixed(ways)).max())

    def _fixed(self, ways: _Ways) -> Floats:
        fixed = np.zeros(len(ways.uses))
        fixed[0] = self.estimates.shared_ns
        return fixed

    def _fastest(self, ways: _Ways, counts: Ints) -> tuple[Ints, float]:
        """Each expert where it takes least alone."""
        numbers = np.zeros(len(ways.groups), np.int64)
        for group, count in enumerate(counts.tolist()):
            of_group = np.flatnonzero(ways.groups == group)
            numbers[of_group[np.argmin(ways.alone[of_group])]] = count
        return numbers, self._makespan(ways, numbers)

    def _programme(self, ways: _Ways, counts: Ints, scale: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Left and right sides of what resources bear, and of each group's experts; the last column is T."""
        above = np.hstack([ways.uses / scale, -np.ones((len(ways.uses), 1))])
        each = np.zeros((len(counts), len(ways.groups) + 1))
        each[ways.groups, np.arange(len(ways.groups))] = 1
        return above, -self._fixed(ways) / scale, each, counts.astype(float)

    def _solved(self, ways: _Ways, counts: Ints, scale: float) -> Ints | None:
        """How many experts of a group go which way, by integer programming; None: nothing was found."""
        above, limits, each, numbers = self._programme(ways, counts, scale)
        solvers, last = self.solvers, len(ways.groups)
        found = solvers.milp(
            np.eye(1, last + 1, last)[0],
            integrality=np.append(np.ones(last), 0),
            bounds=solvers.Bounds(0, np.append(counts[ways.groups], np.inf)),
            constraints=[
                solvers.LinearConstraint(above, -np.inf, limits),
                solvers.LinearConstraint(each, numbers, numbers),
            ],
            options={"mip_rel_gap": self.parameters.gap, "node_limit": self.parameters.nodes},
        )
        if found.x is None:
            return None
        rounded: Ints = np.rint(found.x[:last]).astype(np.int64)
        whole = np.bincount(ways.groups, rounded, minlength=len(counts))
        return rounded if np.array_equal(whole, counts) else None

    # Between layers

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Gives up what was prefetched and is not for the next layer; then what gains most at its prices.

        The prices of the next layer's relaxed programme say what a part of a resource's time is worth: an
        expert's gain is how much cheaper its cheapest way becomes.
        """
        answer = self._given_up(view)
        row = self.row[view.next_layer]
        if view.next_loads is None or not view.next_loads.any():
            return answer
        lies = view.placement.of_layer(row)
        prices = self._prices(view.next_loads, lies)
        gains = self._gains(view, lies, prices)
        return answer + self._chosen(view, gains, view.gpu_free + len(answer))

    def _given_up(self, view: BackgroundView) -> list[Migration]:
        done = to_give_up(self.prefetched, view, (self.row[view.next_layer],))
        self.prefetched = [place for place in self.prefetched if place not in done]
        return [Migration("evict", self.machine.layers[one], expert) for one, expert in done]

    def _prices(self, loads: Ints, lies: LayerPlacement) -> _Prices:
        """Of the next layer's programme, with experts that may be split."""
        active = np.flatnonzero(loads)
        groups, members = _grouped(active, loads, lies.resident, lies)
        counts = np.bincount(members)
        ways = self._ways(loads, lies.resident, lies, groups)
        scale = self._fastest(ways, counts)[1]
        above, limits, each, numbers = self._programme(ways, counts, scale)
        last = len(ways.groups)
        found = self.solvers.linprog(
            np.eye(1, last + 1, last)[0], above, limits, each, numbers, method="highs"
        )
        spare = np.where(found.slack > _ROUNDING, found.slack * scale, 0.0)
        of_groups = np.zeros((len(counts), len(ways.uses)))
        np.add.at(of_groups, ways.groups, (ways.uses * found.x[:last]).T)
        used = np.zeros((len(loads), len(ways.uses)))
        used[active] = (of_groups / counts[:, None])[members]
        return _Prices(np.asarray(-found.ineqlin.marginals), spare, used)

    def _gains(
        self, view: BackgroundView, lies: LayerPlacement, prices: _Prices
    ) -> list[tuple[float, Migration]]:
        """All moves of experts of the next layer that gain something, the largest gain first."""
        assert view.next_loads is not None
        estimates, layer, loads = self.estimates, view.next_layer, view.next_loads
        moving = view.moving[self.row[layer]]
        still = np.flatnonzero((loads > 0) & ~lies.resident & ~moving & (lies.shards == 1))
        if not len(still):
            return []
        ways = self._ways(loads, lies.resident, lies, still)
        before = np.full(len(still), np.inf)
        np.minimum.at(before, ways.groups, prices.worth @ ways.uses)
        spare = prices.spare[3 + self.channels :]
        idlest = int(np.argmax(spare)) if len(spare) else STRIPED
        reads, read_ns = self._reads(STRIPED)
        found = []
        for expert, cost in zip(still.tolist(), before.tolist(), strict=True):
            tokens, dimm = int(loads[expert]), int(lies.dimm[expert])
            gain = cost - prices.of(expert, self._row(gpu=float(estimates.gpu_ns[tokens])))
            found.append((gain, Migration("prefetch", layer, expert, estimated_ns=self._copy_ns())))
            if not self.machine.has_links:
                continue
            if idlest != STRIPED and dimm != idlest:
                kind, time = (
                    ("relayout", estimates.to_localized_ns)
                    if dimm == STRIPED
                    else ("rebalance", estimates.rebalance_ns)
                )
                gain = cost - prices.of(expert, self._row(dimm=idlest, ndp=float(estimates.ndp_ns[tokens])))
                found.append((gain, Migration(kind, layer, expert, idlest, time)))
            if dimm != STRIPED:
                cpu = max(float(estimates.cpu_ns[tokens]), read_ns)
                gain = cost - prices.of(expert, reads + self._row(cpu=cpu))
                found.append((gain, Migration("relayout", layer, expert, STRIPED, estimates.to_striped_ns)))
        useful = [(float(gain), one) for gain, one in found if gain > _LEAST_GAIN * estimates.pcie_ns]
        return sorted(useful, key=lambda pair: (-round(pair[0], 3), -int(loads[pair[1].expert])))

    def _chosen(
        self, view: BackgroundView, gains: list[tuple[float, Migration]], room: int
    ) -> list[Migration]:
        """Moves in the order of their gains, as far as the windows of PCIe and of the links reach.

        The last of each may end later, should it gain more than that.
        """
        pcie = links = self.budget_ns
        moved, answer = set[int](), list[Migration]()
        for gain, one in gains:
            left = pcie if one.kind == "prefetch" else links
            late = max(0.0, one.estimated_ns - left)
            if one.expert in moved or left <= 0 or gain <= late:
                continue
            if one.kind == "prefetch":
                if room < 1:
                    continue
                room -= 1
                pcie -= one.estimated_ns
                self.prefetched.append((self.row[view.next_layer], one.expert))
            else:
                links -= one.estimated_ns
            moved.add(one.expert)
            answer.append(one)
        return answer


def _grouped(active: Ints, loads: Ints, here: NDArray[np.bool_], lies: LayerPlacement) -> tuple[Ints, Ints]:
    """An expert of each group with the same tokens in the same place, and of each expert its group."""
    keys = np.stack([loads[active], here[active], lies.dimm[active], lies.shards[active]], axis=1)
    _, first, members = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return active[first], members.ravel()


POLICY = Oracle
