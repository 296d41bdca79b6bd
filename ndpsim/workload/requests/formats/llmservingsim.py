"""LLMServingSim's workloads: JSON lines with ``input_toks``, ``output_toks`` and ``arrival_time_ns``.

Source: casys-kaist/LLMServingSim, `workloads` (MIT). If rows have the prompt's tokens (`input_tok_ids`),
equal beginnings of prompts get equal blocks of 16 tokens. Sessions, whose calls wait for each other and for
tools, have no times of arrival and are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.text_files import json_objects, json_with, whole_of
from ndpsim.workload.requests.recorded import RecordedRequests, Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests

_TIME, _PROMPT, _OUTPUT, _TOKENS = "arrival_time_ns", "input_toks", "output_toks", "input_tok_ids"
_SESSIONS = ("session_id", "sub_requests")
_BLOCK_TOKENS = 16
_is_workload = json_with("input_toks")


class _BlockNumbers:
    """Numbers of blocks, unique for a content and all contents before it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def number(self, tokens: list[int]) -> list[int]:
        numbers: list[int] = []
        for start in range(0, len(tokens), _BLOCK_TOKENS):
            block = (numbers[-1] if numbers else -1, tuple(tokens[start : start + _BLOCK_TOKENS]))
            numbers.append(self._numbers.setdefault(block, len(self._numbers)))
        return numbers


def _tokens(record: dict[str, Any], prompt: int, path: Path, line: int) -> list[int]:
    tokens: Any = record[_TOKENS]
    if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
        raise InputError("is not a list of whole numbers", "type", file=path, line=line, key=_TOKENS)
    if len(tokens) != prompt:
        problem = f"has {len(tokens)} tokens, and {_PROMPT} is {prompt}"
        raise InputError(problem, "conflict", file=path, line=line, key=_TOKENS)
    return tokens


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    numbers = _BlockNumbers()
    with_tokens: bool | None = None
    for line, record in json_objects(path):
        if rows.full:
            break
        for key in _SESSIONS:
            if key in record:
                problem = "is a session, whose calls have no times of arrival"
                raise InputError(problem, "unsupported", file=path, line=line, key=key)
        time, prompt, output = (whole_of(record, key, path, line) for key in (_TIME, _PROMPT, _OUTPUT))
        if with_tokens not in (None, _TOKENS in record):
            problem = "is in some rows, and not in others"
            raise InputError(problem, "conflict", file=path, line=line, key=_TOKENS)
        with_tokens = _TOKENS in record
        blocks = numbers.number(_tokens(record, prompt, path, line)) if with_tokens else None
        rows.add(time, prompt, output, line, blocks=blocks)
    return rows.requests(_BLOCK_TOKENS if with_tokens else None)


FORMAT = WorkloadFormat(
    example='{"input_toks": 1455, "output_toks": 164, "arrival_time_ns": 3212421997}',
    meaning="JSON lines of LLMServingSim, keys input_toks, output_toks and arrival_time_ns",
    recognises=lambda path, head: _is_workload(path, head) and b'"queued_ts"' not in head,
    read=_read,
)
