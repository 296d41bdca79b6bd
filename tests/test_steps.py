"""A request is chosen, and its command issued, in one step of the general controller and one of the fast one."""

from __future__ import annotations

import ast
from pathlib import Path

import ndpsim

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
