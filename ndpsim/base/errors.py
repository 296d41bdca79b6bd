"""Errors of the user, each in one line.

`InputError` is the only exception a user meets: the command line prints it and exits with status 2.
"""

from __future__ import annotations

import difflib
import functools
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

_LONGEST = 100  # characters of a value in a message
_LINE = 900  # characters of a message
_NAME = 300  # characters of the name of a file or key in front of it
_NEAR = 0.75  # share of characters in common, above which one name may be a slip for another
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlong = 40
_SHOWN = 24  # known names in a message; of more, those most like the unknown one
_PREDICATE = re.compile(r"(is|has|needs|must|applies|draws) ")  # the key is the subject of such a problem
_PART = 3  # characters of a name, from which it may be the beginning or the end of another


#: Kinds of mistakes, for programs and tests; the words of a message may change, its code does not.
#:
#: ==================  ====================================================================================
#: ``invalid``         an impossible value to which no other code applies
#: ``unknown-name``    a name that is not one of the allowed names
#: ``unknown-key``     a key or an option that does not exist
#: ``type``            a value of another type than allowed
#: ``range``           a number below the minimum, above the maximum, or not among the allowed ones
#: ``form``            a text or a file without the required form
#: ``missing``         a required value or file is not given
#: ``twice``           a value is given twice
#: ``conflict``        two given values exclude each other, or one has no effect without another
#: ``too-large``       it does not fit a memory, a device, or the limits of a kernel
#: ``unreadable``      a file or folder cannot be read
#: ``unwritable``      a file or folder cannot be written, or must not be replaced
#: ``unsupported``     a valid input that ndpsim does not support
#: ``not-installed``   a required package or program is not installed
#: ``policy``          a policy's answer breaks a rule, or its code failed
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

    The text is one line, ``FILE:LINE: KEY: what is wrong``, with the parts that are known. A problem that
    begins with a verb continues the key without a colon: ``dram.standard is missing``.

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
        problem = problem if isinstance(problem, str) else shown(problem)
        self.problem = problem
        self.code: Code = code
        self.file = None if file is None else _text(file)
        self.line = line if isinstance(line, int) else None
        self.key = None if key is None else _text(key)
        name = None if self.file is None else shortened(self.file, _NAME)
        location = "" if name is None else name + (f":{self.line}" if self.line else "") + ": "
        joint = " " if _PREDICATE.match(problem) else ": "
        subject = "" if self.key is None else shortened(self.key, _NAME) + joint
        super().__init__(one_line(f"{location}{subject}{problem}"))

    def at(self, file: object = None, line: int | None = None, key: str | None = None) -> InputError:
        """The same mistake at another place: `key` stays where none is given, file and line do not."""
        key = key if isinstance(key, str) and key else self.key
        return InputError(self.problem, self.code, file=file, line=line, key=key)

    def __reduce__(self) -> tuple[Any, ...]:
        """The arguments from which another process makes the error again."""
        again = functools.partial(type(self), file=self.file, line=self.line, key=self.key, code=self.code)
        return again, (self.problem,)


def shortened(text: str, most: int = _LONGEST) -> str:
    """A text for a message: of a longer one its beginning, its length and its end."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]}... ({len(text):,} characters) ...{text[-end:]}"


def shown(value: object) -> str:
    """A user's value as a message quotes it: its `repr`, `shortened` where it is long."""
    try:
        return repr(shortened(value)) if isinstance(value, str) else shortened(_SHORT.repr(value))
    except Exception:  # a number of too many digits, or an object whose own repr fails
        return f"a {type(value).__name__} that cannot be shown"


def _text(value: object) -> str:
    """The text of any object, even of one that has none."""
    try:
        return str(value)
    except Exception:
        return shown(value)


def one_line(text: str) -> str:
    """A message in one line of at most about 1,000 bytes, from its beginning and its end."""
    size = len(text.encode(errors="backslashreplace"))
    most = _LINE * len(text) // size if size > _LINE else _LINE
    return " ".join(shortened(text, most).split())


def no_way_on(what: str) -> InputError:
    """The error of a simulation that can never end because of its timings; `what`: the subject."""
    return InputError(
        f"no command can be issued under these timings: {what}", "no-progress", key="dram.timing"
    )


class MismatchError(RuntimeError):
    """Two computations of the same result differ; the message names the difference in one line."""

    def __init__(self, difference: str) -> None:
        super().__init__(difference)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`; None if no name is similar."""
    written, folded = str(name).lower(), {k.lower(): k for k in known}
    hits = difflib.get_close_matches(written, folded, n=1, cutoff=_NEAR)
    if not hits and len(written) >= _PART:
        hits = sorted((k for k in folded if k.startswith(written) or k.endswith(written)), key=len)
    return folded[hits[0]] if hits else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Words for the known name most like `name`, to follow what is wrong with it; empty without one."""
    guess = nearest(name, (other for other in known if other != name))
    return f"; did you mean '{guess}'?" if guess else ""


def one_of(name: object, known: Iterable[str], what: str) -> str:
    """Words for a name that is none of `known`: ``unknown WHAT 'x'; did you mean 'y'? (known: a, ...)``."""
    names, written = sorted(known), str(name)
    near = written[:_LONGEST]
    return (
        f"unknown {what} '{shortened(written)}'{did_you_mean(written, names)} (known: {listed(names, near)})"
    )


def listed(names: Sequence[str], like: str = "") -> str:
    """Words for names; of many, those most like another, or the first."""
    near = names
    if len(names) > _SHOWN:
        near = sorted(difflib.get_close_matches(like, names, n=_SHOWN, cutoff=0)) if like else names[:_SHOWN]
    return ", ".join(near) + (f" and {len(names) - len(near)} more" if len(near) < len(names) else "")


def unknown(name: object, known: Iterable[str], what: str, **location: Any) -> InputError:
    """The error of a `what` that is none of `known`; `location`: the file, line and key of it."""
    return InputError(one_of(name, known, what), **location, code="unknown-name")
