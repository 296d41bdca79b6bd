"""The vocabulary in which a form of command traces is written down.

A form is one file in `ndpsim/traces/command_formats/` that ends in ``FORM = CommandForm(...)``; nothing
else has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ndpsim.errors import InputError
from ndpsim.spec import Device
from ndpsim.traces.command_trace import CommandTrace

__all__ = ["CommandForm", "Setting", "any_trace", "check_names", "fitting_device", "named"]


@dataclass(frozen=True)
class Setting:
    """What a command trace does not tell of itself: the number of its channel, and what it is made of."""

    channel: int = 0
    device: Device | None = None


def any_trace(trace: CommandTrace, setting: Setting) -> None:
    """The check of a form in which every trace can be written."""


@dataclass(frozen=True)
class CommandForm:
    """A form with one command a line.

    Attributes:
        name: how users name it.
        example: a line of it.
        lines: the lines of some commands, each with its line end.
        header: the first line, if there is one.
        check: raises an InputError when a whole trace cannot be written in this form.
    """

    name: str
    example: str
    lines: Callable[[CommandTrace, Setting], Iterator[str]]
    header: str | None = None
    check: Callable[[CommandTrace, Setting], None] = any_trace


def named(trace: CommandTrace, called: Mapping[str, str] | None = None) -> Iterator[tuple[Any, ...]]:
    """The commands as tuples in the order of `HEADER`; `called`: what the form calls them, by our names."""
    names = trace.names if called is None else [called.get(name, "") for name in trace.names]
    columns = trace.columns().tolist()
    columns[1] = [names[number] for number in columns[1]]
    return zip(*columns, strict=True)


def check_names(trace: CommandTrace, called: Mapping[str, str], form: str) -> None:
    """Make sure that a form has a name for every command.

    Raises:
        InputError: it has not.
    """
    for number in np.unique(trace.command).tolist():
        if trace.names[number] not in called:
            raise InputError(f"the form {form} has no {trace.names[number]}", key="form")


def fitting_device(trace: CommandTrace, setting: Setting, form: str) -> Device:
    """The device, by which banks are numbered through the bank groups.

    Raises:
        InputError: it is not given, or the trace has a bank that it does not.
    """
    device = setting.device
    if device is None:
        problem = f"the form {form} numbers banks through the bank groups; tell the device that has them"
        raise InputError(problem, key="device")
    for name, size in (("bankgroup", device.bankgroups), ("bank", device.banks_per_group)):
        highest = int(getattr(trace, name).max(initial=-1))
        if highest >= size:
            raise InputError(f"the trace has {name} {highest}, {device.org} has {size}", key="device")
    return device
