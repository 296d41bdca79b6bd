"""Checks of what a hardware file says of the host's CPU against its memory."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

from ndpsim.config.hardware import Hardware
from ndpsim.config.origins import KeyPath

_log = logging.getLogger("ndpsim")

#: The sections that the channels' peak follows from.
_OF_CHANNELS = ("host", "dram", "dimm")


def check_cpu(hardware: Hardware, changed: Iterable[KeyPath]) -> None:
    """There are no more CPUs than a mainboard has, and no CPU reads more than the channels carry.

    `--set host.cpu_read_gbps` may ask what another memory would do, and `--set` of the channels what fewer of
    them do; so only a file that nothing of this is `changed` in is held to the channels' peak. One notice
    says that the DRAM is faster than the CPU supports with this many DIMMs a channel.

    Raises:
        InputError: the file says otherwise.
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
    """Said once, however many points of a sweep it is true of."""
    text = "%s: %s has %g MT/s with %d DIMMs a channel, and host.%s is %g: the CPU runs it slower"
    _log.warning(text, file, timing, rate, dimms, key, most)
