"""The oracle: the best whole run that is known.

Not a system that can be built: it knows all that is routed before the run begins. It runs every bundled
policy at its defaults on the very same trace, with `foresight` and without where that can be chosen, takes
the runs of the same call besides, and lets the best of them place experts by the run's own loads. What
reads fewer bits, or runs on a machine without contention, is left out. Then it improves the best runs
(`ndpsim.policies.improvement`), and gives the answers of the best one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field

from ndpsim.policies.choose import ChosenPolicy, policies
from ndpsim.policies.improvement import Sweeps
from ndpsim.policies.interface import PolicyParameters
from ndpsim.policies.rehearsal import Rehearsal, Rehearsed
from ndpsim.policies.script import Answer, Script, Scripted

__all__ = ["POLICY"]

_STARTS = 3  # the best runs, which are placed by hindsight and improved
_FORESIGHT = "foresight"


class OracleParameters(PolicyParameters):
    """What can be set of the oracle."""

    evaluations: int = Field(
        100,
        ge=0,
        le=1_000_000,
        description="whole runs that improving may take, or as many layers, beside those of policies; a "
        f"sweep begins while {Sweeps.most_runs} are left",
    )


def _candidates() -> Iterator[ChosenPolicy]:
    """Bundled policies at their defaults, with `foresight` and without."""
    for policy in policies().values():
        if policy.rehearses:
            continue
        defaults = policy.Parameters()
        if isinstance(getattr(defaults, _FORESIGHT, None), bool):
            for value in (False, True):
                yield ChosenPolicy(policy, defaults.model_copy(update={_FORESIGHT: value}))
        else:
            yield ChosenPolicy(policy, defaults)


class Oracle(Scripted):
    """Gives the answers of the best run that it has found."""

    name = "oracle"
    title = "Oracle: the best whole run that is known, improved layer by layer"
    paper = "none"
    Parameters = OracleParameters
    rehearses = True
    sees_the_future = True

    parameters: OracleParameters

    @classmethod
    def whole_runs(cls, parameters: Any) -> int:
        """Those of policies, those by hindsight, those of improving, and its own."""
        return sum(1 for _ in _candidates()) + _STARTS + int(parameters.evaluations) + 1

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Find the best run."""
        improving = _Improving(Sweeps(self.machine, self.estimates, rehearsal), rehearsal, self.parameters)
        best, *others = _best_first(_known(rehearsal))[:_STARTS]
        starts = [improving.first(start) for start in (best, *others)]
        self.follow(improving.last(_best_first([best, *starts])[0]).script)


def _best_first(runs: list[Rehearsed]) -> list[Rehearsed]:
    return sorted(runs, key=lambda run: run.time_ns)


def _known(rehearsal: Rehearsal) -> list[Rehearsed]:
    """Runs of policies, each once; the best ones also placed by hindsight."""
    runs = [run for run in rehearsal.others if run.script.comparable]
    ran = [run.chosen for run in rehearsal.others]
    asked = [one for one in _candidates() if one not in ran]
    runs += [run for one in asked if (run := rehearsal.of_policy(one)) is not None and run.script.comparable]
    placed = [run.chosen for run in _best_first(runs)[:_STARTS] if run.chosen is not None]
    return runs + [run for one in placed if (run := rehearsal.of_policy(one, hindsight=True)) is not None]


class _Improving:
    """Improves runs, as long as evaluations are left.

    What is done in which order does not depend on their number: more never end with a longer run.
    """

    def __init__(self, sweeps: Sweeps, rehearsal: Rehearsal, parameters: OracleParameters) -> None:
        self._sweeps, self._rehearsal = sweeps, rehearsal
        self._runs, self._layers = 0, parameters.evaluations * len(rehearsal.loads)

    def _left(self, runs: int) -> bool:
        """Whether so many whole runs are left."""
        visits = len(self._rehearsal.loads)
        return self._sweeps.layers + (self._runs + runs) * visits <= self._layers

    def first(self, run: Rehearsed) -> Rehearsed:
        """With nothing charged and nothing in turn, without migrations, and swept once."""
        for variant in _variants(run.script):
            if self._left(1):
                self._runs += 1
                run = min(run, self._rehearsal.of_script(variant), key=lambda one: one.time_ns)
        return self._swept(run, "assignments")

    def last(self, run: Rehearsed) -> Rehearsed:
        """Swept until that gains nothing."""
        while True:
            better = self._swept(self._swept(run, "prefetches"), "assignments")
            if better is run:
                return run
            run = better

    def _swept(self, run: Rehearsed, sweep: str) -> Rehearsed:
        if not self._left(Sweeps.most_runs):
            return run
        return min(run, getattr(self._sweeps, sweep)(run.script), key=lambda one: one.time_ns)


def _variants(script: Script) -> Iterator[Script]:
    """The same without what makes layers wait for nothing, and without migrations."""
    answers = script.answers
    if any(one.assignment.planning or one.assignment.sequential for one in answers.values()):
        free = {
            visit: replace(one, assignment=replace(one.assignment, planning=0.0, sequential=False))
            for visit, one in answers.items()
        }
        yield replace(script, answers=free)
    if any(one.gate or one.end for one in answers.values()):
        yield replace(script, answers={visit: Answer(one.assignment) for visit, one in answers.items()})


POLICY = Oracle
