"""Results that come with ndpsim: those of bundled machines that take longest to simulate.

A file of ``hwconfigs/measured`` has results by their names in the cache, which cover everything that a result
depends on except the sources, and the digest of the sources that simulated them. If the sources have
changed since, nothing in it is used. ``validation/measured.py`` makes these files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from ndpsim.base import jit
from ndpsim.config.files import data_folder

#: The sources that simulate these results, by the beginnings of their paths.
SIMULATION = (
    "base/",
    "config/",
    "dimm/",
    "dram/",
    "inference/layers/contention.py",
    "inference/layers/location.py",
    "inference/layers/relayouts.py",
    "inference/layers/shared_dimm.py",
    "simulate/",
    "workload/models/expert.py",
)

#: Sources among them that do not: they simulate others, or what they decide is in a result's name.
OTHERS = ("base/options/", "config/importers/", "dimm/banks/", "dram/banks/", "simulate/rtl/")


@functools.cache
def sources_digest() -> str:
    """20 hexadecimal digits of the sources that simulate these results."""
    return jit.version_of(
        {
            path: source
            for path, source in jit.read_sources().items()
            if path.startswith(SIMULATION) and not path.startswith(OTHERS)
        }
    )


@functools.cache
def bundled_results() -> Mapping[str, bytes]:
    """The text of each result by its name, from the files of the present sources."""
    found: dict[str, Any] = {}
    for path in sorted(data_folder("hwconfigs/measured").glob("*.json")):
        file = json.loads(path.read_bytes())
        if file["sources"] == sources_digest():
            found |= file["results"]
    return {name: json.dumps(result).encode() for name, result in found.items()}
