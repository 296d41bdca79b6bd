"""Values of keys: ``tokens=1,2,4``, ``dimm.count=8..32:8``, ``link.link_gbps=log:10..1000:7``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ndpsim.base.arguments import attribute_of
from ndpsim.base.errors import InputError, did_you_mean, shown, unknown
from ndpsim.config.keys import allowed, field_at, refusal, section_of
from ndpsim.config.load import setting
from ndpsim.report.sweep_plot import PublishedValue
from ndpsim.studies.sweeps.command import SweptCommand, plain
from ndpsim.studies.sweeps.commands import swept_commands

# ---- The definition of a sweep: a command, its fixed and its varied values


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
            raise InputError(
                f"values that are combined one by one must be equally many: {each}", "conflict", key="zip"
            )
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


# ---- Values of keys: ``tokens=1,2,4``, ``dimm.count=8..32:8``, ``link.link_gbps=log:10..1000:7``


NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(r"([-+]?[0-9]{1,9})\.\.([-+]?[0-9]{1,9})(?::([0-9]{1,9}))?", re.ASCII)
_LOG = re.compile(rf"log:({NUMBER})\.\.({NUMBER}):([0-9]{{1,6}})", re.ASCII)
_MOST_VALUES = 100_000


def values_of(command: SweptCommand, key: str, values: Any) -> tuple[Any, ...]:
    """All values of a varied key.

    Args:
        values: a text, VALUES with commas between them (or semicolons, where values have commas), each
            a value, ``LOW..HIGH`` (whole numbers, both ends included), ``LOW..HIGH:STEP`` (from LOW on, STEP
            apart) or ``log:LOW..HIGH:N`` (N numbers, each the same factor from the next; of a key of whole
            numbers the nearest ones, each once); or a list of values; or one value.

    Raises:
        InputError: the command has no such key, or a value can never be one of it.
    """
    whole = is_whole(command, key)
    if isinstance(values, str):
        texts = values.removesuffix(";").split(";" if ";" in values else ",")
        parts = [value for part in texts for value in _spread(part.strip(), key, whole)]
    elif isinstance(values, Sequence) or attribute_of(values, "ndim") == 1:
        parts = list(values)
    else:
        parts = [values]
    if not parts:
        raise InputError("has no values", "missing", key=key)
    return tuple(one_value(command, key, part) for part in parts)


def _spread(part: str, key: str, whole: bool) -> list[Any]:
    """The values of a part between commas."""
    if found := _RANGE.fullmatch(part):
        low, high, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if high < low:
            raise InputError(f"'{part}' ends before it begins", "range", key=key)
        if step == 0:
            raise InputError(f"'{part}' has steps of 0", "range", key=key)
        _check_count((high - low) // step + 1, part, key)
        return list(range(low, high + 1, step))
    if found := _LOG.fullmatch(part):
        first, last, count = float(found[1]), float(found[2]), int(found[3])
        if not 0 < first < last or count < 2:
            problem = f"'{part}' is not log:LOW..HIGH:N with 0 < LOW < HIGH and N from 2"
            raise InputError(problem, "form", key=key)
        _check_count(count, part, key)
        return _geometric(first, last, count, whole)
    if part.startswith("log:") or ".." in part:
        raise InputError(f"{shown(part)} is neither LOW..HIGH nor log:LOW..HIGH:N", "form", key=key)
    return [part]


def _check_count(count: int, part: str, key: str) -> None:
    if count > _MOST_VALUES:
        raise InputError(f"'{part}' is {count} values, more than {_MOST_VALUES}", "too-large", key=key)


def _geometric(first: float, last: float, count: int, whole: bool) -> list[Any]:
    inner = [first * (last / first) ** (n / (count - 1)) for n in range(1, count - 1)]
    numbers = [first, *inner, last]
    if whole:
        return sorted({round(n) for n in numbers})
    return [rounded(n) for n in numbers]


def rounded(value: float) -> float:
    """A number rounded for hardware files: to a thousandth, or small ones to four digits."""
    return round(value, 3) if value >= 0.1 else float(f"{value:.4g}")


def one_value(command: SweptCommand, key: str, value: Any) -> Any:
    """A value of a key, in the form for the command.

    Raises:
        InputError: the command has no such key, or the key cannot have this value.
    """
    parameter = command.parameters.get(key)
    if parameter is not None:
        taken = parameter.take(value)
        return command.checks[key](taken) if key in command.checks else taken
    taken = plain(value)
    if _is_timing(command, key):
        if isinstance(taken, bool) or not isinstance(taken, int) or taken < 0:
            raise InputError(f"{shown(value)} is not a whole number of clocks", "type", key=key)
        return taken
    if _is_of_device(command, key):
        return taken
    path = _hardware_path(command, key)
    field = field_at(path)
    if field is not None and section_of(field) is None and (problem := refusal(path, taken)) is not None:
        raise InputError(problem, "range", key=key)
    return taken


def _is_of_device(command: SweptCommand, key: str) -> bool:
    """Whether a key is one of a device with units in its banks."""
    return command.device_keys is not None and re.fullmatch(command.device_keys, key) is not None


def _hardware_path(command: SweptCommand, key: str) -> tuple[str, ...]:
    """The path of a key of the hardware in its file.

    Raises:
        InputError: it is neither a key of the hardware nor an option of the command.
    """
    try:
        return setting(f"{key}=0")[0]
    except InputError as error:
        if "." in key:
            raise error.at(key=key) from None
    hint = did_you_mean(key, command.parameters)
    known = ", ".join(command.parameters)
    raise InputError(
        f"is no option of {command.name}{hint} (options: {known}; and keys of the hardware, as dimm.ranks)",
        "unknown-key",
        key=key,
    )


def _is_timing(command: SweptCommand, key: str) -> bool:
    """Whether a key is a timing of a memory from options: ``nCL``."""
    return "timing" in command.parameters and re.fullmatch("n[A-Z][A-Za-z_]*", key) is not None


def is_whole(command: SweptCommand, key: str) -> bool:
    """Whether values of a key are whole numbers.

    Raises:
        InputError: the command has no such key.
    """
    if key in command.parameters:
        return command.parameters[key].kind.whole
    apart = _is_timing(command, key) or _is_of_device(command, key)
    field = None if apart else field_at(_hardware_path(command, key))
    return field is None or (section_of(field) is None and allowed(field).startswith("a whole number"))


def checked(definition: Definition) -> Definition:
    """A definition with all values in the form for its command.

    Raises:
        InputError: a key or a value is invalid, a key is both fixed and varied, nothing varies, no point has
            the baseline's values, or combined keys have different numbers of values.
    """
    command = definition.swept
    varied = {key: values_of(command, key, values) for key, values in definition.varied.items()}
    if not varied:
        problem = "nothing varies; give --vary KEY=VALUES, for instance tokens=1,2,4"
        raise InputError(problem, "missing", key="vary")
    twice = [key for key in definition.fixed if key in varied]
    if twice:
        raise InputError("has a fixed value and varies; give one of them", "conflict", key=twice[0])
    fixed = {key: one_value(command, key, value) for key, value in definition.fixed.items()}
    baseline = {key: one_value(command, key, value) for key, value in definition.baseline.items()}
    for key, value in baseline.items():
        if key not in varied:
            raise _no_variable(key, varied, "baseline")
        if value not in varied[key]:
            known = ", ".join(map(str, varied[key]))
            raise InputError(f"{shown(value)} is no value of {key} ({known})", "unknown-name", key="baseline")
    if definition.speedup_of is not None:
        if not baseline:
            raise InputError("needs a baseline", "conflict", key="speedup_of")
        if not definition.speedup_of.endswith("_ns"):
            problem = f"'{definition.speedup_of}' is no time, whose name ends in _ns"
            raise InputError(problem, "type", key="speedup_of")
    _check_groups(definition.zipped, varied)
    published = tuple(
        replace(value, where=_where(command, varied, value.where)) for value in definition.published
    )
    taken = replace(definition, fixed=fixed, varied=varied, baseline=baseline, published=published)
    for choices in taken.choices():
        _check_different(choices)
    return taken


def _no_variable(key: str, varied: Iterable[str], key_path: str) -> InputError:
    return InputError(f"'{key}' does not vary ({', '.join(varied)} do)", "unknown-key", key=key_path)


def _check_different(choices: Sequence[Sequence[tuple[str, Any]]]) -> None:
    """Check that a key, or combined keys, have different values."""
    seen = set()
    for choice in choices:
        values = tuple((type(value), str(value)) for _, value in choice)
        if values in seen:
            together = ", ".join(shown(value) for _, value in choice)
            problem = f"has the value {together} twice" if len(choice) == 1 else f"{together} come twice"
            raise InputError(problem, "twice", key=choice[0][0])
        seen.add(values)


def _check_groups(groups: Sequence[Sequence[str]], varied: Mapping[str, tuple[Any, ...]]) -> None:
    keys = [key for group in groups for key in group]
    for key in keys:
        if key not in varied:
            raise _no_variable(key, varied, "zip")
        if keys.count(key) > 1:
            raise InputError(f"'{key}' is named twice", "twice", key="zip")


def _where(
    command: SweptCommand, varied: Mapping[str, tuple[Any, ...]], where: Mapping[str, Any]
) -> dict[str, Any]:
    for key in where:
        if key not in varied:
            raise _no_variable(key, varied, "published")
    return {key: one_value(command, key, value) for key, value in where.items()}
