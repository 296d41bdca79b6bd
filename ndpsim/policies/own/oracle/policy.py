"""The oracle: the best whole run that is known.

No real system can do this, because it knows the routing before the run begins. On the trace of the run it
tries all bundled policies with their defaults (with and without `foresight`, if they have this parameter) and
uses the other runs of the call. The best policies also place experts by the loads of the run. Runs that read
fewer bits, or ignore contention, are excluded. In sweeps (`improvement`) it improves the best runs, and
placements by hindsight alone. Then it repeats the answers of the best run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from pydantic import Field

from ndpsim.base.errors import InputError
from ndpsim.policies.choose import ChosenPolicy, choose_policy, policies
from ndpsim.policies.interface import PolicyParameters
from ndpsim.policies.offline import hottest_of_each, spread
from ndpsim.policies.own.oracle.improvement import Sweeps
from ndpsim.policies.script import Answer, Rehearsal, Rehearsed, Script, Scripted, Visit
from ndpsim.policies.views import Estimates, Ints, Machine, Placement

# ---- Placements by the loads of the run itself


def layouts(machine: Machine, estimates: Estimates, loads: Mapping[Visit, Ints]) -> Iterator[Placement]:
    """Placements with every expert on N DIMMs, for each divisor N of their number; without NDP units striped.

    The GPU has equal numbers of experts of each layer, those with most tokens in the run. Each other expert
    goes to the DIMMs with the least work.
    """
    by_row = [
        np.stack([visit_loads for visit, visit_loads in loads.items() if visit.layer == layer])
        for layer in machine.layers
    ]
    empty = Placement.striped(len(by_row), machine.model.routed_experts)
    tokens = np.array([tokens_of_row.sum(axis=0) for tokens_of_row in by_row])
    empty.resident[:] = hottest_of_each(tokens, [machine.gpu_experts // len(by_row)] * len(by_row))
    if not machine.dimms:
        yield empty
    for shards in (count for count in range(machine.dimms, 0, -1) if machine.dimms % count == 0):
        times = estimates.ndp_ns if shards == 1 else estimates.sharded_ns(shards)
        dimm, groups = empty.dimm.copy(), machine.dimms // shards
        for row, tokens_of_row in enumerate(by_row):
            work = np.where(empty.resident[row], 0.0, times[tokens_of_row].sum(axis=0))
            dimm[row] = shards * spread(work, groups)
        yield Placement(dimm, np.full_like(empty.shards, shards), empty.resident)


# ---- The policy

_STARTS = 3  # number of best runs that are placed by hindsight, and of runs that are improved
_FORESIGHT = "foresight"


class OracleParameters(PolicyParameters):
    """Parameters of the oracle."""

    evaluations: int = Field(
        150,
        ge=0,
        le=1_000_000,
        description="budget of the improvement in whole runs, beside those of policies; a sweep begins "
        f"while {Sweeps.most_runs} are left",
    )


class Oracle(Scripted[OracleParameters]):
    """Oracle: the best whole run that is known, improved layer by layer.

    It repeats the answers of the best run that it has found.
    """

    name = "oracle"
    paper = "none"
    mixed_steps = "None: it needs all steps in advance, and serve forms them as it runs."
    rehearses = True
    sees_the_future = True

    @classmethod
    def whole_runs(cls, parameters: Any) -> int:
        """The number of whole runs: of policies, by hindsight, of the improvement, and its own."""
        return sum(1 for _ in _candidates()) + _STARTS + int(parameters.evaluations) + 1

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Find the best run."""
        sweeps = Sweeps(self.machine, self.estimates, rehearsal)
        improvement = _Improvement(sweeps, rehearsal, self.parameters.evaluations)
        runs = {run.time_ns: run for run in reversed(_best_first(_known(rehearsal)))}
        starts = _best_first([*runs.values()])[:_STARTS]
        swept = [improvement.swept(improvement.varied(run), "assignments") for run in starts]
        best = improvement.until_nothing_gains(_best(swept))
        placed = improvement.from_placements(layouts(self.machine, self.estimates, rehearsal.loads))
        if _best([best, *placed]) is not best:
            best = improvement.until_nothing_gains(_best(placed))
        self.follow(best.script)


