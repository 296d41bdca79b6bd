"""Files and folders that only the user can have written. Compiled kernels are executed, so it matters."""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
import stat
from pathlib import Path

_LARGEST_BYTES = 1 << 28  # all files of a cache are much smaller
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # links are not followed, and pipes not waited for


@functools.cache
def _is_own_group(group: int) -> bool:
    """Whether a group is the user's alone: the primary group, of the user's name, without other members."""
    try:
        name, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return group == os.getegid() and entry.gr_name == name and set(entry.gr_mem) <= {name}


def _others_write(status: os.stat_result, path: Path | int) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    with contextlib.suppress(OSError, AttributeError):  # no access lists here
        if "system.posix_acl_access" in os.listxattr(path):
            return True
    return not _is_own_group(status.st_gid)


def problem_of(folder: Path) -> str | None:
    """The reason why other users could have written to `folder`; None: they could not, or it does not exist.

    `folder` and all folders above it must not be links. It must belong to the user, and no other user may
    write to it, or to a folder above it without the sticky bit.
    """
    for part in (folder, *folder.parents):
        try:
            status = os.lstat(part)
        except (FileNotFoundError, NotADirectoryError):
            continue  # if a file is in the way, it is found further up
        except OSError as error:
            return f"{part}: {error.strerror or error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{part} is not a folder"
        if part == folder and status.st_uid != os.geteuid():
            return f"{part} belongs to another user"
        sticky = part != folder and status.st_mode & stat.S_ISVTX
        if not sticky and _others_write(status, part):
            return f"other users can write {part}"
    return None


def read_own(path: Path) -> bytes:
    """Content of a file; empty if other users could have written it.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, _OPEN)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return b""
        if status.st_uid != os.geteuid() or _others_write(status, file.fileno()):
            return b""
        return file.read()
