"""The files that a call reads and writes: it never writes over one that it reads.

Every reader of a user's file calls `note_input`, and every writer calls `note_output`. Device and number
identify a file, so it is recognised by every name and through links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ndpsim.base.errors import InputError

Identity = tuple[int, int]


class _Call:
    """The files that a call has read, and those that it will write with the option that names each."""

    def __init__(self) -> None:
        self.read: set[Identity] = set()
        self.written: dict[Identity, str | None] = {}


_call: _Call | None = None  # outside a call, files may be read and written back
_recorded: set[str] | None = None


@contextmanager
def inputs_protected() -> Iterator[None]:
    """Within the block, which is one call, no file is both read and written.

    Raises:
        InputError: a file is read that the call writes, or the reverse; standard output counts as written.
    """
    global _call
    outer, _call = _call, _Call()
    try:
        note_output(1, "standard output")
        yield
    finally:
        _call = outer


@contextmanager
def inputs_recorded() -> Iterator[set[str]]:
    """The names of all files that are read within the block, whether or not they exist."""
    global _recorded
    outer, _recorded = _recorded, set()
    try:
        yield _recorded
    finally:
        if outer is not None:
            outer |= _recorded
        _recorded = outer


def identity_of(file: str | os.PathLike[str] | int) -> Identity | None:
    """Device and number of a regular file, the same by every name and link; None: there is no such file."""
    with suppress(OSError, ValueError):
        status = os.stat(file)
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
    return None


def note_input(path: str | os.PathLike[str]) -> None:
    """Note a file that is about to be read.

    Raises:
        InputError: the call writes it.
    """
    if _recorded is not None:
        _recorded.add(os.fspath(path))
    identity = identity_of(path)
    if _call is not None and identity is not None:
        _call.read.add(identity)
        if identity in _call.written:
            raise _is_input(path, _call.written[identity])


def note_output(path: str | os.PathLike[str] | int, key: str | None) -> None:
    """Note a file that will be written; `key` is the option that names it.

    Raises:
        InputError: the call has read it.
    """
    identity = identity_of(path)
    if _call is not None and identity is not None:
        if identity in _call.read:
            raise _is_input(path, key)
        _call.written.setdefault(identity, key)


def _is_input(path: Any, key: str | None) -> InputError:
    return InputError(f"{path} is an input of this call; choose another file", "unwritable", key=key)
