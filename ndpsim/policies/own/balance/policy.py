"""Balance: every expert on every engine at full speed, and the fullest resource as empty as possible.

`docs/balance.md` has the method, equation by equation. Experts are sharded over DIMMs that cover all channels
of the host: the host reads such an expert as fast as a striped one, and NDP units compute it at nearly full
efficiency. So each layer may choose among all ways of an expert, and none has to move between DIMMs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ndpsim.policies.assignment.expert_uses import ARRIVING, COMING, MISSING, RESIDENT
from ndpsim.policies.interface import (
    Assignment,
    GivesRoom,
    GpuOrder,
    Migration,
    Parts,
    Policy,
    PolicyParameters,
)
from ndpsim.policies.offline import (
    LoadPredictor,
    descending,
    halves,
    hottest,
    hottest_of_each,
    mean_loads,
    spread,
)
from ndpsim.policies.own.balance.uses import Uses
from ndpsim.policies.views import BackgroundView, Flags, Floats, Ints, LayerView, OfflineView, Placement

_SAMPLED = 128  # layers of the offline trace, by which placements are judged, at most


class BalanceParameters(PolicyParameters):
    """Parameters of balance."""

    gpu_order: GpuOrder = "arrived"
    """of the experts that the GPU computes (docs/balance.md, section 4). listed: residents first; arrived:
    those that were copied first, as soon as they are there. Unless given, it is listed with fused calls, of
    which an expert that was copied then needs one less"""

    shards: int = Field(0, ge=0)
    """DIMMs over which every expert is sharded (section 1); 0: the number with the least estimated time"""

    splits: int = Field(3, ge=0, le=64)
    """experts of a layer that are split, at most (section 3)"""

    parts: int = Field(16, ge=2, le=1024)
    """a share of an expert is a whole number of these parts"""

    losses: bool = True
    """whether a read of the host counts on the NDP units that it slows (equation 3)"""

    prefetch: bool = True
    """whether experts are copied before their layer (section 5)"""

    alpha: float = Field(0.3, gt=0, le=1)
    """weight of the last step in the moving average of loads (equation 8)"""

    charge: Literal["none", "measured"] = "none"
    """whether a layer waits for the decision as long as it takes here"""

    foresight: bool = False
    """whether the next layer's loads are known, which no real system knows"""


