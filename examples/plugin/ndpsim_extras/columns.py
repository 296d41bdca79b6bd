"""A format of serving requests: one JSON object with a list for each column, and times in seconds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from ndpsim.base.errors import InputError
from ndpsim.base.text_files import read_json
from ndpsim.workload.requests.recorded import RecordedRequests, Sink, WorkloadFormat, is_time
from ndpsim.workload.requests.requests import Requests

_KEYS = ("seconds", "prompts", "outputs")


def _read(path: Path, most: int | None, sink: Sink | None) -> Requests:
    record = read_json(path)
    if not isinstance(record, dict) or not all(isinstance(record.get(key), list) for key in _KEYS):
        raise InputError(f"is not an object with lists {', '.join(_KEYS)}", "form", file=path)
    rows = RecordedRequests(path, most, *_KEYS, sink)
    for time, prompt, output in zip(*(record[key] for key in _KEYS), strict=False):
        if not is_time(time) or type(prompt) is not int or type(output) is not int:
            raise InputError("has a value that is not a number", "type", file=path)
        if not rows.full:
            rows.add(Decimal(str(time)).scaleb(9), prompt, output)
    return rows.requests()


FORMAT = WorkloadFormat(
    example='{"seconds": [0.5], "prompts": [100], "outputs": [7]}',
    meaning="JSON with a list for each column: seconds, prompts and outputs",
    recognises=lambda path, head: head.lstrip().startswith(b"{") and b'"seconds"' in head,
    read=_read,
)