def _candidates() -> Iterator[ChosenPolicy]:
    """Bundled policies at their defaults, with `foresight` and without."""
    for policy in policies().values():
        if policy.rehearses:
            continue
        chosen = choose_policy(policy)
        if isinstance(getattr(chosen.parameters, _FORESIGHT, None), bool):
            for value in (False, True):
                parameters = chosen.parameters.model_copy(update={_FORESIGHT: value})
                yield replace(chosen, parameters=parameters)
        else:
            yield chosen


def _best_first(runs: list[Rehearsed]) -> list[Rehearsed]:
    return sorted(runs, key=lambda run: run.time_ns)


def _best(runs: list[Rehearsed]) -> Rehearsed:
    """The shortest run; ties go to the first."""
    return min(runs, key=lambda run: run.time_ns)


def _known(rehearsal: Rehearsal) -> list[Rehearsed]:
    """Comparable runs of policies, each once, and runs of the best ones with placement by hindsight."""
    ran = [run.chosen for run in rehearsal.others]
    tried = [rehearsal.run_policy(candidate) for candidate in _candidates() if candidate not in ran]
    runs = [run for run in (*rehearsal.others, *tried) if run is not None and run.script.comparable]
    best = [run.chosen for run in _best_first(runs)[:_STARTS] if run.chosen is not None]
    placed = [rehearsal.run_policy(candidate, hindsight=True) for candidate in best]
    return runs + [run for run in placed if run is not None and run.script.comparable]


class _Improvement:
    """Improves runs while its budget lasts.

    The runs and their order do not depend on the budget, and the search ends with the first run that exceeds
    it. Therefore a larger budget never gives a longer run.
    """

    def __init__(self, sweeps: Sweeps, rehearsal: Rehearsal, evaluations: int) -> None:
        self._sweeps, self._rehearsal = sweeps, rehearsal
        self._layers_left = evaluations * len(rehearsal.loads)

    def _reaches(self, runs: int) -> bool:
        """Whether the budget has this number of whole runs left; if not, the search ends."""
        if runs * len(self._rehearsal.loads) > self._layers_left:
            self._layers_left = 0
        return self._layers_left > 0

    def varied(self, run: Rehearsed) -> Rehearsed:
        """The best of the run and its variants."""
        for variant in _variants(run.script):
            if self._reaches(1):
                self._layers_left -= len(self._rehearsal.loads)
                run = _best([run, self._rehearsal.run_script(variant)])
        return run

    def swept(self, run: Rehearsed, sweep: str) -> Rehearsed:
        """The better one of the run and the run after a sweep."""
        return _best([run, *self._sweep(run.script, sweep)])

    def _sweep(self, script: Script, sweep: str) -> list[Rehearsed]:
        """The run after a sweep; None if the budget is too small."""
        if not self._reaches(Sweeps.most_runs):
            return []
        before = self._sweeps.layers
        run: Rehearsed = getattr(self._sweeps, sweep)(script)
        self._layers_left -= self._sweeps.layers - before
        return [run]

    def from_placements(self, placements: Iterator[Placement]) -> list[Rehearsed]:
        """Runs from placements alone, until one is longer than the previous one or does not fit."""
        runs: list[Rehearsed] = []
        for placement in placements:
            try:
                found = self._sweep(
                    Script(placement, dict.fromkeys(self._rehearsal.loads, Answer())), "assignments"
                )
            except InputError:
                return runs
            runs += found
            if not found or _best(runs) is not found[0]:
                return runs
        return runs

    def until_nothing_gains(self, run: Rehearsed) -> Rehearsed:
        """The run after variants and sweeps, repeated while they gain."""
        while True:
            better = self.swept(self.swept(self.varied(run), "prefetches"), "assignments")
            if better is run:
                return run
            run = better


def _variants(script: Script) -> Iterator[Script]:
    """Variants of the script: without planning time and `sequential`; without migrations; with another value
    of a parameter that every policy has.
    """
    answers = script.answers
    if any(answer.assignment.planning or answer.assignment.sequential for answer in answers.values()):
        free = {
            visit: replace(answer, assignment=replace(answer.assignment, planning=0.0, sequential=False))
            for visit, answer in answers.items()
        }
        yield replace(script, answers=free)
    if any(answer.gate or answer.end for answer in answers.values()):
        yield replace(script, answers={visit: Answer(answer.assignment) for visit, answer in answers.items()})
    for name, field in PolicyParameters.model_fields.items():
        for value in get_args(field.annotation):
            if value != getattr(script.parameters, name):
                yield replace(script, parameters=script.parameters.model_copy(update={name: value}))


POLICY = Oracle
