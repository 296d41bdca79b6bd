"""A machine with one part changed: more memory channels, another GPU, another link, DIMMs that compute, or
devices that compute attention in their banks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.config.files import part_names
from ndpsim.config.parts import load_part
from ndpsim.inference.prediction.machine import OwnMachine

_MUCH_FASTER = 1.5  # minimum factor of the bandwidth of an upgrade
_UNITS = ("ndp.gemv=trimoe_gemv", "ndp.activation=trimoe_activation")

# An AttAcc of five stacks on NVLink, as in hwconfigs/dgx-attacc.yaml.
_DEVICES = ("banks.device=attacc", "banks.count=5", "banks.link_gbps=300")

#: Words for the upgrade, the new machine, and what changes in the `Workload`.
Upgraded = tuple[str, OwnMachine, Mapping[str, Any]]


def _memory(machine: OwnMachine) -> Upgraded:
    """Twice the channels, with twice the DIMMs of the same kind."""
    dimms = 2 * machine.dimms
    better = replace(machine, dimms=dimms, channel_factor=2 * machine.channel_factor)
    return f"{dimms}x {machine.memory}, on twice the channels", better, {}


def _gpu(machine: OwnMachine) -> Upgraded:
    """The card with the smallest memory among those that are much faster and have no less memory."""
    cards = {name: load_part(name).values for name in part_names("gpus")}
    own = load_part(machine.gpu).values
    better = [
        (card["memory_gb"], card["memory_tbps"], name)
        for name, card in cards.items()
        if card["memory_tbps"] >= _MUCH_FASTER * own["memory_tbps"] and card["memory_gb"] >= own["memory_gb"]
    ]
    if not better:
        problem = f"no GPU of the parts is {_MUCH_FASTER:g} times as fast as {machine.gpu}"
        raise InputError(problem, "unsupported", key="gpu")
    name = min(better)[2]
    return name, replace(machine, gpu=name), {}


def _link(machine: OwnMachine) -> Upgraded:
    """The slowest link that is much faster, with a card that supports it."""
    own = load_part(machine.link).values["gbps"]
    rates = {name: load_part(name).values["gbps"] for name in part_names("links")}
    better = [(gbps, name) for name, gbps in rates.items() if gbps >= _MUCH_FASTER * own]
    if not better:
        problem = f"no link of the parts is {_MUCH_FASTER:g} times as fast as {machine.link}"
        raise InputError(problem, "unsupported", key="link")
    gbps, name = min(better)
    sets = (*machine.sets, f"gpu.pcie_gbps={gbps:g}")
    return f"{name}, and a card that takes it", replace(machine, link=name, sets=sets), {}


def _ndp(machine: OwnMachine) -> Upgraded:
    """The GEMV units of TriMoE on every DIMM's buffer chip, and the policy that uses them beside a GPU."""
    return (
        f"{machine.dimms}x {machine.memory} with a GEMV unit on each (TriMoE's), policy monde",
        replace(machine, sets=(*machine.sets, *_UNITS)),
        {"policy": "monde"},
    )


def _banks(machine: OwnMachine) -> Upgraded:
    """AttAcc: five HBM3 stacks with units at their banks, which have the KV cache and compute attention."""
    return (
        "5x HBM3 with units at their banks (AttAcc) for attention",
        replace(machine, sets=(*machine.sets, *_DEVICES)),
        {"attention": "ndp"},
    )


#: Functions that upgrade a machine, by name; each raises InputError if the upgrade is not possible.
UPGRADES: Mapping[str, Callable[[OwnMachine], Upgraded]] = {
    "memory": _memory,
    "gpu": _gpu,
    "link": _link,
    "ndp": _ndp,
    "banks": _banks,
}
