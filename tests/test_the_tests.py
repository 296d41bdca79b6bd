"""The tests themselves: what hangs ends the run, and what is drawn at random is drawn alike in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

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
    assert 30 <= float(request.config.getini("faulthandler_timeout")) <= 300


CHOSEN = """
import runpy, sys
from hypothesis import settings
runpy.run_path(sys.argv[1])
print(settings().derandomize, settings().deadline)
"""


@pytest.mark.parametrize(("ci", "chosen"), [("true", "True None"), ("", "False None")])
def test_examples_are_drawn_alike_in_ci_and_never_against_the_clock(tmp_path, ci, chosen):
    done = run("-c", CHOSEN, str(HERE / "conftest.py"), folder=tmp_path, CI=ci)
    assert done.stdout.strip() == chosen


def test_the_profile_is_in_force():
    assert settings().deadline is None
    assert settings().derandomize == bool(os.environ.get("CI"))
