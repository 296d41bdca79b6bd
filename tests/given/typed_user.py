"""A script as a user writes it, which a type checker takes under its strictest settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ndpsim
from ndpsim.policies import Assignment, LayerView, Policy, PolicyParameters


class Parameters(PolicyParameters):
    """Parameters of the policy."""

    tokens: int = 4


class Threshold(Policy[Parameters]):
    """Experts with many tokens on the GPU, the others on the CPU."""

    name = "threshold"

    def assign(self, view: LayerView) -> Assignment:
        """The engine of each expert that has tokens."""
        many = view.loads >= self.parameters.tokens
        few = (view.loads > 0) & ~many
        return Assignment(gpu=np.flatnonzero(many).tolist(), cpu=np.flatnonzero(few).tolist())


def compare(folder: Path) -> dict[str, float]:
    """The time of an expert by ranks, and of two policies."""
    hardware = ndpsim.load_hardware("trimoe", {"dimm.ranks": 2})
    expert = ndpsim.simulate_expert(hardware, ndpsim.Expert(256, 128), tokens=2, record_commands=True)
    expert.plot(folder / "expert.png")
    swept = ndpsim.sweep("gemv", {"dimm.ranks": [1, 2]}, fixed={"shape": "256,128"}, progress=True)
    result = ndpsim.run_moe("trimoe", "deepseek-v2", [Threshold, "monde"], batch=4, steps=1)
    times = {run.policy: run.time_ns for run in result.runs}
    return {
        **times,
        "expert": expert.time_ns,
        "points": float(len(swept)),
        "version": float(len(ndpsim.__version__)),
    }
