"""Kernels are compiled beside other users of Numba, of which nothing changes, and with two pipelines alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernels_used
import ndpsim
from calls import said
from ndpsim.base.jit import by_reference, by_type, inlined, kernel, outlined, overridable, releases
from numba_parts import Doubling


def say(*arguments: str, place: Path, **changes: str) -> tuple[str, str]:
    """What a process of its own says, with a cache of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "NDPSIM_"))
    }
    paths = {"PYTHONPATH": str(Path(ndpsim.__file__).parents[1]), "NDPSIM_CACHE_DIR": str(place / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment | paths | changes,
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


# What others have of Numba: what is set on its classes and contexts, and the code of a function of theirs.
OTHERS = """
import sys

import numba
import numpy as np
from numba.core import codegen, compiler, dispatcher, typed_passes, types
from numba.core.registry import cpu_target
from numba.core.typing import context


def look():
    classes = [
        *(codegen.CodeLibrary, codegen.CPUCodeLibrary, codegen.CPUCodegen, compiler.CompilerBase),
        *(compiler.CompileResult, compiler.DefaultPassBuilder, dispatcher.Dispatcher, dispatcher._DispatcherBase),
        *(typed_passes.NativeLowering, types.BaseFunction, types.Function, types.Dispatcher, context.BaseContext),
        *(context.Context, type(cpu_target.target_context), *type(cpu_target.target_context).__mro__[:-1]),
    ]
    seen = {(of, name): value for of in classes for name, value in vars(of).items() if callable(value)}
    for own in (cpu_target.target_context, cpu_target.typing_context, cpu_target.target_context.codegen()):
        seen |= {(type(own), "own", name): value for name, value in vars(own).items() if callable(value)}
    return seen | {"folder": numba.config.CACHE_DIR}


def summed(numbers):
    total = 0
    for number in numbers:
        total += number * 3 - (number >> 2)
    return total


before, after = numba.njit(summed), numba.njit(summed)
numbers = np.arange(9)
before(numbers)
seen = look()

from use import thrice

assert thrice(14) == 42
now = look()
assert {name for name in seen if now.get(name) is not seen[name]} == set(), "changed"
assert set(now) == set(seen), set(now) - set(seen)

through = []
sys.setprofile(lambda frame, event, of: through.append(frame.f_code.co_filename) if event == "call" else None)
assert after(numbers) == before(numbers)
sys.setprofile(None)
ours = {file for file in through if "ndpsim" in file and not file.endswith("base/jit/__init__.py")}
assert not ours, ours  # the listener, which says how long kernels took, hears of it and does nothing
print("untouched")
"""

USE = Path(kernels_used.__file__).read_text()


@pytest.mark.parametrize("public", ["0", "1"])
def test_what_others_compile_in_the_same_process_is_compiled_as_numba_does_it(tmp_path, public):
    (tmp_path / "use.py").write_text(USE)
    (tmp_path / "others.py").write_text(OTHERS)
    assert say("others.py", place=tmp_path, NDPSIM_PUBLIC_NUMBA=public)[0] == "untouched\n"


COMMANDS = """clock,command,rank,bankgroup,bank,row,column
1,ACT,0,0,0,5,-1
60,RD,0,0,0,5,8
"""
CHECK = (
    *("-m", "ndpsim", "check", "c.csv", "--standard", "DDR5", "--org", "DDR5_16Gb_x8"),
    *("--timing", "DDR5_4800AN", "--refresh", "none", "--energy"),
)


@pytest.mark.skipif(not releases.IS_TRIED, reason="there is one pipeline with this release")
def test_both_pipelines_have_the_same_result_and_keep_their_kernels(tmp_path, monkeypatch):
    """Of small kernels; .ci/run has references and sessions with both."""
    (tmp_path / "c.csv").write_text(COMMANDS)
    public = {"NDPSIM_PUBLIC_NUMBA": "1"}
    first, compiling = say(*CHECK, place=tmp_path, **public)
    assert "compiled" in compiling
    assert say(*CHECK, place=tmp_path, **public) == (first, "")
    monkeypatch.chdir(tmp_path)
    assert said(*CHECK[2:]) == first
    say("-m", "ndpsim", "cache", "clear", place=tmp_path)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


# The parts that types choose, and records, with which kernels are written.


@by_type
def scaled(how, number):
    return number


@overridable
def shifted(how, number):
    return number + how.by


RECORD = np.dtype([("clock", np.int64), ("open", np.int64, 4), ("rank", np.int32)], align=True)


@by_reference
class State(NamedTuple):
    banks: Any
    how: Doubling
    one: Any


@outlined
def put(record, clock):
    record.clock = clock
    record.open[2] += 5


@inlined
def sum_of(banks):
    total = 0
    for bank in banks:
        total += bank.clock + bank.rank
    return total


@kernel
def step(record, state, places):
    put(record, state.one.clock)
    put(state.banks[1], 20)
    state.banks[2].rank += 3
    places[0] = sum_of(state.banks)
    places[1] = scaled(state.how, places[0])
    places[2] = shifted(state.how, 0) + state.one.rank
    return record.clock


def test_kernels_take_records_and_by_reference_arrays_of_them():
    banks, places = np.zeros(3, dtype=RECORD), np.zeros(3, dtype=np.int64)
    banks["clock"], banks["rank"] = (1, 2, 3), (10, 11, 12)
    one = np.zeros(1, dtype=RECORD)
    one[0]["clock"], one[0]["rank"] = 77, 9
    record = np.zeros(1, dtype=RECORD)
    assert step(record[0], State(banks, Doubling(4), one[0]), places) == 77
    assert record["open"][0].tolist() == [0, 0, 5, 0]
    assert (banks["clock"].tolist(), banks["rank"].tolist()) == ([1, 20, 3], [10, 11, 15])
    assert banks["open"][1].tolist() == [0, 0, 5, 0]
    assert places.tolist() == [60, 120, 13]


@pytest.mark.skipif(not releases.IS_TRIED, reason="already compiled by what is public in Numba")
def test_kernels_do_the_same_when_compiled_by_what_is_public(tmp_path):
    """The kernels of this file and of those beside it."""
    here = Path(__file__)
    files = [str(here), str(here.with_name("test_by_reference.py"))]
    said, _ = say(
        *("-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(here.parents[1]), *files, "-k"),
        "test_kernels_take or test_a_kernel_reads or test_a_copy",
        place=tmp_path,
        NDPSIM_PUBLIC_NUMBA="1",
    )
    assert "5 passed" in said
