"""The definition of a sweep: a command, its fixed and its varied values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ndpsim.base.errors import InputError, unknown
from ndpsim.report.sweep_plot import PublishedValue
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.commands import swept_commands


@dataclass(frozen=True)
class Definition:
    """A sweep.

    Attributes:
        command: the command to run at every point: gemv, moe, relayout, dram or serve.
        fixed: keys with one value: options of the command without their dashes (``tokens``), and keys of the
            hardware with dots (``dimm.ranks``).
        varied: keys in order, each with its values in order.
        zipped: groups of varied keys whose n-th values are combined, instead of all combinations.
        baseline: values of some varied keys; the metric `speedup` compares each point with the one that has
            these values and is otherwise the same.
        speedup_of: the time from which `speedup` is computed; None: the command's `time_metric`.
        plot: kind, x, y, by and log of the picture, for `ndpsim.report.sweep_plot`.
        published: values of papers.
        title: title of pictures and reports; None: from the command and its keys.
        labels: names of text values in pictures, ``{"edge:prefetch=false": "TP+LB"}``.
    """

    command: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    zipped: tuple[tuple[str, ...], ...] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)
    speedup_of: str | None = None
    plot: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[PublishedValue, ...] = ()
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def swept(self) -> SweptCommand:
        """The command.

        Raises:
            InputError: no command has this name.
        """
        commands = swept_commands()
        if self.command not in commands:
            raise unknown(self.command, commands, "command", key="command")
        return commands[self.command]

    @property
    def results(self) -> tuple[type, ...]:
        """The classes of the command's results, whose fields describe its metrics."""
        return self.swept.results

    def points(self) -> list[dict[str, Any]]:
        """The values of the varied keys at each point; the last key, or group of keys, changes fastest.

        Raises:
            InputError: the keys of a group have different numbers of values.
        """
        points = [
            dict(itertools.chain.from_iterable(choice)) for choice in itertools.product(*self.choices())
        ]
        return [{key: point[key] for key in self.varied} for point in points]

    def choices(self) -> list[list[list[tuple[str, Any]]]]:
        """Values of each varied key or group of keys, as combined pairs of key and value.

        Raises:
            InputError: the keys of a group have different numbers of values.
        """
        return [self._together(group) for group in self._groups()]

    def _groups(self) -> list[tuple[str, ...]]:
        """The varied keys in groups, which may have a single key."""
        group_of = {key: group for group in self.zipped for key in group}
        return list(dict.fromkeys(group_of.get(key, (key,)) for key in self.varied))

    def _together(self, group: tuple[str, ...]) -> list[list[tuple[str, Any]]]:
        """Values of a group of keys, as combined pairs of key and value."""
        counts = {key: len(self.varied[key]) for key in group}
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{key} has {count}" for key, count in counts.items())
            raise InputError(f"values are taken together, and {each}", "conflict", key="zip")
        return [
            [(key, value) for key, value in zip(group, values, strict=True)]
            for values in zip(*(self.varied[key] for key in group), strict=True)
        ]

    def labelled(self, rows: Sequence[Mapping[str, Any]]) -> tuple[Definition, list[dict[str, Any]]]:
        """This sweep and rows of its table, with values replaced by their labels."""

        def label(value: Any) -> Any:
            return self.labels.get(value, value) if isinstance(value, str) else value

        def all_of(values: Mapping[str, Any]) -> dict[str, Any]:
            return {key: label(value) for key, value in values.items()}

        definition = replace(
            self,
            varied={key: tuple(map(label, values)) for key, values in self.varied.items()},
            baseline=all_of(self.baseline),
            published=tuple(replace(each, where=all_of(each.where)) for each in self.published),
        )
        return definition, [{**row, **all_of({key: row[key] for key in self.varied})} for row in rows]

    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """All values for the command at a point, by key."""
        return {**self.fixed, **point}
