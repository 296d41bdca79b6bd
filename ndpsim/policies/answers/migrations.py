"""Legal migrations, one after the other; and checked placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import as_array
from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.policies.answers.asking import Call, moment_of, sequence, time_from, whole
from ndpsim.policies.interface import COPIES, Migration
from ndpsim.policies.views import STRIPED, BackgroundView, Machine, Placement

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
    call = Call(policy, f"{'after' if view.moment == 'end' else 'beside'} {moment_of(view)}")
    state = _MovesSoFar(view, machine, call)
    return [state.checked(move) for move in sequence(migrations, "background's answer", call)]


def legal_migrations(
    policy: str, view: BackgroundView, migrations: Sequence[Migration], machine: Machine
) -> list[Migration]:
    """The migrations that are legal one after the other; others are left out."""
    state = _MovesSoFar(view, machine, Call(policy, "background"))
    kept = []
    for move in migrations:
        try:
            kept.append(state.checked(move))
        except InputError:
            continue
    return kept


class _MovesSoFar:
    """Changes by the migrations so far."""

    def __init__(self, view: BackgroundView, machine: Machine, call: Call) -> None:
        self.view, self.machine, self.call, self.room = view, machine, call, view.gpu_free
        self.moved, self.evicted = set[tuple[int, int]](), set[tuple[int, int]]()

    def checked(self, move: Migration) -> Migration:
        call, machine, view = self.call, self.machine, self.view
        if not isinstance(move, Migration):
            raise call.error(f"background gives {shown(move)}, not a Migration")
        if move.kind not in MIGRATION_KINDS:
            raise call.error(one_of(move.kind, MIGRATION_KINDS, "kind of migration"))
        layer, expert = whole(move.layer, "a layer", call), whole(move.expert, "an expert", call)
        if layer not in machine.layers:
            raise call.error(f"layer {layer} of a migration is none of the run's layers with experts")
        if not 0 <= expert < machine.model.routed_experts:
            raise call.error(f"expert {expert} is not from 0 to {machine.model.routed_experts - 1}")
        to = whole(move.to, "a DIMM", call)
        what = f"{move.kind} of expert {expert} of layer {layer}"
        cell = machine.layers.index(layer), expert
        if view.moving[cell] or cell in self.moved:
            raise call.error(f"{what}: it is moving already")
        if layer == view.layer and view.in_use[expert : expert + 1].any() and move.kind in (*COPIES, "evict"):
            raise call.error(f"{what}: the GPU computes it in this layer")
        resident = bool(view.placement.resident[cell]) and cell not in self.evicted
        if move.kind == "keep" and (layer != view.layer or not view.copied[expert : expert + 1].any()):
            raise call.error(f"{what}: the layer that is done has not copied it to the GPU in full")
        if move.kind in (*COPIES, "keep"):
            self._to_gpu(what, resident)
        elif move.kind == "evict":
            if not resident:
                raise call.error(f"{what}: it is not in the GPU's memory")
            self.room += 1
            self.evicted.add(cell)
        else:
            self._between_dimms(move.kind, what, cell, to)
        if move.kind != "evict":
            self.moved.add(cell)
        took = time_from(move.estimated_ns, f"{what}: estimated_ns", call)
        return Migration(move.kind, layer, expert, to, took, self._bits(move, what))

    def _bits(self, move: Migration, what: str) -> int | None:
        """Bits of the replica that is copied; None: the full weights."""
        if move.bits is None or move.bits == self.machine.bits:
            return None
        bits = whole(move.bits, f"{what}: its bits", self.call)
        if move.kind not in COPIES or bits not in self.view.placement.replicas:
            raise self.call.error(f"{what}: there is no replica of {bits} bits that it copies")
        return bits

    def _to_gpu(self, what: str, resident: bool) -> None:
        if resident:
            raise self.call.error(f"{what}: it is in the GPU's memory already")
        if self.room < 1:
            raise self.call.error(
                f"{what}: the GPU's memory has no room for its {self.machine.expert_bytes} bytes"
            )
        self.room -= 1

    def _between_dimms(self, kind: str, what: str, cell: tuple[int, int], to: int) -> None:
        call, dimms, placement = self.call, self.machine.dimms, self.view.placement
        if not dimms:
            raise call.error(f"{what}: the machine has no NDP units")
        if not self.machine.has_links:
            raise call.error(f"{what}: the machine has no links between DIMMs")
        if not STRIPED <= to < dimms:
            raise call.error(f"{what}: there is no DIMM {to} among {dimms}")
        location, shards = int(placement.dimm[cell]), placement.shards[cell]
        if shards > 1:
            raise call.error(f"{what}: it is over {shards} DIMMs; a sharded expert does not move")
        if location == to:
            raise call.error(f"{what}: it is {'striped' if to == STRIPED else f'on DIMM {to}'} already")
        between = location != STRIPED and to != STRIPED
        if kind == "relayout" and between:
            raise call.error(f"{what}: from DIMM {location} to DIMM {to} is a rebalance")
        if kind == "rebalance" and not between:
            raise call.error(f"{what}: to or from striped is a relayout")


# ---- Legal placements


def checked_placement(policy: str, placement: Placement, machine: Machine) -> Placement:
    """A copy of a placement that cannot be written, if it is legal.

    Whether the experts on a DIMM fit its bytes is not checked here.

    Raises:
        InputError: anything wrong in the placement, in one line that says where.
    """
    call = Call(policy, "place")
    if not isinstance(placement, Placement):
        raise call.error(f"gives {shown(placement)}, not a Placement")
    shape = machine.shape
    dimm = _copied(placement.dimm, np.int16, shape, "dimm", call)
    shards = _copied(placement.shards, np.int16, shape, "shards", call)
    resident = _copied(placement.resident, np.bool_, shape, "resident", call)

    def refuse(wrong: NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            row, expert = np.argwhere(wrong)[0].tolist()
            location, over = dimm[row, expert], shards[row, expert]
            text = problem.format(dimm=location, shards=over, dimms=machine.dimms)
            raise call.error(f"layer {machine.layers[row]}: expert {expert} {text}")

    if not machine.dimms:
        refuse(dimm != STRIPED, "is on DIMM {dimm}, and no DIMM has an NDP unit; give -1 (striped)")
    refuse((dimm < STRIPED) | (dimm >= machine.dimms) & (dimm != STRIPED), "is on DIMM {dimm} of {dimms}")
    refuse(shards < 1, "is over {shards} DIMMs")
    refuse((dimm == STRIPED) & (shards != 1), "is striped, and has {shards} shards; give 1")
    refuse(
        dimm.astype(int) + shards > max(machine.dimms, 1), "is on {shards} DIMMs from {dimm} of {dimms} on"
    )
    count = int(resident.sum())
    if count > machine.gpu_experts:
        room = f"room for {machine.gpu_experts} of {machine.expert_bytes} bytes"
        raise call.error(f"{count} experts are to be in the GPU's memory, which has {room}")
    replicas = tuple(whole(bits, "the bits of a replica", call) for bits in placement.replicas)
    for bits in replicas:
        if not 1 <= bits <= 16 or bits == machine.bits or replicas.count(bits) > 1:
            raise call.error(
                f"replicas of {bits} bits; give different ones from 1 to 16, and not {machine.bits}, "
                "which the experts have"
            )
    return Placement(dimm, shards, resident, replicas)


def checked_worth(policy: str, worth: object, machine: Machine) -> NDArray[Any]:
    """The worth of residents, [layer, expert], if it can be ordered.

    Raises:
        InputError: it has another shape, or has values that are no numbers.
    """
    call = Call(policy, "resident_worth")
    array = as_array(worth)
    if array.shape != machine.shape or array.dtype.kind not in "iuf" or np.isnan(array).any():
        raise call.error(f"gives {shown(worth)}, not a number for each expert of {machine.shape}")
    return array


def _copied(
    array: object, kind: type[np.generic], shape: tuple[int, int], name: str, call: Call
) -> NDArray[Any]:
    integers = "iu" if kind is not np.bool_ else "b"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in integers:
        words = "flags" if kind is np.bool_ else "whole numbers"
        raise call.error(f"{name} is {shown(array)}, not an array of {words}")
    if array.shape != shape:
        raise call.error(f"{name} has the shape {array.shape}, not {shape} (layers, experts)")
    if kind is not np.bool_:
        array = array.clip(-2, np.iinfo(np.int16).max)  # so that no number becomes another one
    copy = array.astype(kind)
    copy.setflags(write=False)
    return copy
