"""How long a simulation takes, apart from what it compiles on the way."""

from __future__ import annotations

import time
from typing import Any

from ndpsim.base import jit


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began_s, self._compiled_s = time.perf_counter(), jit.compiling_s()

    def compile_s(self) -> float:
        """Seconds until now in which kernels were compiled, for this or for another thread."""
        return jit.compiling_s() - self._compiled_s

    def wall_s(self) -> float:
        """Seconds until now without those."""
        return max(time.perf_counter() - self._began_s - self.compile_s(), 1e-9)

    def times(self) -> dict[str, Any]:
        """Both, by the names that they have in results."""
        return {"wall_s": self.wall_s(), "compile_s": self.compile_s()}
