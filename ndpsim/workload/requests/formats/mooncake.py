"""Mooncake's traces of Kimi, JSON lines with the hashes of each prompt's blocks.

Source: kvcache-ai/Mooncake, `FAST25-release/traces` (Apache-2.0). `timestamp` is in milliseconds; several
requests may share one. `hash_ids`, which other programs may leave out in all requests, has an id for each
block of 512 tokens, the last one maybe in part. Equal ids are blocks that can be reused: they have the same
tokens, after the same tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import json_objects, json_with, whole_of
from ndpsim.workload.requests.recorded import RecordedRequests, Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests

_TIME, _PROMPT, _OUTPUT, _BLOCKS = "timestamp", "input_length", "output_length", "hash_ids"
_BLOCK_TOKENS = 512
_NS_PER_MS = 1_000_000


def _read(path: Path, most: int | None, sink: Sink | None = None) -> Requests:
    rows = RecordedRequests(path, most, _TIME, _PROMPT, _OUTPUT, sink)
    hashed: bool | None = None  # as the first request is
    for line, record in json_objects(path, held=False):
        if rows.full:
            break
        if type(record.get(_TIME)) is float:
            problem = (
                f"{shown(record[_TIME])} is not a whole number of milliseconds; fractions are milliseconds "
                "in AIPerf's traces and seconds in GuideLLM's, and the file does not say which"
            )
            raise InputError(problem, "type", file=path, line=line, key=_TIME)
        time, prompt, output = (whole_of(record, key, path, line) for key in (_TIME, _PROMPT, _OUTPUT))
        hashed = _BLOCKS in record if hashed is None else hashed
        if not hashed and _BLOCKS in record:
            raise InputError(
                "is missing in the requests before", "missing", file=path, line=line, key=_BLOCKS
            )
        blocks = _blocks(record, prompt, path, line) if hashed else None
        rows.add(time * _NS_PER_MS, prompt, output, line, blocks=blocks)
    return rows.requests(_BLOCK_TOKENS if hashed else None)


def _blocks(record: dict[str, Any], prompt: int, path: Path, line: int) -> list[int]:
    blocks: Any = record.get(_BLOCKS)
    if blocks is None:
        raise InputError("is missing", "missing", file=path, line=line, key=_BLOCKS)
    if not isinstance(blocks, list) or any(type(block) is not int or block < 0 for block in blocks):
        raise InputError("is not a list of whole numbers from 0", "type", file=path, line=line, key=_BLOCKS)
    if len(blocks) != -(-prompt // _BLOCK_TOKENS):
        problem = f"has {len(blocks)} blocks of {_BLOCK_TOKENS} tokens, and {_PROMPT} is {prompt}"
        raise InputError(problem, "conflict", file=path, line=line, key=_BLOCKS)
    return blocks


FORMAT = WorkloadFormat(
    example='{"timestamp": 3000, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]}',
    meaning="JSON lines of Mooncake, with hashes of the prompts' blocks of 512 tokens",
    recognises=json_with("hash_ids", "input_length"),
    read=_read,
)
