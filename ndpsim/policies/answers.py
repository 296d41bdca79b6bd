"""Which answers of a policy are legal; what is wrong with others, by policy, step, layer and expert."""

from __future__ import annotations

import math
import numbers
import operator
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import shown
from ndpsim.errors import InputError, one_of
from ndpsim.policies.interface import Assignment, Migration, Part
from ndpsim.policies.views import STRIPED, BackgroundView, LayerView, Machine, Placement

#: Kinds of migrations that a policy can ask for.
MIGRATION_KINDS = ("prefetch", "fetch", "keep", "evict", "relayout", "rebalance")

_TO_GPU = ("prefetch", "fetch")
_ROUNDING = 1e-9  # by which shares of an expert may differ from 1 together
_ENGINES = {"gpu": "the GPU", "cpu": "the CPU", "ndp": "the NDP units"}


class CheckedAssignment(NamedTuple):
    """Experts and the share of each, in the order in which an engine takes them.

    `bits`: of those whose weights are read from a replica. `planning_ns`: None where it is to be measured.
    """

    gpu: list[tuple[int, float]]
    cpu: list[tuple[int, float]]
    ndp: list[tuple[int, float]]
    estimated_ns: float | None
    bits: dict[int, int]
    sequential: bool
    planning_ns: float | None
    awaits: list[int]

    def on_gpu(self, experts: int) -> NDArray[np.bool_]:
        """Flags [expert]: the GPU computes it, or a part of it."""
        flags = np.zeros(experts, np.bool_)
        flags[[expert for expert, _ in self.gpu]] = True
        return flags

    def copied_in_full(self, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Flags [expert]: the GPU computes all of it, with its full weights copied for that.

        there: flags [expert]: in the GPU's memory before, or on its way.
        """
        copied = np.zeros_like(there)
        for expert, share in self.gpu:
            copied[expert] = share == 1.0 and expert not in self.bits and not there[expert]
        return copied


class _At(NamedTuple):
    """Whose answer it is, to which question."""

    policy: str
    when: str

    def error(self, problem: str) -> InputError:
        return InputError(problem, "policy", key=f"policy {self.policy}: {self.when}")


def _moment(view: LayerView | BackgroundView) -> str:
    return (
        f"prefill, layer {view.layer}" if view.phase == "prefill" else f"step {view.step}, layer {view.layer}"
    )


@contextmanager
def answering(policy: str, question: str, view: LayerView | BackgroundView | None = None) -> Iterator[None]:
    """While a policy answers: what it raises becomes a line that says where.

    Args:
        policy: its name.
        question: "place", "assign", "background" and so on.
        view: what it is shown, where that has a step and a layer.

    Raises:
        InputError: the policy raised anything; an InputError of its own stays as it is.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        when = f"{_moment(view)}: " if view is not None else ""
        problem = f"raises {type(error).__name__}: {' '.join(str(error).split())}"
        text = f"{problem} ({Path(frame.filename).name}, line {frame.lineno})"
        raise InputError(text, "policy", key=f"policy {policy}: {when}{question}") from error


def _sequence(value: object, what: str, at: _At) -> Sequence[Any]:
    if isinstance(value, list | tuple | range):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        listed: list[Any] = value.tolist()
        return listed
    raise at.error(f"{what} is {shown(value)}, not a list")


def _whole(value: object, what: str, at: _At) -> int:
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise at.error(f"{what} is {shown(value)}, not a whole number")


def _time(value: object, what: str, at: _At) -> float:
    """A time in ns, or another number that is finite and not below 0."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 <= number < math.inf:
            return number
    raise at.error(f"{what} is {shown(value)}, not a number from 0")


def _share(part: Part, expert: int, columns: int, at: _At) -> float:
    share = part.share
    if not isinstance(share, numbers.Real) or isinstance(share, bool) or not 0 < share <= 1 + _ROUNDING:
        raise at.error(f"the share of expert {expert} is {shown(share)}, not a number above 0 up to 1")
    if share * columns < 1:
        raise at.error(f"a share of {share:g} of expert {expert} is less than one of its {columns} columns")
    return min(float(share), 1.0)


def checked_assignment(
    policy: str, view: LayerView, assignment: Assignment, machine: Machine, replicas: tuple[int, ...] = ()
) -> CheckedAssignment:
    """An assignment as plain lists, if it is legal: every expert with tokens once, on engines that can.

    Shares of an expert add up to 1 except for rounding, and are given as they are.

    Args:
        policy: its name, for messages.
        view: what the policy was shown.
        replicas: bits of the copies that the placement has besides.

    Raises:
        InputError: anything wrong in the assignment, in one line that says where.
    """
    at = _At(policy, _moment(view))
    if not isinstance(assignment, Assignment):
        raise at.error(f"assign gives {shown(assignment)}, not an Assignment")
    loads: list[int] = view.loads.tolist()
    sums = [0.0] * len(loads)
    columns = machine.model.expert_intermediate
    lists: list[list[tuple[int, float]]] = []
    for name, engine in _ENGINES.items():
        listed: list[tuple[int, float]] = []
        for item in _sequence(getattr(assignment, name), name, at):
            expert = item if type(item) is int else _expert_of(item, at)
            if not 0 <= expert < len(loads):
                raise at.error(f"expert {expert} is not from 0 to {len(loads) - 1}")
            if not loads[expert]:
                raise at.error(f"expert {expert} has no tokens, and is assigned to {engine}")
            share = _share(item, expert, columns, at) if isinstance(item, Part) else 1.0
            sums[expert] += share
            listed.append((expert, share))
        if len({expert for expert, _ in listed}) < len(listed):
            raise at.error(f"expert {_repeated(listed)} is assigned to {engine} twice")
        lists.append(listed)
    _check_shares(sums, loads, at)
    gpu, cpu, ndp = lists
    _check_engines(gpu, cpu, ndp, view, machine, at)
    estimated, planning = assignment.estimated_ns, assignment.planning
    for key, value in assignment.details.items():
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise at.error(f"details['{key}'] is {shown(value)}, not a number")
    return CheckedAssignment(
        gpu,
        cpu,
        ndp,
        None if estimated is None else _time(estimated, "estimated_ns", at),
        _checked_bits(assignment, loads, machine, replicas, at),
        bool(assignment.sequential),
        None if planning == "measured" else _time(planning, "planning", at),
        _checked_awaits(assignment, view, at),
    )


def _checked_awaits(assignment: Assignment, view: LayerView, at: _At) -> list[int]:
    """Experts that are on their way to the GPU."""
    awaits = [_whole(one, "an expert", at) for one in _sequence(assignment.awaits, "awaits", at)]
    for expert in awaits:
        if not 0 <= expert < len(view.loads) or not view.arriving[expert]:
            raise at.error(f"expert {expert} is awaited, and is not on its way to the GPU")
    return awaits


def _checked_bits(
    assignment: Assignment, loads: list[int], machine: Machine, replicas: tuple[int, ...], at: _At
) -> dict[int, int]:
    """Bits by expert of those with tokens, the full weights left out."""
    bits: dict[int, int] = {}
    for key, value in assignment.bits.items():
        expert, of_expert = _whole(key, "an expert", at), _whole(value, f"the bits of expert {key}", at)
        if not 0 <= expert < len(loads):
            raise at.error(f"expert {expert} is not from 0 to {len(loads) - 1}")
        if of_expert == machine.bits or not loads[expert]:
            continue
        if of_expert not in replicas:
            listed = ", ".join(map(str, (machine.bits, *replicas)))
            raise at.error(f"expert {expert} is to be read in {of_expert} bits; it lies there in {listed}")
        bits[expert] = of_expert
    return bits


def _expert_of(item: object, at: _At) -> int:
    return _whole(item.expert if isinstance(item, Part) else item, "an expert", at)


def _repeated(listed: Iterable[tuple[int, float]]) -> int:
    experts = [expert for expert, _ in listed]
    return next(expert for place, expert in enumerate(experts) if expert in experts[:place])


def _check_shares(sums: list[float], loads: list[int], at: _At) -> None:
    for expert, (total, tokens) in enumerate(zip(sums, loads, strict=True)):
        if not tokens or abs(total - 1) <= _ROUNDING:
            continue
        if not total:
            raise at.error(f"expert {expert} has {tokens} tokens and no engine")
        raise at.error(f"the shares of expert {expert} add up to {total:g}, not 1")


def _check_engines(
    gpu: list[tuple[int, float]],
    cpu: list[tuple[int, float]],
    ndp: list[tuple[int, float]],
    view: LayerView,
    machine: Machine,
    at: _At,
) -> None:
    if ndp and not machine.dimms:
        raise at.error(f"expert {ndp[0][0]} is assigned to the NDP units, and the machine has none")
    if cpu and not machine.has_cpu:
        raise at.error(f"expert {cpu[0][0]} is assigned to the CPU, and the machine has none for experts")
    location = view.placement.dimm.tolist()
    for expert, _ in ndp:
        if location[expert] == STRIPED:
            raise at.error(f"expert {expert} is assigned to the NDP units and lies striped over all DIMMs")
    if not machine.expert_buffers:
        there = view.placement.resident | view.arriving
        for expert, _ in gpu:
            if not there[expert]:
                raise at.error(
                    f"expert {expert} is assigned to the GPU, is not there, and the GPU has no buffer for it"
                )


def checked_placement(policy: str, placement: Placement, machine: Machine) -> Placement:
    """A copy of a placement that cannot be written, if it is legal.

    Whether what lies on a DIMM fits its bytes is not checked here.

    Raises:
        InputError: anything wrong in the placement, in one line that says where.
    """
    at = _At(policy, "place")
    if not isinstance(placement, Placement):
        raise at.error(f"gives {shown(placement)}, not a Placement")
    shape = machine.shape
    dimm = _copied(placement.dimm, np.int16, shape, "dimm", at)
    shards = _copied(placement.shards, np.int16, shape, "shards", at)
    resident = _copied(placement.resident, np.bool_, shape, "resident", at)

    def refuse(wrong: NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            row, expert = np.argwhere(wrong)[0].tolist()
            location, over = dimm[row, expert], shards[row, expert]
            text = problem.format(dimm=location, shards=over, dimms=machine.dimms)
            raise at.error(f"layer {machine.layers[row]}: expert {expert} {text}")

    if not machine.dimms:
        refuse(dimm != STRIPED, "lies on DIMM {dimm}, and no DIMM has an NDP unit; give -1 (striped)")
    refuse((dimm < STRIPED) | (dimm >= machine.dimms) & (dimm != STRIPED), "lies on DIMM {dimm} of {dimms}")
    refuse(shards < 1, "lies over {shards} DIMMs")
    refuse((dimm == STRIPED) & (shards != 1), "is striped, and has {shards} shards; give 1")
    refuse(
        dimm.astype(int) + shards > max(machine.dimms, 1), "lies on {shards} DIMMs from {dimm} of {dimms} on"
    )
    count = int(resident.sum())
    if count > machine.gpu_experts:
        room = f"room for {machine.gpu_experts} of {machine.expert_bytes} bytes"
        raise at.error(f"{count} experts are to be in the GPU's memory, which has {room}")
    replicas = tuple(_whole(one, "the bits of a replica", at) for one in placement.replicas)
    for one in replicas:
        if not 1 <= one <= 16 or one == machine.bits or replicas.count(one) > 1:
            raise at.error(
                f"replicas of {one} bits; give different ones from 1 to 16, and not {machine.bits}, "
                "which the experts have"
            )
    return Placement(dimm, shards, resident, replicas)


def _copied(
    array: object, kind: type[np.generic], shape: tuple[int, int], name: str, at: _At
) -> NDArray[Any]:
    integers = "iu" if kind is not np.bool_ else "b"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in integers:
        words = "flags" if kind is np.bool_ else "whole numbers"
        raise at.error(f"{name} is {shown(array)}, not an array of {words}")
    if array.shape != shape:
        raise at.error(f"{name} has the shape {array.shape}, not {shape} (layers, experts)")
    if kind is not np.bool_:
        array = array.clip(-2, np.iinfo(np.int16).max)  # so that no number becomes another one
    copy = array.astype(kind)
    copy.setflags(write=False)
    return copy


def checked_migrations(
    policy: str, view: BackgroundView, migrations: Sequence[Migration], machine: Machine
) -> list[Migration]:
    """Migrations with plain numbers, if all are legal one after the other.

    An eviction makes room at once; what is on its way takes room from the moment that it is asked for.

    Raises:
        InputError: anything wrong in a migration, in one line that says where.
    """
    at = _At(policy, f"{'after' if view.moment == 'end' else 'beside'} {_moment(view)}")
    state = _Moving(view, machine, at)
    return [state.checked(one) for one in _sequence(migrations, "background's answer", at)]


def legal_migrations(
    policy: str, view: BackgroundView, migrations: Sequence[Migration], machine: Machine
) -> list[Migration]:
    """Those of some migrations that are legal one after the other; others are left out."""
    state = _Moving(view, machine, _At(policy, "background"))
    kept = []
    for one in migrations:
        try:
            kept.append(state.checked(one))
        except InputError:
            continue
    return kept


class _Moving:
    """What the migrations so far have changed."""

    def __init__(self, view: BackgroundView, machine: Machine, at: _At) -> None:
        self.placement, self.moving = view.placement, view.moving
        self.machine, self.at = machine, at
        self.room, self.layer, self.copied = view.gpu_free, view.layer, view.copied
        self.in_use = view.in_use
        self.asked: set[tuple[int, int]] = set()
        self.evicted: set[tuple[int, int]] = set()

    def checked(self, one: Migration) -> Migration:
        at, machine = self.at, self.machine
        if not isinstance(one, Migration):
            raise at.error(f"background gives {shown(one)}, not a Migration")
        if one.kind not in MIGRATION_KINDS:
            raise at.error(one_of(one.kind, MIGRATION_KINDS, "kind of migration"))
        layer, expert = _whole(one.layer, "a layer", at), _whole(one.expert, "an expert", at)
        if layer not in machine.layers:
            raise at.error(f"layer {layer} of a migration is none of the run's layers with experts")
        if not 0 <= expert < machine.model.routed_experts:
            raise at.error(f"expert {expert} is not from 0 to {machine.model.routed_experts - 1}")
        to = _whole(one.to, "a DIMM", at)
        what = f"{one.kind} of expert {expert} of layer {layer}"
        place = machine.layers.index(layer), expert
        if self.moving[place] or place in self.asked:
            raise at.error(f"{what}: it is moving already")
        if layer == self.layer and self.in_use[expert : expert + 1].any() and one.kind in (*_TO_GPU, "evict"):
            raise at.error(f"{what}: the GPU computes it in this layer")
        resident = bool(self.placement.resident[place]) and place not in self.evicted
        if one.kind == "keep" and (layer != self.layer or not self.copied[expert : expert + 1].any()):
            raise at.error(f"{what}: the layer that is done has not copied it to the GPU in full")
        if one.kind in (*_TO_GPU, "keep"):
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
        took = _time(one.estimated_ns, f"{what}: estimated_ns", at)
        return Migration(one.kind, layer, expert, to, took, self._bits(one, what))

    def _bits(self, one: Migration, what: str) -> int | None:
        """Of the replica that is copied; None: the full weights."""
        if one.bits is None or one.bits == self.machine.bits:
            return None
        bits = _whole(one.bits, f"{what}: its bits", self.at)
        if one.kind not in _TO_GPU or bits not in self.placement.replicas:
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
        at, dimms = self.at, self.machine.dimms
        if not dimms:
            raise at.error(f"{what}: the machine has no NDP units")
        if not self.machine.has_links:
            raise at.error(f"{what}: the machine has no links between DIMMs")
        if not STRIPED <= to < dimms:
            raise at.error(f"{what}: there is no DIMM {to} among {dimms}")
        location = int(self.placement.dimm[place])
        if self.placement.shards[place] > 1:
            raise at.error(
                f"{what}: it lies over {self.placement.shards[place]} DIMMs; a sharded expert does not move"
            )
        if location == to:
            raise at.error(f"{what}: it lies {'striped' if to == STRIPED else f'on DIMM {to}'} already")
        between = location != STRIPED and to != STRIPED
        if kind == "relayout" and between:
            raise at.error(f"{what}: from DIMM {location} to DIMM {to} is a rebalance")
        if kind == "rebalance" and not between:
            raise at.error(f"{what}: to or from striped is a relayout")
