"""Commands that can be swept, as they describe themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.errors import InputError, did_you_mean
from ndpsim.moe.weights import weight_name
from ndpsim.parameters import Table
from ndpsim.reported import OF_THE_RUN

_NAMED = 12  # metrics in a message


@dataclass(frozen=True)
class Resolved:
    """A point, the same for all ways of writing it.

    Attributes:
        config: plain data: everything that is used, with defaults, the hardware included.
        key: a digest of the configuration's values and of the contents of the files that are read.
    """

    config: dict[str, Any]
    key: str


class SweptCommand(ABC):
    """A command as a sweep runs it.

    `given` is always values by key: options as they are typed, without dashes, and keys of the hardware with
    their dots.

    Attributes:
        name: the name of the command.
        parameters: its options by key.
        checks: of some options, what a value must pass besides, which raises InputError.
        time_metric: the metric that a speed-up is of.
        results: the classes of its results, whose fields its metrics begin with.
        own_metrics: metrics besides these fields.
    """

    name: ClassVar[str]
    parameters: ClassVar[Table]
    checks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "weights": weight_name,
        "arbitration": checked_arbitration,
    }
    time_metric: ClassVar[str] = "time_ns"
    results: ClassVar[tuple[type, ...]] = ()
    own_metrics: ClassVar[tuple[str, ...]] = ()

    def metric_beginnings(self) -> tuple[str, ...]:
        """Beginnings of the names of its metrics, up to the first dot; none where they are not known."""
        of_results = (each.name for result in self.results for each in fields(result))
        return tuple(
            dict.fromkeys(name for name in (*of_results, *self.own_metrics) if name not in OF_THE_RUN)
        )

    def check_metric(self, name: str, key: str, others: Collection[str] = ()) -> None:
        """Make sure that a name can be of a metric, as far as one can tell before there are results.

        Args:
            key: what the mistake is in.
            others: further names that may be given.

        Raises:
            InputError: it can be of none.
        """
        known = (*others, *self.metric_beginnings())
        if self.metric_beginnings() and not {name, name.partition(".")[0]} & set(known):
            hint = did_you_mean(name, known) or f" (metrics: {', '.join(known[:_NAMED])}, ...)"
            problem = f"'{name[:60]}' is no metric of {self.name}{hint}"
            raise InputError(problem, key=key, code="unknown-name")

    @abstractmethod
    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """The configuration of a run, without running it.

        Raises:
            InputError: there is no such point.
        """

    @abstractmethod
    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run it, and return the scalars of its result by dotted name: neither configuration nor wall times.

        What was simulated before comes from the result cache.

        Raises:
            InputError: there is no such point.
        """
