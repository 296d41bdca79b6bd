"""The lines of a program as integers, so many at a time as a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.banks.host import RING, reserve
from ndpsim.dram.banks.lower import BARRIER, NO_COMMAND, WAITS, Ints
from ndpsim.dram.banks.programs import Line, Piece, Program, as_program, joined
from ndpsim.dram.banks.repeats import NEXT_MARK, START_LINE, Repeats
from ndpsim.dram.banks.state import (
    ANSWERS,
    FIRST_ANSWER,
    KNOWN_LINE,
    LINE,
    BankProgram,
    BankState,
)
from ndpsim.dram.spec.extension import BankDevice, Request

_FEWEST = 1 << 12  # lines that are taken at a time, if there are so many
_HELD = 1 << 16  # a longer program is made a second time instead of being held


class Lines:
    """The lines that a run still needs: those of queued requests, and some thousands that follow.

    Neighbouring channels with the same requests are simulated once. Such channels are equal at every clock: a
    line offers itself to all of them in a row, and they accept or refuse it alike.

    Attributes:
        program: the lines.
        members: the channels that each simulated channel stands for.
        requests: requests of the lines so far, over all channels.
    """

    def __init__(self, program: Program | Sequence[Line], device: BankDevice) -> None:
        program = as_program(program)
        self._words, everywhere = device.extension.requests, tuple(range(device.sizes["channels"]))
        lists, held, count = dict.fromkeys((everywhere,)), list[Piece](), 0
        for piece in program.pieces():
            lists |= dict.fromkeys(piece.lists)
            count += len(piece.word)
            if count <= _HELD:
                held.append(piece)
        self._lists = {listed: n for n, listed in enumerate(lists)}
        self._names = {word: n for n, word in enumerate(self._words)}
        asked = self._words.values()
        self._codes = np.array([_code(word, device) for word in asked])
        self._flags = np.array([(w.host, w.blocks, w.everywhere) for w in asked], dtype=np.int64)
        self.members = _classes(tuple(self._lists), len(everywhere))
        self._numbers = [_numbers(listed, self.members) for listed in self._lists]
        self._lengths = np.array([len(listed) for listed in self._lists])
        self._device, self.requests, self._reserved = device, 0, 0
        self._pieces = iter(held) if count <= _HELD else program.pieces()
        self._following = next(self._pieces, None)
        self.program = self._lowered(self._taken())

    def reserve(self, state: BankState) -> None:
        """Keep lines for the requests of a host, before those of the program.

        Raises:
            InputError: the program has accesses of the host itself.
        """
        if self.program.host.any():
            problem = "has accesses of the host itself; it cannot run beside host traffic"
            raise InputError(problem, "conflict", key="program")
        self._reserved = RING * len(self.members)
        self.program = reserve(self.program, len(self.members))
        state.value[LINE] = self._reserved

    def _taken(self) -> Piece:
        """The next lines."""
        found: list[Piece] = []
        while self._following is not None and sum(len(piece.word) for piece in found) < _FEWEST:
            found.append(self._following)
            self._following = next(self._pieces, None)
        return joined(found)

    def _lowered(self, piece: Piece) -> BankProgram:
        word = np.array([self._names[name] for name in piece.words])[piece.word]
        listed = np.array([self._lists[channels] for channels in piece.lists])[piece.listed]
        listed = np.where(self._flags[word, 2] == 1, 0, listed)
        self.requests += int((piece.size * self._lengths[listed]).sum())
        p, r, g, b = piece.place.T
        _, ranks, groups, banks = self._device.shape
        bank = ((p * ranks + r) * groups + g) * banks + b
        code = ((listed * (1 << 17) + piece.size) * len(self._words) + word) * self._device.banks + bank
        first, channel = self._channels(listed)
        ends = self._following is None and self._words[piece.words[piece.word[-1]]].ends
        return BankProgram(
            lines=len(word),
            more=int(self._following is not None),
            ends=int(ends),
            command=self._codes[word],
            host=self._flags[word, 0],
            blocks=self._flags[word, 1],
            size=piece.size,
            place=piece.place,
            row=piece.row,
            column=piece.column,
            first=first,
            channel=channel,
            code=code,
        )

    def _channels(self, listed: Ints) -> tuple[Ints, Ints]:
        """Where the channels of each line start, and the channels."""
        lengths = np.array([len(found) for found in self._numbers])[listed]
        offsets = np.cumsum([0, *map(len, self._numbers)])[listed]
        first = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(first[-1]) - np.repeat(first[:-1], lengths)
        return first, np.concatenate(self._numbers)[np.repeat(offsets, lengths) + within]

    def advance(self, state: BankState, repeats: Repeats) -> BankState:
        """Drop lines that no request needs, and take those that follow."""
        own = self._reserved
        keep = _oldest(state, own)
        old, new = self.program, self._lowered(self._taken())
        if own and new.host.any():
            raise InputError("has accesses of the host itself", "conflict", key="program")
        kept, dropped = old.first[keep], keep - own
        arrays = {
            name: np.concatenate((getattr(old, name)[:own], getattr(old, name)[keep:], getattr(new, name)))
            for name in ("command", "host", "blocks", "size", "place", "row", "column", "code")
        }
        self.program = new._replace(
            lines=old.lines - dropped + new.lines,
            first=np.concatenate(
                (old.first[:own], old.first[keep:-1] - kept, new.first + old.first[-1] - kept)
            ),
            channel=np.concatenate((old.channel[kept:], new.channel)),
            **arrays,
        )
        for lines in (state.line, state.answer[:, :, 1]):
            lines[...] = np.where(lines >= own, lines - dropped, lines)
        state.value[LINE] -= dropped
        state.channel[:, KNOWN_LINE] = -1
        repeats.value[[NEXT_MARK, START_LINE]] -= dropped
        return with_answers(state, int(new.host.sum()))


def _oldest(state: BankState, own: int) -> int:
    """The first line from `own` on that the decoder, a queued request or an answer needs."""
    oldest = int(state.value[LINE])
    for channel, queue in zip(*np.nonzero(state.size), strict=True):
        first, size = state.begin[channel, queue], state.size[channel, queue]
        lines = state.line[channel, queue, first : first + size]
        oldest = min([oldest, *lines[lines >= own].tolist()])
    ring = state.answer.shape[1]
    for channel in np.flatnonzero(state.channel[:, ANSWERS]).tolist():
        facts = state.channel[channel]
        slots = (facts[FIRST_ANSWER] + np.arange(facts[ANSWERS])) % ring
        lines = state.answer[channel, slots, 1]
        oldest = min([oldest, *lines[lines >= own].tolist()])
    return oldest


def with_answers(state: BankState, reads: int) -> BankState:
    """The state with room for the answers of so many more reads, which may all be on their way at once."""
    ring, channels = state.answer.shape[1], len(state.channel)
    needed = int(state.channel[:, ANSWERS].max()) + reads
    if needed <= ring:
        return state
    order = (state.channel[:, FIRST_ANSWER, None] + np.arange(ring)) % ring
    answer = np.zeros((channels, needed, 2), dtype=np.int64)
    answer[:, :ring] = np.take_along_axis(state.answer, order[:, :, None], axis=1)
    state.channel[:, FIRST_ANSWER] = 0
    return state._replace(answer=answer)


def _code(word: Request, device: BankDevice) -> int:
    if word.barrier:
        return BARRIER
    if word.command:
        return device.names.index(word.command)
    return WAITS if word.blocks else NO_COMMAND


def _classes(lists: Sequence[tuple[int, ...]], channels: int) -> tuple[range, ...]:
    """Runs of neighbouring channels that every list has all or none of."""
    has = np.zeros((len(lists), channels), dtype=np.bool_)
    for row, each in zip(has, lists, strict=True):
        row[list(each)] = True
    starts = [0, *(np.flatnonzero((has[:, 1:] != has[:, :-1]).any(axis=0)) + 1).tolist(), channels]
    return tuple(range(first, last) for first, last in pairwise(starts))


def _numbers(channels: tuple[int, ...], members: Sequence[range]) -> Ints:
    chosen = set(channels)
    return np.array([n for n, run in enumerate(members) if run[0] in chosen], dtype=np.int64)
