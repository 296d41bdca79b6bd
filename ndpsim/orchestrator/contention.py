"""How much NDP units, host reads and relayouts slow each other down on a DIMM, from simulations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.layout import ExpertFormat
from ndpsim.moe import Expert
from ndpsim.results.cache import ResultCache
from ndpsim.simulate import simulate_contention

__all__ = ["ContentionTable", "contention_table"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOKENS = 1, 2, 4


@dataclass(frozen=True, eq=False)
class ContentionTable:
    """Rates of experts and of host reads beside each other: 1 is what they are alone.

    Between entries rates lie on a line; beyond the last, they are the last.

    Attributes:
        tokens: int64[n], ascending.
        host_gbps: float64[m], ascending from 0: what the host reads of one DIMM.
        ndp_rate: float64[n, m], of an expert with so many tokens beside it.
        host_rate: float64[n], of host reads that take all they get, where the DIMM's unit computes so many.
        relayout_gbps: float64[k], ascending from 0: what a relayout reads and writes on one DIMM.
        ndp_rate_beside_relayout: float64[n, k].
    """

    tokens: Ints
    host_gbps: Floats
    ndp_rate: Floats
    host_rate: Floats
    relayout_gbps: Floats
    ndp_rate_beside_relayout: Floats


def contention_table(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
) -> ContentionTable:
    """The table of one model's experts on one hardware; arguments as in `simulate_contention`."""
    peak = hardware.dimm_host_gbps
    ndp, host = [], []
    host_gbps = [0.0, peak / 4, peak / 2]
    reached = 0.0
    for tokens in _TOKENS:
        rates = [1.0]
        given: list[float | str] = [*host_gbps[1:], "saturate"]
        for gbps in given:
            result = simulate_contention(
                hardware, model, tokens, gbps, 1.0, arbitration=arbitration, bits=bits, cache=cache
            )
            rates.append(1 / result.ndp_slowdown)
        reached = max(reached, result.host_alone_gbps)
        host.append(result.host_gbps / result.host_alone_gbps)
        ndp.append(rates)
    return ContentionTable(
        np.array(_TOKENS, dtype=np.int64),
        np.array([*host_gbps, reached]),
        np.array(ndp),
        np.array(host),
        np.zeros(1),
        np.ones((len(_TOKENS), 1)),
    )
