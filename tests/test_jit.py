"""Where compiled kernels are kept: never stale, never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ndpsim
from ndpsim import _jit

PACKAGE = Path(ndpsim.__file__).parent

USE = """
from ndpsim._jit import inlined, kernel

@inlined
def twice(number):
    return 2 * number

@kernel
def thrice(number):
    return twice(number) + number

if __name__ == "__main__":
    assert thrice(14) == 42
    print(sum(thrice.stats.cache_hits.values()))
"""


def run(*arguments: str, **changes: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment | changes,
        stdout=subprocess.PIPE,
        text=True,
        cwd=sys.prefix,
    )


def cache_of(package: Path, **changes: str) -> str:
    code = "from ndpsim import _jit; print(_jit.cache_dir())"
    said, _ = run("-c", code, PYTHONPATH=str(package.parent), **changes).communicate()
    return said.strip()


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
    source = copied / "dram" / "masks" / "words.py"
    source.write_text(source.read_text() + "# another comment\n")
    assert cache_of(copied, **place) != before


def test_what_no_kernel_imports_leaves_the_cache_as_it_is(copied, tmp_path):
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache")}
    before = cache_of(copied, **place)
    for package in _jit._WITHOUT_KERNELS:
        source = copied / package / "__init__.py"
        source.write_text(source.read_text() + "# another comment\n")
    assert cache_of(copied, **place) == before


def test_modules_with_kernels_import_nothing_that_their_cache_ignores():
    modules = [
        ".".join(("ndpsim", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.rglob("*.py")
        if "ndpsim._jit import" in path.read_text()
    ]
    code = (
        f"import importlib, sys; [importlib.import_module(name) for name in {modules}]; print(*sys.modules)"
    )
    said, _ = run("-c", code, PYTHONPATH=str(PACKAGE.parent)).communicate()
    imported = {name.split(".")[1] for name in said.split() if name.startswith("ndpsim.")}
    assert "audit" in imported
    assert not imported & set(_jit._WITHOUT_KERNELS)


def test_nothing_is_kept_beside_the_package(copied, tmp_path):
    kept = Path(cache_of(copied, NDPSIM_CACHE_DIR=str(tmp_path / "cache")))
    assert kept.is_relative_to(tmp_path / "cache")
    assert not kept.is_relative_to(copied)


def test_a_cache_folder_that_cannot_be_made_is_no_obstacle(copied, tmp_path):
    (tmp_path / "a file").touch()
    kept = cache_of(copied, NDPSIM_CACHE_DIR=str(tmp_path / "a file"), TMPDIR=str(tmp_path))
    assert Path(kept).is_relative_to(tmp_path)


def test_two_processes_may_start_at_once_and_a_third_compiles_nothing(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    both = [run(str(tmp_path / "use.py"), **place) for _ in range(2)]
    for process in both:
        process.communicate()
        assert process.returncode == 0
    said, _ = run(str(tmp_path / "use.py"), **place).communicate()
    assert said.split() == ["1"]


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


def test_a_kernel_is_loaded_without_what_compiling_needs_and_another_compiled_after_it(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    (tmp_path / "load.py").write_text(LOAD_THEN_COMPILE)
    place = {"NDPSIM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    run(str(tmp_path / "use.py"), **place).communicate()
    said, _ = run(str(tmp_path / "load.py"), **place).communicate()
    assert said.split() == ["1", "1"]
