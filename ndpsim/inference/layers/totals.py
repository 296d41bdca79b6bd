"""Totals of a run: sums over its layers and migrations."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ndpsim.base.jit import same_types
from ndpsim.dram.energy import add_up
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.layer import NdpPart
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.record import MigrationRecord
from ndpsim.inference.layers.run_state import DoneLayer, Listener
from ndpsim.inference.layers.setup import Setup
from ndpsim.inference.layers.visits import Window
from ndpsim.policies.assignment.parts import BITS, EXPERTS, PAIRS, LayerWeights, Sums, count_parts

#: In the order of `HITS` and so on.
ENGINES = ("gpu_hit", "gpu_miss", "cpu", "ndp")

_UNKNOWN = ("gpu", "cpu", "pcie")
_NOTE = (
    "standby of all memory over the whole time, and what is added to it by experts on DIMMs, by the host's "
    "reading of experts and of the KV cache, and by relayouts; left out: writing the KV cache, activations"
)


class Totals(Listener):
    """Sums over all layers of a run, to which it listens.

    Attributes:
        prefill_ns: the end of the prefill.
        layer_ns: of each layer's experts, by phase.
        shared_ns, estimated_ns: summed; `estimated_ns` is None when one layer had no estimate.
        waited_ns: time of the critical paths by resource.
    """

    def __init__(self, bits: float, expert_bytes: int, experts: int, dimms: int) -> None:
        self._bits, self._expert_bytes = float(bits), expert_bytes
        self._full_bits = np.full(experts, self._bits)
        self.layer_ns = {phase: array("d") for phase in ("prefill", "decode", "mixed")}
        self.prefill_ns = self.shared_ns = 0.0
        self.estimated_ns: float | None = 0.0
        self.waited_ns: Counter[str] = Counter()
        self._migrations: dict[str, dict[str, float]] = {}
        self._ndp: Counter[int] = Counter()
        self._sums = Sums(np.zeros((len(ENGINES), 3)), np.zeros(dimms + 1), np.full(dimms + 1, -1))
        self._relayouts: Counter[tuple[str, str]] = Counter()
        self._count_parts = same_types(count_parts)

    @classmethod
    def of(cls, setup: Setup) -> Totals:
        """Sums of 0 for a run on a machine."""
        machine = setup.machine
        dimms = setup.hardware.system.dimm.count
        return cls(machine.mean_bits, machine.expert_bytes, machine.model.routed_experts, dimms)

    def window_done(self, window: Window, clock_ns: float) -> None:
        """Note the end of the prefill."""
        if window.phase == "prefill":
            self.prefill_ns = clock_ns

    def layer_done(self, done: DoneLayer) -> None:
        """Add a layer's experts."""
        view, assigned = done.view, done.assigned
        self.layer_ns[view.phase].append(done.end_ns - done.began_ns)
        self.shared_ns += done.visit.shared_ns
        for name, ns in done.path.waited_ns.items():
            self.waited_ns[name] += ns  # type: ignore[assignment]  # counters may count time
        if assigned.estimated_ns is None:
            self.estimated_ns = None
        elif self.estimated_ns is not None:
            self.estimated_ns += assigned.estimated_ns
        placement, bits = view.placement, self._full_bits
        if assigned.bits:
            bits = bits.copy()
            bits[[*assigned.bits]] = [*assigned.bits.values()]
        layer = LayerWeights(
            view.loads,
            placement.resident,
            view.arriving,
            placement.dimm,
            placement.shards,
            bits,
            self._bits,
        )
        gpu, cpu, ndp = [(parts.experts, parts.shares) for parts in assigned[:3]]
        self._count_parts(layer, gpu, cpu, ndp, self._sums)
        self._ndp.update(done.on_ndp.tolist())

    @property
    def experts(self) -> dict[str, float]:
        """Experts by engine; parts by their share."""
        return self._by_engine(EXPERTS)

    @property
    def pairs(self) -> dict[str, float]:
        """Pairs computed, by engine."""
        return self._by_engine(PAIRS)

    @property
    def bits(self) -> dict[str, float]:
        """Bits of weights, times the pairs computed with them, by engine."""
        return self._by_engine(BITS)

    def _by_engine(self, kind: int) -> dict[str, float]:
        return dict(zip(ENGINES, self._sums.by_engine[:, kind].tolist(), strict=True))

    def cache_read(self, size: int) -> None:
        """Add bytes of the KV cache, as if of striped experts."""
        self._add_read(None, size / self._expert_bytes)

    def _add_read(self, shards: int | None, experts: float) -> None:
        """Add experts that the host reads; `shards` as of `Costs.host_read`."""
        dimms = shards or 0
        if self._sums.turns[dimms] < 0:
            self._sums.turns[dimms] = self._sums.turns.max() + 1
        self._sums.reads[dimms] += experts

    def migrated(self, migrations: Sequence[MigrationRecord]) -> None:
        """Add migrations that have ended."""
        for moved in migrations:
            of_kind = self._migrations.setdefault(
                moved.kind, {"count": 0, "bytes": 0, "hidden_ns": 0.0, "exposed_ns": 0.0}
            )
            of_kind["count"] += 1
            of_kind["hidden_ns"] += moved.hidden_ns
            of_kind["exposed_ns"] += moved.exposed_ns
            if moved.kind in ("evict", "keep"):
                continue
            of_kind["bytes"] += moved.bytes
            if moved.target == "gpu":
                self._add_read(Location.from_name(moved.source).read_shards, moved.bytes / self._expert_bytes)
            else:
                self._relayouts[moved.source, moved.target] += 1

    def _counted_reads(self) -> list[tuple[int | None, float]]:
        """Experts that the host has read, by `shards` of `Costs.host_read`, as they were first read."""
        read = np.flatnonzero(self._sums.turns >= 0)
        ordered = read[np.argsort(self._sums.turns[read])].tolist()
        return [(shards or None, float(self._sums.reads[shards])) for shards in ordered]

    @property
    def migrations(self) -> Mapping[str, Mapping[str, float]]:
        """By kind: `count`, `bytes`, `hidden_ns`, `exposed_ns`."""
        return self._migrations

    def energy(
        self,
        costs: Costs,
        power_w: Mapping[str, float] | None,
        time_ns: float,
        ndp_parts: Sequence[NdpPart] = (),
        in_banks: bool = False,
    ) -> tuple[dict[str, float | None], str]:
        """Energy in nJ by component, None where it is not known, and what it is of.

        power_w: measured power by processor; None: not known.
        ndp_parts: parts of experts on NDP units by their numbers.
        in_banks: whether devices with units in their banks, whose energy is not known, take part.
        """
        sums = costs.at_rest_nj(time_ns)
        of_each = [
            *(
                (costs.for_bits(bits).expert(tokens, shards, share).added_nj, self._ndp[number])
                for number, (tokens, shards, share, bits) in enumerate(ndp_parts)
            ),
            *((costs.host_read(shards).added_nj, count) for shards, count in self._counted_reads()),
            *((costs.relayout(*key).added_nj, count) for key, count in self._relayouts.items()),
        ]
        for added, count in of_each:
            for name, nj in (added or {}).items():
                before = sums.get(name, 0.0)
                sums[name] = None if nj is None or before is None else before + nj * count
        measured = {name: watts * time_ns for name, watts in (power_w or {}).items()}
        unknown = [name for name in (*_UNKNOWN, *(("banks",) if in_banks else ())) if name not in measured]
        note = f"{costs.standby.note}; {_NOTE}; not known: {', '.join(unknown)}"
        if measured:
            note += f"; {' and '.join(measured)}: measured power over the whole time"
        return add_up({**dict(sorted(sums.items())), **measured, **dict.fromkeys(unknown)}), note


def machine_results(run: LayerRun, totals: Totals, time_ns: float) -> dict[str, Any]:
    """What `PolicyRun` and `ServingResult` both tell of a machine over the time of a run."""
    setup, waited_ns = run.setup, sum(totals.waited_ns.values())
    power_w = setup.processors.power_w(setup.machine.model)
    in_banks = setup.devices is not None or setup.hardware.experts_in_banks
    energy_nj, energy_note = totals.energy(setup.costs, power_w, time_ns, run.ndp_parts, in_banks)
    return {
        "pairs_by_engine": totals.pairs,
        "utilization": {name: ns / time_ns for name, ns in run.busy_ns.items()},
        "migrations": totals.migrations,
        "bottleneck": {name: ns / waited_ns for name, ns in totals.waited_ns.most_common()},
        "energy_nj": energy_nj,
        "energy_note": energy_note,
        "policy_wall_s": run.state.policy_s,
    }
