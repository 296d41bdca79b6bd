"""Conditions on several keys of a hardware file together."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ndpsim.base.errors import SETS, Code, InputError
from ndpsim.base.units import exact
from ndpsim.config.files import PART_SECTIONS, data_path
from ndpsim.config.hardware import DIMM_BITS, Hardware
from ndpsim.config.keys import ANY_TEXT as _ANY_TEXT
from ndpsim.config.keys import allowed, field_at, leaves, unit_of
from ndpsim.config.nodes import parse, read_text
from ndpsim.config.origins import Draft, KeyPath, dotted, draft_of
from ndpsim.config.system import MULTIPLIERS, System
from ndpsim.dram.spec import row_times

_log = logging.getLogger("ndpsim")

#: The sections from which the channels' peak is computed.
_CHANNEL_SECTIONS = ("host", "dram", "dimm")


def check_system(system: System, draft: Draft) -> None:
    """Make sure that no two keys contradict each other, before any DRAM is looked up.

    Raises:
        InputError: two keys contradict each other; it names the key and the place of its value.
    """
    for check in (_check_mapping, _check_row_cap, _check_rfm, _check_pcie, _check_link, _check_multipliers):
        check(system, draft)


def check_memories(hardware: Hardware) -> None:
    """Make sure that DIMMs, channels and clocks are possible with the standards of the memories.

    Raises:
        InputError: they are not, or there is no such DRAM.
    """
    for check in (_check_subchannels, _check_ranks, _check_timings, _check_host_memory, _check_banks):
        check(hardware)


#: Keys that change nothing by themselves, and those that decide in their place.
DECIDED = {
    "link.lanes": ("link.link_gbps",),
    "link.lane_gbit_s": ("link.link_gbps",),
    "host.cpu_clock_ghz": ("host.cpu_tflops",),
    "host.cpu_isa": ("host.cpu_tflops",),
    "host.memory_bandwidth_gbps": ("host.channels", "dram.timing"),
    "host.memory_tb": ("dimm.count", "dimm.ranks", "dram.org"),
}


def refuse_decided(changed: Collection[KeyPath], system: System) -> None:
    """Refuse changes of a call that change nothing because another key decides.

    Raises:
        InputError: a key of `DECIDED` is changed, and none of those that decide.
    """
    values = {dotted(path): value for path, value in leaves(system)}
    names = {dotted(key) for key in changed}
    for key in sorted(names & DECIDED.keys()):
        deciding = DECIDED[key]
        if names.isdisjoint(deciding) and all(values.get(name) is not None for name in deciding):
            now = ", ".join(f"{name} = {values[name]}" for name in deciding)
            problem = f"changes nothing by itself; what counts is {now}: set this, too"
            raise InputError(problem, "conflict", file=SETS, key=key)


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
        raise _error(hardware, problem, "host.cpu_sockets", "range")
    if host.cpu_read_gbps is not None and not any(key[0] in _CHANNEL_SECTIONS for key in changed):
        peak_gbps = hardware.host_memory.host_gbps
        if host.cpu_read_gbps > peak_gbps:
            problem = f"{host.cpu_read_gbps:g} is more than the memory channels carry, {peak_gbps:g}"
            raise _error(hardware, problem, "host.cpu_read_gbps", "range")
    if host.cpu_memory_mtps is not None:
        _compare_rates(hardware)


def _error(hardware: Hardware, problem: str, key: str, code: Code) -> InputError:
    """The error `problem` of a key, at the place of its value."""
    return hardware.origins[key].error(problem, key, code)


def _check_mapping(system: System, draft: Draft) -> None:
    mapper, mapping = system.dram.mapper, system.dram.mapping
    if mapper == "custom" and mapping is None:
        raise draft.error("custom needs a mapping; give dram.mapping", "dram.mapper", "missing")
    if mapper != "custom" and mapping is not None:
        problem = f"needs mapper: custom, not {mapper} (dram.mapping=null removes it)"
        raise draft.error(problem, "dram.mapping", "conflict")


def _check_row_cap(system: System, draft: Draft) -> None:
    origin = draft.origins.get(("dram", "row_cap"))
    if origin is not None and origin.kind == "set" and system.dram.row_policy == "open":
        raise origin.error("needs row_policy: closed-cap, but rows stay open", "dram.row_cap", "conflict")


def _check_rfm(system: System, draft: Draft) -> None:
    origin = draft.origins.get(("dram", "rfm_threshold"))
    if origin is not None and origin.kind == "set" and system.dram.rfm == "off":
        raise origin.error("needs rfm, which is off", "dram.rfm_threshold", "conflict")


def _check_subchannels(hardware: Hardware) -> None:
    """Sub-channels of a DIMM are bits of the host's addresses; a device on a CXL link has its own."""
    standard = hardware.lane_device().standard  # reports unknown DRAM names now
    count = hardware.system.dimm.subchannels
    if hardware.system.cxl is None and count & (count - 1):
        usual = DIMM_BITS // standard.channel_bits
        problem = (
            f"{count} is not a power of two, as the host's addresses need; "
            f"a DIMM of {standard.name} has {usual} of {standard.channel_bits} bits"
        )
        raise _error(hardware, problem, "dimm.subchannels", "range")


