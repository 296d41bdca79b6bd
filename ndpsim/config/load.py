"""From a hardware file, the files it names and `--set` options to a `Hardware`, or an error of one line."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ndpsim.base.arguments import Sets, choice, path_of, setting_texts
from ndpsim.base.arguments import text as as_text
from ndpsim.base.caching import FileCache
from ndpsim.base.errors import SETS, Code, InputError, nearest, one_of
from ndpsim.base.errors import shown as quoted
from ndpsim.config.consistency import (
    SECTIONS,
    Missing,
    check_cpu,
    check_memories,
    check_system,
    missing_values,
    refuse_decided,
    refuse_missing,
)
from ndpsim.config.files import data_folder, data_names, data_path, is_path
from ndpsim.config.hardware import Hardware
from ndpsim.config.keys import UNIT_PART, allowed, field_at, leaves, section_of
from ndpsim.config.nodes import parse, read_text
from ndpsim.config.origins import Draft, KeyPath, Origin, default_reason, dotted, draft_of, shown
from ndpsim.config.parts import PART_KEYS, fill_from_parts, replace_parts
from ndpsim.config.ranges import notice_far_values
from ndpsim.config.system import UNITS, System
from ndpsim.dram.spec import standards
from ndpsim.dram.spec.overrides import timing_name

# ---- ``key=value`` options, and the names of keys that they may have


#: The section with the clocks that replace those of the preset.
OVERRIDES = ("dram", "overrides")
MOST_GUESSES = 4


def timing_names() -> set[str]:
    known = standards().values()
    names = {name for standard in known for speed in standard.speeds.values() for name in speed}
    return (names | {name for standard in known for name in standard.derived}) - {"rate", "tCK_ps"}


def all_keys(model: type[BaseModel] = System, path: KeyPath = ()) -> Iterator[KeyPath]:
    for key, field in model.model_fields.items():
        yield (*path, key)
        section = section_of(field)
        if section is not None:
            yield from all_keys(section, (*path, key))


def setting(text: str) -> tuple[KeyPath, str]:
    """The full key and the value of a ``key=value`` option.

    Raises:
        InputError: it is of another form, or there is no such key.
    """
    written, equals, value = text.partition("=")
    written = written.strip()
    if not equals or not written:
        raise InputError(f"{quoted(text)} is not KEY=VALUE, for instance dimm.ranks=2", "form", file=SETS)
    if not value.strip():
        raise InputError("has no value after '='", "missing", file=SETS, key=written)
    key = tuple(written.split("."))
    if len(key) == 2 and key[0] == "dram" and _is_timing(key[1]):
        key = (*OVERRIDES, key[1])
    if field_at(key) is None or (key[:2] == OVERRIDES and len(key) == 3 and not _is_timing(key[2])):
        raise InputError(_unknown_set(written), "unknown-key", file=SETS, key=written)
    return key, value.strip()


def _is_timing(name: str) -> bool:
    """Whether some standard has a timing of this name, or of the name that JEDEC has for it in ns."""
    return timing_name(name, timing_names()) is not None


def _unknown_set(written: str) -> str:
    """Message for an unknown key, with the nearest known one."""
    known = [dotted(key) for key in all_keys()]
    known += [f"{prefix}.{name}" for name in sorted(timing_names()) for prefix in ("dram", "dram.overrides")]
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
    """At most a few keys whose last word is most like `word`; short forms first."""
    guess = nearest(word, [key.rpartition(".")[2] for key in known])
    found = [key for key in known if guess is not None and key.rpartition(".")[2] == guess]
    short = [key for key in found if not key.startswith(f"{dotted(OVERRIDES)}.")]
    return (short or found)[:MOST_GUESSES]


# ---- From a hardware file, the files it names and `--set` options to a `Hardware`, or an error of one line


_log = logging.getLogger("ndpsim")

_TIMING = ("dram", "timing")
_MAPPING = "hw"  # a mapping in place of a file, in messages
_UNITS = {("ndp", key) for key in UNITS}


def load_hardware(
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware, sets: Sets = (), command: str | None = None
) -> Hardware:
    """Read and check a hardware file; files that have not changed are read once.

    >>> ndpsim.load_hardware("trimoe", {"dimm.ranks": 2}).system.dimm.ranks
    2

    Args:
        hw: a bundled name ("trimoe"), the path of a hardware file, or a mapping with the contents of one; a
            `Hardware` stays as it is.
        sets: ``key=value`` options with dotted keys, or a mapping such as {"dimm.ranks": 2}, which replace
            values of the files; later ones replace earlier ones: ``dimm.ranks=2``,
            ``ndp.gemv.fifo_bursts=8``, ``dram.nCL=38`` (short for ``dram.overrides.nCL``), ``ndp.gemv=NAME``
            (another file of ``rtl_params/``, read before keys inside it are set; a path given here is
            relative to the current folder), ``gpu.part=NAME`` (another part; its values replace those of the
            file and those that are fitted to the old processor, and other options replace its values).
            Clocks in ``dram.overrides`` of the file belong to the file's ``dram.timing``: if an option
            selects another timing, they are dropped, and one line lists them.
        command: "dram", "gemv", "relayout" or "moe": the error names all values that the file lacks for this
            command.

    Raises:
        InputError: anything wrong in the files or options, in one line, or options for a `Hardware`.
    """
    sets = setting_texts(sets)
    if command is not None:
        choice(command, "command", SECTIONS, "command that needs hardware")
    if isinstance(hw, Hardware):
        if sets:
            raise InputError("give changes when loading the hardware, not afterwards", "conflict", key="sets")
        return hw
    if isinstance(hw, Mapping):
        try:
            return _load(hw, sets, command)[0]
        except InputError as error:  # a mapping has no lines
            raise error.at(error.file) from None
    name = _asked(hw)
    key = name, sets, command, os.getcwd()
    known = _loaded.find(key)
    if known is not None:
        return known
    hardware, files = _load(_find(name), sets, command)
    # With the folder: a bundled file has precedence over a file here with the same name.
    return _loaded.store(key, [*files, data_folder("hwconfigs")], hardware)


_loaded: FileCache[Hardware] = FileCache(32)


def _asked(hw: object) -> str:
    try:
        return str(path_of(hw, "hw")) if isinstance(hw, PathLike) else as_text(hw, "hw")
    except InputError:
        problem = "is neither the name of a hardware, nor the path of its file, nor a mapping, nor a Hardware"
        raise InputError(f"{quoted(hw)} {problem}", "type", key="hw") from None


def missing_of(hw: str, sets: Sequence[str], command: str) -> list[Missing]:
    """All values that a hardware file lacks for a command of `ndpsim.config.consistency`.

    Raises:
        InputError: as `load_hardware`, except for missing values.
    """
    draft = _drafted(_find(_asked(hw)), [setting(text) for text in setting_texts(sets)])[0]
    missing = missing_values(draft, command)
    if not missing:
        load_hardware(hw, sets)
    return missing


def _drafted(
    source: Path | Mapping[str, Any], settings: Sequence[tuple[KeyPath, str]]
) -> tuple[Draft, list[Path], Any]:
    """All values, with those of units, parts and settings; their files; the timing in the file itself."""
    if isinstance(source, Mapping):
        path, files = Path(_MAPPING), list[Path]()
        draft = draft_of(parse(_as_text(source), _MAPPING), _MAPPING)
    else:
        path, files = source, [source]
        draft = draft_of(parse(read_text(path), str(path)), str(path))
    for key, value in settings:
        if key in _UNITS:
            draft.set(key, value)
    for key in sorted(_UNITS):
        unit = draft.at(key)
        if isinstance(unit, str):
            files.append(_read_unit(draft, key, path.parent))
        elif isinstance(unit, dict) and UNIT_PART in unit:
            files.append(_read_base(draft, key, path.parent))
    own = fill_from_parts(draft, path.parent)
    own_timing = draft.at(_TIMING)
    named = [(key, value) for key, value in settings if key in PART_KEYS]
    parts = own | replace_parts(draft, named, own, str(path))
    files += [part.file for part in (*own.values(), *parts.values())]
    for key, value in settings:
        if key not in _UNITS and key not in PART_KEYS:
            draft.set(key, value)
    return draft, files, own_timing


def _as_text(contents: Mapping[str, Any]) -> str:
    """The contents of a hardware file as JSON, which is YAML."""
    try:
        return json.dumps(contents)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"has a value that no hardware file can have: {error}", "type", key="hw") from None


def _load(
    source: Path | Mapping[str, Any], sets: Sequence[str], command: str | None
) -> tuple[Hardware, list[Path]]:
    """The hardware, and the files it was read from."""
    settings = [setting(text) for text in sets]
    path = _MAPPING if isinstance(source, Mapping) else source
    draft, files, own_timing = _drafted(source, settings)
    dropped = {} if draft.at(_TIMING) == own_timing else _drop_overrides(draft)
    system = _validated(draft, command)
    check_system(system, draft)
    refuse_decided([key for key, _ in settings], system)
    hardware = Hardware(system, _leaf_origins(system, draft, str(path)), str(path), dropped)
    check_memories(hardware)
    check_cpu(hardware, [key for key, _ in settings])
    notice_far_values(hardware)
    if dropped:
        clocks = ", ".join(f"{name} {value}" for name, value in dropped.items())
        _report_dropped(str(path), str(own_timing), system.dram.timing, clocks)
    return hardware, files


def _drop_overrides(draft: Draft) -> Mapping[str, Any]:
    """Remove the clocks in `dram.overrides` of the file; returns them.

    Clocks of `--set` stay, and clocks of the part that gives the timing.
    """
    overrides, stays = draft.at(OVERRIDES), (SETS, draft.origin(_TIMING).file)
    names = list(overrides) if isinstance(overrides, dict) else []
    own = [name for name in names if draft.origin((*OVERRIDES, name)).file not in stays]
    for name in own:
        del draft.origins[*OVERRIDES, name]
    return {name: overrides.pop(name) for name in own}


@functools.cache
def _report_dropped(file: str, old_timing: str, timing: str, clocks: str) -> None:
    """Print the notice once, for any number of points of a sweep."""
    _log.warning("%s: overrides of %s are dropped at %s: %s", file, old_timing, timing, clocks)


def _find(name: str) -> Path:
    if is_path(name) or (name not in data_names("hwconfigs") and os.path.exists(name)):
        return Path(name)
    if name not in data_names("hwconfigs"):
        problem = one_of(name, data_names("hwconfigs"), "hardware")
        raise InputError(f"{problem}; a path ends in .yaml or holds a '/'", "unknown-name", key="hw")
    return data_path("hwconfigs", name)


def _read_unit(draft: Draft, key: KeyPath, folder: Path) -> Path:
    """Replace the name at `key` by the contents of its file; returns the file, relative to `folder`."""
    name, origin = draft.at(key), draft.origin(key)
    if is_path(name):
        path = Path(name) if origin.kind == "set" else folder / name
    elif name in data_names("rtl_params"):
        path = data_path("rtl_params", name)
    else:
        problem = one_of(name, data_names("rtl_params"), "file in rtl_params")
        raise origin.error(problem, dotted(key), "unknown-name")
    try:
        text = read_text(path)
    except InputError as error:
        raise origin.error(str(error), dotted(key), error.code) from None
    unit = draft_of(parse(text, str(path)), str(path), key)
    draft.replace(key, unit.values, unit.origins)
    return path


def _read_base(draft: Draft, key: KeyPath, folder: Path) -> Path:
    """Read the file that a unit's section names as its part; its own values replace those of the file."""
    own, name = draft.at(key), (*key, UNIT_PART)
    if not isinstance(own[UNIT_PART], str):
        problem = (
            f"{shown(own[UNIT_PART])} is not the name of a file in rtl_params, or a path ending in .yaml"
        )
        raise draft.origin(name).error(problem, dotted(name), "type")
    origins = {path: origin for path, origin in draft.origins.items() if path[: len(key)] == key}
    draft.replace(key, own[UNIT_PART], {key: draft.origin(name)})
    file = _read_unit(draft, key, folder)
    for word in own.keys() - {UNIT_PART}:
        path = (*key, word)
        inner = {part: origin for part, origin in origins.items() if part[: len(path)] == path}
        draft.replace(path, own[word], inner or {path: origins[key]})
    return file


