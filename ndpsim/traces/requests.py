"""Request traces: what a processor asks of memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.errors import InputError
from ndpsim.files import read_plain_or_gzip

__all__ = ["Requests", "read_requests"]

_OPERATIONS = {b"LD": 0, b"ST": 1}
_LARGEST = 1 << 62


@dataclass(frozen=True, eq=False)
class Requests:
    """Byte addresses, int64[n], and 1 where a request writes, int64[n]; where they were read from."""

    address: NDArray[np.int64]
    write: NDArray[np.int64]
    file: str | None = None

    @classmethod
    def of(cls, address: ArrayLike, write: ArrayLike, file: str | None = None) -> Self:
        """Check and convert two arrays of one length.

        Raises:
            InputError: they are empty, of different lengths, not whole numbers, or negative.
        """
        try:
            addresses, writes = (
                np.asarray(values).astype(np.int64, casting="safe") for values in (address, write)
            )
        except TypeError as error:
            raise InputError(f"requests are not whole numbers: {error}", key="requests") from None
        if addresses.ndim != 1 or addresses.shape != writes.shape:
            raise InputError(
                f"{addresses.shape} addresses and {writes.shape} writes do not match", key="requests"
            )
        if not len(addresses):
            raise InputError("there are no requests", file=file, key=None if file else "requests")
        if addresses.min() < 0 or writes.min() < 0 or writes.max() > 1:
            raise InputError("an address is negative, or a write neither 0 nor 1", key="requests")
        return cls(addresses, writes, file)

    def line(self, request: int) -> int | None:
        """The line of the file on which a request stands."""
        return None if self.file is None else request + 1


def read_requests(path: str | Path) -> Requests:
    """Read a trace of ``LD 0x12340`` and ``ST 4096`` lines, gzip-compressed or not.

    Raises:
        InputError: the file cannot be read, or a line is something else; it names the line.
    """
    lines = read_plain_or_gzip(Path(path)).splitlines()
    addresses, writes = np.empty(len(lines), dtype=np.int64), np.empty(len(lines), dtype=np.int64)
    for number, line in enumerate(lines):
        try:
            operation, text = line.split()
            writes[number] = _OPERATIONS[operation]
            value = int(text, 16 if text[:2] in (b"0x", b"0X") else 10)
            if not 0 <= value < _LARGEST:
                raise ValueError
            addresses[number] = value
        except (ValueError, KeyError):
            shown = line[:40].decode("ascii", "backslashreplace")
            problem = f"'{shown}' is not LD or ST and an address, as in 'LD 0x12340'"
            raise InputError(problem, file=path, line=number + 1) from None
    return Requests.of(addresses, writes, str(path))
