"""Legal assignments: every expert with tokens once, on engines that can."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.arguments import shown
from ndpsim.policies.answers.asking import At, moment_of, sequence, time_from, whole
from ndpsim.policies.interface import Assignment, Part
from ndpsim.policies.views import STRIPED, LayerView, Machine

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
        copied[[expert for expert, share in self.gpu if share == 1.0 and expert not in self.bits]] = True
        return copied & ~there


def _share(part: Part, expert: int, columns: int, at: At) -> float:
    share = part.share
    # Most shares are floats, of which this is known sooner.
    real = type(share) is float or (isinstance(share, numbers.Real) and not isinstance(share, bool))
    if not real or not 0 < share <= 1 + _ROUNDING:
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
    at = At(policy, moment_of(view))
    if not isinstance(assignment, Assignment):
        raise at.error(f"assign gives {shown(assignment)}, not an Assignment")
    loads: list[int] = view.loads.tolist()
    experts, sums = len(loads), [0.0] * len(loads)
    columns = machine.model.expert_intermediate
    lists: list[list[tuple[int, float]]] = []
    for name, engine in _ENGINES.items():
        listed: list[tuple[int, float]] = []
        for item in sequence(getattr(assignment, name), name, at):
            expert = item if type(item) is int else _expert_of(item, at)
            if not 0 <= expert < experts:
                raise at.error(f"expert {expert} is not from 0 to {experts - 1}")
            if not loads[expert]:
                raise at.error(f"expert {expert} has no tokens, and is assigned to {engine}")
            share = _share(item, expert, columns, at) if isinstance(item, Part) else 1.0
            sums[expert] += share
            listed.append((expert, share))
        if len(dict(listed)) < len(listed):
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
        None if estimated is None else time_from(estimated, "estimated_ns", at),
        _checked_bits(assignment, loads, machine, replicas, at),
        bool(assignment.sequential),
        None if planning == "measured" else time_from(planning, "planning", at),
        _checked_awaits(assignment, view, at),
    )


def _checked_awaits(assignment: Assignment, view: LayerView, at: At) -> list[int]:
    """Experts that are on their way to the GPU."""
    awaits = [whole(one, "an expert", at) for one in sequence(assignment.awaits, "awaits", at)]
    for expert in awaits:
        if not 0 <= expert < len(view.loads) or not view.arriving[expert]:
            raise at.error(f"expert {expert} is awaited, and is not on its way to the GPU")
    return awaits


def _checked_bits(
    assignment: Assignment, loads: list[int], machine: Machine, replicas: tuple[int, ...], at: At
) -> dict[int, int]:
    """Bits by expert of those with tokens, the full weights left out."""
    bits: dict[int, int] = {}
    for key, value in assignment.bits.items():
        expert, of_expert = whole(key, "an expert", at), whole(value, f"the bits of expert {key}", at)
        if not 0 <= expert < len(loads):
            raise at.error(f"expert {expert} is not from 0 to {len(loads) - 1}")
        if of_expert == machine.bits or not loads[expert]:
            continue
        if of_expert not in replicas:
            listed = ", ".join(map(str, (machine.bits, *replicas)))
            raise at.error(
                f"expert {expert} is to be read in {of_expert} bits; its copies there have {listed}"
            )
        bits[expert] = of_expert
    return bits


def _expert_of(item: object, at: At) -> int:
    return whole(item.expert if isinstance(item, Part) else item, "an expert", at)


def _repeated(listed: Iterable[tuple[int, float]]) -> int:
    experts = [expert for expert, _ in listed]
    return next(expert for place, expert in enumerate(experts) if expert in experts[:place])


def _check_shares(sums: list[float], loads: list[int], at: At) -> None:
    for expert, (total, tokens) in enumerate(zip(sums, loads, strict=True)):
        if total == 1.0 or not tokens or abs(total - 1) <= _ROUNDING:
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
    at: At,
) -> None:
    if ndp and not machine.dimms:
        raise at.error(f"expert {ndp[0][0]} is assigned to the NDP units, and the machine has none")
    if cpu and not machine.has_cpu:
        raise at.error(f"expert {cpu[0][0]} is assigned to the CPU, and the machine has none for experts")
    location = view.placement.dimm.tolist()
    for expert, _ in ndp:
        if location[expert] == STRIPED:
            raise at.error(f"expert {expert} is assigned to the NDP units and is striped over all DIMMs")
    if not machine.expert_buffers:
        there = view.placement.resident | view.arriving
        for expert, _ in gpu:
            if not there[expert]:
                raise at.error(
                    f"expert {expert} is assigned to the GPU, is not there, and the GPU has no buffer for it"
                )