def _leaf_origins(system: System, draft: Draft, file: str) -> dict[str, Origin]:
    return {
        dotted(path): draft.origins.get(path) or Origin(file, None, default_reason(path), "default")
        for path, _ in leaves(system)
    }


# ---- A checked system from a draft


def _validated(draft: Draft, command: str | None) -> System:
    try:
        system = System.model_validate(draft.values)
        problems = []
    except ValidationError as error:
        # A misspelt key makes the right key missing; the error names the misspelt one.
        problems = [problem for problem in error.errors(include_url=False) if problem["type"] != "missing"]
    if problems:
        raise _input_error(draft, problems[0])
    refuse_missing(draft, command)
    return system


#: Codes for pydantic's types of errors; all other types are limits of numbers and texts.
_CODES: dict[str, Code] = {
    "extra_forbidden": "unknown-key",
    "value_error": "invalid",
    **{f"{kind}_type": "type" for kind in ("string", "int", "float", "bool", "list", "dict", "model")},
}


def _input_error(draft: Draft, problem: Any) -> InputError:
    """One of pydantic's errors as a line with the allowed values."""
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
    """Message for an unknown key of a file; the same word in another section comes before a similar one."""
    elsewhere = [dotted(key) for key in all_keys() if key[-1] == path[-1]]
    elsewhere += [f"dram.overrides.{path[-1]}"] if path[-1] in timing_names() else []
    if elsewhere and (len(path) == 1 or nearest(path[-1], known) is None):
        guesses = " or ".join(map(repr, elsewhere[:MOST_GUESSES]))
        return f"unknown key '{path[-1]}'; did you mean {guesses}? (known here: {', '.join(sorted(known))})"
    return one_of(path[-1], known, "key")
