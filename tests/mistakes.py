"""What tests hold of a refusal: its code, place, key and the name it suggests, not its words.

All of it is one text, ``CODE FILE:LINE KEY ? SUGGESTION`` with the parts that there are: ``range hw.yaml:11
dimm.count``, ``unknown-key --set dimm.rnks ? dimm.ranks``. A file is named without its folder.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from ndpsim.cli import main as program
from ndpsim.errors import InputError

_LONGEST = 1000  # characters of a message


def mistake(error: BaseException | None) -> str:
    """The text above of an error, whose message is one line of reasonable length that begins with its place."""
    assert error is not None
    if isinstance(error, click.ClickException):
        option = getattr(error, "option_name", None) or getattr(
            getattr(error, "param", None), "human_readable_name", ""
        )
        return f"{type(error).__name__} {option}".strip()
    assert isinstance(error, InputError), error
    line = "" if error.line is None else f":{error.line}"
    place = "" if error.file is None else f"{error.file}{line}: "
    message, subject = str(error), f"{error.key}: " if error.key else ""
    assert message.startswith(" ".join(f"{place}{subject}".split())), message
    assert len(message.splitlines()) == 1, message
    assert len(error.problem.split()) > 1, message
    assert len(message) <= _LONGEST, message
    file = "" if error.file is None else f"{Path(error.file).name}{line}"
    guess = re.search(r"did you mean (.+?)\?", error.problem)
    suggested = "" if guess is None else f"? {guess[1].replace(chr(39), '')}"
    return " ".join(part for part in (error.code, file, error.key or "", suggested) if part)


@contextmanager
def refused(expected: str) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """What is done within ends in this mistake."""
    with pytest.raises(InputError) as caught:
        yield caught
    assert mistake(caught.value) == expected, caught.value


def mistake_of(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """The mistake that a call ends in."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    return mistake(caught.value)


class Done(NamedTuple):
    """What a call of the program left: exit status, output, messages, and the error that it told."""

    status: int
    out: str
    err: str
    error: BaseException | None


def run(*arguments: str) -> Done:
    """A call of the program in this process."""
    out, err, told = io.StringIO(), io.StringIO(), []
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        refuse = program._refuse
        patch.setattr(program, "_refuse", lambda reason: told.append(sys.exc_info()[1]) or refuse(reason))
        with pytest.raises(SystemExit) as caught:
            program.main(list(arguments))
    lines = (
        line for line in err.getvalue().splitlines(keepends=True) if not line.startswith("ndpsim: compiling ")
    )
    return Done(int(caught.value.code or 0), out.getvalue(), "".join(lines), told[-1] if told else None)


def mistake_in(*arguments: str) -> str:
    """The mistake with which the program refuses a call, in one line and with status 2."""
    done = run(*arguments)
    assert (done.status, done.out) == (2, ""), done
    assert done.err.startswith("ndpsim: error: "), done
    assert (done.err[-1:], len(done.err.splitlines())) == ("\n", 1), done
    return mistake(done.error)
