"""From a hardware file, the files it names and `--set` options to a `Hardware`."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ndpsim.arguments import choice, path_of, several
from ndpsim.arguments import shown as quoted
from ndpsim.arguments import text as as_text
from ndpsim.caching import FileCache
from ndpsim.config.defaults import default_reason
from ndpsim.config.files import data_folder, data_names, data_path, is_path
from ndpsim.config.hardware import DIMM_BITS, Hardware
from ndpsim.config.host import check_cpu
from ndpsim.config.keys import allowed, field_at, leaves, section_of
from ndpsim.config.needs import SECTIONS, Missing, missing_values, refuse_missing
from ndpsim.config.nodes import parse, read_text
from ndpsim.config.origins import Draft, KeyPath, Origin, dotted, draft_of, shown
from ndpsim.config.parts import PART_KEYS, fill_from_parts, replace_parts
from ndpsim.config.system import MULTIPLIERS, UNITS, System
from ndpsim.errors import Code, InputError, nearest, one_of
from ndpsim.spec import row_times, standards
from ndpsim.units import exact

_log = logging.getLogger("ndpsim")

_TIMING = ("dram", "timing")
_OVERRIDES = ("dram", "overrides")
_MOST_GUESSES = 4
_UNITS = {("ndp", key) for key in UNITS}


def load_hardware(
    hw: str | PathLike[str] | Hardware, sets: Sequence[str] = (), command: str | None = None
) -> Hardware:
    """Read and check a hardware file; files that have not changed are read once.

    Args:
        hw: a bundled name ("trimoe"), or the path of a hardware file; a `Hardware` stays as it is.
        sets: ``key=value`` options with dotted keys, over what the files say, the later over the earlier:
            ``dimm.ranks=2``, ``ndp.gemv.fifo_bursts=8``, ``dram.nCL=38`` (short for ``dram.overrides.nCL``),
            ``ndp.gemv=NAME`` (another file of ``rtl_params/``, read before keys inside it are set; a path
            given here is relative to the current folder), ``gpu.part=NAME`` (another part, whose values
            replace those of the file; other options are over them). Clocks that the file itself overrides
            belong to its ``dram.timing``: with another one they are dropped, and one line says which.
        command: the command for which it is used, "dram", "gemv", "relayout" or "moe": an error names all
            that the file lacks for it.

    Raises:
        InputError: anything wrong in the files or options, in one line, or options for a `Hardware`.
    """
    sets = several(sets, "sets", as_text)
    if command is not None:
        choice(command, "command", SECTIONS, "command that needs hardware")
    if isinstance(hw, Hardware):
        if sets:
            raise InputError("give changes when loading the hardware, not afterwards", "conflict", key="sets")
        return hw
    asked = _asked(hw)
    key = asked, sets, command, os.getcwd()
    known = _loaded.find(key)
    if known is not None:
        return known
    hardware, files = _load(_find(asked), sets, command)
    # With the folder: what is found here by its path gives way to a bundled file of the same name.
    return _loaded.store(key, [*files, data_folder("hwconfigs")], hardware)


_loaded: FileCache[Hardware] = FileCache(32)


def _asked(hw: object) -> str:
    try:
        return str(path_of(hw, "hw")) if isinstance(hw, PathLike) else as_text(hw, "hw")
    except InputError:
        problem = "is neither the name of a hardware, nor the path of its file, nor a Hardware"
        raise InputError(f"{quoted(hw)} {problem}", "type", key="hw") from None


def missing_of(hw: str, sets: Sequence[str], command: str) -> list[Missing]:
    """All that a hardware file lacks for a command of `ndpsim.config.needs`.

    Raises:
        InputError: as `load_hardware`, except for what is missing.
    """
    draft = _drafted(_find(_asked(hw)), [setting(text) for text in several(sets, "sets", as_text)])[0]
    missing = missing_values(draft, command)
    if not missing:
        load_hardware(hw, sets)
    return missing


def _drafted(path: Path, settings: Sequence[tuple[KeyPath, str]]) -> tuple[Draft, list[Path], Any]:
    """All values, of units, parts and settings, too; the files they are from; the file's own timing."""
    files = [path]
    draft = draft_of(parse(read_text(path), str(path)), str(path))
    for key, value in settings:
        if key in _UNITS:
            draft.set(key, value)
    for key in sorted(_UNITS):
        if isinstance(draft.at(key), str):
            files.append(_read_unit(draft, key, path.parent))
    own = fill_from_parts(draft, path.parent)
    own_timing = draft.at(_TIMING)
    named = [(key, value) for key, value in settings if key in PART_KEYS]
    parts = own | replace_parts(draft, named, own, str(path))
    files += [part.file for part in (*own.values(), *parts.values())]
    for key, value in settings:
        if key not in _UNITS and key not in PART_KEYS:
            draft.set(key, value)
    return draft, files, own_timing


