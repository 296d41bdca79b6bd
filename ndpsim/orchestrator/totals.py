"""Totals of a run: sums over its layers and migrations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.layer import NdpPart
from ndpsim.orchestrator.location import Location
from ndpsim.orchestrator.record import MigrationRecord
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.views import LayerView

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
        placement, bits = view.placement, assigned.bits
        loads, there = view.loads.tolist(), (placement.resident | view.arriving).tolist()
        gpu, cpu, ndp = (parts.listed() for parts in assigned[:3])
        missing = [part for part in gpu if not there[part[0]]]
        self._add("gpu_hit", [part for part in gpu if there[part[0]]], loads, bits)
        for engine, parts in (("gpu_miss", missing), ("cpu", cpu), ("ndp", ndp)):
            self._add(engine, parts, loads, bits)
        for expert, share in (*missing, *cpu):
            location = Location(int(placement.dimm[expert]), int(placement.shards[expert]))
            self._reads[location.read_shards] += share * bits.get(expert, self._bits) / self._bits
        self._ndp.update(on_ndp)

    def add_cache_read(self, experts: float) -> None:
        """Add what the host reads of the KV cache, as this many striped experts."""
        self._reads[None] += experts

    def _add(
        self,
        engine: str,
        parts: Sequence[tuple[int, float]],
        loads: Sequence[int],
        bits_of: Mapping[int, int],
    ) -> None:
        """Add experts on an engine and the share of each."""
        experts, pairs, bits, usual = self.experts[engine], self.pairs[engine], self.bits[engine], self._bits
        for expert, share in parts:
            computed = loads[expert] * share
            experts += share
            pairs += computed
            bits += computed * bits_of.get(expert, usual)
        self.experts[engine], self.pairs[engine], self.bits[engine] = experts, pairs, bits

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
