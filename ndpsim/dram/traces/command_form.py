"""The description of forms of command traces.

A form is one file in `ndpsim/dram/traces/command_formats/` that ends in ``FORM = CommandForm(...)``; nothing
else refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dram.spec import Device, Standard
from ndpsim.dram.traces.command_trace import HEADER, CommandTrace


@dataclass(frozen=True)
class Facts:
    """Facts that a command trace does not contain: the number of its channel, and the channel's device."""

    channel: int = 0
    device: Device | None = None


def any_trace(trace: CommandTrace, facts: Facts) -> None:
    """The check of a form that can express every trace."""


@dataclass(frozen=True)
class CommandForm:
    """A form with a command on each line.

    Attributes:
        name: the name by which users choose it.
        example: a line of it.
        lines: makes the lines of commands, with line ends.
        header: makes the first line, if any.
        check: raises an InputError if the form cannot express a trace.
    """

    name: str
    example: str
    lines: Callable[[CommandTrace, Facts], Iterator[str]]
    header: Callable[[Facts], str] | None = None
    check: Callable[[CommandTrace, Facts], None] = any_trace


def level_columns(standard: Standard) -> tuple[str, ...]:
    """The columns of our own form: `HEADER`, or with stacks the standard's names of levels."""
    if len(standard.levels) == len(HEADER) - 3:
        return HEADER
    return (*HEADER[:2], *standard.levels[1:], *HEADER[5:])


def columns_of(device: Device | None) -> tuple[str, ...]:
    """The columns of our own form for a channel; None: without stacks."""
    return HEADER if device is None else level_columns(device.standard)


def split_stacks(columns: NDArray[np.int64], device: Device) -> NDArray[np.int64]:
    """Columns in the form of `columns_of`, (8, commands), from those of a `CommandTrace`."""
    per_stack = device.bankgroups // device.stacks
    group = columns[3]
    parts = np.where(group < 0, -1, group // per_stack), np.where(group < 0, -1, group % per_stack)
    return np.concatenate((columns[:3], np.stack(parts), columns[4:]))


def join_stacks(columns: NDArray[np.int64], device: Device) -> NDArray[np.int64]:
    """The inverse of `split_stacks`; a bank outside all stacks or groups is numbered after the last."""
    per_stack, stack, group = device.bankgroups // device.stacks, columns[3], columns[4]
    exists = (stack >= 0) & (group >= 0) & (group < per_stack)
    none = np.where((stack == -1) & (group == -1), -1, device.bankgroups)
    joined = np.where(exists, stack * per_stack + group, none)
    return np.concatenate((columns[:3], joined[None], columns[5:]))


def named(trace: CommandTrace, called: Mapping[str, str] | None = None) -> Iterator[tuple[Any, ...]]:
    """The commands as tuples in the order of `HEADER`; `called`: the form's names by ours."""
    names = trace.names if called is None else [called.get(name, "") for name in trace.names]
    return with_names(trace.columns(), names)


def with_names(columns: NDArray[np.int64], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Commands as tuples, the second column by name."""
    lists = columns.tolist()
    lists[1] = [names[number] for number in lists[1]]
    return zip(*lists, strict=True)


def check_clocks(facts: Facts, form: str) -> None:
    """Check that commands are at whole clocks, for a form that counts these.

    Raises:
        InputError: the standard's commands may be at parts of a clock.
    """
    device = facts.device
    if device is not None and device.standard.ticks_per_clock > 1:
        problem = f"the form {form} counts whole clocks; commands of {device.standard.name} come between them"
        raise InputError(problem, "unsupported", key="form")


def check_names(trace: CommandTrace, called: Mapping[str, str], form: str) -> None:
    """Check that a form has a name for every command.

    Raises:
        InputError: a name is missing.
    """
    for number in np.unique(trace.command).tolist():
        if trace.names[number] not in called:
            raise InputError(f"the form {form} has no {trace.names[number]}", "unsupported", key="form")


def fitting_device(trace: CommandTrace, facts: Facts, form: str) -> Device:
    """The device, which is needed to number banks over all bank groups.

    Raises:
        InputError: it is not given, or lacks a bank of the trace.
    """
    device = facts.device
    if device is None:
        problem = f"the form {form} numbers banks through the bank groups; give the device that has them"
        raise InputError(problem, "missing", key="device")
    for name, size in (("bankgroup", device.bankgroups), ("bank", device.banks_per_group)):
        highest = int(getattr(trace, name).max(initial=-1))
        if highest >= size:
            problem = f"the trace has {name} {highest}, {device.org} has {size}"
            raise InputError(problem, "conflict", key="device")
    return device
