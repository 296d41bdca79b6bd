"""Requests to a serving system: their arrivals and numbers of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, number, plain_mapping, several, text, whole_number
from ndpsim.base.arrays import as_array
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Shown

_NS = 1e9
MOST_TOKENS = 1 << 30  #: Maximum tokens of a prompt, and of an output.
LATEST_NS = 10**18  #: The latest arrival: 31 years.


class Numbers(Sequence[str]):
    """The names "0", "1", ... of `count` requests, from a number on, without memory for each."""

    def __init__(self, count: int, start: int = 0) -> None:
        self._range = range(start, start + count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        found = self._range[index]
        return str(found) if isinstance(found, int) else tuple(map(str, found))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbers):
            return self._range == other._range
        return tuple(self) == other

    def __repr__(self) -> str:
        return repr(tuple(self))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Measured:
    """Latencies of requests that another program measured.

    Attributes:
        ttft_ns: from the arrival of each request to its first output token, float64 (n,); NaN: not known.
        latency_ns: from the arrival of each request to its last output token, float64 (n,); NaN: not known.
        time_ns: from the first arrival to the last token of all; None: not known.

    Raises:
        InputError: the arrays are not of numbers, or differ in length.
    """

    ttft_ns: NDArray[np.float64]
    latency_ns: NDArray[np.float64]
    time_ns: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_ns", "latency_ns"):
            array = _array(getattr(self, name), name, "iuf", "numbers").astype(np.float64)
            object.__setattr__(self, name, array)
        if len(self.ttft_ns) != len(self.latency_ns):
            problem = f"has {len(self.latency_ns)} requests, and ttft_ns has {len(self.ttft_ns)}"
            raise InputError(problem, "conflict", key="latency_ns")


@dataclass(frozen=True, eq=False, repr=False)
class Requests(Shown):
    """Requests in the order of their arrival.

    Attributes:
        arrival_ns: arrival of each, float64 (n,), which never decreases. With `closed_loop` it is 0 for all.
        prompt_tokens: tokens of each prompt, int64 (n,), at least 1.
        output_tokens: tokens that are generated for each, int64 (n,), at least 1.
        ids: a unique name of each; by default its number from 0.
        block_tokens: prompt tokens of a block of `blocks`; None: there are no blocks.
        blocks: for each request the ids of its prompt's blocks, int64, of which the last may be partial:
            equal ids have equal tokens, and equal tokens before them. None: no prompts have equal beginnings.
        closed_loop: requests that are in the system at any time: the next one arrives when one ends. None:
            they arrive at `arrival_ns`.
        source: the origin of the requests, as plain data.
        measured: latencies of a recording; None: it has none.

    Raises:
        InputError: lengths of arrays differ, arrivals decrease, or a number of tokens is below 1.
    """

    arrival_ns: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    ids: Sequence[str] = ()
    block_tokens: int | None = None
    blocks: tuple[NDArray[np.int64], ...] | None = None
    closed_loop: int | None = None
    source: Mapping[str, Any] | None = None
    measured: Measured | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "source", plain_mapping(self.source, "source"))
        set_(self, "prompt_tokens", _lengths(self.prompt_tokens, "prompt_tokens"))
        set_(self, "output_tokens", _lengths(self.output_tokens, "output_tokens"))
        if self.closed_loop is not None:
            set_(self, "closed_loop", whole_number(self.closed_loop, "closed_loop", 1))
        set_(self, "arrival_ns", _arrivals(self.arrival_ns))
        if self.closed_loop is not None and self.arrival_ns.any():
            problem = "has arrivals after 0, and with closed_loop a request arrives when another ends"
            raise InputError(problem, "conflict", key="arrival_ns")
        ids = self.ids
        if not isinstance(ids, Numbers):
            ids = several(ids, "ids", text) or Numbers(len(self))
        set_(self, "ids", ids)
        for name in ("prompt_tokens", "output_tokens", "ids"):
            self._check_count(name, getattr(self, name))
        if not isinstance(ids, Numbers) and len(set(ids)) < len(ids):
            again = next(name for name, count in Counter(ids).items() if count > 1)
            raise InputError(f"has {shown(again)} twice", "twice", key="ids")
        if self.measured is not None:
            self._check_count("measured", instance(self.measured, "measured", Measured).ttft_ns)
        self._check_blocks()

    def _check_count(self, name: str, values: Any) -> None:
        if len(values) != len(self):
            problem = f"has {len(values)} requests, and arrival_ns has {len(self)}"
            raise InputError(problem, "conflict", key=name)

    def _check_blocks(self) -> None:
        if (self.blocks is None) != (self.block_tokens is None):
            raise InputError("needs the other", "conflict", key="blocks or block_tokens")
        if self.blocks is None or self.block_tokens is None:
            return
        size = whole_number(self.block_tokens, "block_tokens", 1, MOST_TOKENS)
        chains = several(self.blocks, "blocks", lambda chain, name: chain)
        self._check_count("blocks", chains)
        blocks = tuple(_whole_array(chain, f"blocks[{n}]").astype(np.int64) for n, chain in enumerate(chains))
        for request, (ids, tokens) in enumerate(zip(blocks, self.prompt_tokens.tolist(), strict=True)):
            if len(ids) != -(-tokens // size):
                problem = f"has {len(ids)} blocks of {size} tokens, and the prompt {tokens} tokens"
                raise InputError(problem, "conflict", key=f"blocks[{request}]")
        _check_chains(blocks)
        object.__setattr__(self, "block_tokens", size)
        object.__setattr__(self, "blocks", blocks)

    def _title(self) -> str:
        return f"Requests ({len(self)})"

    def _rows(self) -> list[tuple[str, str]]:
        rate = self.requests_per_s
        return [
            ("requests_per_s", "none" if rate is None else f"{rate:.6g}"),
            ("closed_loop", str(self.closed_loop)),
            ("prompt_tokens", str(int(self.prompt_tokens.sum()))),
            ("output_tokens", str(int(self.output_tokens.sum()))),
            ("block_tokens", str(self.block_tokens)),
            ("source", str(self.source)),
        ]

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def requests_per_s(self) -> float | None:
        """Mean rate of arrivals from first to last; None if all arrive at once, or in a closed loop."""
        span_ns = float(self.arrival_ns[-1] - self.arrival_ns[0])
        return (len(self) - 1) * _NS / span_ns if span_ns else None

    def at_rate(self, requests_per_s: float) -> Requests:
        """The same requests with all times between arrivals scaled to another mean rate.

        Latencies that were measured at the original rate are left out.

        Raises:
            InputError: the rate is not above 0, or the requests have no rate: see `requests_per_s`.
        """
        rate = number(requests_per_s, "requests_per_s", 1e-9, 1e9)
        own = self.requests_per_s
        if own is None:
            reason = "in a closed loop" if self.closed_loop is not None else "at once"
            problem = f"these requests arrive {reason}, so there is no rate to change"
            raise InputError(problem, "conflict", key="requests_per_s")
        first = self.arrival_ns[0]
        source = {**(self.source or {}), "requests_per_s": rate}
        return replace(
            self, arrival_ns=first + (self.arrival_ns - first) * (own / rate), source=source, measured=None
        )


def _check_chains(blocks: tuple[NDArray[Any], ...]) -> None:
    """Check that each id always follows the same id: equal ids have equal tokens before them.

    Raises:
        InputError: an id follows different ones.
    """
    ids = np.concatenate(blocks)
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    first = np.cumsum([0, *(len(chain) for chain in blocks[:-1])])
    before[first] = -1
    order = np.argsort(ids, kind="stable")
    ids, before = ids[order], before[order]
    wrong = (ids[1:] == ids[:-1]) & (before[1:] != before[:-1])
    if wrong.any():
        index = int(order[1:][wrong].min())
        request = int(np.searchsorted(first, index, side="right")) - 1
        block = int(blocks[request][index - first[request]])
        problem = f"has block {block} after others than before, so equal ids are not equal prefixes"
        raise InputError(problem, "conflict", key=f"blocks[{request}]")


def _array(value: Any, name: str, kinds: str, what: str) -> NDArray[Any]:
    array = as_array(value)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise InputError(f"is not an array of {what}", "type", key=name)
    return array


def _whole_array(value: Any, name: str) -> NDArray[Any]:
    return _array(value, name, "iu", "whole numbers")


def _lengths(value: Any, name: str) -> NDArray[np.int64]:
    array = _whole_array(value, name)
    outside = (array < 1) | (array > MOST_TOKENS)
    if outside.any():
        request = int(np.argmax(outside))
        problem = f"{array[request]} is not a number of tokens from 1 to {MOST_TOKENS}"
        raise InputError(problem, "range", key=f"{name}[{request}]")
    return array.astype(np.int64)


def _arrivals(value: Any) -> NDArray[np.float64]:
    array = _array(value, "arrival_ns", "iuf", "numbers")
    if not len(array):
        raise InputError("there is no request", "missing", key="arrival_ns")
    array = array.astype(np.float64)
    outside = ~((array >= 0) & (array <= LATEST_NS))
    if outside.any():
        request = int(np.argmax(outside))
        problem = f"{array[request]:g} is not a time from 0 to {LATEST_NS:g} ns"
        raise InputError(problem, "range", key=f"arrival_ns[{request}]")
    back = np.diff(array) < 0
    if back.any():
        request = int(np.argmax(back)) + 1
        problem = f"{array[request]:.0f} is before {array[request - 1]:.0f} of the request in front of it"
        raise InputError(problem, "range", key=f"arrival_ns[{request}]")
    return array