def _check_ranks(hardware: Hardware) -> None:
    """A standard with a fixed number of ranks has one package on a channel: no further DIMM or rank fits."""
    dimm, channels, device = hardware.system.dimm, hardware.system.host.channels, hardware.lane_device()
    if not device.organisation.ranks:
        return
    if dimm.ranks > 1:
        problem = f"{dimm.ranks} is not 1: a channel of {device.standard.name} has no ranks"
        raise _error(hardware, problem, "dimm.ranks", "range")
    if dimm.count > channels:
        problem = (
            f"{dimm.count} is more than the {channels} of host.channels: a channel of {device.standard.name} "
            "has no ranks, so each needs its own"
        )
        raise _error(hardware, problem, "dimm.count", "range")


def _check_timings(hardware: Hardware) -> None:
    """A row policy must not close a row before it can be read: it would be opened again and again."""
    device, policy = hardware.lane_device(), hardware.system.dram.row_policy
    column, precharge = row_times(device)
    if policy != "open" and column.clocks > precharge.clocks:
        problem = (
            f"{column.latency}, {column.clocks} clocks from ACT to a column command, is more than "
            f"{precharge.latency}, {precharge.clocks}, after which {policy} may close the row"
        )
        stated = [f"dram.overrides.{name}" for name in (column.latency, precharge.latency)]
        key = next((key for key in stated if key in hardware.origins), "dram.timing")
        raise _error(hardware, problem, key, "range")


def _check_host_memory(hardware: Hardware) -> None:
    """Check the DRAM of the host's own memory: it must be known, and DIMMs must share the channels evenly."""
    own = hardware.system.host.memory
    if own is None:
        return
    device = hardware.host_memory.lane_device()
    if hardware.system.cxl is not None:
        problem = "is for DIMMs that compute; behind a CXL link the GPU reads the device"
        raise hardware.origins["host.memory.standard"].error(problem, "host.memory", "unsupported")
    if device.organisation.ranks or DIMM_BITS % device.standard.channel_bits:
        problem = f"{device.standard.name} is not a standard of DIMMs"
        raise _error(hardware, problem, "host.memory.standard", "unsupported")
    if own.dimms % own.channels:
        problem = f"{own.dimms} is not a multiple of the {own.channels} of host.memory.channels"
        raise _error(hardware, problem, "host.memory.dimms", "range")


def _check_banks(hardware: Hardware) -> None:
    """Check the devices with units in their banks; with experts, they are the DIMMs of the file."""
    device, section = hardware.bank_device, hardware.system.banks
    if device is None or section is None or not hardware.experts_in_banks:
        return
    if hardware.system.ndp is not None:
        raise _error(
            hardware,
            "experts cannot be used with ndp: the DIMMs already have units",
            "banks.computes",
            "conflict",
        )
    if hardware.host_reads_dimms:
        problem = "experts needs host.memory: a host with memory of its own"
        raise _error(hardware, problem, "banks.computes", "missing")
    if section.count != hardware.system.dimm.count:
        problem = (
            f"{section.count} is not dimm.count, {hardware.system.dimm.count}: the DIMMs are the devices"
        )
        raise _error(hardware, problem, "banks.count", "conflict")
    if device.capacity_bytes != hardware.dimm_bytes:
        problem = (
            f"{device.name} has {device.capacity_bytes:,} B, and a DIMM of the file {hardware.dimm_bytes:,} B"
        )
        raise _error(hardware, problem, "banks.device", "conflict")


