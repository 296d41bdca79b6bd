"""Reads logs line by line for a judge, and collects its findings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ndpsim.audit.report import CheckOutcome
from ndpsim.audit.schedule_rules import Fault
from ndpsim.base.arguments import path_of
from ndpsim.base.errors import InputError
from ndpsim.base.files import open_plain_or_gzip, reading
from ndpsim.base.options.dram import CHECK

_LONGEST = 1 << 28  # bytes of a line


@dataclass(frozen=True)
class Finding:
    """A broken rule.

    Attributes:
        line: the line of the log, from 1.
        rule: the rule that is broken, such as "pairs", "exclusive" or "placement".
        message: all of it in one line.
    """

    line: int
    rule: str
    message: str


class LogReport(CheckOutcome):
    """The outcome of a check of a log."""

    passed = "consistent"
    findings: tuple[Finding, ...]

    @property
    def found(self) -> Sequence[Finding]:
        """The findings."""
        return self.findings


class Findings:
    """The number of broken rules, and the first of them.

    Args:
        limit: findings to keep.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.first: list[Finding] = []
        self._limit = limit

    def add(self, number: int, where: str, faults: Iterable[Fault]) -> None:
        """Add faults of a line of the log; `where`: their place, in words that end in a colon and a blank."""
        for rule, problem in faults:
            self.count += 1
            if len(self.first) < self._limit:
                self.first.append(Finding(number, rule, f"line {number}: {where}{rule}: {problem}"))


def begins_with(path: str | PathLike[str], begin: bytes) -> bool:
    """Whether `path` is a readable file, plain or gzip, that begins with `begin`."""
    try:
        if not os.path.isfile(path):
            return False
        with open_plain_or_gzip(Path(path)) as file, reading(Path(path)):
            return file.read(len(begin)) == begin
    except (InputError, ValueError):
        return False


def log_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a log, plain or gzip, with the numbers of their lines.

    Raises:
        InputError: it cannot be read, or a line is no JSON object.
    """
    with open_plain_or_gzip(path) as file:
        number = 0
        while True:
            number += 1
            with reading(path):
                line = file.readline(_LONGEST)
            if not line:
                return
            try:
                content = json.loads(line, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                raise InputError(f"is no JSON: {error}", "form", file=path, line=number) from None
            if not isinstance(content, dict):
                raise InputError("is no JSON object", "form", file=path, line=number)
            yield number, content


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


@contextmanager
def understood(file: Path, line: int, command: str) -> Iterator[None]:
    """Turn the errors of a block that reads a line into an `InputError` at this line.

    Raises:
        InputError: the line is no line of a log of `command`.
    """
    try:
        yield
    except InputError as error:
        raise error.at(file, line) from None
    except KeyError as error:
        problem = f"has no {error}: this is no log of {command}"
        raise InputError(problem, "form", file=file, line=line) from None
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        problem = f"is no line of a log of {command} ({error})"
        raise InputError(problem, "form", file=file, line=line) from None


class Judge(Protocol):
    """Reads a log, line after line."""

    def line(self, number: int, content: dict[str, Any]) -> None:
        """Read the next line; `number`: its number."""

    def end(self) -> None:
        """Called after the last line of the log."""


_J = TypeVar("_J", bound=Judge)


def judge_log(
    path: str | PathLike[str], limit: int, command: str, begin: Callable[[dict[str, Any], Findings], _J]
) -> tuple[_J, Findings]:
    """Let a judge read a log of `command`; returns it, and its findings.

    Args:
        limit: findings to describe.
        begin: makes the judge from the first line.

    Raises:
        InputError: the file cannot be read or is no such log; `limit` is out of range.
    """
    findings = Findings(CHECK["limit"].checked(limit))
    file = Path(path_of(path, "path"))
    judge: _J | None = None
    for number, content in log_lines(file):
        with understood(file, number, command):
            if judge is None:
                judge = begin(content, findings)
            else:
                judge.line(number, content)
    if judge is None:
        raise InputError("is empty", "form", file=file)
    judge.end()
    return judge, findings
