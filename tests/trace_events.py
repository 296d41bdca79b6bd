"""A reader of timelines that refuses what the Trace Event Format does not allow.

The format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

_METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def trace_events(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """The events of a file in the JSON object format, each checked; processes and threads are named."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    assert content["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = content["traceEvents"]
    begun: list[tuple[int, str, Any]] = []
    for event in events:
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) and event[key] >= 1 for key in ("pid", "tid")), event
        assert event["ts"] >= 0, event
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
        elif event["ph"] == "M":
            assert set(event["args"]) == {_METADATA[event["name"]]}, event
        else:  # nestable asynchronous events, paired by process, category and id
            assert event["ph"] in ("b", "e"), event
            nested = event["pid"], event["cat"], event["id"]
            begun.append(nested) if event["ph"] == "b" else begun.remove(nested)
    assert not begun, begun
    _check_names(events)
    return events


def _check_names(events: list[dict[str, Any]]) -> None:
    """Each process and thread in use has a name and a place, and no two threads a number."""
    for kind, keys in (("process", ("pid",)), ("thread", ("tid",))):
        for said in (f"{kind}_name", f"{kind}_sort_index"):
            named = [tuple(event[key] for key in keys) for event in events if event["name"] == said]
            assert len(set(named)) == len(named), (said, named)
            assert {tuple(event[key] for key in keys) for event in events if event["ph"] != "M"} <= set(named)
    process = {event["tid"]: event["pid"] for event in events if event["name"] == "thread_name"}
    assert all(process[event["tid"]] == event["pid"] for event in events if event["ph"] != "M")