def _load(path: Path, sets: Sequence[str], command: str | None) -> tuple[Hardware, list[Path]]:
    """The hardware, and the files it was read from."""
    settings = [setting(text) for text in sets]
    draft, files, own_timing = _drafted(path, settings)
    dropped = {} if draft.at(_TIMING) == own_timing else _drop_overrides(draft)
    system = _validated(draft, command)
    _check_mapping(system, draft)
    _check_row_cap(system, draft)
    _check_pcie(system, draft)
    _check_link(system, draft)
    _check_multipliers(system, draft)
    hardware = Hardware(system, _leaf_origins(system, draft, str(path)), str(path), dropped)
    _check_subchannels(hardware)
    _check_ranks(hardware)
    _check_timings(hardware)
    _check_host_memory(hardware)
    check_cpu(hardware, [key for key, _ in settings])
    if dropped:
        clocks = ", ".join(f"{name} {value}" for name, value in dropped.items())
        _report_dropped(str(path), str(own_timing), system.dram.timing, clocks)
    return hardware, files


def _drop_overrides(draft: Draft) -> Mapping[str, Any]:
    """Take away the clocks that the file overrides; returns them.

    Those that `--set` gave stay, and those of the part that gives the timing.
    """
    overrides, stays = draft.at(_OVERRIDES), ("--set", draft.origin(_TIMING).file)
    names = list(overrides) if isinstance(overrides, dict) else []
    own = [name for name in names if draft.origin((*_OVERRIDES, name)).file not in stays]
    for name in own:
        del draft.origins[*_OVERRIDES, name]
    return {name: overrides.pop(name) for name in own}


@functools.cache
def _report_dropped(file: str, of: str, timing: str, clocks: str) -> None:
    """Said once, however many points of a sweep it is true of."""
    _log.warning("%s: overrides of %s are dropped at %s: %s", file, of, timing, clocks)


def _find(name: str) -> Path:
    if is_path(name) or (name not in data_names("hwconfigs") and os.path.exists(name)):
        return Path(name)
    if name not in data_names("hwconfigs"):
        problem = one_of(name, data_names("hwconfigs"), "hardware")
        raise InputError(f"{problem}; a path ends in .yaml or holds a '/'", "unknown-name", key="hw")
    return data_path("hwconfigs", name)


def _read_unit(draft: Draft, key: KeyPath, folder: Path) -> Path:
    """Put the file that `key` names in its place, and say which it is; paths are relative to `folder`."""
    name, origin = draft.at(key), draft.origin(key)
    if is_path(name):
        path = Path(name) if origin.kind == "set" else folder / name
    elif name in data_names("rtl_params"):
        path = data_path("rtl_params", name)
    else:
        raise origin.error(
            one_of(name, data_names("rtl_params"), "file in rtl_params"), dotted(key), code="unknown-name"
        )
    try:
        text = read_text(path)
    except InputError as error:
        raise origin.error(str(error), dotted(key), error.code) from None
    unit = draft_of(parse(text, str(path)), str(path), key)
    draft.replace(key, unit.values, unit.origins)
    return path


