"""ndpsim's own form: CSV with the columns ``id,arrival_s,input_tokens,output_tokens``; `id` may be absent.

A closed loop has a column `concurrency` instead of `arrival_s`, with the same number in each row. A last
column `blocks_512` may have the ids of the prompt's blocks of 512 tokens, separated by blanks. Times are
decimal, and exact to a nanosecond or better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.requests.recorded import RecordedRequests, Sink, WorkloadFormat, cells_of, seconds, whole
from ndpsim.workload.requests.requests import Requests

_NO_CELL = re.compile("[,\n\r\ud800-\udfff]")  # nor parts of surrogate pairs, which UTF-8 does not have
_HEADER = re.compile(r"(id,)?(arrival_s|concurrency),input_tokens,output_tokens(?:,blocks_([0-9]{1,9}))?")

_COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


def _recognises(path: Path, head: bytes) -> bool:
    """Whether the first line has a column of this form; `_read` says which are missing."""
    header = head.decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    return not set(_COLUMNS).isdisjoint(header.replace(" ", "").strip().split(","))


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    header = next((text.replace(" ", "") for _, text in numbered_lines(path)), "")
    form = _HEADER.fullmatch(header)
    if form is None:
        lacking = [name for name in _COLUMNS if name not in header.split(",")]
        problem = f"column {lacking[0]} is missing" if lacking else f"{shown(header)} is not the header"
        if header.startswith(","):
            problem = "the first column has no name, as an index of pandas (index=False leaves it out)"
        problem += "; the header is [id,]arrival_s,input_tokens,output_tokens"
        raise InputError(problem, "form", file=path, line=1)
    named, when = form[1] is not None, form[2]
    rows = RecordedRequests(path, most, when, "input_tokens", "output_tokens", from_first=False)
    block_tokens = None if form[3] is None else int(form[3])
    closed_loop: int | None = None
    for line, cells in cells_of(path, header.split(",")):
        if rows.full:
            break
        name = cells.pop(0) if named else None
        arrival_ns: int | Decimal = 0
        if when == "arrival_s":
            arrival_ns = seconds(cells[0], path, line, when)
        else:
            concurrency = whole(cells[0], path, line, when)
            if closed_loop not in (None, concurrency):
                problem = f"{concurrency}, and {closed_loop} in the rows before"
                raise InputError(problem, "conflict", file=path, line=line, key=when)
            closed_loop = concurrency
        blocks = None if block_tokens is None else _blocks(cells[3], path, line, f"blocks_{block_tokens}")
        prompt = whole(cells[1], path, line, rows.prompt)
        output = whole(cells[2], path, line, rows.output)
        rows.add(arrival_ns, prompt, output, line, name, blocks)
    return rows.requests(block_tokens, closed_loop)


def _blocks(text: str, path: Path, line: int, key: str) -> list[int]:
    return [whole(word, path, line, key) for word in text.split()]


def lines_of(requests: Requests, header: bool = True) -> Iterator[str]:
    """The lines of a file in this form, with the header or without it.

    Raises:
        InputError: an id cannot be written.
    """
    when = "arrival_s" if requests.closed_loop is None else "concurrency"
    last = "" if requests.blocks is None else f",blocks_{requests.block_tokens}"
    if header:
        yield f"id,{when},input_tokens,output_tokens{last}\n"
    lengths = zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    rows = zip(requests.ids, requests.arrival_ns.tolist(), lengths, strict=True)
    for index, (name, arrival_ns, (prompt, output)) in enumerate(rows):
        if _NO_CELL.search(name) or name != name.strip():
            problem = f"{shown(name)} has a comma, a line break, a surrogate, or a blank at an end"
            raise InputError(problem, "form", key=f"ids[{index}]")
        when = str(requests.closed_loop or f"{Decimal(repr(arrival_ns)).scaleb(-9).normalize():f}")
        blocks = "" if requests.blocks is None else "," + " ".join(map(str, requests.blocks[index].tolist()))
        yield f"{name},{when},{prompt},{output}{blocks}\n"


FORMAT = WorkloadFormat(
    example="7,0.914,2048,128",
    meaning="CSV of ndpsim, columns id,arrival_s,input_tokens,output_tokens",
    recognises=_recognises,
    read=_read,
)
