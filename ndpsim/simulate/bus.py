"""A bus whose controller has it to itself, with all its requests from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ndpsim.dram import sink, state
from ndpsim.dram.engines import Controller, compare_channels
from ndpsim.errors import MismatchError
from ndpsim.simulate.lane import command_room, decode_commands, no_commands, run_channel
from ndpsim.spec import Standard, Tables
from ndpsim.traces import CommandTrace

__all__ = ["Bus", "MakeChannel", "command_traces", "ensure_same"]

MakeChannel = Callable[[Tables, state.Policy], Controller]


class Bus:
    """Requests on their way through a controller.

    Args:
        tables: the channel, with the ranks on the bus.
        channel: its controller, at rest.
        source: the requests.
        recording: keep the commands.
    """

    def __init__(
        self, tables: Tables, channel: Controller, source: state.Source, recording: bool = False
    ) -> None:
        self.tables, self.channel, self.source, self.count = tables, channel, source, len(source.place)
        self.commands = command_room() if recording else no_commands()

    def run(self, until_served: int | None = None, until_taken: int = state.FAR) -> None:
        """Run until so many requests are served, all without a number, or so many are taken."""
        served = self.count if until_served is None else until_served
        self.commands = run_channel(
            self.channel, self.source, sink.null_sink(), self.commands, served, until_taken
        )

    @property
    def cycles(self) -> int:
        """To the last beat of data that is read, or the last command."""
        return max(int(self.channel.value[state.DATA_END]), int(self.channel.value[state.CLOCK]) - 1)


def command_traces(buses: Sequence[Bus], standard: Standard) -> tuple[CommandTrace, ...]:
    """The commands of each bus that recorded any; a bus that stands for several is decoded once."""
    recorded = [bus for bus in buses if bus.commands.entry.size]
    decoded = {bus: decode_commands(bus.commands, bus.tables, standard) for bus in dict.fromkeys(recorded)}
    return tuple(decoded[bus] for bus in recorded)


def ensure_same(name: str, one: Controller, plain: Controller, others: Sequence[str] = ()) -> None:
    """Make sure that a controller agrees with its plain run in all that is counted.

    `others`: what else was found to differ.

    Raises:
        MismatchError: it does not.
    """
    different = [*compare_channels(one, plain), *others]
    if different:
        raise MismatchError(f"{name} differs from its plain run in {', '.join(different)}")
