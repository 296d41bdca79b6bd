"""Legal migrations, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.base.arguments import shown
from ndpsim.base.errors import InputError, one_of
from ndpsim.policies.answers.asking import At, moment_of, sequence, time_from, whole
from ndpsim.policies.interface import COPIES, Migration
from ndpsim.policies.views import STRIPED, BackgroundView, Machine

#: Kinds of migrations that a policy can ask for.
MIGRATION_KINDS = (*COPIES, "keep", "evict", "relayout", "rebalance")


def checked_migrations(
    policy: str, view: BackgroundView, migrations: Sequence[Migration], machine: Machine
) -> list[Migration]:
    """Migrations with plain numbers, if all are legal one after the other.

    An eviction makes room at once; what is on its way takes room from the moment that it is asked for.

    Raises:
        InputError: anything wrong in a migration, in one line that says where.
    """
    if type(migrations) in (tuple, list) and not migrations:
        return []
    at = At(policy, f"{'after' if view.moment == 'end' else 'beside'} {moment_of(view)}")
    state = _Moving(view, machine, at)
    return [state.checked(one) for one in sequence(migrations, "background's answer", at)]


def legal_migrations(
    policy: str, view: BackgroundView, migrations: Sequence[Migration], machine: Machine
) -> list[Migration]:
    """The migrations that are legal one after the other; others are left out."""
    state = _Moving(view, machine, At(policy, "background"))
    kept = []
    for one in migrations:
        try:
            kept.append(state.checked(one))
        except InputError:
            continue
    return kept


class _Moving:
    """Changes by the migrations so far."""

    def __init__(self, view: BackgroundView, machine: Machine, at: At) -> None:
        self.view, self.machine, self.at, self.room = view, machine, at, view.gpu_free
        self.asked, self.evicted = set[tuple[int, int]](), set[tuple[int, int]]()

    def checked(self, one: Migration) -> Migration:
        at, machine, view = self.at, self.machine, self.view
        if not isinstance(one, Migration):
            raise at.error(f"background gives {shown(one)}, not a Migration")
        if one.kind not in MIGRATION_KINDS:
            raise at.error(one_of(one.kind, MIGRATION_KINDS, "kind of migration"))
        layer, expert = whole(one.layer, "a layer", at), whole(one.expert, "an expert", at)
        if layer not in machine.layers:
            raise at.error(f"layer {layer} of a migration is none of the run's layers with experts")
        if not 0 <= expert < machine.model.routed_experts:
            raise at.error(f"expert {expert} is not from 0 to {machine.model.routed_experts - 1}")
        to = whole(one.to, "a DIMM", at)
        what = f"{one.kind} of expert {expert} of layer {layer}"
        place = machine.layers.index(layer), expert
        if view.moving[place] or place in self.asked:
            raise at.error(f"{what}: it is moving already")
        if layer == view.layer and view.in_use[expert : expert + 1].any() and one.kind in (*COPIES, "evict"):
            raise at.error(f"{what}: the GPU computes it in this layer")
        resident = bool(view.placement.resident[place]) and place not in self.evicted
        if one.kind == "keep" and (layer != view.layer or not view.copied[expert : expert + 1].any()):
            raise at.error(f"{what}: the layer that is done has not copied it to the GPU in full")
        if one.kind in (*COPIES, "keep"):
            self._to_gpu(what, resident)
        elif one.kind == "evict":
            if not resident:
                raise at.error(f"{what}: it is not in the GPU's memory")
            self.room += 1
            self.evicted.add(place)
        else:
            self._between_dimms(one.kind, what, place, to)
        if one.kind != "evict":
            self.asked.add(place)
        took = time_from(one.estimated_ns, f"{what}: estimated_ns", at)
        return Migration(one.kind, layer, expert, to, took, self._bits(one, what))

    def _bits(self, one: Migration, what: str) -> int | None:
        """Bits of the replica that is copied; None: the full weights."""
        if one.bits is None or one.bits == self.machine.bits:
            return None
        bits = whole(one.bits, f"{what}: its bits", self.at)
        if one.kind not in COPIES or bits not in self.view.placement.replicas:
            raise self.at.error(f"{what}: there is no replica of {bits} bits that it copies")
        return bits

    def _to_gpu(self, what: str, resident: bool) -> None:
        if resident:
            raise self.at.error(f"{what}: it is in the GPU's memory already")
        if self.room < 1:
            raise self.at.error(
                f"{what}: the GPU's memory has no room for its {self.machine.expert_bytes} bytes"
            )
        self.room -= 1

    def _between_dimms(self, kind: str, what: str, place: tuple[int, int], to: int) -> None:
        at, dimms, placement = self.at, self.machine.dimms, self.view.placement
        if not dimms:
            raise at.error(f"{what}: the machine has no NDP units")
        if not self.machine.has_links:
            raise at.error(f"{what}: the machine has no links between DIMMs")
        if not STRIPED <= to < dimms:
            raise at.error(f"{what}: there is no DIMM {to} among {dimms}")
        location, shards = int(placement.dimm[place]), placement.shards[place]
        if shards > 1:
            raise at.error(f"{what}: it is over {shards} DIMMs; a sharded expert does not move")
        if location == to:
            raise at.error(f"{what}: it is {'striped' if to == STRIPED else f'on DIMM {to}'} already")
        between = location != STRIPED and to != STRIPED
        if kind == "relayout" and between:
            raise at.error(f"{what}: from DIMM {location} to DIMM {to} is a rebalance")
        if kind == "rebalance" and not between:
            raise at.error(f"{what}: to or from striped is a relayout")