class Balance(Policy[BalanceParameters], GivesRoom):
    """Balance: sharded experts, each layer's fullest resource as empty as possible.

    Least maximum over the resources of a layer, with experts sharded over all channels.
    """

    name = "balance"
    mixed_steps = "All rules, by all tokens of the step."

    def setup(self) -> None:
        """The predictor, and what `place` and `background` decide."""
        self.sees_the_future = self.parameters.foresight
        if self.estimates.call_ns and "gpu_order" not in self.parameters.model_fields_set:
            self.parameters = self.parameters.model_copy(update={"gpu_order": "listed"})
        layers, experts = self.machine.shape
        self._uses = functools.cache(
            lambda shards: Uses(
                self.machine, self.estimates, shards, self.parameters.losses, self.parameters.gpu_order
            )
        )
        self.predictor = LoadPredictor(layers, experts, self.parameters.alpha)
        #: DIMMs over which an expert is sharded, and residents by layer.
        self.shards, self.quota = 1, [0] * layers
        #: Prefetches for the layer that comes, in their order; whether each layer copied experts last time.
        self.prefetched: list[int] = []
        self.copies = np.ones(layers, np.bool_)
        #: Whether one DIMM computes all that the GPU does not, so that the times of these experts add up.
        self.one_engine = self.machine.dimms == 1 and not self.machine.has_cpu
        #: Row and expert of a copy that replaces a resident; the estimated time of each layer's last step.
        self.replacing: tuple[int, int] | None = None
        self.layer_ns = np.zeros(layers)

    @property
    def uses(self) -> Uses:
        """Use of resources by experts over `shards` DIMMs."""
        return self._uses(self.shards)

    # Before the first step

    def place(self, view: OfflineView) -> Placement:
        """Residents and the number of shards with the least estimated time; groups by least expected work."""
        loads = mean_loads(view)
        self.predictor.begin(loads)
        self.shards, residents = self._best_kind(*halves(view, _SAMPLED))
        placement = super().place(view)
        placement.resident[:] = residents(loads)
        self.quota = placement.resident.sum(axis=1).tolist()
        if self.machine.dimms:
            placement.dimm[:], placement.shards[:] = self._groups(placement.resident, loads), self.shards
        return placement

    def _best_kind(
        self, loads: Floats, judged: Sequence[tuple[int, Ints]]
    ) -> tuple[int, Callable[[Floats], Flags]]:
        """The number of DIMMs and the kind of residents with the least estimated time of the judged layers.

        Residents are even unless the gain of others is above its standard error; a smaller one is chance.
        """

        def best(residents: Flags) -> tuple[Floats, int]:
            times = ((self._estimated_ns(n, residents, loads, judged), n) for n in self._divisors())
            return min(times, key=lambda found: found[0].sum())

        evenly, hottest = best(self._evenly(loads)), best(self._hottest(loads))
        gains = evenly[0] - hottest[0]
        if len(gains) > 1 and gains.sum() > gains.std(ddof=1) * math.sqrt(len(gains)):
            return hottest[1], self._hottest
        return evenly[1], self._evenly

    def _divisors(self) -> list[int]:
        """Numbers of DIMMs that may share an expert: divisors that cover all channels of the host."""
        dimms = self.machine.dimms
        if self.parameters.shards or not dimms:
            return [max(1, min(self.parameters.shards, dimms))]
        channel = self.machine.channel
        return [
            n
            for n in range(1, dimms + 1)
            if dimms % n == 0
            and all({*channel[first : first + n]} == {*channel} for first in range(0, dimms, n))
        ]

    @cached_property
    def prefetches(self) -> int:
        """Copies that are under way at once in the window between two layers.

        They take the room of residents: none where these save more copying in a step than windows hide.
        """
        window_ns, copy_ns = self.estimates.copy_window_ns, self.estimates.copy_ns
        if not self.parameters.prefetch or len(self.machine.layers) * window_ns <= copy_ns:
            return 0
        return min(math.ceil(window_ns / copy_ns), self.machine.gpu_experts // 2)

    @property
    def hidden(self) -> float:
        """Copies that a window hides."""
        return self.estimates.copy_window_ns / self.estimates.copy_ns

    def _evenly(self, loads: Floats) -> Flags:
        """The hottest experts of each layer, as many of each, beside the room for prefetches."""
        each, more = divmod(self.machine.gpu_experts - self.prefetches, len(loads))
        return hottest_of_each(loads, [each + (row < more) for row in range(len(loads))])

    def _hottest(self, loads: Floats) -> Flags:
        """The hottest experts of all layers, beside the room for prefetches."""
        return hottest(loads, self.machine.gpu_experts - self.prefetches)

    def _estimated_ns(
        self, shards: int, resident: Flags, loads: Floats, judged: Sequence[tuple[int, Ints]]
    ) -> Floats:
        """Estimated time of each layer with experts over this many DIMMs, and with these residents."""
        self.shards = shards
        dimm = self._groups(resident, loads) if self.machine.dimms else np.zeros(loads.shape, np.int16)
        return np.array([self._shared_out(tokens, resident[row], dimm[row])[0] for row, tokens in judged])

    def _groups(self, resident: Flags, loads: Floats) -> NDArray[np.int16]:
        """The first DIMM of each expert: groups have equal expected work of the experts not on the GPU."""
        tokens = np.arange(self.estimates.most_tokens + 1)
        work = np.interp(loads, tokens, self.estimates.sharded_ns(self.shards))
        groups = self.machine.dimms // self.shards
        rows = [spread(np.where(there, 0.0, row), groups) for there, row in zip(resident, work, strict=True)]
        return np.asarray(np.array(rows) * self.shards, np.int16)

    # A layer

    def assign(self, view: LayerView) -> Assignment:
        """The ways of least maximum; all on the GPU where that is faster."""
        arriving = [expert for expert in self.prefetched if view.arriving[expert]]
        resident, dimm = view.placement.resident, view.placement.dimm
        layer = view.loads, resident, dimm, arriving
        shared_out = self._beside_replacement if self.replacing else self._shared_out
        estimated_ns, (gpu, cpu, ndp) = shared_out(*layer)
        row = self.row[view.layer]
        self.layer_ns[row] = estimated_ns
        self.copies[row] = not resident[gpu.experts].all()
        if arriving:
            turn = np.full(len(resident), len(arriving))
            turn[arriving] = range(len(arriving))
            order = turn[gpu.experts].argsort(kind="stable")
            gpu = Parts(gpu.experts[order], gpu.shares[order])
        charge = self.parameters.charge
        return Assignment(
            gpu, cpu, ndp, estimated_ns=estimated_ns, planning=0.0 if charge == "none" else charge
        )

    def _beside_replacement(
        self, loads: Ints, resident: Flags, dimm: NDArray[np.int16], arriving: list[int]
    ) -> tuple[float, list[Parts]]:
        """As `_shared_out` beside a replacement: without copies, unless these save more than it takes."""
        without = self._shared_out(loads, resident, dimm, arriving, COMING)
        more_ns = without[0] - self.uses.copy_ns
        if more_ns > 0:
            with_copies = self._shared_out(loads, resident, dimm, arriving)
            if with_copies[0] < more_ns:
                return with_copies
        return without

    def _shared_out(
        self,
        loads: Ints,
        resident: Flags,
        dimm: NDArray[np.int16],
        arriving: list[int] | None = None,
        lacking: int = MISSING,
    ) -> tuple[float, list[Parts]]:
        """The largest load of a resource, and the parts of GPU, CPU and NDP units, most tokens first."""
        places, parameters = np.where(resident, RESIDENT, lacking), self.parameters
        late = 0.0
        if arriving:
            places[arriving] = ARRIVING
            late = len(self.prefetched) - self.hidden
        return self.uses.share_out(loads, places, dimm, late, parameters.splits, parameters.parts)

    # Between layers

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """The hottest experts of the layer that is done stay; the hottest missing ones of the next come."""
        row, after = self.row[view.layer], self.row[view.next_layer]
        self.predictor.update(row, view.loads)
        if self.replacing and not view.moving[self.replacing]:
            self.replacing = None
        migrations = list(self._stay(view, row))
        if self.one_engine and not migrations and not view.copied.any():
            migrations.extend(self._replaced(view, row))
        room = view.gpu_free
        for migration in migrations:
            room += 1 if migration.kind == "evict" else -1
        self.prefetched = [] if self.replacing else self._wanted(view, after, room)
        for expert in self.prefetched:
            migrations.append(Migration("prefetch", view.next_layer, expert, estimated_ns=self.uses.copy_ns))
        return migrations

    def _stay(self, view: BackgroundView, row: int) -> Iterator[Migration]:
        """Keep as many of the hottest experts, of residents and copied ones, as quota and room allow."""
        resident = view.placement.resident[row] & ~view.moving[row]
        if np.count_nonzero(resident) <= self.quota[row] and not view.copied.any():
            return
        heat = np.where(resident | view.copied, self.predictor.loads[row], -1.0)
        most = min(self.quota[row], int(np.count_nonzero(resident)) + view.gpu_free)
        kept = np.zeros(len(heat), np.bool_)
        kept[descending(heat)[:most]] = True
        for expert in np.flatnonzero(resident & ~kept).tolist():
            yield Migration("evict", view.layer, expert)
        for expert in np.flatnonzero(view.copied & kept & ~resident).tolist():
            yield Migration("keep", view.layer, expert)

    def _replaced(self, view: BackgroundView, row: int) -> Iterator[Migration]:
        """The hottest missing expert of the layer in place of its coldest resident; one at a time."""
        resident, loads = view.placement.resident[row], self.predictor.loads[row]
        if view.moving.any() or view.gpu_free < 0 or not resident.any() or resident.all():
            return
        coming = int(np.where(resident, -np.inf, loads).argmax())
        leaving = int(np.where(resident, loads, np.inf).argmin())
        if self._pays_back(float(loads[coming]), float(loads[leaving])):
            self.replacing = row, coming
            yield Migration("evict", view.layer, leaving)
            yield Migration("fetch", view.layer, coming, estimated_ns=self.uses.copy_ns)

    def _pays_back(self, coming: float, leaving: float) -> bool:
        """Whether an expert saves, for as long as the average remembers, what its copy costs (equation 10).

        coming, leaving: mean tokens of the expert, and of the resident that it replaces.
        """
        alpha, copy_ns = self.parameters.alpha, self.uses.copy_ns
        chance = 2 * math.log(self.predictor.loads.size) * alpha / (2 - alpha) * (coming + leaving)
        if coming <= leaving or (coming - leaving) ** 2 <= chance:
            return False
        lost_ns = self.uses.lost_ns(math.ceil(coming), copy_ns, math.inf)
        step_ns = float(self.layer_ns.sum()) + len(self.layer_ns) * self.estimates.copy_window_ns
        saved_ns = self._expected_ns(coming)
        gain_ns = (saved_ns - self._expected_ns(leaving)) / alpha
        return gain_ns > saved_ns * (1 + copy_ns / step_ns) + lost_ns

    def _expected_ns(self, heat: float) -> float:
        """Time of the units in a step for an expert with this mean load, if tokens choose it."""
        return (1 - math.exp(-heat)) * float(self.estimates.sharded_ns(self.shards)[math.ceil(heat)])

    def resident_worth(self, placement: Placement) -> NDArray[np.float32]:
        """The predicted tokens: the coldest experts of all layers leave first."""
        return self.predictor.loads

    def _wanted(self, view: BackgroundView, row: int, room: int) -> list[int]:
        """Experts of the next layer that are copied meanwhile."""
        most = min(room, self.prefetches)
        if most <= 0:
            return []
        absent = np.flatnonzero(~(view.placement.resident[row] | view.moving[row]))
        if not len(absent):
            return []
        heat = self.predictor.loads[row] if view.next_loads is None else view.next_loads
        coming = descending(heat, absent)[:most]
        hidden, wanted = self.hidden, []
        for expert in coming.tolist():
            if heat[expert] <= 0 or not self._pays(row, heat[expert], hidden):
                break
            wanted.append(expert)
            hidden -= 1
        return wanted

    def _pays(self, row: int, heat: float, hidden: float) -> bool:
        """Whether a copy is hidden, or if only in part, saves more than it costs (equation 9)."""
        if hidden >= 1:
            return True
        unused, tokens = math.exp(-heat), math.ceil(heat)
        if not self.copies[row] or unused >= hidden:
            return False
        if not self.machine.dimms:
            return True
        uses = self.uses
        lost_ns = uses.lost_ns(tokens, uses.copy_ns, float(uses.cpu_ns[tokens]))
        return self._expected_ns(heat) > (1 - hidden) * lost_ns


POLICY = Balance
