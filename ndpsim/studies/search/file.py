"""Searches as YAML files: files of sweeps with objectives.

```yaml
command: moe
fixed: {model: deepseek-v2, steps: 2}
vary:                                # whole numbers with a step, a range, or values
  dimm.count: 8..32:8
  host.cpu_tflops: 10.0..200.0       # log:10.0..200.0: drawn by its logarithm
  policy: [monde, trimoe]
derived: {cost_usd: dimm.count * 100}
objectives: {tokens_per_s: maximize, cost_usd: minimize}
constraints: {layer_ns.p99: <= 2e6}
base: {dimm.count: 16, host.cpu_tflops: 90.1, policy: trimoe}
budget: 100
```
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ndpsim.studies.sweeps.file import SharedKeys

SECTIONS = ("fixed", "vary", "objectives", "constraints", "derived", "base")


class SearchKeys(SharedKeys):
    """The keys of a file, see `SearchProblem`."""

    objectives: dict[str, str]
    constraints: dict[str, str] = Field(default_factory=dict)
    derived: dict[str, Any] = Field(default_factory=dict)
    base: dict[str, Any] = Field(default_factory=dict)
    budget: int = 100
    sampler: str = "tpe"
    seed: int = 1
    batch: int = 8
