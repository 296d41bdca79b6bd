"""Names and limits that options offer and that the simulator of DRAM and DIMMs checks, too."""

from __future__ import annotations

from typing import Any

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError, shown

RULES = ("standard", "reference")  #: Sets of rules of a standard; the first is the default.
RFM = ("off", "all-bank", "same-bank", "per-bank")
MOST_ACTIVATIONS = 1_000_000  #: Maximum threshold of refresh management.
MOST_JOBS = 4096  #: Maximum number of threads, and of processes, of a call.

LAYOUTS = ("localized", "sharded:N", "striped")  #: Layouts of an expert's weights.
BITS = (16, 8, 6, 5, 4, 3, 2, 1)  #: Numbers of bits that a weight may have.


def one_of_bits(value: Any, key: str) -> int:
    """A number of bits that a weight may have.

    Raises:
        InputError: it is none.
    """
    try:
        return BITS[BITS.index(whole_number(value, key, 0))]
    except ValueError:  # an InputError is one, too
        problem = f"{shown(value)} is not one of {', '.join(map(str, BITS))}"
        raise InputError(problem, "range", key=key) from None
