"""The state of a run between two phases of jobs, and what listeners are told of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.inference.events.state import RESOURCES, find_path
from ndpsim.inference.layers.jobs import JobList
from ndpsim.inference.layers.migrations import Migrations
from ndpsim.inference.layers.placement import Places
from ndpsim.inference.layers.record import MigrationRecord
from ndpsim.inference.layers.visits import GatedVisit, Window
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import Assignment, Migration
from ndpsim.policies.script import Visit
from ndpsim.policies.views import LayerView

Ints = NDArray[np.int64]

_find_path = same_types(find_path)  # of every `JobList`


class CriticalPath(NamedTuple):
    """Jobs of the foreground, each of which started when the one before it ended, up to the last end.

    `waited_ns`: the time of each resource on it; NDP units count as one.
    """

    jobs: Ints
    waited_ns: dict[str, float]


def critical_path(jobs: JobList, began_ns: float) -> CriticalPath:
    """The critical path of jobs that have ended; only time from `began_ns` on counts."""
    path, resources = np.empty(len(jobs), np.int64), np.empty(len(RESOURCES), np.int64)
    times_ns = np.empty(len(RESOURCES))
    count, used = _find_path(jobs.arrays, jobs.added, began_ns, path, resources, times_ns)
    times = times_ns.tolist()
    waited_ns = {RESOURCES[resource]: times[resource] for resource in resources[:used].tolist()}
    return CriticalPath(path[:count], waited_ns)


@dataclass
class RunState:
    """Everything that changes during a run.

    Attributes:
        places, migrations: of experts.
        busy_ns: for how long each resource was used, in full.
        clock_ns: the time.
        window_ns: the time of the last window.
        free_ns: for how long PCIe was free for weights since the last layer with experts.
        policy_s: the time that the policy took.
        banks_ns: for how long devices with units in their banks, and their links, were used.
    """

    places: Places
    migrations: Migrations
    busy_ns: NDArray[np.float64]
    clock_ns: float = 0.0
    window_ns: float = 0.0
    free_ns: float = 0.0
    policy_s: float = 0.0
    banks_ns: dict[str, float] = field(default_factory=dict)

    def copy(self) -> RunState:
        """An independent copy."""
        places = self.places.copy()
        return replace(
            self,
            places=places,
            migrations=self.migrations.copy(places),
            busy_ns=self.busy_ns.copy(),
            banks_ns=dict(self.banks_ns),
        )


@dataclass(eq=False)  # one for each layer: frozen, it takes three times as long to make
class DoneLayer:
    """A layer whose experts are done.

    Attributes:
        view, answer, assigned: what the policy was shown, its answer, and the answer as arrays.
        planning_ns: the time that was charged for the answer.
        began_ns, end_ns: when its experts began, and when they were done.
        window_ns: the time of the window before them.
        free_ns: for how long PCIe was free for weights before them, since the previous layer.
        jobs: its jobs and those of migrations, until the run continues.
        own: those of the jobs that are no migrations.
        on_ndp: numbers of the parts of experts on NDP units.
        migrations: those that have ended since the previous layer.
        state: the state of the run.
    """

    visit: GatedVisit
    view: LayerView
    answer: Assignment
    assigned: CheckedAssignment
    planning_ns: float
    began_ns: float
    end_ns: float
    window_ns: float
    free_ns: float
    jobs: JobList
    own: range
    on_ndp: Ints
    migrations: tuple[MigrationRecord, ...]
    state: RunState

    @functools.cached_property
    def path(self) -> CriticalPath:
        """The critical path of its jobs."""
        return critical_path(self.jobs, self.began_ns)


class Listener:
    """Is told what happens in a run; subclasses have the methods that they need."""

    def window_done(self, window: Window, clock_ns: float) -> None:
        """A window has ended."""

    def cache_read(self, size: int) -> None:
        """The host reads bytes of the KV cache."""

    def decided(self, visit: Visit, moment: str, migrations: Sequence[Migration]) -> None:
        """The policy has decided migrations at a moment of a layer; see `BackgroundView`."""

    def layer_done(self, done: DoneLayer) -> None:
        """The experts of a layer are done."""

    def migrated(self, migrations: Sequence[MigrationRecord]) -> None:
        """Migrations have ended; told when a layer or a wait is over."""
