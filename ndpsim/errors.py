"""Errors of the user, each in one line.

`InputError` is the only exception a user meets: the command line prints it and exits with status 2.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from typing import Any, Literal

_LONGEST = 80  # characters of an unknown name in a message
_NEAR = 0.75  # share of characters in common, above which one name may be a slip for another
_PART = 3  # characters of a name, from which it may be the beginning or the end of another


#: Kinds of mistakes, for programs and tests; the words of a message may change, its code does not.
#:
#: ==================  ====================================================================================
#: ``invalid``         a value that makes no sense, where no other code says more
#: ``unknown-name``    a name that is none of those allowed
#: ``unknown-key``     a key or an option that is not there
#: ``type``            of another type than allowed: no number, no text, no list, no mapping
#: ``range``           a number below the least, above the most, or none of those that are allowed
#: ``form``            a text, or a file, that is not of the form it should have
#: ``missing``         something that must be given is not
#: ``twice``           something is given twice
#: ``conflict``        two things that are given exclude each other, or one is of no use without the other
#: ``too-large``       it does not fit: a memory, a device, the limits of a kernel
#: ``unreadable``      a file or folder cannot be read
#: ``unwritable``      a file or folder cannot be written, or is not ours to replace
#: ``unsupported``     it makes sense, and ndpsim does not do it
#: ``not-installed``   a package or a program that it takes is not there
#: ``policy``          a policy's answer is refused, or its code failed
#: ``no-progress``     a simulation that cannot end
#: ==================  ====================================================================================
Code = Literal[
    "invalid",
    "unknown-name",
    "unknown-key",
    "type",
    "range",
    "form",
    "missing",
    "twice",
    "conflict",
    "too-large",
    "unreadable",
    "unwritable",
    "unsupported",
    "not-installed",
    "policy",
    "no-progress",
]

#: The file of a value that a call changes: the name of the argument. On the command line it is `--set`.
SETS = "sets"


class InputError(ValueError):
    """A mistake of the user in a file, a key, an option or a value.

    The text is one line, ``FILE:LINE: KEY: what is wrong``, with the parts that are known.

    Args:
        problem: the mistake, with the value and the allowed values.
        code: the kind of the mistake, one of `Code`.
        file: the file it was read from.
        line: its line there, counted from 1.
        key: the dotted key or the option, for instance ``dimm.ranks`` or ``--tokens``.
    """

    def __init__(
        self,
        problem: str,
        code: Code = "invalid",
        *,
        file: object = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        self.problem = problem
        self.code: Code = code
        self.file = None if file is None else str(file)
        self.line = line
        self.key = key
        place = "" if self.file is None else self.file + (f":{line}" if line else "") + ": "
        subject = "" if key is None else f"{key}: "
        super().__init__(" ".join(f"{place}{subject}{problem}".split()))

    def at(self, file: object = None, line: int | None = None, key: str | None = None) -> InputError:
        """The same mistake at another place: `key` stays where none is given, file and line do not."""
        return InputError(self.problem, self.code, file=file, line=line, key=key or self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        """The parts from which other processes make it again."""
        again = functools.partial(type(self), file=self.file, line=self.line, key=self.key, code=self.code)
        return again, (self.problem,)


def no_way_on(what: str) -> InputError:
    """The error of a simulation that its timings keep from ever ending; `what` came up in it."""
    return InputError(f"these timings leave no way on: {what}", "no-progress", key="dram.timing")


class MismatchError(RuntimeError):
    """Two computations of the same result differ; the message names the difference in one line."""

    def __init__(self, difference: str) -> None:
        super().__init__(difference)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when nothing comes close."""
    written, folded = str(name).lower(), {k.lower(): k for k in known}
    hits = difflib.get_close_matches(written, folded, n=1, cutoff=_NEAR)
    if not hits and len(written) >= _PART:
        hits = sorted((k for k in folded if k.startswith(written) or k.endswith(written)), key=len)
    return folded[hits[0]] if hits else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Words for the known name most like `name`, to follow what is wrong with it; empty without one."""
    guess = nearest(name, known)
    return f"; did you mean '{guess}'?" if guess else ""


def one_of(name: object, known: Iterable[str], what: str) -> str:
    """Words for a name that is none of `known`: ``unknown WHAT 'x'; did you mean 'y'? (a, b, ...)``."""
    names, written = sorted(known), str(name)
    written = written if len(written) <= _LONGEST else f"{written[:_LONGEST]}..."
    return f"unknown {what} '{written}'{did_you_mean(written, names)} (known: {', '.join(names)})"


def unknown(name: object, known: Iterable[str], what: str, **place: Any) -> InputError:
    """The error of a `what` that is none of `known`; `place`: the file, line and key of it."""
    return InputError(one_of(name, known, what), **place, code="unknown-name")
