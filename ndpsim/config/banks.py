"""Files of devices with units in their banks, `hwconfigs/banks`: the values of a page of extensions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import Sets, choice, number, path_of, setting_texts, whole_number
from ndpsim.base.choices import RULES
from ndpsim.base.errors import SETS, InputError, shown, unknown
from ndpsim.config.files import data_names, data_path, is_path
from ndpsim.config.nodes import Node, parse, read_text
from ndpsim.dram.spec.extension import LEVELS, BankDevice, Extension, Values, device_of, extension_named

_SECTIONS = ("device", "unit", "timings", "energy", "softmax")
_TOP = ("name", "title", "paper", "extension", "clock_ps", "refresh", *_SECTIONS, "reference")
_WORDS = ("name", "title", "paper", "extension")
_SIZES = ("channels", *(f"{level}s" for level in LEVELS), "rows", "columns", "burst_bytes")
_SOFTMAX = ("ns_per_score", "ns_per_head")
_UNIT = ("level", "banks", "multipliers", "element_bytes", "accumulators", "buffer_bytes", "vectors")
_REFRESHES = ("all-bank", "none")
_ENGINES = ("bank", "bankgroup", "buffer")  # a buffer is at a pseudo-channel
_LARGEST = 1 << 40


@dataclass(frozen=True)
class Stated:
    """A value of a file with its source, or the reason why it has none."""

    value: Any
    origin: str


@dataclass(frozen=True)
class BankHardware(Annotated):
    """A device with units in its banks.

    Attributes:
        name: that of its file.
        title: what it is.
        device: the device.
        burst_bytes: bytes of a column.
        unit: keys of the unit: its level, multipliers, bytes of an element, accumulators, buffer.
        energy: published energies: pJ of a bank in a command, by command (of the whole command if it acts on
            no banks); io_pj_per_bit on the pins, product_pj of a product and its sum. Others are not known.
        softmax: time of units beside the channels for a score and for a query of a head, one after the other;
            none: softmax is a command, or not known.
        rules: "standard" or "reference".
        values: all values by their keys, with their sources.
    """

    name: str
    title: str
    device: BankDevice
    burst_bytes: int
    unit: Mapping[str, Any]
    rules: str
    values: Mapping[str, Stated] = field(repr=False)
    energy: Mapping[str, float]
    softmax: Mapping[str, float]

    @property
    def capacity_bytes(self) -> int:
        """Bytes of all banks."""
        sizes = self.device.sizes
        return sizes["channels"] * self.device.banks * sizes["rows"] * sizes["columns"] * self.burst_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        device = self.device
        return {
            "name": self.name,
            "rules": self.rules,
            "extension": device.extension.name,
            "standard": device.extension.standard,
            "idealisations": sorted(device.ideal),
            "clock_ps": float(device.clock_ps),
            "refresh": "all-bank" if device.refreshes else "none",
            "device": dict(device.sizes),
            "timings": dict(device.timings),
            "unit": dict(self.unit),
            "energy": dict(self.energy),
            **({"softmax": dict(self.softmax)} if self.softmax else {}),
        }


def bank_hardware_names() -> list[str]:
    """The names of bundled devices with units in their banks, sorted."""
    return data_names("hwconfigs/banks")


def load_bank_hardware(hw: str | PathLike[str], sets: Sets = (), rules: str = "standard") -> BankHardware:
    """Read the file of a device with units in its banks.

    >>> ndpsim.load_bank_hardware("aim", {"channels": 8}).device.sizes["channels"]
    8

    Args:
        hw: a bundled name, or the path of a file.
        sets: ``key=value``: a timing (``nCCDAB=4``), a size (``channels=8``), ``refresh=none``, ``clock_ps``,
            a key of the unit (``accumulators=1``), ``idealise=A2,A8``, or ``rules=reference``.
        rules: "standard": no idealisations but those of `sets`; "reference": all of the page.

    Raises:
        InputError: anything wrong in the file or the arguments, in one line.
    """
    sets = setting_texts(sets)
    said = [text.partition("=")[2].strip() for text in sets if text.partition("=")[0].strip() == "rules"]
    rules = choice([rules, *said][-1], "rules", RULES, "set of rules")
    path = _find(os.fspath(path_of(hw, "hw")))
    root = parse(read_text(path), str(path))
    values = dict(_read(root, str(path), rules))
    extension = extension_named(values["extension"].value)
    ideal = frozenset(extension.idealisations if rules == "reference" else ()) - {"CENT"}
    for text in (text for text in sets if text.partition("=")[0].strip() != "rules"):
        key, value = _setting(text, values)
        if key == "idealise":
            ideal = _idealised(value, extension)
        else:
            values[key] = Stated(value, "--set")
    try:
        return _resolved(path.stem, values, extension, ideal, rules)
    except InputError as error:
        raise (error if error.file else error.at(path)) from None


def is_bank_hardware(hw: str) -> bool:
    """Whether a name or a readable file is that of a device with units in its banks."""
    if not is_path(hw):
        return hw in bank_hardware_names()
    try:
        root = parse(read_text(Path(hw)), hw)
    except InputError:
        return False
    return isinstance(root.value, dict) and "extension" in root.value


def _find(name: str) -> Path:
    if is_path(name) or (name not in bank_hardware_names() and os.path.exists(name)):
        return Path(name)
    if name not in bank_hardware_names():
        raise unknown(name, bank_hardware_names(), "device with units in banks", key="hw")
    return data_path("hwconfigs/banks", name)


def _mapping(node: Node, file: str, key: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise InputError("is not a mapping", "type", file=file, line=node.line, key=key)
    return node.value


def _stated(node: Node, file: str, key: str) -> Stated:
    """A value with its source."""
    parts = _mapping(node, file, key)
    for name, child in parts.items():
        if name not in ("value", "source", "assumption"):
            raise unknown(name, ("value", "source", "assumption"), "key", file=file, line=child.line, key=key)
    if "value" not in parts or len(parts) < 2:
        problem = "needs a value and its source, or an assumption"
        raise InputError(problem, "missing", file=file, line=node.line, key=key)
    origin = next(f"{name}: {child.value}" for name, child in parts.items() if name != "value")
    try:
        return Stated(_checked(key, parts["value"].value), origin)
    except InputError as error:
        raise error.at(file, node.line, key) from None


def _checked(key: str, value: Any) -> Any:
    """The value of a key in its type."""
    name = key.rpartition(".")[2]
    if name == "refresh":
        return choice(value, key, _REFRESHES, "refresh")
    if name == "level":
        return choice(value, key, _ENGINES, "place of a unit")
    if key.startswith(("energy.", "softmax.")):
        return number(value, key, 0, _LARGEST)
    least = 0 if name.startswith("n") else 1
    return whole_number(value, key, least, _LARGEST)


def _read(root: Node, file: str, rules: str) -> Iterator[tuple[str, Stated]]:
    """All values of a file by dotted key; those of the rules come last."""
    top = _mapping(root, file, "")
    for key, node in top.items():
        if key not in _TOP:
            raise unknown(key, _TOP, "key", file=file, line=node.line, key=key)
    for key in ("extension", "clock_ps", "device", "unit", "timings"):
        if key not in top:
            raise InputError("is missing", "missing", file=file, key=key)
    for key in _WORDS:
        if key in top:
            yield key, Stated(str(top[key].value), "file")
    yield from _values(top, file)
    if "reference" in top and rules == "reference":
        yield from _values(_mapping(top["reference"], file, "reference"), file)


def _values(parts: Mapping[str, Node], file: str) -> Iterator[tuple[str, Stated]]:
    known = {"device": _SIZES, "unit": _UNIT, "softmax": _SOFTMAX}
    for key in ("clock_ps", "refresh"):
        if key in parts:
            yield key, _stated(parts[key], file, key)
    for section in _SECTIONS:
        for name, node in _mapping(parts[section], file, section).items() if section in parts else ():
            key = f"{section}.{name}"
            if section in known and name not in known[section]:
                raise unknown(name, known[section], "key", file=file, line=node.line, key=key)
            yield key, _stated(node, file, key)


def _setting(text: str, values: Mapping[str, Stated]) -> tuple[str, Any]:
    """The full key and the value of a ``key=value`` option."""
    written, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not written or not value:
        raise InputError(f"{shown(text)} is not KEY=VALUE, for instance nCCDAB=4", "form", file=SETS)
    if written == "idealise":
        return written, value
    known = {*values, "refresh"} - {*_WORDS}
    full = next((key for key in sorted(known) if written in (key, key.rpartition(".")[2])), None)
    if full is None:
        short = [key.rpartition(".")[2] for key in known]
        raise unknown(written, [*short, "idealise"], "key", file=SETS, key=written)
    written_number = int(value) if value.isascii() and value.isdigit() else value
    try:
        return full, _checked(full, written_number)
    except InputError as error:
        raise error.at(SETS, key=written) from None


def _idealised(text: str, extension: Extension) -> frozenset[str]:
    names = frozenset(filter(None, (part.strip() for part in text.split(","))))
    if names == {"none"}:
        return frozenset()
    for name in sorted(names):
        if name not in extension.idealisations:
            raise unknown(name, extension.idealisations, "idealisation", file=SETS, key="idealise")
    return names


def _resolved(
    name: str, values: Mapping[str, Stated], extension: Extension, ideal: frozenset[str], rules: str
) -> BankHardware:
    def section(name: str) -> dict[str, Any]:
        start = f"{name}."
        return {
            key.removeprefix(start): stated.value for key, stated in values.items() if key.startswith(start)
        }

    sizes = section("device")
    burst = int(sizes.pop("burst_bytes", 32))
    refreshes = values["refresh"].value == "all-bank" if "refresh" in values else False
    resolved = Values(sizes, section("timings"), Fraction(values["clock_ps"].value), refreshes)
    device = device_of(extension, resolved, ideal)
    energy = section("energy")
    for key in energy:
        known = (*device.names, "io_pj_per_bit", "product_pj")
        if key not in known:
            raise unknown(key, known, "energy", key=f"energy.{key}")
    title = values["title"].value if "title" in values else name
    element = values.get("unit.element_bytes", Stated(2, ""))
    if burst % element.value:
        problem = f"{element.value} does not divide the {burst} B of a column"
        file = SETS if element.origin == "--set" else None
        raise InputError(problem, "range", file=file, key="unit.element_bytes")
    softmax = section("softmax")
    return BankHardware(name, title, device, burst, section("unit"), rules, values, energy, softmax)