# --set


def _timing_names() -> set[str]:
    known = standards().values()
    names = {name for standard in known for speed in standard.speeds.values() for name in speed}
    return (names | {name for standard in known for name in standard.derived}) - {"rate", "tCK_ps"}


def _all_keys(model: type[BaseModel] = System, path: KeyPath = ()) -> Iterator[KeyPath]:
    for key, field in model.model_fields.items():
        yield (*path, key)
        section = section_of(field)
        if section is not None:
            yield from _all_keys(section, (*path, key))


def setting(text: str) -> tuple[KeyPath, str]:
    """The full key and the value of a ``key=value`` option.

    Raises:
        InputError: it is of another form, or there is no such key.
    """
    written, equals, value = text.partition("=")
    written = written.strip()
    if not equals or not written:
        raise InputError(f"{shown(text)} is not KEY=VALUE, for instance dimm.ranks=2", "form", file="--set")
    if not value.strip():
        raise InputError("has no value after '='", "missing", file="--set", key=written)
    key = tuple(written.split("."))
    if len(key) == 2 and key[0] == "dram" and key[1] in _timing_names():
        key = (*_OVERRIDES, key[1])
    if field_at(key) is None or (key[:2] == _OVERRIDES and len(key) == 3 and key[2] not in _timing_names()):
        raise InputError(_unknown_set(written), "unknown-key", file="--set", key=written)
    return key, value.strip()


def _unknown_set(written: str) -> str:
    """What is wrong with a key that leads nowhere, with the nearest that leads somewhere."""
    known = [dotted(key) for key in _all_keys()]
    known += [f"{prefix}.{name}" for name in sorted(_timing_names()) for prefix in ("dram", "dram.overrides")]
    guesses = [key for key in known if "." in written and key.endswith(f".{written}")]
    guesses = guesses or _in_section(written, known) or _in_any_section(written.rpartition(".")[2], known)
    guesses = guesses or [guess for guess in [nearest(written, known)] if guess]
    if guesses:
        return f"unknown key; did you mean {' or '.join(map(repr, guesses))}?"
    return f"unknown key (known: {', '.join(System.model_fields)} and the keys in them)"


def _in_section(written: str, known: Sequence[str]) -> list[str]:
    """The key most like `written` in the section that it names, if there is such a section."""
    section, dot, word = written.rpartition(".")
    words = [key.removeprefix(section + dot) for key in known if dot and key.startswith(section + dot)]
    guess = nearest(word, words)
    return [] if guess is None else [section + dot + guess]


def _in_any_section(word: str, known: Sequence[str]) -> list[str]:
    """The keys whose last word is most like `word`, a few at most; those that are short for others first."""
    guess = nearest(word, [key.rpartition(".")[2] for key in known])
    found = [key for key in known if guess is not None and key.rpartition(".")[2] == guess]
    short = [key for key in found if not key.startswith(f"{dotted(_OVERRIDES)}.")]
    return (short or found)[:_MOST_GUESSES]


# From a draft to a System


def _validated(draft: Draft, command: str | None) -> System:
    try:
        system = System.model_validate(draft.values)
        problems = []
    except ValidationError as error:
        # A misspelt key also leaves its right name missing: speak of the spelling.
        problems = [each for each in error.errors(include_url=False) if each["type"] != "missing"]
    if problems:
        raise _input_error(draft, problems[0])
    refuse_missing(draft, command)
    return system


#: Codes of pydantic's types of errors; its others are limits of numbers and texts.
_CODES: dict[str, Code] = {
    "extra_forbidden": "unknown-key",
    "value_error": "invalid",
    **{f"{kind}_type": "type" for kind in ("string", "int", "float", "bool", "list", "dict", "model")},
}


