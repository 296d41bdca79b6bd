"""Operands of units in banks."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.errors import InputError


class Gemv(NamedTuple):
    """A matrix of `outputs` x `inputs` elements times a vector."""

    inputs: int
    outputs: int


class Attention(NamedTuple):
    """Attention of one step of one or several sequences, of the same context.

    `heads`: those of keys and values of all sequences; each has `queries` queries.

    `head_size`: elements of a key, and of a value unless `value_size` has them. `context`: tokens. `longest`:
    tokens for which space is kept. `latent`: values are the first elements of keys (MLA, DeepSeek-V2).
    """

    heads: int
    queries: int
    head_size: int
    context: int
    longest: int = 4096
    value_size: int = 0
    latent: bool = False


class Units(NamedTuple):
    """What a layout needs of a machine.

    `level`: "bank", "bankgroup" or "buffer". `elements`: elements of a column. `accumulators`: results that a
    bank holds. `columns`, `rows`: those of a bank. `channels`: those in use. `ideal`: idealisations of
    published layouts (`docs/banks.md`). `vectors`: input vectors that a unit multiplies with a column that it
    has read.
    """

    level: str
    elements: int
    accumulators: int
    columns: int
    rows: int
    channels: int
    ideal: frozenset[str] = frozenset()
    vectors: int = 1


class Turns(NamedTuple):
    """How a device computes the attention of sequences of different contexts: in turns, the longest first.

    `parts`: parts of a sequence, which may be on different devices. `items`: items of a part. `slots`: items
    of a turn. `tokens`: contexts with as many of these, rounded up, have the same program. `copies`: of keys
    and values on a device. `overlap`: whether full turns of one program begin while results of the one
    before move.
    """

    parts: int
    items: int
    slots: int
    tokens: int
    copies: int
    overlap: bool


def up(number: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-number // by)


def refuse_rows(needed: int, units: Units, what: str, key: str | None = None) -> None:
    """Refuse operands that do not fit their banks; `what`: in words, several.

    Raises:
        InputError: it does not.
    """
    if needed > units.rows:
        problem = f"{what} need {needed} rows of each bank, which has {units.rows}"
        raise InputError(problem, "too-large", key=key)
