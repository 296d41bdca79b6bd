"""Results that come with ndpsim are those of the present sources, and what simulations give."""

from __future__ import annotations

import json
import logging
import shutil
from math import isclose
from pathlib import Path
from typing import Any

import pytest

import ndpsim
from ndpsim.base import jit
from ndpsim.config.files import data_folder
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.shared_dimm import plan_in_use
from ndpsim.simulate.results import cache
from ndpsim.simulate.results.cache import ResultCache
from scripts import script

MEASURED: Any = script("validation/measured.py")
PACKAGE = Path(ndpsim.__file__).parent
FILES = sorted(data_folder("hwconfigs/measured").glob("*.json"))


def results_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_bytes())["results"]
    return found


def test_there_is_a_file_for_each_machine_of_the_script():
    assert [path.stem for path in FILES] == sorted(MEASURED.MODELS)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_files_are_of_the_present_sources(file):
    sources = json.loads(file.read_bytes())["sources"]
    assert sources == cache.sources_digest(), "run python validation/measured.py"


def same(one, other):
    """Whether results are equal; energies are sums, which Python adds more exactly from 3.12 on."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isclose(one, other, rel_tol=1e-12) if isinstance(one, float) else one == other


def test_moves_measured_anew_are_those_of_the_file():
    """Tables would take a minute; that they are of the present sources is tested above."""
    found = MEASURED.measured("trimoe", "deepseek-v2", shards=[])
    kept = results_of(data_folder("hwconfigs/measured") / "trimoe.json")
    assert len(found) == 4
    assert same({name: kept[name] for name in found}, found)


@pytest.mark.usefixtures("plan_of_users")
def test_a_bundled_table_is_found_where_nothing_was_simulated_before(caplog):
    caplog.set_level(logging.INFO, "ndpsim")
    cache = ResultCache(disk_bytes=0)
    costs = Costs("trimoe", "deepseek-v2", cache=cache)
    table, moved = costs.contention(16), costs.relayout("localized 0", "striped")
    assert (cache.hits, cache.misses) == (2, 0)
    assert table.tokens.tolist() == list(plan_in_use().tokens)
    assert moved.time_ns > 0
    assert "simulations" not in caplog.text


def test_results_of_other_sources_are_not_used(monkeypatch):
    assert cache.bundled_results.__wrapped__()
    monkeypatch.setattr(cache, "sources_digest", lambda: "a" * 20)
    assert not cache.bundled_results.__wrapped__()


def test_the_digest_covers_all_that_simulates_and_nothing_that_decides(tmp_path, monkeypatch):
    copied = tmp_path / "ndpsim"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(jit, "__file__", str(copied / "base" / "jit" / "__init__.py"))
    digest = cache.sources_digest.__wrapped__
    before = digest()
    assert before == cache.sources_digest()
    for name in cache.SIMULATION:
        changed = copied / (name if name.endswith(".py") else f"{name}__init__.py")
        whole = changed.read_text()
        changed.write_text(whole + "# another comment\n")
        assert digest() != before, name
        changed.write_text(whole)
    for name in ("policies/views.py", *(f"{folder}__init__.py" for folder in cache.OTHERS)):
        assert (copied / name).exists(), name
        (copied / name).write_text("# another comment\n")
    assert digest() == before
