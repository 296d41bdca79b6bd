"""The memory limit of a call; a larger call is refused before it allocates memory."""

from __future__ import annotations

import contextlib
import math
import mmap
import os

from ndpsim.base.errors import InputError, shown
from ndpsim.base.units import format_bytes

#: The environment variable that sets another limit, in GiB.
VARIABLE = "NDPSIM_MEMORY_GIB"

# An expert of 20 GB, or a trace of ten million commands, needs less; an endless one is refused in seconds.
_DEFAULT = 4 << 30


def memory_limit() -> int:
    """Bytes that the arrays of a call may take: 4 GiB, or half the machine's memory where that is less.

    The environment variable NDPSIM_MEMORY_GIB sets another limit.

    Raises:
        InputError: it is no number above 0.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return min(_DEFAULT, _physical() // 2)
    try:
        gib = float(text)
    except ValueError:
        gib = math.nan
    if not 0 < gib <= 1 << 20:
        problem = f"{shown(text)} is not a number of GiB above 0, up to {1 << 20}"
        raise InputError(problem, "range", key=VARIABLE)
    return int(gib * (1 << 30))


def _physical() -> int:
    """Bytes of the machine's memory; where the system does not say, more than the limit asks for."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2 * _DEFAULT


def ensure_fits(
    needed: int, what: str, *, file: object = None, line: int | None = None, key: str | None = None
) -> None:
    """Make sure that arrays of `needed` bytes, estimated beforehand, may be taken.

    Args:
        what: what needs them, with its number: "3145728 bursts of weights".
        file, line, key: where the user asked for it, for the message.

    Raises:
        InputError: they are more than `memory_limit`.
    """
    limit, whole_gib = memory_limit(), -(-needed // (1 << 30))
    if needed > limit:
        raise InputError(
            f"{what}: {format_bytes(needed)} of memory ({needed} bytes) would be needed, and "
            f"{format_bytes(limit)} ({limit} bytes) are allowed; {VARIABLE}={whole_gib} allows it",
            "too-large",
            file=file,
            line=line,
            key=key,
        )


def ensure_address_space(needed: int, what: str) -> None:
    """Make sure that the process can be given this much address space; none of it is used.

    Libraries that are not given it may end the process, or try for ever: OpenBLAS does.

    Args:
        needed: bytes.
        what: what needs them.

    Raises:
        InputError: a limit, as by ``ulimit -v``, leaves less.
    """
    try:
        mmap.mmap(-1, needed, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        problem = f"{what} takes up to {format_bytes(needed)} of address space, and the process is given less"
        raise InputError(f"{problem} (see ulimit -v)", "too-large") from None
