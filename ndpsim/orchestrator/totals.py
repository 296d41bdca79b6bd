"""Totals of a run: sums over its layers and migrations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.layer import NdpPart
from ndpsim.orchestrator.location import Location
from ndpsim.orchestrator.record import MigrationRecord
from ndpsim.policies.answers import CheckedAssignment, Parts
from ndpsim.policies.views import STRIPED, LayerView

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENGINES = ("gpu_hit", "gpu_miss", "cpu", "ndp")

_UNKNOWN = ("gpu", "cpu", "pcie")
_NOTE = (
    "standby of all memory over the whole time, and what is added to it by experts on DIMMs, by the host's "
    "reading of experts and of the KV cache, and by relayouts; left out: writing the KV cache, activations"
)


class Totals:
    """Sums over all layers of a run.

    Attributes:
        layer_ns: of each layer's experts, by phase.
        shared_ns, estimated_ns: summed; `estimated_ns` is None when one layer had no estimate.
        pairs: computed, by engine.
        experts: by engine; parts by their share.
        bits: of weights, times the pairs computed with them, by engine.
        waited_ns: time of the critical paths by resource.
        policy_s: that the policy took.
    """

    def __init__(self, bits: float, expert_bytes: int) -> None:
        self._bits, self._expert_bytes = bits, expert_bytes
        self.layer_ns: dict[str, list[float]] = {"prefill": [], "decode": [], "mixed": []}
        self.shared_ns = self.policy_s = 0.0
        self.estimated_ns: float | None = 0.0
        self.pairs: dict[str, float] = dict.fromkeys(ENGINES, 0.0)
        self.experts: dict[str, float] = dict.fromkeys(ENGINES, 0.0)
        self.bits: dict[str, float] = dict.fromkeys(ENGINES, 0.0)
        self.waited_ns: Counter[str] = Counter()
        self._migrations: dict[str, dict[str, float]] = {}
        self._ndp: Counter[NdpPart] = Counter()
        self._reads: defaultdict[int | None, float] = defaultdict(float)
        self._relayouts: Counter[tuple[str, str]] = Counter()

    @property
    def layers(self) -> int:
        """Layers that are done."""
        return sum(map(len, self.layer_ns.values()))

    def add_layer(
        self,
        view: LayerView,
        assigned: CheckedAssignment,
        time_ns: float,
        shared_ns: float,
        waited_ns: Mapping[str, float],
        on_ndp: Sequence[NdpPart],
    ) -> None:
        """Add a layer's experts; `on_ndp`: the parts of `assigned.ndp`, as the jobs were made."""
        self.layer_ns[view.phase].append(time_ns)
        self.shared_ns += shared_ns
        self.waited_ns.update(waited_ns)
        if assigned.estimated_ns is None:
            self.estimated_ns = None
        elif self.estimated_ns is not None:
            self.estimated_ns += assigned.estimated_ns
        placement = view.placement
        bits_of_each = np.full(len(view.loads), self._bits, np.float64)
        bits_of_each[[*assigned.bits]] = [*assigned.bits.values()]
        on_gpu = assigned.gpu.experts
        here = (placement.resident | view.arriving)[on_gpu]
        hits, misses = (Parts(on_gpu[of], assigned.gpu.shares[of]) for of in (here, ~here))
        for engine, parts in zip(ENGINES, (hits, misses, assigned.cpu, assigned.ndp), strict=True):
            self._add(engine, view.loads[parts.experts], parts.shares, bits_of_each[parts.experts])
        for experts, shares in (misses, assigned.cpu):
            dimms = np.where(placement.dimm[experts] == STRIPED, 0, placement.shards[experts])
            read = shares * bits_of_each[experts] / self._bits
            for of_dimms, whole in zip(dimms.tolist(), read.tolist(), strict=True):
                self._reads[of_dimms or None] += whole
        self._ndp.update(on_ndp)

    def add_cache_read(self, experts: float) -> None:
        """Add what the host reads of the KV cache, as this many striped experts."""
        self._reads[None] += experts

    def _add(self, engine: str, tokens: Ints, shares: Floats, bits: Floats) -> None:
        """Add parts of experts on an engine: tokens, share and bits of each."""
        experts, pairs, weighted = self.experts[engine], self.pairs[engine], self.bits[engine]
        computed = tokens * shares
        for share, of_part, of_bits in zip(
            shares.tolist(), computed.tolist(), (computed * bits).tolist(), strict=True
        ):
            experts += share
            pairs += of_part
            weighted += of_bits
        self.experts[engine], self.pairs[engine], self.bits[engine] = experts, pairs, weighted

    def add_migrations(self, done: Sequence[MigrationRecord]) -> None:
        """Add migrations that have ended."""
        for one in done:
            of_kind = self._migrations.setdefault(
                one.kind, {"count": 0, "bytes": 0, "hidden_ns": 0.0, "exposed_ns": 0.0}
            )
            of_kind["count"] += 1
            of_kind["hidden_ns"] += one.hidden_ns
            of_kind["exposed_ns"] += one.exposed_ns
            if one.kind in ("evict", "keep"):
                continue
            of_kind["bytes"] += one.bytes
            if one.target == "gpu":
                self._reads[Location.from_name(one.source).read_shards] += one.bytes / self._expert_bytes
            else:
                self._relayouts[one.source, one.target] += 1

    @property
    def migrations(self) -> Mapping[str, Mapping[str, float]]:
        """By kind: `count`, `bytes`, `hidden_ns`, `exposed_ns`."""
        return self._migrations

    def energy(
        self, costs: Costs, power_w: Mapping[str, float] | None, time_ns: float
    ) -> tuple[dict[str, float | None], str]:
        """Energy in nJ by component, None where it is not known, and what it is of.

        power_w: measured power by processor; None: not known.
        """
        sums = costs.at_rest_nj(time_ns)
        of_each = [
            *(
                (costs.for_bits(bits).expert(tokens, shards, share).added_nj, count)
                for (tokens, shards, share, bits), count in self._ndp.items()
            ),
            *((costs.host_read(key).added_nj, count) for key, count in self._reads.items()),
            *((costs.relayout(*key).added_nj, count) for key, count in self._relayouts.items()),
        ]
        for added, count in of_each:
            for name, nj in (added or {}).items():
                before = sums.get(name, 0.0)
                sums[name] = None if nj is None or before is None else before + nj * count
        measured = {name: watts * time_ns for name, watts in (power_w or {}).items()}
        unknown = [name for name in _UNKNOWN if name not in measured]
        note = f"{costs.standby.note}; {_NOTE}; not known: {', '.join(unknown)}"
        if measured:
            note += f"; {' and '.join(measured)}: measured power over the whole time"
        return {**dict(sorted(sums.items())), **measured, **dict.fromkeys(unknown)}, note
