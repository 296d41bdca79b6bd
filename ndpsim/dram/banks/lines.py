"""The lines of a program as integers, so many at a time as a run needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dram.banks.host import RING, reserve
from ndpsim.dram.banks.lower import BARRIER, NO_COMMAND, WAITS, Ints
from ndpsim.dram.banks.programs import Line, Piece, Program, as_program, joined
from ndpsim.dram.banks.repeats import NEXT_MARK, START_LINE, Repeats
from ndpsim.dram.banks.state import (
    ANSWERS,
    BLOCKED,
    FIRST_ANSWER,
    KNOWN_LINE,
    LINE,
    LINES_FOLLOW,
    PIM,
    RESTS,
    BankProgram,
    BankState,
)
from ndpsim.dram.spec.extension import BankDevice, Request

_FEWEST = 1 << 14  # lines that are taken at a time, if there are so many


class Lines:
    """The lines that a run still needs: those of queued requests, and some thousands that follow.

    Neighbouring channels with the same requests so far are simulated once. Such channels are equal at every
    clock: a line offers itself to all of them in a row, and they accept or refuse it alike.

    Args:
        program: the program.
        device: its device.
        whole: read all of it first, so that simulated channels stand for the same channels to the end.
        lists: lists of channels that have numbers already.
        rests: the device goes on behind the last line.

    Attributes:
        program: the lines.
        members: the channels that each simulated channel stands for.
        requests: requests of the lines so far, over all channels.
        finals: the commands of all lines, or of all words.
        writes: whether lines may be accesses of the host.
    """

    def __init__(
        self,
        program: Program | Sequence[Line],
        device: BankDevice,
        whole: bool = False,
        lists: Sequence[tuple[int, ...]] = (),
        rests: bool = False,
    ) -> None:
        program = as_program(program)
        self._words, everywhere = device.extension.requests, tuple(range(device.sizes["channels"]))
        self._lists = {everywhere: 0} | {listed: n for n, listed in enumerate(lists)}
        self._names = {word: n for n, word in enumerate(self._words)}
        asked = self._words.values()
        self._codes = np.array([_code(word, device) for word in asked])
        self._flags = np.array([(w.host, w.blocks, w.everywhere) for w in asked], dtype=np.int64)
        self._device, self.requests, self._reserved, self._rests = device, 0, 0, rests
        self._known = frozenset(self._words) if program.words is None else program.words
        finals = [self._codes[number] for word, number in self._names.items() if word in self._known]
        self.finals = np.array(finals, dtype=np.int64)
        self.writes = any(self._words[word].host for word in self._known)
        self._add_lists(listed for piece in (program.pieces() if whole else ()) for listed in piece.lists)
        self._pieces = program.pieces()
        self._following = next(self._pieces, None)
        self.program = self._lowered(self._taken())

    def _add_lists(self, lists: Iterable[tuple[int, ...]]) -> None:
        """Number lists of channels, and divide the channels so that each list has all or none of a part."""
        for listed in lists:
            self._lists.setdefault(listed, len(self._lists))
        self.members = _classes(tuple(self._lists), self._device.sizes["channels"])
        self._numbers = [_numbers(listed, self.members) for listed in self._lists]
        self._lengths = np.array([len(listed) for listed in self._lists])

    @property
    def lists(self) -> tuple[tuple[int, ...], ...]:
        """The lists of channels so far, by their numbers."""
        return tuple(self._lists)

    def reserve(self, state: BankState) -> None:
        """Keep lines for the requests of a host, before those of the program.

        Raises:
            InputError: the program has accesses of the host itself.
        """
        _check_without_host(self.program)
        self._reserved = RING * len(self.members)
        self.program = reserve(self.program, len(self.members))
        state.value[LINE] = self._reserved

    def is_over(self, state: BankState) -> bool:
        """Whether the device goes on although no line and no request is left."""
        return bool(
            self.program.more == RESTS and state.value[LINE] == self.program.lines and not state.size.any()
        )

    def _taken(self) -> Piece:
        """The next lines."""
        found, lines = list[Piece](), 0
        while self._following is not None and lines < _FEWEST:
            found.append(self._following)
            lines += len(self._following.word)
            self._following = next(self._pieces, None)
        return joined(found)

    def _lowered(self, piece: Piece) -> BankProgram:
        if any(listed not in self._lists for listed in piece.lists):
            self._add_lists(piece.lists)
        assert self._known.issuperset(piece.words), "a program has other words than it says"
        word = np.array([self._names[name] for name in piece.words])[piece.word]
        listed = np.array([self._lists[channels] for channels in piece.lists])[piece.listed]
        listed = np.where(self._flags[word, 2] == 1, 0, listed)
        self.requests += int((piece.size * self._lengths[listed]).sum())
        p, r, g, b = piece.place.T
        _, ranks, groups, banks = self._device.shape
        bank = ((p * ranks + r) * groups + g) * banks + b
        code = ((listed * (1 << 17) + piece.size) * len(self._words) + word) * self._device.banks + bank
        ends = self._following is None and self._words[piece.words[piece.word[-1]]].ends
        return BankProgram(
            lines=len(word),
            more=LINES_FOLLOW if self._following is not None else RESTS * self._rests,
            ends=int(ends and not self._rests),
            command=self._codes[word],
            host=self._flags[word, 0],
            blocks=self._flags[word, 1],
            size=piece.size,
            place=piece.place,
            row=piece.row,
            column=piece.column,
            listed=listed,
            first=np.cumsum([0, *map(len, self._numbers)]),
            channel=np.concatenate(self._numbers),
            code=code,
        )

    def advance(self, state: BankState, repeats: Repeats) -> BankState:
        """Drop lines that no request needs, and take those that follow. All lines have been offered."""
        own = self._reserved
        keep = _oldest(state, own)
        old, members = self.program, self.members
        new, dropped = self._lowered(self._taken()), keep - own
        if own:
            _check_without_host(new)
        arrays: dict[str, Any] = {
            name: np.concatenate((getattr(old, name)[:own], getattr(old, name)[keep:], getattr(new, name)))
            for name in ("command", "host", "blocks", "size", "place", "row", "column", "listed", "code")
        }
        self.program = new._replace(lines=old.lines - dropped + new.lines, **arrays)
        for lines in (state.line, state.answer[:, :, 1]):
            lines[...] = np.where(lines >= own, lines - dropped, lines)
        state.value[LINE] -= dropped
        state.channel[:, KNOWN_LINE] = -1
        repeats.value[[NEXT_MARK, START_LINE]] -= dropped
        if self.members != members:
            state = self._divided(state, members)
        return with_answers(state, int(new.host.sum()))

    def _divided(self, state: BankState, members: Sequence[range]) -> BankState:
        """The state of channels that are no longer equal; `members`: those of the channels until now."""
        starts = [run[0] for run in members]
        index = np.searchsorted(starts, [run[0] for run in self.members], side="right") - 1
        arrays = {
            name: np.ascontiguousarray(array[index])
            for name, array in state._asdict().items()
            if name not in ("value", "log")
        }
        state = state._replace(**arrays)
        awaited = [
            line
            for channel in range(len(index))
            for lines in (_queued(state, channel, PIM), _answering(state, channel))
            for line in lines.tolist()
        ]
        state.value[BLOCKED] = sum(int(self.program.blocks[line]) for line in awaited if line >= 0)
        return state


def _check_without_host(program: BankProgram) -> None:
    """Refuse accesses of the host in a program beside host traffic."""
    if program.host.any():
        problem = "has accesses of the host itself; it cannot run beside host traffic"
        raise InputError(problem, "conflict", key="program")


def _queued(state: BankState, channel: int, queue: int) -> Ints:
    """The lines of the requests of a queue."""
    first = state.begin[channel, queue]
    return state.line[channel, queue, first : first + state.size[channel, queue]]


def _answering(state: BankState, channel: int) -> Ints:
    """The lines of the answers on their way; -1: an answer without a command."""
    facts = state.channel[channel]
    slots = (facts[FIRST_ANSWER] + np.arange(facts[ANSWERS])) % state.answer.shape[1]
    found: Ints = state.answer[channel, slots, 1]
    return found


def _oldest(state: BankState, own: int) -> int:
    """The first line from `own` on that the decoder, a queued request or an answer needs."""
    oldest = int(state.value[LINE])
    for channel in range(len(state.channel)):
        queued = [_queued(state, channel, queue) for queue in range(state.size.shape[1])]
        lines = np.concatenate((*queued, _answering(state, channel)))
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
