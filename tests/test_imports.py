"""Imports go downward, and one step of each controller issues commands."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ndpsim

ROOT = Path(__file__).parents[1]
LINTER = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def lint(folder: Path) -> tuple[int, str]:
    """Exit status and words of import-linter on the package and the contracts in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", LINTER, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def contracts() -> dict[str, dict]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return {
            contract["name"]: contract for contract in tomllib.load(file)["tool"]["importlinter"]["contracts"]
        }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "ndpsim", tmp_path / "ndpsim", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_contracts_are_kept():
    status, words = lint(ROOT)
    assert status == 0, words
    assert f"Contracts: {len(contracts())} kept, 0 broken." in words


@pytest.mark.parametrize(
    ("module", "line", "contract", "breach"),
    [
        (
            "dram/spec/device.py",
            "import ndpsim.simulate",
            "Imports go downward",
            "ndpsim.dram is not allowed to import ndpsim.simulate",
        ),
        (
            "base/errors.py",
            "from ndpsim.base import units as _units",
            "Imports go downward in base",
            "ndpsim.base.errors is not allowed to import ndpsim.base.units",
        ),
        (
            "dimm/layout/interleaving.py",
            "import ndpsim.policies",
            "Imports go downward",
            "ndpsim.dimm is not allowed to import ndpsim.policies",
        ),
        (
            "dram/state.py",
            "import yaml",
            "Kernels know integers and arrays only",
            "ndpsim.dram is not allowed to import yaml",
        ),
        (
            "dimm/units/gemv.py",
            "import matplotlib.pyplot",
            "Kernels know integers and arrays only",
            "ndpsim.dimm is not allowed to import matplotlib",
        ),
        (
            "audit/checks.py",
            "import ndpsim.dram.state",
            "The checker imports nothing that schedules",
            "ndpsim.audit is not allowed to import ndpsim.dram",
        ),
    ],
)
def test_a_breach_is_noticed(copy, module, line, contract, breach):
    file = copy / "ndpsim" / module
    text = file.read_text()
    assert line not in text
    file.write_text(f"{text}\n{line}\n")
    status, words = lint(copy)
    assert status != 0
    assert f"{contract} BROKEN" in words
    assert breach in words


def test_every_part_of_the_package_has_its_layer():
    layers = {
        name.strip()
        for row in contracts()["Imports go downward"]["layers"]
        for name in row.replace(":", "|").split("|")
    }
    parts = {
        f"ndpsim.{path.stem}"
        for path in (ROOT / "ndpsim").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert parts - layers == {"ndpsim.__init__", "ndpsim.__main__"}
    assert layers - parts == set()


def test_every_public_name_is_there():
    assert len(set(ndpsim.__all__)) == len(ndpsim.__all__)
    for name in ndpsim.__all__:
        assert getattr(ndpsim, name).__name__ == name
    with pytest.raises(AttributeError, match="'ndpsim' has no attribute 'simulate_expret'"):
        ndpsim.simulate_expret  # noqa: B018


def test_what_takes_time_is_imported_when_it_is_used():
    code = "import sys, ndpsim, ndpsim.cli.main; print(*sorted({'numba', 'pydantic', 'matplotlib', 'jinja2', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ---- A request is chosen, and its command issued, in one step of the general controller and one of the fast one

PACKAGE = Path(ndpsim.__file__).parent
KERNELS = sorted(path for room in ("dram", "dimm", "link", "ndp") for path in (PACKAGE / room).rglob("*.py"))


def callers(*names: str) -> set[str]:
    """The modules of kernels that call one of these functions, but for those that define it."""
    found = set()
    for path in KERNELS:
        tree = ast.parse(path.read_text())
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if called & set(names) - defined:
            found.add(path.relative_to(PACKAGE).with_suffix("").as_posix())
    return found


def test_one_step_of_the_general_controller_issues():
    assert callers("issue") == {"dram/step"}
    assert callers("choose_from", "choose_priority") == set()
    assert callers("choose") == {"dram/step"}


def test_one_step_of_the_fast_controller_issues():
    # Steps in which only row hits wait have one choice, and closed-cap issues what the step hands it.
    assert callers("issue_queued") == {"dram/fast/step", "dram/fast/hits"}
    assert callers("issue_maintenance") == {"dram/fast/step"}
    assert callers("issue_active") == {"dram/fast/step", "dram/row_policies/closed_cap"}
    assert callers("choose_queued", "choose_maintenance") == {"dram/fast/step"}


def test_all_runs_go_through_these_steps():
    # `dram/controller` asks the controller class that the standard names, in `dram/controllers`.
    assert callers("step") == {"dimm/readable", "dimm/stepping"}
    assert callers("step_alone") == {"dram/fast/controller"}
