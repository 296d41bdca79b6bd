"""Checks of the host's CPU in a hardware file against the memory."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

from ndpsim.config.hardware import Hardware
from ndpsim.config.origins import KeyPath

_log = logging.getLogger("ndpsim")

#: The sections from which the channels' peak is computed.
_OF_CHANNELS = ("host", "dram", "dimm")


def check_cpu(hardware: Hardware, changed: Iterable[KeyPath]) -> None:
    """Check the number of CPUs against the CPU's maximum, and its read rate against the channels' peak.

    With `--set` a user may try another read rate or fewer channels. Therefore the read rate is checked only
    if `changed` has none of these keys. A notice is printed if the DRAM is faster than the CPU supports with
    this number of DIMMs on a channel.

    Raises:
        InputError: a value is too high.
    """
    host = hardware.system.host
    if host.cpu_sockets_most is not None and host.cpu_sockets > host.cpu_sockets_most:
        problem = f"{host.cpu_sockets} is more than the {host.cpu_sockets_most} of host.cpu_sockets_most"
        raise hardware.origins["host.cpu_sockets"].error(problem, "host.cpu_sockets", code="range")
    if host.cpu_read_gbps is not None and not any(key[0] in _OF_CHANNELS for key in changed):
        peak_gbps = hardware.host_memory.host_gbps
        if host.cpu_read_gbps > peak_gbps:
            problem = f"{host.cpu_read_gbps:g} is more than the memory channels carry, {peak_gbps:g}"
            raise hardware.origins["host.cpu_read_gbps"].error(problem, "host.cpu_read_gbps", code="range")
    if host.cpu_memory_mtps is not None:
        _compare_rates(hardware)


def _compare_rates(hardware: Hardware) -> None:
    """Warn if the DRAM's rate is above the CPU's with this many DIMMs a channel."""
    host, memory = hardware.system.host, hardware.host_memory
    dimms = -(-memory.system.dimm.count // memory.system.host.channels)
    key, most = "cpu_memory_mtps", host.cpu_memory_mtps
    if dimms > 1 and host.cpu_memory_mtps_2dpc is not None:
        key, most = "cpu_memory_mtps_2dpc", host.cpu_memory_mtps_2dpc
    rate = memory.lane_device().timings["rate"]
    if most is not None and rate > most:
        _report_rate(hardware.file, memory.system.dram.timing, rate, dimms, key, most)


@functools.cache
def _report_rate(file: str, timing: str, rate: float, dimms: int, key: str, most: float) -> None:
    """Print the notice once, for any number of points of a sweep."""
    text = "%s: %s has %g MT/s with %d DIMMs a channel, and host.%s is %g: the CPU runs it slower"
    _log.warning(text, file, timing, rate, dimms, key, most)
