"""The tested parts of a refusal: its code, place, key and suggestion, but not its words.

All of it is one text, ``CODE FILE:LINE KEY ? SUGGESTION`` with the parts that there are: ``range hw.yaml:11
dimm.count``, ``unknown-key sets dimm.rnks ? dimm.ranks``. A file is named without its folder, and one that comes with
ndpsim without the line, which changes with the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ndpsim.base.errors import InputError, shortened
from ndpsim.config import data_path

_LONGEST = 1000  # maximum characters of a message
_OURS = data_path("hwconfigs", "trimoe").parents[1]


def mistake(error: BaseException | None) -> str:
    """The text above of an error, whose message is one line of reasonable length that begins with its place."""
    assert error is not None
    assert isinstance(error, InputError), error
    line = "" if error.line is None else f":{error.line}"
    place = "" if error.file is None else f"{shortened(error.file, 300)}{line}: "
    message, subject = str(error), error.key or ""
    assert message.startswith(" ".join(f"{place}{subject}".split())), message
    assert len(message.splitlines()) == 1, message
    assert len(message) <= _LONGEST, message
    path = Path(error.file or "")
    file = path.name if path.is_absolute() and path.is_relative_to(_OURS) else f"{path.name}{line}"
    guess = re.search(r"did you mean (.+?)\?", error.problem)
    suggested = "" if guess is None else f"? {guess[1].replace(chr(39), '')}"
    return " ".join(part for part in (error.code, file, error.key or "", suggested) if part)


@contextmanager
def refused(expected: str) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Check that the block ends in this mistake."""
    with pytest.raises(InputError) as caught:
        yield caught
    assert mistake(caught.value) == expected, caught.value


def mistake_of(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """The mistake in which a call ends."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    return mistake(caught.value)