def _check_pcie(system: System, draft: Draft) -> None:
    if system.gpu is not None and system.pcie is not None and system.pcie.gbps > system.gpu.pcie_gbps:
        problem = f"{system.pcie.gbps:g} is more than gpu.pcie_gbps, {system.gpu.pcie_gbps:g}"
        raise draft.error(problem, "pcie.gbps", "range")


def _check_link(system: System, draft: Draft) -> None:
    if system.link is None:
        return
    lanes_gbps = system.link.lanes * exact(system.link.lane_gbit_s) / 8
    if exact(system.link.link_gbps) > lanes_gbps:
        problem = (
            f"{system.link.link_gbps:g} is more than its lanes carry, {system.link.lanes} of "
            f"{system.link.lane_gbit_s:g} Gb/s: {float(lanes_gbps):g}"
        )
        raise draft.error(problem, "link.link_gbps", "range")
    if system.link.topology == "groups" and system.link.group_dimms > system.dimm.count:
        problem = f"{system.link.group_dimms} is more than the {system.dimm.count} of dimm.count"
        raise draft.error(problem, "link.group_dimms", "range")


def _check_multipliers(system: System, draft: Draft) -> None:
    if system.ndp is None:
        return
    units = [key for key in MULTIPLIERS if getattr(system.ndp, key) is not None]
    if not units:
        problem = f"has no multiplier unit; give one of {' and '.join(MULTIPLIERS)}"
        raise draft.error(problem, "ndp", "missing")
    if len(units) > 1:
        problem = f"has both {units[0]} and {units[1]}; ndp.{units[0]}=null removes one"
        raise draft.error(problem, "ndp", "conflict")
    found = system.ndp.multiplier[1].problem(behind_cxl=system.cxl is not None)
    if found is not None:
        key, problem = found
        raise draft.origin(tuple(key.split(".")) if "." in key else ("ndp",)).error(problem, key, "conflict")


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


# ---- Finds all values that a hardware file lacks, for any command or for a given one


#: The optional sections that each command needs.
SECTIONS = {"dram": (), "gemv": ("ndp",), "relayout": ("ndp", "link"), "moe": ("gpu", "pcie")}

#: Bundled files with plausible values for the keys of a section; trimoe has the other sections.
_EXAMPLES = {
    "dram": ("hwconfigs/parts/memories", "ddr5-4800"),
    "gpu": ("hwconfigs/parts/gpus", "rtx-4090"),
    "host": ("hwconfigs/parts/cpus", "core-i7-14700"),
    "pcie": ("hwconfigs/parts/links", "pcie-4-x16"),
}
_LOOK_UP = {
    "dram": "the label of the DIMM and its data sheet",
    "dimm": "the data sheet of the DIMM; dmidecode -t memory",
    "host": "the maker's page of the CPU; lscpu",
    "gpu": "the maker's page of the GPU",
    "pcie": "the manuals of mainboard and GPU; lspci -vv",
    "ndp": "the paper of the NDP unit; docs/configuration.md",
    "link": "the paper of the link between DIMMs; docs/configuration.md",
}
_CPU = ("cpu_cores", "cpu_clock_ghz", "cpu_isa")
_EFFICIENCY = ("compute_efficiency", "attention_efficiency", "memory_efficiency")


@dataclass(frozen=True)
class Missing:
    """A value that a hardware file lacks.

    Attributes:
        key: its key.
        unit: its unit; empty if it has none.
        allowed: the allowed values, in words.
        example: a plausible value, with its bundled file and the source in that file.
        look_up: the document in which to look up the value for the user's hardware.
        needed_by: the command, or the policies of `moe`, that need it.
    """

    key: str
    unit: str
    allowed: str
    example: str
    look_up: str
    needed_by: str


