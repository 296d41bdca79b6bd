"""Experts on NDP units as jobs, all of a layer at once: an expert over many DIMMs is a job on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.jobs import Beside, JobList, Label, Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Place(NamedTuple):
    """Columns of the table of costs: of a job that is the first on its unit, or behind another there."""

    work_ns: int
    bus_share: int
    pause_share: int


_FIRST, _BEHIND = _Place(0, 1, 2), _Place(3, 4, 5)
_BETWEEN, _ROW, _BYTES = 6, 7, 8


class NdpJobs:
    """Makes the jobs of NDP units, of layers of one run.

    Args:
        beside: of NDP jobs, by the numbers of tokens and of DIMMs of an expert.
        names: of the units, by DIMM.
        first_server: the unit of DIMM 0.
    """

    def __init__(
        self, costs: Costs, beside: Mapping[tuple[int, int], Beside], names: Sequence[str], first_server: int
    ) -> None:
        self._costs, self._beside, self._names, self._first_server = costs, beside, names, first_server
        self._rows: dict[tuple[int, int, float, int | None], int] = {}
        self._table = np.empty((0, 9))

    def add(
        self,
        jobs: JobList,
        parts: Sequence[tuple[int, float]],
        loads: Sequence[int],
        dimm: Sequence[int],
        shards: Sequence[int],
        bits: Mapping[int, int],
        sent: Sequence[int],
    ) -> list[int]:
        """Experts one after the other on each DIMM; a sharded one on each of its DIMMs at its turn there.

        Args:
            parts: experts and the share of each, in the order of the list.
            loads, dimm, shards: by expert: its tokens, its first DIMM, and the number of its DIMMs.
            bits: of experts that are read from replicas.
            sent: jobs that all of these wait for.

        Returns:
            The last job of each DIMM.
        """
        if not parts:
            return []
        keys = [(loads[expert], shards[expert], share, bits.get(expert)) for expert, share in parts]
        for key in {*keys} - self._rows.keys():
            self._find(key)
        costs = self._table[[self._rows[key] for key in keys]]
        counts = np.array([key[1] for key in keys])
        part = np.repeat(np.arange(len(parts)), counts)
        units = np.array([dimm[expert] for expert, _ in parts])[part] + _within(counts)
        previous, last = _chains(units)
        first = previous < 0
        work_ns, bus_share, pause_share = (
            np.where(first, costs[part, one], costs[part, other])
            for one, other in zip(_FIRST, _BEHIND, strict=True)
        )
        sizes = costs[:, _BYTES]

        def label(job: int) -> Label:
            expert, share = parts[part[job]]
            unit, size, ns = self._names[units[job]], int(sizes[part[job]]), float(work_ns[job])
            return Label(unit, "expert", expert, share, loads[expert], size, ns)

        base, behind = len(jobs), np.flatnonzero(~first)
        begun = np.flatnonzero(first) + base
        jobs.add_block(
            Labels(len(part), label),
            work_ns,
            np.concatenate([previous[behind] + base, np.repeat(np.array(sent, np.int64), len(begun))]),
            np.concatenate([behind + base, *[begun] * len(sent)]),
            server=self._first_server + units,
            dimm=units,
            table=costs[part, _ROW],
            between=costs[part, _BETWEEN],
            bus_share=bus_share,
            pause_share=pause_share,
        )
        return [*(last + base).tolist()]

    def _find(self, key: tuple[int, int, float, int | None]) -> None:
        """Add the row of an expert with such tokens, DIMMs, share and bits to the table."""
        tokens, shards, share, bits = key
        costs = self._costs.for_bits(bits)
        cost = costs.expert(tokens, shards, share)
        row, between, bus_ns, pause_ns = self._beside[tokens, shards]
        columns: list[float] = []
        for work_ns in (cost.time_ns, costs.part_ns(tokens, shards, share)):
            columns += (work_ns, *((bus_ns / work_ns, pause_ns / work_ns) if bus_ns else (0.0, 0.0)))
        self._rows[key] = len(self._table)
        self._table = np.vstack([self._table, [*columns, between, row, cost.bytes // shards]])


def _within(counts: Ints) -> Ints:
    """0, 1 and so on within each group of so many: 0 1 0 1 2 of groups of 2 and 3."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _chains(units: Ints) -> tuple[Ints, Ints]:
    """The job before each on its unit, -1 of the first one; and the last job of each unit."""
    order = np.argsort(units, kind="stable")
    follows = units[order[1:]] == units[order[:-1]]
    previous = np.full(len(units), -1)
    previous[order[1:][follows]] = order[:-1][follows]
    return previous, order[np.append(~follows, True)]
