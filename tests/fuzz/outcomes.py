"""Attempts with bad input: each is refused in one line, or done. Nothing else may happen."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from calls import call
from ndpsim.base.errors import InputError, MismatchError

MOST_BYTES = 1000  # of a message


def examples(usual: int) -> int:
    """How many a long test has: as many as ``FUZZ_EXAMPLES`` says."""
    return int(os.environ.get("FUZZ_EXAMPLES", usual))


#: How attempts of this process ended.
COUNTED: Counter[str] = Counter()


def check_line(message: str) -> None:
    """Check that a message is one line of reasonable length."""
    assert len(message.splitlines()) <= 1, message[:MOST_BYTES]
    assert len(message.encode(errors="backslashreplace")) <= MOST_BYTES, message[:MOST_BYTES]


def attempt(function: Callable[..., Any], *arguments: Any, **named: Any) -> InputError | None:
    """The refusal of a call; None: it was done. Any other exception is a failure of the test."""
    try:
        function(*arguments, **named)
    except InputError as error:
        check_line(str(error))
        COUNTED["refused"] += 1
        return error
    except MismatchError as error:
        check_line(str(error))
    COUNTED["done"] += 1
    return None


def attempt_command(*arguments: str) -> str:
    """What a command says on standard error; its exit status is 0, or 2 with one line that says why."""
    status, _, err = call(*arguments)
    assert status in (0, 2), err[:MOST_BYTES]
    if status == 2:
        check_line(err.strip().splitlines()[-1])
    for line in err.splitlines():
        check_line(line)
    COUNTED["refused" if status else "done"] += 1
    return err
