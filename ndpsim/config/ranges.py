"""Notices of values far outside those of all bundled hardware, which are most often in another unit.

`hwconfigs/ranges.json` has the lowest and highest value of each rate, clock and size. No run reads all parts.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator
from typing import Any

from ndpsim.base.errors import SETS
from ndpsim.config.files import PART_SECTIONS, data_folder, data_names, data_path
from ndpsim.config.hardware import Hardware
from ndpsim.config.keys import leaves, unit_of
from ndpsim.config.nodes import parse, read_text
from ndpsim.config.origins import KeyPath, dotted, draft_of

_log = logging.getLogger("ndpsim")

_UNITS = ("GB/s", "TB/s", "Gb/s", "TFLOPS", "MHz", "GHz", "MT/s", "GB", "TB")
_FAR = 50  # times the highest bundled value, or below the lowest by this factor
_FILE = "ranges.json"


def notice_far_values(hardware: Hardware) -> None:
    """Print a notice for each value far outside those of all bundled hardware."""
    bundled = _bundled()
    for path, value in leaves(hardware.system):
        low, high = bundled.get(dotted(path), (None, None))
        if low is None or high is None or not isinstance(value, int | float) or value <= 0:
            continue
        if not low / _FAR <= value <= _FAR * high:
            origin = hardware.origins[dotted(path)]
            line = f":{origin.line}" if origin.line else ""
            place = "" if origin.file == SETS else f"{origin.file}{line}: "
            _report(place, dotted(path), value, unit_of(path), low, high)


@functools.cache
def _report(place: str, key: str, value: float, unit: str, low: float, high: float) -> None:
    """Print the notice once, for any number of points of a sweep."""
    bundled = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    text = "%s%s: %g %s is far from all bundled hardware, which has %s %s; is the unit right?"
    _log.warning(text, place, key, value, unit, bundled, unit)


@functools.cache
def _bundled() -> dict[str, tuple[float, float]]:
    return {key: (low, high) for key, (low, high) in json.loads(_path().read_text()).items()}


def _path() -> Any:
    return data_folder("hwconfigs") / _FILE


def ranges_text() -> str:
    """The text of ``hwconfigs/ranges.json``: by key, the lowest and highest bundled value above 0."""
    found: dict[str, list[float]] = {}
    for path, value in _values():
        if unit_of(path) in _UNITS and isinstance(value, int | float) and value > 0:
            found.setdefault(dotted(path), []).append(value)
    lines = (f'  "{key}": [{min(values):g}, {max(values):g}]' for key, values in sorted(found.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _values() -> Iterator[tuple[KeyPath, Any]]:
    """The keys and values of all bundled hardware, parts and units."""
    kinds: list[tuple[str, KeyPath]] = [("hwconfigs", ())]
    kinds += [
        (f"hwconfigs/parts/{kind}", tuple(section.split("."))) for section, kind in PART_SECTIONS.items()
    ]
    for kind, section in kinds:
        for name in data_names(kind):
            yield from _leaves_of(kind, name, section)
    for name in data_names("rtl_params"):
        yield from _leaves_of("rtl_params", name, ("ndp", name.rpartition("_")[2]))


def _leaves_of(kind: str, name: str, section: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    path = data_path(kind, name)
    yield from _leaves(draft_of(parse(read_text(path), path.name), path.name).values, section)


def _leaves(values: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
