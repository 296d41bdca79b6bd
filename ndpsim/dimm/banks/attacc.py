"""Layouts of AttAcc: attention as its simulator lays it out, and a GEMV of this project.

Attention: a head lives in one channel. Scores: tokens over the groups of units, the elements of a head over
the banks that share a result; a MAC step is a token in each group. Context: tokens over the groups, outputs
over the banks. Rounds are the heads of all channels; two rounds overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.dimm.banks.shapes import Attention, Gemv, Turns, Units, refuse_rows, up
from ndpsim.dram.banks.programs import MOST_HELD, Line, Piece, Program, joined, piece_of
from ndpsim.dram.spec.extensions import WRITE

#: Places of units.
PLACES = ("bank", "bankgroup", "buffer")

_MACS = {"bank": "MACAB", "bankgroup": "MACSB", "buffer": "MACPB"}
_BLOCK = 16  # tokens of a group between two moves of results
_GROUPS, _RANKS, _BANKS = range(4), range(2), range(4)
_VALUES_FROM = 8192  # the first row of values

Channels = tuple[int, ...]


def gemv(shape: Gemv, units: Units, first_row: int = 0) -> Program:
    """A GEMV: outputs over channels and bank groups, inputs over the four banks, or in one (bank groups).

    Results of 16 outputs of a bank group move together. What does not fill units is padded.

    Raises:
        InputError: units are at pseudo-channels, or the matrix does not fit its banks.
    """
    if units.level == "buffer":
        raise InputError("AttAcc's GEMV has units at banks or bank groups", "unsupported", key="engine")
    refuse_rows(first_row + rows_of(shape, units), units, "the weights")
    return Program(lambda: _gemv(shape, units, first_row), ("WRGB", "BARRIER", "MVSB", _MACS[units.level]))


def _gemv(shape: Gemv, units: Units, first_row: int) -> Iterator[Line | Piece]:
    channels = tuple(range(units.channels))
    banks = _BANKS if units.level == "bank" else range(1)
    columns = up(shape.inputs, units.elements * len(banks))
    outputs = up(shape.outputs, len(_GROUPS) * 4 * units.channels)
    layout, barrier = _Layout(units, Attention(1, 1, 1, 1), 0), Line("BARRIER", channels, column=0)
    yield from (Line("WRGB", channels, (0, 0, 0, bank), 0, 0) for bank in banks for _ in range(columns))
    yield barrier
    results = [Line("MVSB", channels, (0, rank, group, 0), 0, 0) for group in _GROUPS for rank in _RANKS]
    for first in range(0, outputs, _BLOCK):
        last = min(first + _BLOCK, outputs)
        yield layout.macs(first * columns, last * columns, first_row, channels)
        yield from (barrier, *results)
        if last < outputs:
            yield barrier


def rows_of(shape: Gemv, units: Units) -> int:
    """Rows of each bank that a matrix takes."""
    banks = 4 if units.level == "bank" else 1
    steps = up(shape.outputs, 16 * units.channels) * up(shape.inputs, units.elements * banks)
    return up(steps, units.columns * 4 // banks)


@dataclass(frozen=True)
class _Layout:
    """The addresses of a head of keys and values in round `number`, for some of its queries at once."""

    units: Units
    shape: Attention
    number: int
    queries: int = 1

    @property
    def groups(self) -> int:
        """Groups of units over which tokens are spread."""
        return 2 if self.units.level == "buffer" else 16

    @property
    def tokens(self) -> int:
        """Tokens of a group."""
        return up(self.shape.context, self.groups)

    @property
    def steps(self) -> int:
        """MAC steps of a token's key."""
        return self._steps(self.shape.head_size)

    @property
    def value_steps(self) -> int:
        """MAC steps of a token's value."""
        return self._steps(self.shape.value_size or self.shape.head_size)

    def _steps(self, size: int) -> int:
        return up(size, self.units.elements * (4 if self.units.level == "bank" else 1))

    @property
    def blocks(self) -> int:
        """Blocks of tokens of a group."""
        return up(self.tokens, _BLOCK)

    @cached_property
    def keys(self) -> int:
        """The first row of keys; A10: rounds are spaced by as many bytes as there are elements."""
        elements = self.number * self.shape.longest * self.shape.head_size
        return up(elements, 65536 if "A10" in self.units.ideal else 32768)

    @cached_property
    def values(self) -> int:
        """The first row of values; those of latent vectors are in the keys."""
        return self.keys if self.shape.latent else _VALUES_FROM + self.keys

    def macs(self, first: int, last: int, first_row: int, channels: Channels, stride: int = 1) -> Piece:
        """The MACs of a range of numbers, from a row on."""
        x, columns = np.arange(first, last, stride), self.units.columns
        zero, place = np.zeros(len(x), dtype=np.int64), np.zeros((len(x), 4), dtype=np.int64)
        if self.units.level == "buffer":
            place[:, 1], place[:, 2], place[:, 3] = x // 4 % 2, x % 4, x // 8 % 4
            x = x // 32
        row, column = np.divmod(x, columns)
        if self.units.level == "bankgroup":
            row, place[:, 3] = np.divmod(row, 4)
        row += first_row
        return Piece((_MACS[self.units.level],), (channels,), zero, zero, place, row, column, zero + 1)

    def written(self, token: int, first_row: int, steps: int, stride: int, channels: Channels) -> Piece:
        """Writes of a token to the columns that MACs with this stride read; groups take turns."""
        number, group = divmod(token, self.groups)
        begin = number * steps if stride == 1 else number
        macs = self.macs(begin, begin + steps * stride, first_row, channels, stride)
        if self.units.level == "bank":  # each MAC reads four banks of the group
            macs = macs.repeated(len(_BANKS))
            macs.place[:, 3] = np.tile(_BANKS, steps)
        if self.units.level == "buffer":
            macs.place[:, 0] = group
        else:
            macs.place[:, :3] = group // 8, group // 4 % 2, group % 4
        return macs._replace(words=(WRITE,))

    def inputs(self, channels: Channels) -> list[Line]:
        """Writes of the query to the input buffers."""
        banks = _BANKS if self.units.level == "bank" else range(1)
        return [
            Line("WRGB", channels, (0, 0, 0, bank), self.keys, step // 32)
            for _ in range(self.queries)
            for bank in banks
            for step in range(self.steps)
        ]

    def scores_out(self, channels: Channels) -> list[Line]:
        """Results of a block of scores."""
        if self.units.level == "buffer":
            return [Line("MVSB", channels, (0, 0, 0, 0), self.keys, 0)] * self.queries
        return self.queries * [
            Line("MVSB", channels, (0, rank, group, 0), self.keys, 0) for group in _GROUPS for rank in _RANKS
        ]

    def scores_in(self, channels: Channels) -> list[Line]:
        """Results of softmax to the input buffers."""
        if self.units.level == "buffer":
            columns = up(self.shape.context, 32) * self.queries
            return [Line("MVGB", channels, (0, 0, 0, 0), self.values, c // 32) for c in range(columns)]
        return self.queries * [
            Line("MVGB", channels, (0, rank, group, 0), self.values, column // 32)
            for rank in _RANKS
            for group in _GROUPS
            for column in range(up(self.shape.context, 256))
        ]

    def context_out(self, channels: Channels) -> list[Line]:
        """Results of a part of the context."""
        if self.units.level == "buffer":
            return [Line("MVSB", channels, (0, 0, 0, 0), self.values, 0)] * self.queries
        banks = _BANKS if self.units.level == "bank" else range(1)
        return self.queries * [
            Line("MVSB", channels, (0, rank, 0, bank), self.values, 0) for bank in banks for rank in _RANKS
        ]

    def softmax(self, channels: Channels) -> list[Line]:
        return [Line("SFM", channels, column=0)] * self.queries

    def score_part(self, block: int, channels: Channels) -> Piece:
        """The MACs of a block of scores."""
        last = min((block + 1) * _BLOCK, self.tokens)
        return self.macs(block * _BLOCK * self.steps, last * self.steps, self.keys, channels)

    def context_part(self, part: int, channels: Channels) -> Piece:
        """The MACs of a part of the context."""
        if self.shape.latent:
            return self.macs(part, self.tokens * self.steps, self.keys, channels, self.steps)
        return self.macs(part * self.tokens, (part + 1) * self.tokens, self.values, channels)


def _share(lines: Sequence[Line], part: int, parts: int, units: Units) -> list[Line]:
    """A share of the requests of some lines, which have the same channels.

    A12: shares are equal, and a rest is never sent.
    """
    each = len(lines[0].channels)
    total = len(lines) * each
    if "A12" in units.ideal:
        total -= total % parts
    first, last = part * total // parts, (part + 1) * total // parts
    return [
        lines[n]._replace(channels=lines[n].channels[max(first - n * each, 0) : last - n * each])
        for n in range(first // each, up(last, each))
        if first < last
    ]


def items_of(shape: Attention, units: Units) -> int:
    """Copies of keys and values."""
    return shape.heads * (1 if shape.latent else up(shape.queries, units.vectors))


@lru_cache(maxsize=2)
def _held_pairs(shape: Attention, units: Units) -> dict[int, Piece]:
    """Room for the full pairs of rounds of an attention at row 0, by the pass of the first."""
    return {}


class _Rounds:
    """The program of all rounds, which have an item in each channel: keys and values, and some queries.

    An item has as many queries of a head as units multiply with a column at once; other queries of the head
    have keys and values of their own, as in AttAcc's simulator. Latent vectors are stored once: the queries
    of a head follow each other in passes.
    """

    def __init__(self, shape: Attention, units: Units) -> None:
        self.shape, self.units = shape, units
        self.everywhere = tuple(range(units.channels))
        groups = up(shape.queries, units.vectors)
        self.queries = up(shape.queries, groups)
        self.passes = groups if shape.latent else 1
        self.items = items_of(shape, units)
        self.rounds = up(self.items, units.channels) * self.passes
        self.held = _held_pairs(shape._replace(heads=0), units)

    def layout(self, number: int) -> _Layout:
        """The layout of a round."""
        return _Layout(self.units, self.shape, number // self.passes, self.queries)

    def channels(self, number: int) -> Channels:
        """The channels of a round, which have an item each."""
        done = number // self.passes * self.units.channels
        return tuple(range(min(self.units.channels, self.items - done)))

    def barrier(self) -> Line:
        return Line("BARRIER", self.everywhere, column=0)

    def lines(self) -> Iterator[Line | Piece]:
        """All rounds. Pairs of rounds that are full come again on other rows."""
        for number in range(0, self.rounds - 1, 2):
            if not self.is_regular or len(self.channels(number + 1)) < self.units.channels:
                yield from self.pair(number, opens=number == 0)
                continue
            first, kind = self.layout(number).keys, number % self.passes
            if kind not in self.held:
                pair = joined(list(Program(partial(self.pair, number)).pieces()))
                self.held[kind] = pair.shifted(-first)
            pair = self.held[kind].shifted(first)
            if number == 0:  # as `opens` does
                layout = self.layout(0)
                inputs = len(layout.inputs(self.everywhere))
                yield pair.until(inputs)
                yield layout.macs(0, 1, layout.keys, self.everywhere)
                pair = pair.since(inputs)
            yield pair
        if self.rounds % 2:
            yield from self.single(self.rounds - 1)

    @property
    def is_regular(self) -> bool:
        """Whether heads are equally far from each other, and pairs of rounds short enough to be held."""
        layout, elements = self.layout(0), self.shape.longest * self.shape.head_size
        lines = 2 * layout.tokens * (layout.steps + layout.value_steps) * min(self.passes, 2)
        return elements % 65536 == 0 and lines * self.passes <= MOST_HELD

    def parts(
        self,
        count: int,
        macs: Callable[[int, Channels], Piece],
        results: Callable[[Channels], list[Line]],
        channels: Channels,
        beside: Callable[[int], Sequence[Line]] = lambda part: (),
    ) -> Iterator[Line | Piece]:
        """Parts with a barrier behind each; the results of a part move after the MACs of the next one."""
        moved, barrier = piece_of(results(channels)), piece_of([self.barrier()])
        for part in range(count):
            yield macs(part, channels)
            if part:
                yield moved
            yield from beside(part)
            yield barrier
        yield moved

    def pair(self, number: int, opens: bool = False) -> Iterator[Line | Piece]:
        """Two rounds, the second in the gaps of the first; `opens`: the first row opens early."""
        early, late = self.layout(number), self.layout(number + 1)
        first, second = self.channels(number), self.channels(number + 1)
        blocks, steps = early.blocks, early.value_steps
        yield from early.inputs(first)
        if opens:
            yield early.macs(0, 1, early.keys, first)
        yield self.barrier()
        inputs = late.inputs(second)
        early_scores, late_scores = early.scores_in(first), late.scores_in(second)
        yield from self.parts(
            blocks, early.score_part, early.scores_out, first,
            lambda block: _share(inputs, block, blocks, self.units),
        )  # fmt: skip
        yield from self.parts(
            blocks, late.score_part, late.scores_out, second,
            lambda block: self.softmax_beside(early.softmax(first), early_scores, block, blocks),
        )  # fmt: skip
        yield from self.parts(
            steps, early.context_part, early.context_out, first,
            lambda part: self.softmax_beside(late.softmax(second), late_scores, part, steps),
        )  # fmt: skip
        layout, channels = (early, first) if "A4" in self.units.ideal else (late, second)
        # A4: the values of the first head again
        yield from self.parts(steps, layout.context_part, layout.context_out, channels)

    def softmax_beside(
        self, softmax: list[Line], scores: Sequence[Line], part: int, parts: int
    ) -> list[Line]:
        """Softmax in the first part, and shares of its results in the second half of the parts."""
        begin, lines = parts // 2, softmax if part == 0 else []
        return lines + _share(scores, part - begin, parts - begin, self.units) if part >= begin else lines

    def single(self, number: int) -> Iterator[Line | Piece]:
        """A last round on its own."""
        layout, channels = self.layout(number), self.channels(number)
        yield from layout.inputs(channels)
        yield self.barrier()
        yield from self.parts(layout.blocks, layout.score_part, layout.scores_out, channels)
        yield from layout.softmax(channels)
        yield from layout.scores_in(channels)
        yield self.barrier()
        yield from self.parts(layout.value_steps, layout.context_part, layout.context_out, channels)


def attention(shape: Attention, units: Units) -> Program:
    """Attention of one step: scores, softmax and context of every head.

    A channel serves a query of a head, or as many at once as units have vectors for.

    Raises:
        InputError: keys or values do not fit their banks.
    """
    if shape.context > shape.longest:
        raise InputError(
            f"{shape.context} is above {shape.longest}, for which there is space", "range", key="context"
        )
    heads = up(items_of(shape, units), units.channels)
    last = _Layout(units, shape, heads)
    room = units.rows if shape.latent else _VALUES_FROM
    if last.keys > room or last.values > units.rows:
        needed = last.keys if shape.latent else 2 * last.keys
        room_of = f"need {needed} rows of each bank, which has {units.rows}"
        problem = f"keys and values (heads of a channel: {heads}) {room_of}"
        raise InputError(problem, "too-large", key="context")
    words = ("WRGB", "BARRIER", "MVSB", "MVGB", "SFM", _MACS[units.level])
    return Program(_Rounds(shape, units).lines, words)


def cache_rows(shape: Attention, units: Units) -> dict[str, range]:
    """The rows of keys and values in each bank."""
    last = _Layout(units, shape, up(items_of(shape, units), units.channels))
    if shape.latent:
        return {"keys": range(last.keys)}
    return {"keys": range(last.keys), "values": range(_VALUES_FROM, last.values)}


def turns(shape: Attention, units: Units) -> Turns:
    """A turn has two rounds. An item is a head with as many queries as units multiply with a column at once.

    `shape`: a sequence. Latent vectors are one item with all queries: a turn has one in each channel.
    """
    tokens, copies = 2 if units.level == "buffer" else _BLOCK, up(shape.queries, units.vectors)
    if shape.latent:
        return Turns(1, 1, units.channels, tokens, 1, True)
    return Turns(shape.heads, copies, 2 * units.channels, tokens, copies, True)


def turn(shape: Attention, units: Units, items: int) -> Program:
    """The program of so many items: a turn, or several full ones."""
    queries = shape.queries if shape.latent else min(shape.queries, units.vectors)
    return attention(shape._replace(heads=items, queries=queries), units)


def appended(shape: Attention, units: Units, items: int, tokens: int = 1) -> Program:
    """The writes of the last tokens of so many items: keys, then values where the context reads them."""
    queries = shape.queries if shape.latent else min(shape.queries, units.vectors)
    rounds = _Rounds(shape._replace(heads=items, queries=queries), units)

    def lines() -> Iterator[Piece]:
        for number in range(0, rounds.rounds, rounds.passes):
            layout, channels = rounds.layout(number), rounds.channels(number)
            for token in range(shape.context - tokens, shape.context):
                yield layout.written(token, layout.keys, layout.steps, 1, channels)
            for token in range(shape.context - tokens, shape.context) if not shape.latent else ():
                yield layout.written(token, layout.values, layout.value_steps, layout.tokens, channels)

    return Program(lines, (WRITE,))
