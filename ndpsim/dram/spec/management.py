"""Refresh management (RFM) of a device: its commands and thresholds."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.arguments import choice, whole_number
from ndpsim.base.choices import MOST_ACTIVATIONS, RFM
from ndpsim.base.errors import InputError
from ndpsim.dram.spec.device import Device
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK

_SCOPES = {
    WHOLE_RANK: "all-bank",
    SAME_BANKS: "same-bank",
    ONE_BANK: "per-bank",
    BANK_PAIR: "per-bank",  # of a pair, as its refresh
}


class Managed(NamedTuple):
    """The refresh management of a device, see `spec.standard.Management`."""

    command: int  # the RFM command's number
    scope: int
    threshold: int  # RAAIMT
    maximum: int  # RAAMMT
    by_refresh: int  # what a refresh takes off a counter


def managed(device: Device, rfm: str, threshold: int | None = None) -> Managed | None:
    """The refresh management of a device by this option; None: off.

    Args:
        rfm: one of `parameters.dram.RFM`.
        threshold: RAAIMT; None: as the page of the standard says.

    Raises:
        InputError: the standard has no such command, or an argument is invalid.
    """
    choice(rfm, "rfm", RFM, "RFM")
    if threshold is not None:
        whole_number(threshold, "rfm_threshold", 1, MOST_ACTIVATIONS)
    if rfm == "off":
        return None
    standard = device.standard
    numbers = [number for number, command in enumerate(standard.by_number) if command.manages]
    scopes = {number: standard.scope_of(standard.by_number[number]) for number in numbers}
    known = {_SCOPES[scope]: number for number, scope in scopes.items()}
    limits = standard.management
    if limits is None or not known:
        under = f" under the rules {device.rules}" if device.rules != "standard" else ""
        raise InputError(f"{standard.name} has no refresh management{under}", "unsupported", key="rfm")
    if rfm not in known:
        problem = f"{standard.name} has no {rfm} RFM; it has {', '.join(known)}"
        raise InputError(problem, "unknown-name", key="rfm")
    due, command = limits.threshold if threshold is None else threshold, known[rfm]
    return Managed(command, scopes[command], due, limits.multiple * due, due // limits.refreshes)