def missing_values(draft: Draft, command: str | None = None) -> list[Missing]:
    """All values that `draft` lacks for `command`; None: the values that every file needs."""
    # A CXL link replaces PCIe.
    needed = [name for name in SECTIONS[command or "dram"] if name != "pcie" or draft.at(("cxl",)) is None]
    filled = draft.values | {name: {} for name in ("dram", *needed) if draft.at((name,)) is None}
    needed_by = command or "every command"
    paths: list[tuple[KeyPath, str]] = []
    try:
        System.model_validate(filled)
    except ValidationError as error:
        missing = [problem for problem in error.errors(include_url=False) if problem["type"] == "missing"]
        paths = [(tuple(map(str, problem["loc"])), needed_by) for problem in missing]
    if command == "moe":
        paths += _for_moe(draft)
    if command in ("gemv", "relayout"):
        paths += _unit(draft, needed_by)
    return [_missing(path, needed_by) for path, needed_by in dict.fromkeys(paths)]


def _for_moe(draft: Draft) -> Iterator[tuple[KeyPath, str]]:
    if draft.at(("gpu", "family")) is None and any(draft.at(("gpu", key)) is None for key in _EFFICIENCY):
        yield ("gpu", "family"), "moe"
    if draft.at(("host", "cpu_tflops")) is None:
        lacking = [("host", key) for key in _CPU if draft.at(("host", key)) is None]
        yield from ((path, "policies with experts on the CPU") for path in lacking)
    yield from _unit(draft, "policies with experts on DIMMs")


def _unit(draft: Draft, needed_by: str) -> Iterator[tuple[KeyPath, str]]:
    """Missing keys of a machine without an NDP unit, unless its memory is behind CXL."""
    if draft.at(("ndp",)) is None:
        yield from ((("ndp", key), needed_by) for key in ("gemv", "activation"))


def _missing(path: KeyPath, needed_by: str) -> Missing:
    field, section = field_at(path), path[0]
    look_up = _LOOK_UP.get(section, "docs/configuration.md")
    if section in PART_SECTIONS and len(path) == 2:
        look_up += f"; or {section}.part has it (ndpsim list parts)"
    words = "" if field is None else allowed(field, with_unit=False)
    return Missing(dotted(path), unit_of(path), words, _example(path), look_up, needed_by)


def _example(path: KeyPath) -> str:
    """A value of a bundled file, with its source."""
    folder, name = _EXAMPLES.get(path[0], ("hwconfigs", "trimoe"))
    inner = path[1:] if path[0] in _EXAMPLES else path
    draft = _read(data_path(folder, name))
    if draft.at(inner) is None:
        folder, name, inner = "hwconfigs", "trimoe", path
        draft = _read(data_path(folder, name))
    value: Any = draft.at(inner)
    return "" if value is None else f"{value} ({name}: {draft.origin(inner)})"


@functools.cache
def _read(path: Path) -> Draft:
    return draft_of(parse(read_text(path), path.name), path.name)


def refuse_missing(draft: Draft, command: str | None) -> None:
    """Make sure that a file has all values that `command` needs.

    Raises:
        InputError: it lacks values; the message names all of them.
    """
    lacking = [gap for gap in missing_values(draft, command) if gap.needed_by in (command, "every command")]
    if not lacking:
        return
    first, *others = lacking
    problem = f"is missing{_needed(first)}"
    if others:
        problem += f"; also missing: {', '.join(gap.key + _words(gap) for gap in others)}"
    look_up = dict.fromkeys(gap.look_up for gap in lacking)
    raise draft.error(f"{problem}. Look in: {'; '.join(look_up)}", first.key, "missing")


def _needed(missing: Missing) -> str:
    """What to give: ``; give a number above 0 in TB/s (rtx-4090: 1.008)``, or ``, for example DDR5``."""
    if missing.allowed.startswith(_ANY_TEXT) and missing.example:
        return f", for example {missing.example.partition(' (')[0]}"
    return f"; give {missing.allowed}{_words(missing)}"


def _words(missing: Missing) -> str:
    """Unit and example: `` in TB/s (rtx-4090: 1.008)``."""
    value, _, source = missing.example.partition(" (")
    unit = f" in {missing.unit}" if missing.unit else ""
    return unit + (f" ({source.partition(': ')[0]}: {value})" if value else "")
