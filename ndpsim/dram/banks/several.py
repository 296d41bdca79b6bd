"""Several programs at once: each has its own front end, and channels of its own.

Channels have nothing in common but the front end, so each program runs alone. After the end of a shorter one
its channels are refreshed, and have their host, until the longest one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.banks.lower import Ints
from ndpsim.dram.banks.programs import Line, Program, as_program
from ndpsim.dram.banks.run import BankRun, Host, run_program
from ndpsim.dram.spec.extension import BankDevice
from ndpsim.dram.traces.unit_commands import COLUMNS, UnitCommands


class MakesHost(Protocol):
    """Makes a host for so many simulated channels; `alone`: it goes on when the program has ended."""

    def __call__(self, channels: int, alone: bool = False) -> Host: ...


def run_programs(
    programs: Sequence[Program | Sequence[Line]],
    device: BankDevice,
    record_commands: bool = False,
    host: MakesHost | None = None,
) -> BankRun:
    """Run programs at once to the end of the longest; one program as `run_program` does.

    Args:
        programs: the programs.
        device: the device.
        record_commands: keep every command.
        host: makes a host beside each program; nothing is skipped.

    Raises:
        InputError: two programs have commands for a channel, or as in `run_program`.
    """
    owned = _owners([as_program(program) for program in programs], device) if len(programs) > 1 else []

    def run(program: Program | Sequence[Line], until: int | None) -> BankRun:
        beside = None if host is None else partial(host, alone=until is not None)
        return run_program(program, device, record_commands, host=beside, until=until)

    runs = [run(program, None) for program in programs]
    if len(runs) == 1:
        return runs[0]
    cycles = max(each.cycles for each in runs)
    if device.refreshes or host is not None:
        both = zip(programs, runs, strict=True)
        runs = [each if each.cycles == cycles else run(program, cycles) for program, each in both]
    return _merged(runs, owned, cycles, device)


def _owners(programs: Sequence[Program], device: BankDevice) -> list[set[int]]:
    """The channels for which each program has commands.

    Raises:
        InputError: two programs have commands for a channel.
    """
    owned, words = list[set[int]](), device.extension.requests
    for number, program in enumerate(programs, start=1):
        found = set[int]()
        for piece in program.pieces():
            asks = np.array([bool(words[word].command) for word in piece.words])
            for listed in np.unique(piece.listed[asks[piece.word]]).tolist():
                found.update(piece.lists[listed])
        for earlier, others in enumerate(owned, start=1):
            if both := found & others:
                problem = f"programs {earlier} and {number} have commands for channel {min(both)}"
                raise InputError(f"{problem}; each needs channels of its own", "conflict", key="program")
        owned.append(found)
    return owned


def _merged(runs: Sequence[BankRun], owned: Sequence[set[int]], cycles: int, device: BankDevice) -> BankRun:
    """The channels of each program, from its own run; those of none are of the longest."""
    longest = max(range(len(runs)), key=lambda n: runs[n].requests * (runs[n].cycles >= cycles))
    channels = device.sizes["channels"]
    source = [next((n for n, own in enumerate(owned) if c in own), longest) for c in range(channels)]
    simulated = [np.repeat(np.arange(len(r.members)), [len(run) for run in r.members]) for r in runs]
    parts = [(n, int(simulated[n][channel])) for channel, n in enumerate(source)]
    starts = [c for c in range(channels) if c == 0 or parts[c] != parts[c - 1]]
    members = tuple(map(range, starts, [*starts[1:], channels]))
    per_channel = np.array([runs[n].per_channel[part] for n, part in (parts[c] for c in starts)])
    total = (per_channel * np.array([len(run) for run in members])[:, None]).sum(axis=0)
    return BankRun(
        cycles,
        runs[longest].skipped,
        sum(run.requests for run in runs),
        {name: int(n) for name, n in zip(device.names, total, strict=True) if n},
        per_channel,
        members,
        _commands(runs, np.array(source), device),
    )


def _commands(runs: Sequence[BankRun], source: Ints, device: BankDevice) -> UnitCommands | None:
    """The commands of each channel from the run of its program, in the order of clocks and channels."""
    kept = list[Ints]()
    for number, run in enumerate(runs):
        if run.commands is None:
            return None
        columns = run.commands.columns
        kept.append(columns[:, source[columns[COLUMNS.index("channel")]] == number])
    joined = np.concatenate(kept, axis=1)
    clock, channel = joined[COLUMNS.index("clock")], joined[COLUMNS.index("channel")]
    return UnitCommands(joined[:, np.lexsort((channel, clock))], device.names)
