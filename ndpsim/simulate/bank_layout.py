"""Which rows of the banks the operands of units in banks take, from the programs that read them."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import choice
from ndpsim.config.banks import BankHardware
from ndpsim.dram.banks.programs import Program
from ndpsim.dram.spec.extension import LEVELS, BankDevice
from ndpsim.simulate.bank_operands import attention_program, expert_program
from ndpsim.simulate.pim import bank_hardware_of
from ndpsim.workload.models import MoeShape, load_model

OPERANDS = ("attention", "gemv")  #: What can be laid out.


@dataclass(frozen=True)
class BankOperand:
    """An operand in the first channel that holds it.

    Attributes:
        name: "gate and up", "up", "down", "keys" or "values".
        first_row, rows: of each bank.
        banks: banks of the channel with parts of it.
        channels: channels with parts of it.
        bytes: bytes of the channel that units read; padding of columns is part of them.
    """

    name: str
    first_row: int
    rows: int
    banks: int
    channels: int
    bytes: int


@dataclass(frozen=True, eq=False)
class BankLayout:
    """The operands of a program in the banks.

    Attributes:
        hardware: the name of the device.
        what: the program.
        rows: rows of a bank.
        operands: the operands.
        columns: columns that units read, [bank of the first channel, row].
    """

    hardware: str
    what: str
    rows: int
    operands: tuple[BankOperand, ...]
    columns: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        operands = [vars(operand) for operand in self.operands]
        return {"hardware": self.hardware, "what": self.what, "rows": self.rows, "operands": operands}


def place_bank_operands(
    hw: str | PathLike[str] | BankHardware,
    model: str | PathLike[str] | MoeShape,
    what: str,
    sets: tuple[str, ...] = (),
    context: int = 4096,
) -> BankLayout:
    """Place the operands of an expert ("gemv"), or of a sequence's attention, in the banks.

    Args:
        hw, sets: see `load_bank_hardware`.
        model: a model.
        what: one of `OPERANDS`.
        context: tokens in the cache.

    Raises:
        InputError: an argument is wrong, or an operand does not fit.
    """
    hardware, shape = bank_hardware_of(hw, sets, "standard"), load_model(model)
    if choice(what, "show layout", OPERANDS, "layout on units in banks") == "gemv":
        program, regions = expert_program(hardware, shape.expert, 1)
        title = f"one expert of {shape.name}"
    else:
        program, regions = attention_program(hardware, shape, context, 1)
        title = f"attention of {shape.name} to {context:,} tokens"
    read, channels = _read_columns(program, hardware.device)
    columns = read.sum(axis=2)
    operands = [
        BankOperand(
            name,
            rows.start,
            len(rows),
            int((columns[:, rows.start : rows.stop] > 0).any(axis=1).sum()),
            channels,
            int(columns[:, rows.start : rows.stop].sum()) * hardware.burst_bytes,
        )
        for name, rows in regions.items()
    ]
    return BankLayout(hardware.name, title, hardware.device.sizes["rows"], tuple(operands), columns)


def _read_columns(program: Program, device: BankDevice) -> tuple[NDArray[np.bool_], int]:
    """The columns that units read in the first channel, [bank, row, column]; and the channels with any."""
    read = np.zeros((device.banks, device.sizes["rows"], device.sizes["columns"]), dtype=np.bool_)
    numbers = np.stack(np.unravel_index(np.arange(device.banks), device.shape), axis=1)
    commands = {command.name: command for command in device.commands}
    channels: set[int] = set()
    for piece in program.pieces():
        first = np.array([0 in listed for listed in piece.lists])[piece.listed]
        for number, word in enumerate(piece.words):
            command = commands.get(device.extension.requests[word].command)
            if command is None or not command.uses or command.opens or command.closes or command.drives:
                continue
            own = np.flatnonzero((piece.word == number) & first)
            for listed in np.unique(piece.listed[piece.word == number]).tolist():
                channels.update(piece.lists[listed])
            fixed = [level in command.path for level in LEVELS]
            lines = np.stack((piece.row, piece.column, piece.size), axis=1)[own]
            places = np.where(fixed, piece.place[own], -1)
            for place in np.unique(places, axis=0):
                banks = np.flatnonzero(((place < 0) | (numbers == place)).all(axis=1))
                for row, column, size in np.unique(lines[(places == place).all(axis=1)], axis=0).tolist():
                    read[banks, row, max(column, 0) : max(column, 0) + size] = True
    return read, len(channels)
