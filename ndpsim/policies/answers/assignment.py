"""Legal assignments: every expert with tokens once, on engines that can."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ndpsim.base.arguments import is_finite
from ndpsim.base.errors import shown
from ndpsim.base.jit import same_types
from ndpsim.policies.answers.asking import Call, moment_of, sequence, time_from, whole
from ndpsim.policies.assignment.parts import ROUNDING, are_legal
from ndpsim.policies.interface import Assignment, Part, Parts
from ndpsim.policies.views import STRIPED, Flags, Ints, LayerView, Machine, Shorts

_ENGINES = {"gpu": "the GPU", "cpu": "the CPU", "ndp": "the NDP units"}
_NONE = Parts(np.empty(0, np.int64), np.empty(0))

_are_legal = same_types(are_legal)  # of arrays that `_usual_parts` has looked at


class CheckedAssignment(NamedTuple):
    """The parts of each engine, and the rest of an `Assignment`.

    `bits`: of experts whose weights are read from a replica. `planning_ns`: None where it is to be measured.
    """

    gpu: Parts
    cpu: Parts
    ndp: Parts
    estimated_ns: float | None
    bits: dict[int, int]
    sequential: bool
    planning_ns: float | None
    awaits: list[int]

    def on_gpu(self, experts: int) -> Flags:
        """Flags [expert]: the GPU computes it, or a part of it."""
        flags = np.zeros(experts, np.bool_)
        flags[self.gpu.experts] = True
        return flags

    def copied_in_full(self, there: Flags) -> Flags:
        """Flags [expert]: the GPU computes all of it, with its full weights copied for that.

        there: flags [expert]: in the GPU's memory before, or on its way.
        """
        copied = np.zeros(len(there), np.bool_)
        copied[self.gpu.experts[self.gpu.shares == 1.0]] = True
        if self.bits:
            copied[[*self.bits]] = False
        return copied & ~there


def _share(part: Part, expert: int, columns: int, call: Call) -> float:
    share = part.share
    # Most shares are floats, for which the first test is faster.
    real = type(share) is float or (isinstance(share, numbers.Real) and not isinstance(share, bool))
    if not real or not 0 < share <= 1 + ROUNDING:
        raise call.error(f"the share of expert {expert} is {shown(share)}, not a number above 0 up to 1")
    if share * columns < 1:
        raise call.error(f"a share of {share:g} of expert {expert} is less than one of its {columns} columns")
    return min(float(share), 1.0)


def checked_assignment(
    policy: str, view: LayerView, assignment: Assignment, machine: Machine, replicas: tuple[int, ...] = ()
) -> CheckedAssignment:
    """An assignment as arrays, if it is legal: every expert with tokens once, on engines that can.

    Shares of an expert add up to 1 except for rounding, and are given as they are.

    Args:
        policy: its name, for messages.
        view: what the policy was shown.
        replicas: bits of the copies that the placement has besides.

    Raises:
        InputError: anything wrong in the assignment, in one line that says where.
    """
    call = Call(policy, moment_of(view))
    if not isinstance(assignment, Assignment):
        raise call.error(f"assign gives {shown(assignment)}, not an Assignment")
    lists = assignment.gpu, assignment.cpu, assignment.ndp
    columns = machine.model.expert_intermediate
    parts = legal_parts(lists, view.loads, view.placement.dimm, columns)
    if parts is None or not _has_engines(parts, machine):
        parts = parts_one_by_one(lists, view.loads.tolist(), columns, call)
        _check_engines(parts, view, machine, call)
    gpu, cpu, ndp = parts
    estimated, planning = assignment.estimated_ns, assignment.planning
    for key, value in assignment.details.items():
        real = type(value) is float or type(value) is int or isinstance(value, numbers.Real)
        if not real or not is_finite(value):
            raise call.error(f"details['{key}'] is {shown(value)}, not a number")
    return CheckedAssignment(
        gpu,
        cpu,
        ndp,
        None if estimated is None else time_from(estimated, "estimated_ns", call),
        _checked_bits(assignment, view.loads, machine, replicas, call),
        bool(assignment.sequential),
        None if planning == "measured" else time_from(planning, "planning", call),
        _checked_awaits(assignment, view, call),
    )


def legal_parts(lists: Sequence[object], loads: Ints, dimm: Shorts, columns: int) -> list[Parts] | None:
    """The parts of each engine, if all are legal and have the usual types; None: look at them one by one."""
    parts = [found for listed in lists if (found := _usual_parts(listed)) is not None]
    usual = loads.dtype == np.int64 and loads.flags.c_contiguous
    usual = usual and dimm.dtype == np.int16 and dimm.flags.c_contiguous
    if len(parts) < len(lists) or not usual:
        return None
    gpu, cpu, ndp = [(part.experts, part.shares) for part in parts]
    work = np.empty(len(loads)), np.empty(len(loads), np.int64)
    return parts if _are_legal(loads, dimm, columns, gpu, cpu, ndp, *work) else None


def _usual_parts(listed: object) -> Parts | None:
    """`Parts`, or the parts of a list of ints and of `Part`s of ints and floats; None: it is neither."""
    if type(listed) is Parts:
        ids, shares = listed.experts, listed.shares
        usual = ids.dtype == np.int64 and shares.dtype == np.float64 and ids.ndim == 1
        return listed if usual and ids.flags.c_contiguous and shares.flags.c_contiguous else None
    if not isinstance(listed, list | tuple):
        return None
    if not listed:
        return _NONE
    experts, shares, types = listed, np.ones(len(listed)), {*map(type, listed)}
    if Part in types:
        pairs = [(item.expert, item.share) if type(item) is Part else (item, 1.0) for item in listed]
        experts, list_of_shares = zip(*pairs, strict=True)
        types, shares = {*map(type, experts)}, np.array(list_of_shares)
        if {*map(type, list_of_shares)} != {float}:
            return None
    if types - {int}:
        return None
    try:
        return Parts(np.array(experts, np.int64), shares)
    except OverflowError:
        return None


def parts_one_by_one(lists: Sequence[object], loads: list[int], columns: int, call: Call) -> list[Parts]:
    """The parts of each engine, with what is wrong in them."""
    experts, sums, parts = len(loads), [0.0] * len(loads), []
    for (name, engine), answer in zip(_ENGINES.items(), lists, strict=True):
        listed: list[int] = []
        shares: list[float] = []
        for item in sequence(answer, name, call):
            expert = whole(item.expert if isinstance(item, Part) else item, "an expert", call)
            if not 0 <= expert < experts:
                raise call.error(f"expert {expert} is not from 0 to {experts - 1}")
            if not loads[expert]:
                raise call.error(f"expert {expert} has no tokens, and is assigned to {engine}")
            share = _share(item, expert, columns, call) if isinstance(item, Part) else 1.0
            sums[expert] += share
            listed.append(expert)
            shares.append(share)
        if len({*listed}) < len(listed):
            raise call.error(f"expert {_repeated(listed)} is assigned to {engine} twice")
        parts.append(Parts(np.array(listed, np.int64), np.array(shares)))
    _check_shares(sums, loads, call)
    return parts


def _checked_awaits(assignment: Assignment, view: LayerView, call: Call) -> list[int]:
    """Experts that are on their way to the GPU."""
    if type(assignment.awaits) is tuple and not assignment.awaits:
        return []
    awaits = [whole(expert, "an expert", call) for expert in sequence(assignment.awaits, "awaits", call)]
    for expert in awaits:
        if not 0 <= expert < len(view.loads) or not view.arriving[expert]:
            raise call.error(f"expert {expert} is awaited, and is not on its way to the GPU")
    return awaits


def _checked_bits(
    assignment: Assignment, loads: Ints, machine: Machine, replicas: tuple[int, ...], call: Call
) -> dict[int, int]:
    """Bits by expert of those with tokens, the full weights left out."""
    bits: dict[int, int] = {}
    for key, value in assignment.bits.items():
        expert, width = whole(key, "an expert", call), whole(value, f"the bits of expert {key}", call)
        if not 0 <= expert < len(loads):
            raise call.error(f"expert {expert} is not from 0 to {len(loads) - 1}")
        if width == machine.bits or not loads[expert]:
            continue
        if width not in replicas:
            listed = ", ".join(map(str, (machine.bits, *replicas)))
            raise call.error(f"expert {expert} is to be read in {width} bits; its copies there have {listed}")
        bits[expert] = width
    return bits


def _repeated(listed: Sequence[int]) -> int:
    return next(expert for index, expert in enumerate(listed) if expert in listed[:index])


def _check_shares(sums: list[float], loads: list[int], call: Call) -> None:
    for expert, (total, tokens) in enumerate(zip(sums, loads, strict=True)):
        if total == 1.0 or not tokens or abs(total - 1) <= ROUNDING:
            continue
        if not total:
            raise call.error(f"expert {expert} has {tokens} tokens and no engine")
        raise call.error(f"the shares of expert {expert} add up to {total:g}, not 1")


def _has_engines(parts: list[Parts], machine: Machine) -> bool:
    """Whether a machine has the CPU and the NDP units that are assigned to, and buffers of the GPU."""
    _, cpu, ndp = parts
    of_ndp, of_cpu = machine.dimms or not len(ndp.experts), machine.has_cpu or not len(cpu.experts)
    return bool(of_ndp and of_cpu and machine.expert_buffers)


def _check_engines(parts: list[Parts], view: LayerView, machine: Machine, call: Call) -> None:
    gpu, cpu, ndp = parts
    if len(ndp.experts):
        if not machine.dimms:
            raise call.error(
                f"expert {ndp.experts[0]} is assigned to the NDP units, and the machine has none"
            )
        striped = view.placement.dimm[ndp.experts] == STRIPED
        if striped.any():
            expert = ndp.experts[striped][0]
            raise call.error(f"expert {expert} is assigned to the NDP units and is striped over all DIMMs")
    if len(cpu.experts) and not machine.has_cpu:
        raise call.error(
            f"expert {cpu.experts[0]} is assigned to the CPU, and the machine has none for experts"
        )
    if not machine.expert_buffers:
        for expert in gpu.experts[~(view.placement.resident | view.arriving)[gpu.experts]][:1]:
            problem = "is assigned to the GPU, is not there, and the GPU has no buffer for it"
            raise call.error(f"expert {expert} {problem}")
