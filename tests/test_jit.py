"""Where compiled kernels are kept: never stale, never in the way, and never run when damaged."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

import kernels_used
import ndpsim
from calls import said
from ndpsim.base import jit
from ndpsim.base.jit import releases
from ndpsim.cli.notices import COMPILE_S, kernels_of
from ndpsim.simulate.results.stopwatch import Stopwatch

PACKAGE = Path(ndpsim.__file__).parent

#: With another release, Numba's own cache keeps the kernels.
own_cache = pytest.mark.skipif(
    not releases.IS_TRIED, reason="kernels are compiled by what is public in Numba"
)

USE = (
    Path(kernels_used.__file__).read_text()
    + """
if __name__ == "__main__":
    assert thrice(14) == 42
    print(sum(thrice.stats.cache_hits.values()))
"""
)


def run(*arguments: str, **changes: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=changes.get("PWD", sys.prefix),
    )


def ndpsim_says(*arguments: str, **changes: str) -> tuple[int, str, list[str]]:
    """The status of a command in a process of its own, its output, and its lines on standard error.

    Its kernels are those of other tests, with the bounds of arrays checked where theirs are.
    """
    place = {"PYTHONPATH": str(PACKAGE.parent)}
    place |= {name: os.environ[name] for name in ("NUMBA_BOUNDSCHECK",) if name in os.environ}
    process = run("-m", "ndpsim", *arguments, **place | changes)
    out, err = process.communicate()
    return process.returncode, out, err.splitlines()


def cache_of(package: Path, **changes: str) -> str:
    code = "from ndpsim.base import jit; print(*jit.entries().folders(), sep=chr(10))"
    said, _ = run("-c", code, PYTHONPATH=str(package.parent), **changes).communicate()
    return said.splitlines()[0]


@pytest.fixture
def copied(tmp_path):
    """A copy of the package, first on the path of a new process."""
    return Path(
        shutil.copytree(PACKAGE, tmp_path / "site" / "ndpsim", ignore=shutil.ignore_patterns("__pycache__"))
    )


def test_any_change_of_a_source_or_a_flag_means_another_cache(copied, tmp_path):
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache")}
    before = cache_of(copied, **place)
    assert cache_of(copied, **place) == before
    assert cache_of(copied, NUMBA_BOUNDSCHECK="1", **place) != before
    source = copied / "dram" / "fast" / "step.py"
    source.write_text(source.read_text() + "# another comment\n")
    assert cache_of(copied, **place) != before


def test_what_no_kernel_imports_leaves_the_cache_as_it_is(copied, tmp_path):
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache")}
    before = cache_of(copied, **place)
    for package in ("cli", "config", "inference/serving", "policies", "report", "simulate", "studies"):
        source = copied / package / "__init__.py"
        source.write_text(source.read_text() + "# another comment\n")
    assert cache_of(copied, **place) == before


def test_the_cache_knows_all_that_modules_with_kernels_import():
    sources = jit._kernel_sources()
    modules = [f"ndpsim/{path}".removesuffix(".py").replace("/", ".") for path in sources]
    code = (
        "import ast, importlib.util, sys\n"
        f"for name in {modules}:\n"
        "    spec = importlib.util.find_spec(name.removesuffix('.__init__'))\n"
        "    for node in ast.walk(ast.parse(open(spec.origin).read())):\n"
        "        if isinstance(node, ast.ImportFrom) and (node.module or '').startswith('ndpsim'):\n"
        "            for name in (node.module, *(f'{node.module}.{alias.name}' for alias in node.names)):\n"
        "                try: spec = importlib.util.find_spec(name)\n"
        "                except ModuleNotFoundError: continue\n"
        "                if spec: print(spec.origin)\n"
    )
    said, _ = run("-c", code, PYTHONPATH=str(PACKAGE.parent)).communicate()
    assert {Path(line).relative_to(PACKAGE).as_posix() for line in said.split()} <= set(sources)
    assert "dram/timing.py" in sources


def test_nothing_is_kept_beside_the_package(copied, tmp_path):
    kept = Path(cache_of(copied, NDPSIM_CACHE_DIR=str(tmp_path / "cache")))
    assert kept.is_relative_to(tmp_path / "cache")
    assert not kept.is_relative_to(copied)


def test_a_cache_folder_that_cannot_be_made_is_no_obstacle(copied, tmp_path):
    (tmp_path / "a file").touch()
    kept = cache_of(copied, NDPSIM_CACHE_DIR=str(tmp_path / "a file"), TMPDIR=str(tmp_path))
    assert Path(kept).is_relative_to(tmp_path)


THROUGH_DAMAGE = """
import random
import sys
from pathlib import Path

from ndpsim.base.jit import entries, kernel
from use import thrice

(entry,) = next(entries().folders()).glob("*thrice*.entry")
whole = entry.read_bytes()
for seed in range(8):
    damaged = bytearray(whole)
    damaged[random.Random(seed).randrange(len(whole))] ^= 1 << seed
    entry.write_bytes(damaged if seed < 6 else [b"", bytes(len(whole))][seed - 6])
    again = kernel(thrice.py_func)
    assert again(14) == 42
    assert sum(again.stats.cache_misses.values()) == 1
    again = kernel(thrice.py_func)
    assert again(14) == 42
    assert sum(again.stats.cache_hits.values()) == 1
