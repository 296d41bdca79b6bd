"""The files that a call reads and writes: it never writes over one that it reads.

Every reader of a user's file calls `note_input`, and every writer calls `note_output`. Device and number
identify a file, so it is recognised by every name and through links.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

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


# ---- The command line of this call, for reports

_typed: tuple[str, ...] = ()


@contextmanager
def called(arguments: Sequence[str]) -> Iterator[None]:
    """Note the arguments of ``ndpsim`` while the block runs."""
    global _typed
    outer, _typed = _typed, tuple(arguments)
    try:
        yield
    finally:
        _typed = outer


def call_words() -> str:
    """The command that makes this report again, without its own name; empty if it was called in Python.

    Files are named without their folders, which say whose machine it was.
    """
    kept = list(_typed)
    for index in reversed([n for n, word in enumerate(kept) if word.partition("=")[0] == "--report"]):
        del kept[index : index + (1 if "=" in kept[index] else 2)]
    names = (re.sub(r"(?<![^=])/(?:[^/=]*/)+(?=[^/=]+$)", "", word) for word in kept)
    return f"ndpsim {shlex.join(names)}" if kept else ""


# ---- Temporary files and folders: gone when their block or process ends, or with the next run after a kill
#
# The name of a temporary file says which process made it. Others remove it only when that process is gone.


_NAME = re.compile(r"\.ndpsim-(?P<machine>[0-9a-f]{8})-(?P<process>[1-9][0-9]{0,8})-[0-9a-f]{16}\.tmp")
_ABANDONED_S = 86400.0  # no run elsewhere leaves its file untouched for so long

_made: set[str] = set()
os.register_at_fork(after_in_child=_made.clear)  # a forked process does not remove what is its parent's


@functools.cache
def _machine() -> str:
    """Stands for all processes that see each other under the same numbers."""
    seen = [os.uname().nodename]
    with suppress(OSError):  # not Linux
        # Containers may share a name and a kernel; a boot changes which processes there are.
        seen += [
            Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"),
            os.readlink("/proc/self/ns/pid"),
        ]
    return hashlib.sha256("\0".join(seen).encode(errors="replace")).hexdigest()[:8]


def is_temporary(path: str) -> bool:
    """Whether a file has the name of a temporary file."""
    return _NAME.fullmatch(os.path.basename(path)) is not None


def _new_name(folder: Path) -> str:
    return str(folder / f".ndpsim-{_machine()}-{os.getpid()}-{os.urandom(8).hex()}.tmp")


@contextmanager
def temporary_file(folder: Path) -> Iterator[IO[bytes]]:
    """A new binary file in `folder`; it is gone when the block has ended, unless it was renamed.

    Raises:
        OSError: it cannot be made.
    """
    name = _new_name(folder)
    _made.add(name)
    try:
        with open(name, "xb") as file:
            yield file
    finally:
        _remove(name)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new empty folder for temporary files; it is gone when the block has ended."""
    parent = Path(tempfile.gettempdir())
    remove_leftovers(parent, folders=True)
    name = _new_name(parent)
    _made.add(name)
    try:
        os.mkdir(name, 0o700)
        yield Path(name)
    finally:
        _remove(name)


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
    shutil.rmtree(name, ignore_errors=True)
    _made.discard(name)


@atexit.register
def remove_temporaries() -> None:
    """Remove the temporary files of this process, which is about to end."""
    for name in list(_made):
        _remove(name)


def remove_leftovers(folder: Path, folders: bool = False) -> None:
    """Remove temporary files in `folder` that this user's killed runs left, as far as that is possible.

    folders: remove temporary folders, and no files.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if _is_left(entry, folders):
                    _remove(entry.path)


def _is_left(entry: os.DirEntry[str], is_folder: bool) -> bool:
    made_by = _NAME.fullmatch(entry.name)
    is_kind = entry.is_dir if is_folder else entry.is_file
    if made_by is None or not is_kind(follow_symlinks=False):
        return False
    status = entry.stat(follow_symlinks=False)
    if status.st_uid != os.geteuid():
        return False
    if made_by["machine"] == _machine():
        return not _runs(int(made_by["process"]))
    return status.st_mtime < time.time() - _ABANDONED_S


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True
