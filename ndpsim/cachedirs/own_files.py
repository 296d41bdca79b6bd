"""Files and folders that only the user can have written."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from pathlib import Path

_LARGEST_BYTES = 1 << 28  # no file of a cache is anywhere near as large

#: How files are opened: links are not followed, and pipes not waited for.
OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def user_number() -> int | None:
    """The number of the user; None: there are none here."""
    return os.geteuid() if hasattr(os, "geteuid") else None


@functools.cache
def _is_own_group(group: int) -> bool:
    """Whether a group is the user's alone: the primary group that bears the user's name or number."""
    import grp  # noqa: PLC0415 (not on every system)
    import pwd  # noqa: PLC0415

    user = os.geteuid()
    if group != os.getegid():
        return False
    try:
        name = pwd.getpwuid(user).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return group == user
    return (entry.gr_name == name or group == user) and set(entry.gr_mem) <= {name}


def _others_write(status: os.stat_result, path: str | Path | int) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    if not _is_own_group(status.st_gid):
        return True
    with contextlib.suppress(OSError, AttributeError):  # no access lists here
        return "system.posix_acl_access" in os.listxattr(path)
    return False


def _is_own(status: os.stat_result, path: str | Path | int) -> bool:
    """Whether only the user can have written a file or folder."""
    return user_number() is None or (status.st_uid == user_number() and not _others_write(status, path))


def problem_of(folder: Path) -> str | None:
    """Why others could have put something into `folder`; None: they could not, or it is not there.

    `folder` and everything above it must be a folder, not a link to one. It must belong to the user, and
    nobody else may write it; nor what is above it, unless the sticky bit there keeps it where it is.
    """
    for part in (folder, *folder.parents):
        try:
            status = os.lstat(part)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            continue  # what is above says so
        except OSError as error:
            return f"{part}: {error.strerror or error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{part} is not a folder"
        if user_number() is None:
            continue
        if part == folder and status.st_uid != user_number():
            return f"{part} belongs to another user"
        sticky = part != folder and status.st_mode & stat.S_ISVTX
        if not sticky and _others_write(status, part):
            return f"other users can write {part}"
    return None


def read_own(path: Path) -> bytes | None:
    """What is in a file that only the user can have written; None: it is no such file.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    number = os.open(path, OPEN)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        if not _is_own(status, number):
            return None
        with open(number, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    number, beside = tempfile.mkstemp(dir=path.parent, prefix=".ndpsim-", suffix=".tmp")
    try:
        with open(number, "wb") as file:
            file.write(content)
        try:
            os.replace(beside, path)
        except IsADirectoryError:
            os.rmdir(path)
            os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
