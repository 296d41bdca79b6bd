"""Whole runs that a policy tries before its own: what it may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.script import Answer, Script, Visit
from ndpsim.policies.views import Flags, Ints, LayerView, Placement


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A whole run.

    Attributes:
        time_ns: the time of the whole run.
        script: the answers of its policy, which give the same run again.
        chosen: the policy that was run; None: none, but a script.
    """

    time_ns: float
    script: Script
    chosen: ChosenPolicy | None = None


class Stage(Protocol):
    """A run under way, at a layer's gate, or at its end."""

    clock_ns: float

    @property
    def visit(self) -> Visit | None:
        """The layer; None: the run is over."""
        ...

    @property
    def view(self) -> LayerView:
        """The view that `assign` is shown at the gate."""
        ...

    @property
    def placement(self) -> Placement:
        """The location of every expert."""
        ...

    @property
    def moving(self) -> Flags:
        """Flags [layer, expert]: a migration of it is not done."""
        ...

    @property
    def gpu_free(self) -> int:
        """Experts that the GPU's memory has room for."""
        ...

    @property
    def ends_ns(self) -> Mapping[str, float]:
        """The time from the gate of the layer before to the end of its work, by `JobRecord.resource`."""
        ...

    def copy(self) -> Stage:
        """A run of its own from here on."""
        ...

    def go_on(self, answer: Answer) -> None:
        """Go on to the next gate; what is not legal in an answer is changed as `Scripted` says."""
        ...

    def rehearsed(self) -> Rehearsed:
        """The run, which is over."""
        ...


class Rehearsal(Protocol):
    """Runs on the trace of the run that is to come.

    Attributes:
        others: runs of policies of the same call.
        loads: tokens by expert of every visit, in order.
    """

    @property
    def others(self) -> Sequence[Rehearsed]: ...

    @property
    def loads(self) -> Mapping[Visit, Ints]: ...

    def run_policy(self, chosen: ChosenPolicy, hindsight: bool = False) -> Rehearsed | None:
        """A policy's run; None: it cannot be run on the machine.

        hindsight: `place` is shown the trace of the run instead of the offline trace.
        """
        ...

    def run_script(self, script: Script) -> Rehearsed:
        """The run of a script."""
        ...

    def stage(self, script: Script) -> Stage:
        """A run with the placement of `script`, at its first gate.

        Raises:
            InputError: the placement does not fit.
        """
        ...
