"""The tests themselves: what hangs ends the run, and what is drawn at random is drawn alike in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

HERE = Path(__file__).parent

# A kernel that holds the interpreter's lock: no thread of Python's can end it.
ENDLESS = """
import numba

@numba.njit
def endless(number):
    while number != 1:
        number = 3 - number + number % 1
    return number

def test_before():
    pass

def test_that_hangs():
    endless(0)
"""


def run(*arguments: str, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Another Python, for at most a minute."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_test_that_hangs_ends_the_run_and_is_named(tmp_path):
    (tmp_path / "test_hanging.py").write_text(ENDLESS)
    (tmp_path / "pyproject.toml").write_bytes((HERE.parent / "pyproject.toml").read_bytes())
    limit = ["-o", "faulthandler_timeout=2", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = run("-m", "pytest", *limit, "test_hanging.py", folder=tmp_path)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in test_that_hangs" in done.stderr


def test_every_test_has_a_time_limit(request):
    assert 30 <= float(request.config.getini("faulthandler_timeout")) <= 600


CHOSEN = """
import runpy, sys
from hypothesis import settings
runpy.run_path(sys.argv[1])
print(settings().derandomize, settings().deadline)
"""


@pytest.mark.parametrize(("ci", "chosen"), [("true", "True None"), ("", "False None")])
def test_examples_are_drawn_alike_in_ci_and_never_against_the_clock(tmp_path, ci, chosen):
    done = run("-c", CHOSEN, str(HERE / "conftest.py"), folder=tmp_path, CI=ci, NDPSIM_TESTS_IN_CI="")
    assert done.stdout.strip() == chosen


def test_the_profile_is_in_force():
    assert settings().deadline is None
    assert settings().derandomize == bool(os.environ.get("NDPSIM_TESTS_IN_CI"))


LARGE = """
def test_that_compares_large_lists():
    assert [n * n % 7919 for n in range(100_000)] == [n * n % 7907 for n in range(100_000)]

def test_that_compares_large_texts():
    assert "".join(f"{n * n % 79}\\n" for n in range(30_000)) == "".join(f"{n * n % 83}\\n" for n in range(30_000))
"""


def test_what_differs_in_much_is_told_shortly_and_named(tmp_path):
    (tmp_path / "test_large.py").write_text(LARGE)
    (tmp_path / "conftest.py").write_bytes((HERE / "conftest.py").read_bytes())
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", folder=tmp_path, CI="true")
    assert done.returncode == 1
    assert "FAILED test_large.py::test_that_compares_large_lists" in done.stdout
    assert "FAILED test_large.py::test_that_compares_large_texts" in done.stdout
    assert len(done.stdout) < 20_000


def test_shrinking_ends_long_before_the_watchdog_does(request):
    from hypothesis.internal.conjecture import engine

    assert float(request.config.getini("faulthandler_timeout")) >= 3 * engine.MAX_SHRINKING_SECONDS
    assert Phase.explain not in settings().phases
    assert Phase.shrink in settings().phases