"""


@own_cache
def test_damaged_kernels_are_compiled_anew_and_never_run(tmp_path):
    (tmp_path / "use.py").write_text(USE.replace("__main__", "use"))
    (tmp_path / "through.py").write_text(THROUGH_DAMAGE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    process = run(str(tmp_path / "through.py"), **place)
    assert process.communicate()[1] == ""
    assert process.returncode == 0


@own_cache
def test_two_processes_may_start_at_once_on_an_empty_cache_or_a_damaged_one_and_a_third_compiles_nothing(
    tmp_path,
):
    (tmp_path / "use.py").write_text(USE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}

    def use_twice_at_once() -> None:
        for process in [run(str(tmp_path / "use.py"), **place) for _ in range(2)]:
            assert process.communicate()[1] == ""
            assert process.returncode == 0

    use_twice_at_once()
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        path.write_bytes(random.Random(1).randbytes(path.stat().st_size))
    use_twice_at_once()
    said, _ = run(str(tmp_path / "use.py"), **place).communicate()
    assert said.split() == ["1"]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Makes a kernel that has not been called, with a cache of its own."""
    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def twice(number):
        return 2 * number

    return lambda: jit.kernel(twice)


@own_cache
@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps(("other", "types", ()))])
def test_what_is_whole_but_no_kernel_is_compiled_anew(small, content):
    first = small()
    assert first(21) == 42
    (name,) = jit.entries().names()
    jit.entries().write(name, content)
    again = small()
    assert again(21) == 42
    assert sum(again.stats.cache_misses.values()) == 1
    assert sum(small().stats.cache_hits.values()) == 0


