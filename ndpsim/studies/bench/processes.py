"""Rows with the time of a fresh process from its start to its first result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import ndpsim
from ndpsim.base.errors import MismatchError
from ndpsim.base.temporaries import temporary_folder
from ndpsim.studies.bench.row import Benchmark, BenchRow, Results, best_seconds, expect

_PROGRAM = """
import json
import ndpsim
result = ndpsim.simulate_expert("trimoe", "qwen3-235b-a22b")
print(json.dumps([result.cycles, dict(result.commands)]))
"""


@dataclass(frozen=True)
class FreshProcess(Benchmark):
    """A process that imports ndpsim and makes its first call of `simulate_expert`.

    Attributes:
        compiles: whether the compile cache is empty; such a row runs only once. Requests are calls.
    """

    compiles: bool = False

    def run(self, repeat: int) -> BenchRow:
        """Measure a command in a process of its own.

        Raises:
            MismatchError: the process failed or its result is another than the pinned one.
        """
        if self.compiles:
            with temporary_folder() as empty:
                seconds = best_seconds(lambda: self._process({"NDPSIM_CACHE_DIR": str(empty)}), 1)
        else:
            self._process({})
            seconds = best_seconds(lambda: self._process({}), repeat)
        return BenchRow(self.name, self.pinned, seconds)

    def _process(self, settings: dict[str, str]) -> None:
        """Run one process, and check its result."""
        package = str(Path(ndpsim.__file__).parents[1])  # this ndpsim and no other
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise MismatchError(f"{self.name}: the process ended with status {done.returncode}: {reason}")
        cycles, commands = json.loads(done.stdout)
        expect(self.name, Results(1, cycles, commands), self.pinned)
