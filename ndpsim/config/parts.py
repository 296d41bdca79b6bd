"""Parts that hardware files name: CPUs, memories, GPUs and links, each a file with values of its data sheet.

A part is a fragment of one section. It gives the keys that the section of a hardware file leaves out.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ndpsim.base.caching import FileCache
from ndpsim.base.errors import InputError, did_you_mean, one_of, shortened
from ndpsim.config.files import PART_KINDS, PART_SECTIONS, data_folder, is_path, part_names
from ndpsim.config.hardware import DIMM_BITS
from ndpsim.config.keys import Row, allowed, field_at, refusal, section_of, unit_of
from ndpsim.config.nodes import parse, plain_of, read_text
from ndpsim.config.origins import Draft, KeyPath, Origin, dotted, draft_of, shown
from ndpsim.config.system import GPU_FITTED
from ndpsim.dram.spec import resolve

_log = logging.getLogger("ndpsim")

_SECTIONS: dict[KeyPath, str] = {tuple(name.split(".")): kind for name, kind in PART_SECTIONS.items()}
#: The keys that name a part.
PART_KEYS = {(*section, "part") for section in _SECTIONS}
_HOME = {"cpus": ("host",), "memories": ("dram",), "gpus": ("gpu",), "links": ("pcie",)}
# Keys that parts do not give: a CPU's peak, and values that are fitted to a processor or measured with it.
_PROCESSOR_KEYS: dict[KeyPath, tuple[KeyPath, ...]] = {
    ("gpu",): (*(("gpu", name) for name in (*GPU_FITTED, "expert_times")), ("host", "measured_power")),
    ("host",): tuple(
        ("host", name)
        for name in (
            "cpu_tflops", "cpu_compute_efficiency", "cpu_added_tokens", "cpu_memory_gbps", "cpu_read_gbps",
            "cpu_read_share", "cpu_expert_times", "measured_power",
        )
    ),
}  # fmt: skip
_ABOUT = ("name", "title", "also")


@dataclass(frozen=True)
class Part:
    """A part, from its file.

    `kind`: one of `PART_KINDS`. `also`: other names it is known by. `section`: the section of a hardware file
    whose keys it gives. `draft`: the values under that section, each with its origin in the part's file.
    """

    kind: str
    name: str
    title: str
    also: tuple[str, ...]
    file: Path
    section: KeyPath
    draft: Draft

    @property
    def values(self) -> dict[str, Any]:
        """The values by their dotted keys inside the section."""
        return {dotted(path): value for path, value in _leaves(self.draft.values)}

    def rows(self) -> list[Row]:
        """Every value with its unit and source, then derived values."""
        rows = []
        for path, value in _leaves(self.draft.values):
            full = (*self.section, *path)
            cell = ", ".join(map(str, value)) if isinstance(value, list) else value
            rows.append(Row(dotted(full), cell, unit_of(full), str(self.draft.origin(full))))
        return rows + [Row(f"derived.{key}", *cells) for key, cells in _DERIVED[self.kind](self.values)]

    def to_dict(self) -> dict[str, Any]:
        """All values of the part, as plain data for JSON."""
        rows = {row.key: {"value": row.value, "unit": row.unit, "origin": row.origin} for row in self.rows()}
        about = {"kind": self.kind, "name": self.name, "title": self.title, "also": list(self.also)}
        return {**about, "values": rows}


# Files of parts


def load_part(name: str) -> Part:
    """The bundled part of this name or short name, or the part in a file whose path ends in ``.yaml``.

    Raises:
        InputError: there is none, or its file is wrong.
    """
    if is_path(name):
        return _checked(_read_of_any_kind(Path(name)))
    for kind in PART_KINDS:
        path = _bundled(kind).get(name)
        if path is not None:
            return _checked(_read(path, kind, _HOME[kind]))
    known = [name for kind in PART_KINDS for name in _bundled(kind)]
    problem = f"unknown part '{shortened(name)}'{did_you_mean(name, known)} (ndpsim list parts has them all)"
    raise InputError(problem, "unknown-name", key="part")


_bundled_parts: FileCache[dict[str, Path]] = FileCache(len(PART_KINDS))


def _bundled(kind: str) -> dict[str, Path]:
    """The bundled parts of a kind, by their names and short names."""
    known = _bundled_parts.find(kind)
    if known is not None:
        return known
    folder = data_folder(f"hwconfigs/parts/{kind}")
    files = {name: folder / f"{name}.yaml" for name in part_names(kind)}
    also: dict[str, Path] = {}
    for path in files.values():
        plain = plain_of(parse(read_text(path), str(path)))
        names = plain.get("also", ()) if isinstance(plain, dict) else ()
        also |= {str(name): path for name in (names if isinstance(names, list) else ())}
    return _bundled_parts.store(kind, [folder, *files.values()], also | files)


def _read(path: Path, kind: str, section: KeyPath) -> Part:
    """The part in a file, as a fragment of `section`.

    Raises:
        InputError: the file is no fragment of it.
    """
    draft = draft_of(parse(read_text(path), str(path)), str(path), section)
    about = {key: draft.values.pop(key, None) for key in _ABOUT}
    origins = {key: draft.origins.pop((*section, key), None) for key in _ABOUT}
    known = _keys_of(section)
    for key in draft.values:
        if key not in known:
            problem = one_of(key, [*_ABOUT, *known], f"key of a part of {dotted(section)}")
            raise draft.origin((*section, key)).error(problem, key, "unknown-key")
    for key in ("name", "title"):
        if not isinstance(about[key], str) or not about[key]:
            origin = origins[key] or Origin(str(path), None, "", "stated")
            problem = "is missing" if about[key] is None else f"{shown(about[key])} is no text"
            raise origin.error(problem, key, code="missing")
    also = about["also"] if about["also"] is not None else []
    if not isinstance(also, list) or not all(isinstance(name, str) for name in also):
        origin = origins["also"] or Origin(str(path), None, "", "stated")
        raise origin.error(f"{shown(also)} is not a list of names", "also", code="type")
    return Part(kind, about["name"], about["title"], tuple(also), path, section, draft)


def _read_of_any_kind(path: Path) -> Part:
    """The part in a file that no machine names. Its kind is the one with the fewest unknown keys."""
    plain = plain_of(parse(read_text(path), str(path)))
    keys = set(plain) if isinstance(plain, dict) else set()
    kind = min(PART_KINDS, key=lambda kind: len(keys.difference(_keys_of(_HOME[kind]))))
    return _read(path, kind, _HOME[kind])


def _keys_of(section: KeyPath) -> list[str]:
    """The keys that a part of a section can have."""
    field = field_at(section)
    model = section_of(field) if field is not None else None
    return [key for key in (model.model_fields if model is not None else ()) if key != "part"]


def _checked(part: Part) -> Part:
    """The part, with every value checked against its key."""
    for path, value in _leaves(part.draft.values):
        full = (*part.section, *path)
        origin, field = part.draft.origin(full), field_at(full)
        if field is None:
            raise origin.error("is no key of a hardware file", dotted(full), code="unknown-key")
        if refusal(full, value) is not None:
            raise origin.error(f"{shown(value)} is not {allowed(field)}", dotted(full), code="range")
    return part


def _leaves(values: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


# Parts in hardware files


def fill_from_parts(draft: Draft, folder: Path) -> dict[KeyPath, Part]:
    """Fill in the values that the sections of a file leave to their parts; `folder`: the file's folder.

    Returns:
        the parts, by the sections that name them.

    Raises:
        InputError: there is no such part, or its file is wrong.
    """
    parts = {section: part for section in _SECTIONS if (part := _named(draft, section, folder)) is not None}
    for section, part in parts.items():
        _fill(draft, section, part)
    return parts


def replace_parts(
    draft: Draft, settings: Sequence[tuple[KeyPath, str]], own: Mapping[KeyPath, Part], file: str
) -> dict[KeyPath, Part]:
    """Replace the parts of a file, `own`, by the parts of `--set`, whose values replace those of the file.

    Values that are fitted to the processor of the file, or measured on it, do not hold for another one; they
    are removed.

    Returns:
        the new parts, by the sections that name them.

    Raises:
        InputError: there is no such part, or its file is wrong.
    """
    parts = {}
    for key, value in dict(settings).items():
        section = key[:-1]
        draft.set(key, value)
        if section in own:
            _take_away(draft, section, own[section])
        part = _named(draft, section, Path())
        if part is None:
            continue
        values: dict[KeyPath, Any] = {(*section, *path): value for path, value in _leaves(part.draft.values)}
        if section not in own or own[section].name != part.name:
            values = dict.fromkeys(_PROCESSOR_KEYS.get(section, ())) | values
        replaced = [
            f"{dotted(path)} {shown(draft.at(path))}"
            for path, new in values.items()
            if draft.has(path) and draft.at(path) != new
        ]
        for path in values:
            draft.remove(path)
        _fill(draft, section, part)
        parts[section] = part
        if replaced:
            _report_replaced(file, f"{dotted(key)}={part.name}", ", ".join(replaced))
    return parts


@functools.cache
def _report_replaced(file: str, part: str, replaced: str) -> None:
    """Print the notice once, for any number of points of a sweep."""
    _log.warning("%s: %s takes the place of %s", file, part, replaced)


def _named(draft: Draft, section: KeyPath, folder: Path) -> Part | None:
    """The part that a section names; None if it names none."""
    key = (*section, "part")
    name, kind = draft.at(key), _SECTIONS[section]
    if isinstance(name, int) and not isinstance(name, bool):  # a short name such as 4090
        name = draft.at(section)["part"] = str(name)
    if not isinstance(name, str) or not name:
        return None
    origin = draft.origin(key)
    if is_path(name):
        path = folder / name
    else:
        names = part_names(kind)
        known = {name: data_folder(f"hwconfigs/parts/{kind}") / f"{name}.yaml"} if name in names else {}
        known = known or _bundled(kind)
        if name not in known:
            what = f"unknown {PART_KINDS[kind]} '{shortened(name)}'{did_you_mean(name, known)}"
            problem = f"{what} (known: {', '.join(names)}; a path ends in .yaml)"
            raise origin.error(problem, dotted(key), "unknown-name")
        path = known[name]
    try:
        return _read(path, kind, section)
    except InputError as error:
        if error.line is not None:
            raise
        raise origin.error(str(error), dotted(key), error.code) from None


def _fill(draft: Draft, path: KeyPath, part: Part) -> None:
    """Take the value of `path` from `part` unless it has one."""
    value, origins = Draft(part.draft.values).at(path[len(part.section) :]), part.draft.origins
    if isinstance(value, dict) and (path == part.section or isinstance(draft.at(path), dict)):
        for key in value:
            _fill(draft, (*path, key), part)
    elif not draft.has(path):
        draft.replace(path, value, {key: origins[key] for key in origins if key[: len(path)] == path})


def _take_away(draft: Draft, section: KeyPath, part: Part) -> None:
    """Remove the values that a section has from `part`."""
    for path, _ in _leaves(part.draft.values):
        if draft.origin((*section, *path)).file == str(part.file):
            draft.remove((*section, *path))


# Derived values of a part

_Derived = Iterator[tuple[str, tuple[float, str, str]]]


def _cpu_derived(values: Mapping[str, Any]) -> _Derived:
    channels = values.get("cpu_memory_channels")
    for key, name in (("cpu_memory_mtps", "memory_peak"), ("cpu_memory_mtps_2dpc", "memory_peak_2dpc")):
        if channels is not None and key in values:
            yield name, (channels * values[key] * 8 / 1000, "GB/s", f"cpu_memory_channels x {key} x 8 B")


def _memory_derived(values: Mapping[str, Any]) -> _Derived:
    if not all(key in values for key in ("standard", "org", "timing")):
        return
    start = "overrides."
    own = {key.removeprefix(start): values[key] for key in values if key.startswith(start)}
    device = resolve(values["standard"], values["org"], values["timing"], overrides=own)
    bits = device.standard.channel_bits
    yield "channel_peak", (device.peak_gbps, "GB/s", f"one burst every nBL clocks, on {bits} bits")
    if not device.organisation.ranks and DIMM_BITS % bits == 0 and bits < DIMM_BITS:
        wide = DIMM_BITS // bits
        yield "dimm_peak", (wide * device.peak_gbps, "GB/s", f"{wide} such channels of a DIMM of 64 bits")


def _gpu_derived(values: Mapping[str, Any]) -> _Derived:
    if "tflops" in values and "memory_tbps" in values:
        ridge = values["tflops"] / values["memory_tbps"]
        why = "tflops / memory_tbps: with fewer, the memory is the limit"
        yield "ridge", (round(ridge, 3), "FLOP/B", why)


def _link_derived(values: Mapping[str, Any]) -> _Derived:
    if all(key in values for key in ("gbps", "packet_bytes", "header_bytes")):
        whole = values["packet_bytes"] + values["header_bytes"]
        net = values["gbps"] * values["packet_bytes"] / whole
        yield "net", (round(net, 3), "GB/s", "gbps x packet_bytes / (packet_bytes + header_bytes)")


_DERIVED = {"cpus": _cpu_derived, "memories": _memory_derived, "gpus": _gpu_derived, "links": _link_derived}