def test_compiling_is_timed_apart_with_what_is_compiled_for_it(small, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    event = SimpleNamespace(data={"dispatcher": small()})
    heard = jit._compilations
    watch = Stopwatch()
    clock[0] += 1
    heard.on_start(event)
    clock[0] += 5
    heard.on_start(event)
    clock[0] += 2
    assert (watch.compile_s(), watch.wall_s()) == (7, 1)
    heard.on_end(event)
    heard.on_end(event)
    clock[0] += 0.5
    heard.on_start(SimpleNamespace(data={"dispatcher": numba.njit(lambda: 1)}))  # not ours
    clock[0] += 1
    assert (watch.compile_s(), watch.wall_s()) == (7, 2.5)


def test_compiling_is_said_to_those_who_listen_and_happens_once(small, caplog):
    caplog.set_level(logging.INFO, "ndpsim")
    watch = Stopwatch()
    assert small()(21) == 42
    assert watch.compile_s() > 0
    name = f"{__name__}.small.locals.twice"
    first, second = (record.getMessage() for record in caplog.records)
    assert first == f"compiling {name}"
    assert second.startswith(f"compiled {name} in ")
    watch = Stopwatch()
    assert small()(21) == 42
    assert watch.compile_s() == 0
    assert watch.wall_s() > 0
    assert len(caplog.records) == 2


def test_garbage_of_compiling_is_collected_and_collection_is_as_it_was(small):
    collected, whole = [], []

    def note(phase, info):
        if phase == "stop":
            collected.append(info["collected"])
            whole.append(info["generation"] == 2)

    twice, before = small(), (gc.isenabled(), gc.get_freeze_count())
    gc.callbacks.append(note)
    try:
        assert twice(21) == 42
    finally:
        gc.callbacks.remove(note)
    assert sum(collected) > 1000
    assert sum(whole) == 1
    assert (gc.isenabled(), gc.get_freeze_count()) == before


def test_compiling_is_silent_in_python(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    assert run(str(tmp_path / "use.py"), **place).communicate() == ("0\n", "")


COMMANDS = """clock,command,rank,bankgroup,bank,row,column
1,ACT,0,0,0,5,-1
60,RD,0,0,0,5,8
"""
DEVICE = ("--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN")
CHECK = (*DEVICE, "--refresh", "none", "--energy")


def test_a_command_says_what_it_compiles_and_what_is_to_come(tmp_path):
    (tmp_path / "c.csv").write_text(COMMANDS)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache")}
    status, out, (first, last) = ndpsim_says("check", str(tmp_path / "c.csv"), *CHECK, **place)
    assert first == "ndpsim: compiling 1 of about 3 kernels, once for this version; 3 s or more ..."
    assert last.startswith("ndpsim: compiled 3 kernels in ")
    assert ndpsim_says("check", str(tmp_path / "c.csv"), *CHECK, **place) == (status, out, [])


def test_the_kernels_that_are_announced_exist():
    known = {
        f"{module.__name__}.{name}"
        for module in map(
            __import__("importlib").import_module, {kernel.rpartition(".")[0] for kernel in COMPILE_S}
        )
        for name in vars(module)
    }
    assert set(COMPILE_S) <= known
    for command in ("gemv", "dram", "check", "relayout", "compare"):
        given = {"exact_check": True, "energy": True, "host_traffic": "1", "hw": "cxl"}
        assert set(kernels_of(command, given)) <= set(COMPILE_S)


# What Numba's settings do

GEMV = ("gemv", "--shape", "64,64", "--json", "-")
LANE = Path(__file__).parents[1] / "examples" / "lane.csv.gz"


def test_settings_that_numba_refuses_are_ignored_each_in_one_line():
    given = {
        "NUMBA_NUM_THREADS": "0",
        "NUMBA_CPU_FEATURES": "no sign",
        "NUMBA_OPT": "9",
        "NUMBA_DISABLE_JIT": "yes",
    }
    # Without these settings, the kernels of the tests may not be in the cache: a check has small ones.
    status, out, said = ndpsim_says("check", str(LANE), "--hw", "trimoe", "--json", "-", **given)
    notices = [line for line in said if "compil" not in line and "%" not in line]
    assert sorted(notices) == sorted(
        f"ndpsim: {name}={value} is ignored: Numba does not take this value" for name, value in given.items()
    )
    assert status == 0
    assert json.loads(out)["commands"] == 392
    threads = releases._USABLE["NUMBA_NUM_THREADS"]
    assert [text for text in ("-3", "many", "", "0", "1", " 02 ", "64") if threads.fullmatch(text)] == [
        "1",
        " 02 ",
        "64",
    ]


@pytest.mark.parametrize("text", ["[1", "num_threads: 0"])
def test_a_file_of_settings_that_numba_refuses_is_said_in_one_line(tmp_path, text):
    (tmp_path / ".numba_config.yaml").write_text(text)
    status, out, said = ndpsim_says(*GEMV, PWD=str(tmp_path))
    assert (status, out, len(said)) == (2, "", 1)
    assert said[0].startswith("ndpsim: error: Numba cannot be imported")
    assert ".numba_config.yaml" in said[0]


TRACE = "".join(f"{'LD' if n % 3 else 'ST'} {n * 0x9E3779B1 % (1 << 34) & ~63:#x}\n" for n in range(120))
DRAM = (*DEVICE, "--ranks", "2", "--mapper", "MOP4CLXOR", "--json", "-")


SMALL_DIMMS = ("--set", "dimm.ranks=1", "--set", "dimm.count=2", "--set", "host.channels=2")
IN_PYTHON = [
    GEMV,
    (*GEMV, "--engine", "host-read", "--layout", "striped"),
    (*GEMV, "--hw", "cxl", "--set", "ndp.systolic.dataflow=weight-stationary"),
    ("relayout", "--shape", "64,64", *SMALL_DIMMS, "--from", "localized", "--to", "striped", "--json", "-"),
    ("dram", "t.trace", *DRAM, "--exact-check"),
    ("dram", "t.trace", *DRAM, "--row-policy", "closed-cap", "--refresh", "same-bank"),
]
BESIDE_HOST = (*GEMV, "--host-traffic", "saturate", "--arbitration", "slice")

#: Prints what each of the commands that it is given prints.
ALL_IN_PYTHON = """
import contextlib, io, json, sys
from ndpsim.cli.main import main

printed = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main(words)
        except SystemExit as end:
            assert not end.code, words
    printed.append(out.getvalue())
print(json.dumps(printed))
"""


def results_in_python(folder: Path, commands: list[tuple[str, ...]]) -> list[dict[str, object]]:
    """The results of commands that run without compiling, in a process of their own."""
    place = {"PYTHONPATH": str(PACKAGE.parent), "PWD": str(folder), "NUMBA_DISABLE_JIT": "1"}
    process = run("-c", ALL_IN_PYTHON, json.dumps(commands), **place)
    printed, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    return list(map(timeless, json.loads(printed)))


def timeless(text: str) -> dict[str, object]:
    times = ("wall_s", "compile_s", "run_s")
    return {name: value for name, value in json.loads(text).items() if name not in times}


@pytest.mark.parametrize("commands", [IN_PYTHON, pytest.param([BESIDE_HOST], marks=pytest.mark.long)])
def test_without_compiling_every_result_is_the_same(here, commands):
    (here / "t.trace").write_text(TRACE)
    compiled = [timeless(said(*command)) for command in commands]
    assert results_in_python(here, commands) == compiled


LOAD_THEN_COMPILE = """
from numba.core.base import BaseContext

registered = []
register = BaseContext.refresh
BaseContext.refresh = lambda context: registered.append(1) or register(context)

from use import thrice

assert thrice(14) == 42 and not registered
assert thrice(1.5) == 4.5 and registered
print(sum(thrice.stats.cache_hits.values()), sum(thrice.stats.cache_misses.values()))
"""


@own_cache
def test_a_kernel_is_loaded_without_what_compiling_needs_and_another_compiled_after_it(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    (tmp_path / "load.py").write_text(LOAD_THEN_COMPILE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    (tmp_path / "first.py").write_text("from use import thrice; assert thrice(14) == 42")
    run(str(tmp_path / "first.py"), **place).communicate()
    said, _ = run(str(tmp_path / "load.py"), **place).communicate()
    assert said.split() == ["1", "1"]
