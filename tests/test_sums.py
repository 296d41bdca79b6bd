"""Sums: the same to the last bit with any number of threads of the library for linear algebra."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import ndpsim
from ndpsim.base.arrays import product_sum

FOLDER = Path(ndpsim.__file__).parent

#: Products of integers, of sparse matrices, and of matrices whose product is an argument of a ranking only.
NO_SUM = {
    "dram/fast/state.py": "integers",
    "policies/published/dali.py": "ranks experts",
    "policies/run_bound.py": "sparse",
    "simulate/rtl/loop.py": "integers below 2^53",
}

SEARCH = """
import sys

import numpy as np
from ndpsim.policies.assignment.interior_point import Search, programme_of

random, groups, ways, visits = np.random.default_rng(0), int(sys.argv[1]), 5, 40
columns, lowest = np.arange(groups * ways), np.arange(groups) * visits // groups
rows, uses = np.repeat(lowest, ways), random.uniform(0.5, 1, len(columns))
costs = random.uniform(1, 2, len(columns))
programme = programme_of(
    np.append(rows, np.arange(visits)), np.append(columns, len(columns) + np.arange(visits)),
    np.append(uses, np.ones(visits)), np.append(costs, np.zeros(visits)),
    np.full(visits, 0.8 * groups / visits), np.ones(groups), lowest, ways,
)  # fmt: skip
print(Search(programme).prices().tobytes().hex())
"""


def prices(groups, **settings):
    command = [sys.executable, "-P", "-c", SEARCH, str(groups)]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, check=True).stdout


def test_prices_do_not_depend_on_the_number_of_threads():
    found = [prices(4000, OPENBLAS_NUM_THREADS=count, OMP_NUM_THREADS=count) for count in "124"]
    assert len(found[0]) > 600
    assert found[0] == found[1] == found[2]


def test_prices_are_those_that_the_kernel_finds_in_python():
    assert prices(80) == prices(80, NUMBA_DISABLE_JIT="1")


def test_no_sum_is_left_to_the_library_for_linear_algebra():
    found = set()
    for path in set(FOLDER.rglob("*.py")) - set((FOLDER / "_data").rglob("*")):  # the authors' tools
        for node in ast.walk(ast.parse(path.read_text())):
            product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
            called = isinstance(node, ast.Attribute) and node.attr in (
                "dot",
                "vdot",
                "inner",
                "matmul",
                "linalg",
            )
            if product or called:
                found.add(path.relative_to(FOLDER).as_posix())
    assert found == set(NO_SUM)


def test_a_sum_of_products():
    assert product_sum(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])) == 32.0
