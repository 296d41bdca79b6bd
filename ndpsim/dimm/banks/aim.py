"""Layouts of AiM: a GEMV with the global buffer reused, and attention as CENT's generator writes it.

GEMV: a bank holds a row of inputs of one output; pieces of the inputs give partial sums, which are added
outside. Attention: scores have a token a bank and row, with the keys of all heads; the context has a head a
channel, whose dimensions lie over the banks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ndpsim.base.errors import InputError
from ndpsim.dimm.banks.shapes import Attention, Gemv, Turns, Units, refuse_rows, up
from ndpsim.dram.banks.programs import Line, Program
from ndpsim.dram.spec.extensions import WRITE

#: Places of units.
PLACES = ("bank",)

#: Attention is that of a sequence on a channel for each head of keys; more sequences are beside it.
SIDE_BY_SIDE = True

_BANKS = 16
_WORDS = ("WR_GB", "WR_BIAS", "MAC_ABK", "RD_MAC", "EOC")

Channels = tuple[int, ...]


def _line(word: str, channels: Channels, size: int = 1, row: int = -1) -> Line:
    sized = word in ("WR_GB", "MAC_ABK")
    return Line(word, channels, (0, 0, 0, 0), row, 0 if sized else -1, size)


def rows_of(shape: Gemv, units: Units) -> int:
    """Rows of each bank that a matrix takes."""
    return up(shape.outputs, _BANKS * units.channels) * up(shape.inputs, units.columns * units.elements)


def gemv(shape: Gemv, units: Units, first_row: int = 0) -> Program:
    """A GEMV on the first channels; `first_row`: that of the matrix in its banks.

    Raises:
        InputError: the matrix does not fit the banks.
    """
    refuse_rows(first_row + rows_of(shape, units), units, "the weights")
    return Program(lambda: _gemv(shape, units, first_row), _WORDS)


def _gemv(shape: Gemv, units: Units, first_row: int) -> Iterator[Line]:
    channels, row = tuple(range(units.channels)), units.columns * units.elements
    outputs, pieces = up(shape.outputs, _BANKS * units.channels), up(shape.inputs, row)
    for piece in range(pieces):
        columns = up(min(row, shape.inputs - piece * row), units.elements)
        yield _line("WR_GB", channels, columns)
        for first in range(0, outputs, units.accumulators):
            batch = range(first, min(first + units.accumulators, outputs))
            yield from (_line("WR_BIAS", channels) for _ in batch)
            for output in batch:
                yield _line("MAC_ABK", channels, columns, first_row + output * pieces + piece)
            yield from (_line("RD_MAC", channels) for _ in batch)
    yield _end(channels)


def _end(channels: Channels) -> Line:
    return Line("EOC", channels)


def attention(shape: Attention, units: Units) -> Program:
    """Scores and context of one step; keys and values are read again for every query of a head.

    Raises:
        InputError: the heads do not fill the channels, a token's keys do not fit a row, or rows are missing.
    """
    row, size = units.columns * units.elements, shape.value_size or shape.head_size
    _refuse_latent(shape)
    if shape.heads != units.channels:
        problem = f"{shape.heads} heads of keys and values need as many channels; there are {units.channels}"
        raise InputError(problem, "unsupported", key="channels")
    if shape.heads * shape.head_size > row or size % _BANKS:
        problem = f"keys of {shape.heads} heads of {shape.head_size} elements do not fit a row of {row}"
        raise InputError(problem, "unsupported", key="model")
    values = cache_rows(shape, units)["values"]
    refuse_rows(values.stop, units, "keys and values", "context")
    return Program(lambda: _attention(shape, units, values.start, up(shape.longest, row)), _WORDS)


def _refuse_latent(shape: Attention) -> None:
    if shape.latent:
        problem = "values of AiM lie across rows; latent vectors (MLA) hold them in the keys"
        raise InputError(problem, "unsupported", key="model")


def cache_rows(shape: Attention, units: Units) -> dict[str, range]:
    """The rows of keys and values in each bank."""
    keys = up(shape.longest, _BANKS * units.channels)
    dimensions = (shape.value_size or shape.head_size) // _BANKS
    first = max(1000, keys)
    spaced = up(shape.longest, units.columns * units.elements)
    return {"keys": range(keys), "values": range(first, first + dimensions * spaced)}


def _attention(shape: Attention, units: Units, first_value: int, spaced: int) -> Iterator[Line]:
    yield from _scores(shape, units)
    yield from _context(shape, units, first_value, spaced)
    yield _end(tuple(range(units.channels)))


def _scores(shape: Attention, units: Units) -> Iterator[Line]:
    tokens = _BANKS * units.channels
    columns = up(shape.head_size, units.elements)
    for number in range(up(shape.context, tokens)):
        left = shape.context - number * tokens
        channels = tuple(range(min(units.channels, up(left, _BANKS))))
        for _ in range(shape.queries):
            yield _line("WR_GB", channels, shape.heads * columns)
            for _ in range(shape.heads):
                yield _line("WR_BIAS", channels)
                yield _line("MAC_ABK", channels, columns, number)
                yield _line("RD_MAC", channels)


def _context(shape: Attention, units: Units, first_value: int, spaced: int) -> Iterator[Line]:
    channels = tuple(range(units.channels))
    columns = up(shape.context, units.elements)
    for _ in range(shape.queries):
        for first in range(0, columns, units.columns):
            size = min(units.columns, columns - first)
            yield _line("WR_GB", channels, size)
            for dimension in range((shape.value_size or shape.head_size) // _BANKS):
                yield _line("WR_BIAS", channels)
                yield _line(
                    "MAC_ABK", channels, size, first_value + dimension * spaced + first // units.columns
                )
                yield _line("RD_MAC", channels)


def turns(shape: Attention, units: Units) -> Turns:
    """A turn has a sequence on each group of channels; a group has a channel for each head of keys.

    Raises:
        InputError: there are fewer channels than heads, or values are latent vectors.
    """
    _refuse_latent(shape)
    if shape.heads > units.channels:
        problem = f"{shape.heads} heads of keys and values need as many channels; there are {units.channels}"
        raise InputError(problem, "unsupported", key="model")
    return Turns(1, 1, units.channels // shape.heads, units.elements, 1, False)


def turn(shape: Attention, units: Units, items: int) -> list[Line]:
    """The program of a turn of so many items, each a sequence."""
    return _beside(attention(shape, units._replace(channels=shape.heads)), shape, items)


def _beside(lines: Iterable[Line], shape: Attention, items: int) -> list[Line]:
    """The lines of a sequence, for so many on groups of channels of their own."""
    groups = range(0, items * shape.heads, shape.heads)
    return [
        line._replace(channels=tuple(first + c for first in groups for c in line.channels)) for line in lines
    ]


def appended(shape: Attention, units: Units, items: int, tokens: int = 1) -> list[Line]:
    """The writes of the last tokens of so many sequences.

    The keys of a token are a row of a bank; each dimension of its values is a column with those of other
    tokens, too, which is written for the banks of a channel at once, as in CENT's programs.
    """
    first, channels, lines = shape.context - tokens, tuple(range(shape.heads)), list[Line]()
    row, columns = units.columns * units.elements, up(shape.head_size, units.elements)
    for token in range(first, shape.context):
        number, within = divmod(token, _BANKS * shape.heads)
        channel, bank = divmod(within, _BANKS)
        lines += [Line(WRITE, (channel,), (0, 0, *divmod(bank, 4)), number)] * (shape.heads * columns)
    values = cache_rows(shape, units._replace(channels=shape.heads))["values"]
    for column in range(first // units.elements, up(shape.context, units.elements)):
        spaced = values[column * units.elements // row :: up(shape.longest, row)]
        lines += [_line("WR_ABK", channels, row=of_dimension) for of_dimension in spaced]
    return _beside([*lines, _end(channels)], shape, items)
