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

BOUND = """
import numpy as np
from ndpsim.policies.assignment.interior_point import Programme, Search

random = np.random.default_rng(0)
groups, ways = 4000, 5
columns = groups * ways
first, lowest = np.arange(columns + 1, dtype=np.uint64), np.arange(groups, dtype=np.uint64) // 100
programme = Programme(
    first, np.repeat(lowest, ways), random.uniform(0.5, 1, columns), random.uniform(1, 2, columns),
    np.full(40, 80.0), np.ones(groups), ways, lowest,
)  # fmt: skip
print(Search(programme, 2, 1).prices().tobytes().hex())
"""


def test_prices_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in ("1", "2", "4"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        run = subprocess.run(
            [sys.executable, "-P", "-c", BOUND], env=environment, capture_output=True, check=True
        )
        found.append(run.stdout)
    assert len(found[0]) > 600
    assert found[0] == found[1] == found[2]


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
