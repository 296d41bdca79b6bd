"""The mean time of equal programs of units in banks, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity


@dataclass(frozen=True, eq=False, repr=False)
class BankTurn(Reported):
    """A turn of attention, or a token of an expert, on a device: see `ndpsim.simulate.bank_turns`.

    Attributes:
        time_ns: its time, the mean over `turns` equal turns in one program.
        turns: turns of the program.
        cycles: clocks of the program.
        commands: commands of the program by name.
        config: everything that was used.
        wall_s: duration of the call. `compile_s`: compile time of kernels, which is not in `wall_s`.
    """

    time_ns: float = field(metadata=quantity("time of a turn"))
    turns: int = field(metadata=quantity("turns"))
    cycles: int = field(metadata=quantity("clock cycles"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    config: Mapping[str, Any] = field(repr=False)
    wall_s: float
    compile_s: float = field(repr=False)
