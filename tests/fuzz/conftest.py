"""Prints, after the tests of this folder, with which seed and how its attempts ended."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from fuzz.outcomes import COUNTED

_NAME = "attempts"


@pytest.fixture(autouse=True)
def _counts(request: pytest.FixtureRequest) -> Iterator[None]:
    """The attempts of a test, which go from workers to the process that prints; a long test may take hours."""
    if request.node.get_closest_marker("long"):
        faulthandler.cancel_dump_traceback_later()
    before = COUNTED.copy()
    yield
    request.node.user_properties.append((_NAME, dict(COUNTED - before)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Those of this process, if it has made any: a test that was interrupted has no report."""
    counted = COUNTED.copy()
    for outcome in ("passed", "failed", "") if not counted else ():
        for report in terminalreporter.stats.get(outcome, []):
            for name, counts in report.user_properties if report.when == "teardown" else ():
                counted.update(counts if name == _NAME else {})
    if counted:
        seed = config.getoption("hypothesis_seed", None)
        drawn = "derived from each test" if settings.default.derandomize else seed or "random"
        ends = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(counted.items()))
        terminalreporter.write_line(f"fuzz: seed {drawn}; {counted.total():,} attempts: {ends}")
