"""The choice of the next points by Optuna, in batches, so that the result does not depend on run times."""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.studies.search.problem import Axis, Range, SearchProblem

_STEPS = 10_000  # maximum steps of a walk to a new point
_FAILED = 1e9  # violation by a point without metrics, more than that of any other
_POPULATION = 10  # of NSGA-II: with its default, 50, half of a usual budget would be random
_SMALLEST = 1e-9  # The scale is linear below this.


def on_log_scale(value: float) -> float:
    """The logarithm of a metric's size with its sign; monotone, and defined at 0."""
    return math.copysign(math.log1p(abs(value) / _SMALLEST), value)


@dataclass(frozen=True)
class Trial:
    """A chosen point: its index, and the values of all keys."""

    trial: Any
    values: Mapping[str, Any]


class Sampler:
    """An Optuna study of a problem.

    Optuna gets logarithms of objectives, so that half the time counts equally at both ends of a front. A
    point that was chosen before is replaced by a new one near it.

    Raises:
        InputError: Optuna is not installed.
    """

    def __init__(self, problem: SearchProblem) -> None:
        try:
            self._optuna: Any = importlib.import_module("optuna")  # optional and slow to import
        except ImportError:
            wrong = "a search needs Optuna: pip install 'ndpsim[optimize]'"
            raise InputError(wrong, "not-installed") from None
        verbosity = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)  # Optuna would report each new study.
        self._axes = problem.axes()
        self._names = [",".join(axis.keys) for axis in self._axes]
        self._distributions = {
            name: self._distribution(axis) for name, axis in zip(self._names, self._axes, strict=True)
        }
        self._study = self._optuna.create_study(
            directions=list(problem.objectives.values()), sampler=self._made(problem.sampler, problem.seed)
        )
        self._optuna.logging.set_verbosity(verbosity)
        self._random = random.Random(problem.seed)
        self._order = dict.fromkeys(problem.definition.varied)
        self._seen: set[tuple[Any, ...]] = set()
        if problem.base:
            self._study.enqueue_trial(
                {name: _place(axis, problem.base) for name, axis in zip(self._names, self._axes, strict=True)}
            )

    def _made(self, name: str, seed: int) -> Any:
        samplers = self._optuna.samplers
        makers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=False),
            "nsga2": lambda: samplers.NSGAIISampler(seed=seed, population_size=_POPULATION),
            "random": lambda: samplers.RandomSampler(seed=seed),
        }
        return makers[name]()

    def _distribution(self, axis: Axis) -> Any:
        kinds = self._optuna.distributions
        if isinstance(axis.values, Range):
            kind = kinds.IntDistribution if axis.values.whole else kinds.FloatDistribution
            return kind(axis.values.low, axis.values.high, log=axis.values.log)
        places = range(len(axis.values))
        if axis.ordered:
            return kinds.IntDistribution(0, len(places) - 1)
        return kinds.CategoricalDistribution(places)

    def ask(self, count: int) -> list[Trial]:
        """Choose new points, at most this many; fewer or none if few are left."""
        trials = []
        for _ in range(count):
            trial = self._study.ask(self._distributions)
            places = dict(trial.params)
            if self._identity(places) in self._seen:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                if not self._walk(places):
                    break
                self._study.enqueue_trial(places)
                trial = self._study.ask(self._distributions)
            self._seen.add(self._identity(places))
            trials.append(Trial(trial, self._values(places)))
        return trials

    def _walk(self, places: dict[str, Any]) -> bool:
        """Change one variable after the other until the point is new; False if there is none."""
        finite = [axis.values for axis in self._axes if not isinstance(axis.values, Range)]
        if len(finite) == len(self._axes) and len(self._seen) == math.prod(map(len, finite)):
            return False
        for _ in range(_STEPS):
            index = self._random.randrange(len(self._axes))
            places[self._names[index]] = self._drawn(self._axes[index])
            if self._identity(places) not in self._seen:
                return True
        return False

    def _drawn(self, axis: Axis) -> Any:
        if not isinstance(axis.values, Range):
            return self._random.randrange(len(axis.values))
        low, high = axis.values.low, axis.values.high
        if axis.values.log:
            return axis.values.taken(math.exp(self._random.uniform(math.log(low), math.log(high))))
        return axis.values.taken(self._random.uniform(low, high))

    def _values(self, places: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all keys, in their order."""
        values: dict[str, Any] = {}
        for name, axis in zip(self._names, self._axes, strict=True):
            if isinstance(axis.values, Range):
                values[axis.keys[0]] = axis.values.taken(places[name])
            else:
                values |= axis.values[places[name]]
        return {key: values[key] for key in self._order}

    def _identity(self, places: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            axis.values.taken(places[name]) if isinstance(axis.values, Range) else places[name]
            for name, axis in zip(self._names, self._axes, strict=True)
        )

    def tell(self, trial: Trial, objectives: Sequence[Any], excess: Sequence[float]) -> None:
        """Report the outcome of a point: its objectives, and its violation of each constraint.

        A failed point, whose violation is infinite, counts as worse than any other.
        """
        beyond = sum(max(each, 0.0) for each in excess)
        trial.trial.set_constraint("excess", min(beyond, _FAILED))
        if beyond < math.inf:
            self._study.tell(trial.trial, [on_log_scale(value) for value in objectives])
        else:
            self._study.tell(trial.trial, state=self._optuna.trial.TrialState.PRUNED)

    def best(self) -> set[int]:
        """The numbers of the trials that no other feasible one beats; with one objective, of the best."""
        return {trial.number for trial in self._study.best_trials}


def _place(axis: Axis, values: Mapping[str, Any]) -> Any:
    """The index of a point's value on an axis."""
    if isinstance(axis.values, Range):
        return values[axis.keys[0]]
    return axis.values.index({key: values[key] for key in axis.keys})
