"""The options that describe a memory, for every command that runs a request trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import named_as_options, sets_option, timing_overrides
from ndpsim.errors import InputError
from ndpsim.plugins import options_in_words

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.simulate import Memory
    from ndpsim.traces import Requests

F = TypeVar("F", bound=Callable[..., Any])

# Name, default, what it is. The names are those of `Memory.named` and of `ControllerOptions`.
_OPTIONS: tuple[tuple[str, str | int, str], ...] = (
    ("standard", "DDR5", "DRAM standard."),
    ("org", "DDR5_16Gb_x8", "Organisation preset."),
    ("timing", "DDR5_4800AN", "Timing preset."),
    ("ranks", 1, "Ranks on a channel."),
    ("rules", "standard", "Rules: standard, or reference: Ramulator's where these depart from it."),
    ("channels", 1, "Channels, interleaved by burst."),
    ("mapper", "RoBaRaCoCh", "RoBaRaCoCh, ChRaBaRoCo, MOP4CLXOR or RoBaCoRaCoBgCh."),
    ("scheduler", "FRFCFS", f"{options_in_words('dram/schedulers', 'FRFCFS')}."),
    ("row_policy", "open", f"{options_in_words('dram/row_policies', 'open')}."),
    ("row_cap", 4, "Column accesses after which closed-cap closes a row."),
    ("refresh", "all-bank", f"{options_in_words('dram/refresh_policies', 'all-bank')}."),
    ("read_buffer", 32, "Slots of the read queue."),
    ("write_buffer", 32, "Slots of the write queue."),
    ("wck", "need-sync", "Data clock of LPDDR5: need-sync or always-on."),
)
_OF_CHANNEL = ("standard", "org", "timing", "ranks", "rules", "channels", "mapper")


def memory_options(function: F) -> F:
    """``--standard`` to ``--write-buffer``, or ``--hw``; and ``--set``."""
    function = sets_option(function)
    hw_help = "Take the memory from this hardware, instead of the options above."
    function = click.option("--hw", metavar="NAME|FILE", help=hw_help)(function)
    for name, default, words in reversed(_OPTIONS):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, type=type(default), help=f"{words}  [default: {default}]")(function)
    return function


def check_addressed(requests: Requests) -> None:
    """Refuse options about addresses for requests that are located by coordinates.

    Raises:
        InputError: one of them was given.
    """
    if requests.address is None:
        refuse_given("is for addresses; the requests of this trace have coordinates", "wrap", "mapper")


def hardware_of(hw: str | None, sets: Sequence[str]) -> Hardware | None:
    """The hardware that ``--hw`` names; None where the other options describe the memory."""
    if hw is None:
        return None
    from ndpsim.config import load_hardware

    return load_hardware(hw, sets)


def memory_of(hw: str | None, sets: Sequence[str], given: Mapping[str, Any]) -> Memory:
    """The memory that the options describe.

    Args:
        given: values by option name, None where an option was not given.

    Raises:
        InputError: the options contradict each other, or name what does not exist.
    """
    from ndpsim.dram.state import ControllerOptions
    from ndpsim.simulate import Memory

    if hw is not None:
        from ndpsim.config import load_hardware

        for name, value in given.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError("describes a memory, as --hw does; give one of them", key=option)
        with named_as_options("hw"):
            return Memory.of_hardware(load_hardware(hw, sets))
    if given["row_policy"] != "closed-cap":
        refuse_given("is of --row-policy closed-cap, which is not given", "row_cap")
    chosen = {name: default if given[name] is None else given[name] for name, default, _ in _OPTIONS}
    channel = {name: chosen.pop(name) for name in _OF_CHANNEL}
    overrides = timing_overrides(sets)
    of_sets = {name: f"--set {name}" for name in overrides}
    with named_as_options(*(name for name, _, _ in _OPTIONS), **of_sets):
        return Memory.named(
            **channel,  # type: ignore[arg-type]
            overrides=overrides,
            options=ControllerOptions(**chosen),  # type: ignore[arg-type]
        )
