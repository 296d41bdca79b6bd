"""Calls of the command line in this process."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import pytest

from mistakes import mistake
from ndpsim.base.errors import InputError
from ndpsim.cli import main as command_line

#: Files of test data.
GIVEN = Path(__file__).parent / "given"


class Done(NamedTuple):
    """The status and output of a finished call."""

    status: int
    out: str
    err: str


def call(*arguments: object, out: io.StringIO | None = None, err: io.StringIO | None = None) -> Done:
    """Run the command line; `out` and `err`: other streams that it prints to."""
    return _called(arguments, out or io.StringIO(), err or io.StringIO())[0]


def _called(
    arguments: tuple[object, ...], out: io.StringIO, err: io.StringIO
) -> tuple[Done, list[InputError | click.ClickException]]:
    """A finished call, and the mistake for which it was refused."""
    cli, errors = command_line.cli, []

    def watched(*given: Any, **named: Any) -> Any:
        try:
            return cli.main(*given, **named)
        except (InputError, click.ClickException) as error:
            errors.append(error)
            raise

    with (
        patch.object(command_line, "cli", SimpleNamespace(main=watched)),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as caught,
    ):
        command_line.main([str(one) for one in arguments])
    return Done(int(caught.value.code or 0), out.getvalue(), err.getvalue()), errors


def said(*arguments: object) -> str:
    """The output of a call that must succeed."""
    done = call(*arguments)
    assert done.status == 0, done.err
    return done.out


def refused_call(*arguments: object) -> str:
    """The mistake for which a call must be refused, in one line.

    ``usage`` and an option: an error of click; ``unreadable`` alone: an error of the operating system.
    """
    done, errors = _called(arguments, io.StringIO(), io.StringIO())
    assert (done.status, done.out) == (2, ""), done
    error = (
        errors[0] if errors else InputError(done.err.strip().removeprefix("ndpsim: error: "), "unreadable")
    )
    if isinstance(error, InputError):
        line, text = str(error), mistake(error)
    else:
        line, text = " ".join(error.format_message().split()), _usage(error)
    assert done.err.splitlines()[-1] == f"ndpsim: error: {line}"
    assert all(map(_is_progress, done.err.splitlines()[:-1])), done.err
    return text


def _is_progress(line: str) -> bool:
    """Whether a line is of compiling, or of work that takes long on a slow machine."""
    return "compil" in line or re.fullmatch(r".+: [0-9]+%", line) is not None


def _usage(error: click.ClickException) -> str:
    """The option that a call lacks, repeats or misspells, and suggested ones."""
    parameter = getattr(error, "param", None)
    named = getattr(error, "option_name", None) or (parameter.opts[-1] if parameter else "")
    guesses = " or ".join(getattr(error, "possibilities", None) or ())
    return " ".join(part for part in ("usage", named, guesses and f"? {guesses}") if part)
