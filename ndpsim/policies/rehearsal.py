"""The interface for whole runs that a policy tries before its own run."""

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
        script: the answers of its policy, which repeat the run.
        chosen: the policy of the run; None: it was the run of a script.
    """

    time_ns: float
    script: Script
    chosen: ChosenPolicy | None = None


class Stage(Protocol):
    """A run that is stopped at a layer's gate, or at its end."""

    @property
    def clock_ns(self) -> float:
        """The time."""

    @property
    def visit(self) -> Visit | None:
        """The layer; None: the run is over."""

    @property
    def view(self) -> LayerView:
        """The view for `assign` at the gate."""

    @property
    def placement(self) -> Placement:
        """The location of every expert."""

    @property
    def moving(self) -> Flags:
        """Flags [layer, expert]: a migration of the expert has not ended."""

    @property
    def gpu_free(self) -> int:
        """Free space in the GPU's memory, in experts."""

    @property
    def ends_ns(self) -> Mapping[str, float]:
        """Time from the gate of the previous layer to the end of its work on each `JobRecord.resource`."""

    def copy(self) -> Stage:
        """An independent copy of the run from here on."""

    def go_on(self, answer: Answer) -> None:
        """Continue to the next gate; illegal parts of an answer are changed as in `Scripted`."""

    def rehearsed(self) -> Rehearsed:
        """The finished run."""


class Rehearsal(Protocol):
    """Runs on the trace of the coming run.

    Attributes:
        others: runs of policies of the same call.
        loads: tokens by expert of every layer visit, in order.
    """

    @property
    def others(self) -> Sequence[Rehearsed]: ...

    @property
    def loads(self) -> Mapping[Visit, Ints]: ...

    def run_policy(self, chosen: ChosenPolicy, hindsight: bool = False) -> Rehearsed | None:
        """A policy's run; None: the policy cannot run on the machine.

        hindsight: whether `place` gets the trace of the run instead of the offline trace.
        """

    def run_script(self, script: Script) -> Rehearsed:
        """The run of a script."""

    def stage(self, script: Script) -> Stage:
        """A run with the placement of `script`, at its first gate.

        Raises:
            InputError: the placement does not fit.
        """
