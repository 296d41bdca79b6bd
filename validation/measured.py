"""Writes hwconfigs/measured: the results of bundled machines that take longest to simulate.

``python validation/measured.py [MACHINE ...]`` (some minutes). Run it after the last change of a source in
`ndpsim.simulate.results.cache.SIMULATION`: results of other sources are not used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ndpsim.config.files import data_folder
from ndpsim.inference.layers.costs import Costs
from ndpsim.simulate.results.cache import ResultCache, Stored, sources_digest, to_text
from ndpsim.simulate.results.relayout import MovedExpert
from ndpsim.simulate.results.slowdown import SlowdownTable

MODELS = {
    "trimoe": ("deepseek-v2", "deepseek-v3", "glm-4.5-air", "qwen3-235b-a22b", "qwen3-30b-a3b"),
    "edge": ("mixtral-8x7b", "phi-3.5-moe", "qwen3-30b-a3b"),
}


class Collected(ResultCache):
    """A cache in memory that does not look at bundled results, and keeps the text of tables and moves."""

    def __init__(self) -> None:
        super().__init__(disk_bytes=0)
        self.results: dict[str, Any] = {}

    def _find_on_disk(self, name: str) -> Stored | None:
        return None

    def _store(self, name: str, result: Stored) -> None:
        super()._store(name, result)
        if isinstance(result, SlowdownTable | MovedExpert):
            self.results[name] = json.loads(to_text(result))


def measured(machine: str, model: str, shards: Iterable[int] | None = None) -> dict[str, Any]:
    """Tables and moves of one model's experts, by their names in the cache.

    shards: numbers of DIMMs of an expert; None: those among which `balance` chooses.
    """
    cache = Collected()
    costs = Costs(machine, model, cache=cache)
    count, channels = costs.hardware.system.dimm.count, costs.hardware.system.host.channels
    every = [n for n in range(1, count + 1) if count % n == 0 and (n == 1 or n >= channels)]
    for dimms in every if shards is None else shards:
        costs.contention(dimms)
    if costs.hardware.system.link is not None:
        first, next_one, farthest = "localized 0", "localized 1", f"localized {count // 2}"
        for ends in ((first, "striped"), ("striped", first), (first, next_one), (first, farthest)):
            costs.relayout(*ends)
    return cache.results


def main() -> None:
    """Write the files of the machines that are named, or of all."""
    for machine in sys.argv[1:] or MODELS:
        results: dict[str, Any] = {}
        for model in MODELS[machine]:
            results |= measured(machine, model)
        lines = [f"{json.dumps(name)}: {json.dumps(result)}" for name, result in sorted(results.items())]
        text = f'{{"sources": "{sources_digest()}",\n"results": {{\n' + ",\n".join(lines) + "\n}}\n"
        (data_folder("hwconfigs/measured") / f"{machine}.json").write_text(text)


if __name__ == "__main__":
    main()
