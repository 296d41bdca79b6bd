"""Damaged logs of runs: judged, or refused in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.outcomes import attempt, examples
from fuzz.test_readers import _DAMAGES, damaged
from ndpsim.audit import check_schedule, check_serving
from ndpsim.inference.layers.log import writing_log
from test_serving_audit import LOG

_JUDGES = {"schedule": check_schedule, "serving": check_serving}
_ODD: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("-inf"), 0.5, "", "x" * 5000, "\ud800", [], [[]], [0, -1],
    ["a"], {}, {"0": [1]}, {"x": None}, [10**9], {"-1": -1}
]  # fmt: skip
_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.sampled_from(["value", "gone", "line twice", "line gone"]),
        st.sampled_from(_ODD),
    ),
    min_size=1,
    max_size=3,
)
_KINDS = st.sampled_from(sorted(_JUDGES))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, moe_by_hand: Any) -> dict[str, list[Any]]:
    """The lines of a good log of each kind."""
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    with writing_log(path) as observer:
        moe_by_hand.play(observer, "trimoe")
    return {"schedule": [json.loads(line) for line in path.read_text().splitlines()], "serving": LOG}


def _values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list and mapping in a value, with each of its places."""
    if isinstance(value, dict | list):
        for place in value if isinstance(value, dict) else range(len(value)):
            yield value, place
            yield from _values(value[place])


def _changed(lines: list[Any], changes: list[tuple[int, str, Any]]) -> bytes:
    lines = copy.deepcopy(lines)
    for number, kind, odd in changes:
        line = number % len(lines)
        if kind == "line twice":
            lines.insert(line, copy.deepcopy(lines[line]))
        elif kind == "line gone" and len(lines) > 1:
            del lines[line]
        elif places := list(_values(lines[line])):
            holder, place = places[number // len(lines) % len(places)]
            if kind == "gone":
                del holder[place]
            else:
                holder[place] = copy.deepcopy(odd)
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _attempt(kind: str, content: bytes, folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    attempt(_JUDGES[kind], path)


@settings(max_examples=150)
@given(kind=_KINDS, changes=_CHANGES, damages=_DAMAGES)
def test_a_damaged_log_is_judged_or_refused(logs, kind, changes, damages, tmp_path_factory):
    good = _changed(logs[kind], [])
    _attempt(kind, damaged(good, damages), tmp_path_factory.getbasetemp())
    _attempt(kind, _changed(logs[kind], changes), tmp_path_factory.getbasetemp())


@pytest.mark.long
@settings(max_examples=examples(20_000))
@given(kind=_KINDS, changes=_CHANGES)
def test_damaged_logs_for_hours(logs, kind, changes, tmp_path_factory):
    _attempt(kind, _changed(logs[kind], changes), tmp_path_factory.getbasetemp())
