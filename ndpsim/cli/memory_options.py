"""The memory that the options describe, for all commands that run a request trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ndpsim.base.options import refuse
from ndpsim.base.options.dram import CHANNEL, CONTROLLER, DRAM, ControllerOptions
from ndpsim.cli.options import hardware_of, naming, timing_overrides

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.simulate import Memory


def check_addressed(by_place: bool, options: Mapping[str, Any]) -> None:
    """Refuse options about addresses for requests with coordinates (`by_place`).

    Raises:
        InputError: one of them was given.
    """
    if by_place:
        refuse(options, "needs addresses; the requests of this trace have coordinates", "wrap", "mapper")


def own_hardware(options: Mapping[str, Any]) -> Hardware | None:
    """The hardware of ``--hw``; None if the other options describe the memory."""
    return hardware_of(options, DRAM) if "hw" in options else None


def memory_of(options: Mapping[str, Any]) -> Memory:
    """The memory that the options describe.

    Raises:
        InputError: the options contradict each other, or name what does not exist.
    """
    from ndpsim.simulate import Memory

    if "hw" in options:
        refuse(options, "cannot be used with --hw, which describes the memory", *CHANNEL, *CONTROLLER)
        return Memory.of_hardware(hardware_of(options, DRAM))
    overrides = timing_overrides(options.get("set", ()))
    controller = ControllerOptions(**CONTROLLER.arguments(options))
    with naming(**{name: f"--set {name}" for name in overrides}):
        return Memory.named(**CHANNEL.arguments(options), overrides=overrides, options=controller)
