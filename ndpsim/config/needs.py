"""Finds all values that a hardware file lacks, for any command or for a given one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ndpsim.config.files import PART_SECTIONS, data_path
from ndpsim.config.keys import allowed, field_at, unit_of
from ndpsim.config.nodes import parse, read_text
from ndpsim.config.origins import Draft, KeyPath, dotted, draft_of
from ndpsim.config.system import System

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
    words = "" if field is None else allowed(field)
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
    problem = f"is missing; give {first.allowed}{_words(first)}"
    if others:
        problem += f"; also missing: {', '.join(gap.key + _words(gap) for gap in others)}"
    look_up = dict.fromkeys(gap.look_up for gap in lacking)
    raise draft.error(f"{problem}. Look in: {'; '.join(look_up)}", first.key, "missing")


def _words(missing: Missing) -> str:
    """Unit and example: `` in TB/s (rtx-4090: 1.008)``."""
    value, _, source = missing.example.partition(" (")
    unit = f" in {missing.unit}" if missing.unit else ""
    return unit + (f" ({source.partition(': ')[0]}: {value})" if value else "")