def _input_error(draft: Draft, problem: Any) -> InputError:
    """One of pydantic's errors as a line that says what is allowed."""
    path = tuple(str(part) for part in problem["loc"])
    field, code = field_at(path), _CODES.get(problem["type"], "range")
    if problem["type"] == "extra_forbidden":
        parent = field_at(path[:-1]) if path[:-1] else None
        section = section_of(parent) if parent is not None else System
        text = _unknown_key(path, section.model_fields if section is not None else ())
    elif problem["type"] == "value_error":
        what = "" if isinstance(problem["input"], dict | list) else f"{shown(problem['input'])} "
        text = f"{what}{problem['ctx']['error']}"
    elif field is not None and get_origin(field.annotation) is Literal and isinstance(problem["input"], str):
        text, code = one_of(problem["input"], get_args(field.annotation), "value"), "unknown-name"
    else:
        text = f"{shown(problem['input'])} is not {allowed(field) if field is not None else 'allowed'}"
    return draft.origin(path).error(text, dotted(path), code)


def _unknown_key(path: KeyPath, known: Collection[str]) -> str:
    """What is wrong with a key of a file; the same word elsewhere is nearer than another word here."""
    elsewhere = [dotted(key) for key in _all_keys() if key[-1] == path[-1]]
    elsewhere += [f"dram.overrides.{path[-1]}"] if path[-1] in _timing_names() else []
    if elsewhere and (len(path) == 1 or nearest(path[-1], known) is None):
        guesses = " or ".join(map(repr, elsewhere[:_MOST_GUESSES]))
        return f"unknown key '{path[-1]}'; did you mean {guesses}? (known here: {', '.join(sorted(known))})"
    return one_of(path[-1], known, "key")


def _check_mapping(system: System, draft: Draft) -> None:
    mapper, mapping = system.dram.mapper, system.dram.mapping
    if mapper == "custom" and mapping is None:
        origin = draft.origin(("dram", "mapper"))
        raise origin.error("custom needs a mapping; give dram.mapping", "dram.mapper", code="missing")
    if mapper != "custom" and mapping is not None:
        problem = f"is for mapper: custom, not {mapper} (dram.mapping=null takes it away)"
        raise draft.origin(("dram", "mapping")).error(problem, "dram.mapping", code="conflict")


def _check_row_cap(system: System, draft: Draft) -> None:
    origin = draft.origins.get(("dram", "row_cap"))
    if origin is not None and origin.kind == "set" and system.dram.row_policy == "open":
        raise origin.error(
            "is of row_policy: closed-cap, and rows stay open", "dram.row_cap", code="conflict"
        )


def _check_subchannels(hardware: Hardware) -> None:
    """Sub-channels of a DIMM are bits of the host's addresses; a device on a CXL link has its own."""
    count, standard = (
        hardware.system.dimm.subchannels,
        hardware.lane_device().standard,
    )  # reports unknown DRAM names now
    if hardware.system.cxl is None and count & (count - 1):
        usual = DIMM_BITS // standard.channel_bits
        problem = (
            f"{count} is not a power of two, as the host's addresses need; "
            f"a DIMM of {standard.name} has {usual} of {standard.channel_bits} bits"
        )
        raise hardware.origins["dimm.subchannels"].error(problem, "dimm.subchannels", code="range")


def _check_ranks(hardware: Hardware) -> None:
    """A channel whose ranks are given ends at one package: no DIMM or rank can be behind another's."""
    dimm, channels, device = hardware.system.dimm, hardware.system.host.channels, hardware.lane_device()
    if not device.organisation.ranks:
        return
    if dimm.ranks > 1:
        problem = f"{dimm.ranks} is not 1: a channel of {device.standard.name} has no ranks"
        raise hardware.origins["dimm.ranks"].error(problem, "dimm.ranks", code="range")
    if dimm.count > channels:
        problem = (
            f"{dimm.count} is more than the {channels} of host.channels: a channel of {device.standard.name} "
            "has no ranks, so each needs its own"
        )
        raise hardware.origins["dimm.count"].error(problem, "dimm.count", code="range")


