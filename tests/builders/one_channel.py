"""One channel that serves requests, and the commands that it issues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram import sink, state
from ndpsim.dram.spec import Device, lower
from ndpsim.dram.traces import CommandTrace
from ndpsim.simulate.lane import command_room, decode_commands, run_channel
from ndpsim.simulate.memory import policy_of


def run_on(
    make: Callable[..., Any],
    device: Device,
    options: ControllerOptions,
    requests: Sequence[np.ndarray],
    data_sink: sink.Sink | None = None,
) -> tuple[Any, CommandTrace]:
    """The controller after all requests, each (rank, bank group, bank, row, column, write, address, cycle)."""
    tables, policy = lower(device), policy_of(options, device)
    channel, source = make(tables, policy), state.make_source(requests[:7], *requests[7:])
    commands = run_channel(channel, source, data_sink or sink.null_sink(), command_room(), len(requests[0]))
    return channel, decode_commands(commands, tables, device.standard)
