"""Legal placements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import shown
from ndpsim.policies.answers.asking import Call, whole
from ndpsim.policies.views import STRIPED, Machine, Placement


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
    array = np.asarray(worth)
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