def _check_timings(hardware: Hardware) -> None:
    """A row that a policy closes before it can be read is opened again and again."""
    device, policy = hardware.lane_device(), hardware.system.dram.row_policy
    column, precharge = row_times(device)
    if policy != "open" and column.clocks > precharge.clocks:
        problem = (
            f"{column.latency}, {column.clocks} clocks from ACT to a column command, is more than "
            f"{precharge.latency}, {precharge.clocks}, after which {policy} may close the row"
        )
        stated = [f"dram.overrides.{name}" for name in (column.latency, precharge.latency)]
        key = next((key for key in stated if key in hardware.origins), "dram.timing")
        raise hardware.origins[key].error(problem, key, code="range")


def _check_host_memory(hardware: Hardware) -> None:
    """Its DRAM is known, and a standard of DIMMs; its DIMMs share its channels evenly."""
    own = hardware.system.host.memory
    if own is None:
        return
    device = hardware.host_memory.lane_device()
    if hardware.system.cxl is not None:
        problem = "is for DIMMs that compute; behind a CXL link the GPU reads the device"
        raise hardware.origins["host.memory.standard"].error(problem, "host.memory", code="unsupported")
    if device.organisation.ranks or DIMM_BITS % device.standard.channel_bits:
        problem = f"{device.standard.name} is not a standard of DIMMs"
        raise hardware.origins["host.memory.standard"].error(
            problem, "host.memory.standard", code="unsupported"
        )
    if own.dimms % own.channels:
        problem = f"{own.dimms} is not a multiple of the {own.channels} of host.memory.channels"
        raise hardware.origins["host.memory.dimms"].error(problem, "host.memory.dimms", code="range")


def _check_pcie(system: System, draft: Draft) -> None:
    if system.gpu is not None and system.pcie is not None and system.pcie.gbps > system.gpu.pcie_gbps:
        problem = f"{system.pcie.gbps:g} is more than gpu.pcie_gbps, {system.gpu.pcie_gbps:g}"
        raise draft.origin(("pcie", "gbps")).error(problem, "pcie.gbps", code="range")


def _check_link(system: System, draft: Draft) -> None:
    if system.link is None:
        return
    lanes_gbps = system.link.lanes * exact(system.link.lane_gbit_s) / 8
    if exact(system.link.link_gbps) > lanes_gbps:
        problem = (
            f"{system.link.link_gbps:g} is more than its lanes carry, {system.link.lanes} of "
            f"{system.link.lane_gbit_s:g} Gb/s: {float(lanes_gbps):g}"
        )
        raise draft.origin(("link", "link_gbps")).error(problem, "link.link_gbps", code="range")
    if system.link.topology == "groups" and system.link.group_dimms > system.dimm.count:
        problem = f"{system.link.group_dimms} is more than the {system.dimm.count} DIMMs there are"
        raise draft.origin(("link", "group_dimms")).error(problem, "link.group_dimms", code="range")


def _check_multipliers(system: System, draft: Draft) -> None:
    if system.ndp is None:
        return
    there = [key for key in MULTIPLIERS if getattr(system.ndp, key) is not None]
    if not there:
        problem = f"has nothing that multiplies; give one of {' and '.join(MULTIPLIERS)}"
        raise draft.origin(("ndp",)).error(problem, "ndp", code="missing")
    if len(there) > 1:
        problem = f"has both {there[0]} and {there[1]}; ndp.{there[0]}=null takes one away"
        raise draft.origin(("ndp",)).error(problem, "ndp", code="conflict")
    found = system.ndp.multiplier[1].problem(behind_cxl=system.cxl is not None)
    if found is not None:
        key, problem = found
        raise draft.origin(tuple(key.split(".")) if "." in key else ("ndp",)).error(problem, key, "conflict")


def _leaf_origins(system: System, draft: Draft, file: str) -> dict[str, Origin]:
    return {
        dotted(path): draft.origins.get(path) or Origin(file, None, default_reason(path), "default")
        for path, _ in leaves(system)
    }
