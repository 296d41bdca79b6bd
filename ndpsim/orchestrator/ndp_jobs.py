"""Experts on NDP units as jobs, all of a layer at once: an expert over many DIMMs is a job on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.orchestrator.costs import Costs
from ndpsim.orchestrator.jobs import Beside, JobList, Label, Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# Columns of the table of costs: `work_ns`, `bus_share` and `pause_share` of a job that is the first on its
# unit, the same of one behind another there, and what both have.
_FIRST, _BEHIND = slice(0, 3), slice(3, 6)
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
        part = np.arange(len(parts)).repeat(counts)
        units = np.array([dimm[expert] for expert, _ in parts])[part] + _within(counts)
        before, behind, last = _chains(units)
        first = np.ones(len(units), np.bool_)
        first[behind] = False
        costs = costs[part]
        work_ns, bus_share, pause_share = np.where(first, costs.T[_FIRST], costs.T[_BEHIND])

        def label(job: int) -> Label:
            expert, share = parts[part[job]]
            unit, size, ns = self._names[units[job]], int(costs[job, _BYTES]), float(work_ns[job])
            return Label(unit, "expert", expert, share, loads[expert], size, ns)

        base = len(jobs)
        begun = first.nonzero()[0] + base
        jobs.add_block(
            Labels(len(part), label),
            work_ns,
            np.concatenate([before + base, np.array(sent, np.int64).repeat(len(begun))]),
            np.concatenate([behind + base, *[begun] * len(sent)]),
            server=self._first_server + units,
            dimm=units,
            table=costs[:, _ROW],
            between=costs[:, _BETWEEN],
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
    ends = counts.cumsum()
    return np.arange(ends[-1]) - (ends - counts).repeat(counts)


def _chains(units: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs of jobs behind one another on a unit: each first one, and each second one. Last jobs of units."""
    order = units.argsort(kind="stable")
    one, next_one = order[:-1], order[1:]
    same = units[one] == units[next_one]
    return one[same], next_one[same], np.concatenate([one[~same], order[-1:]])
