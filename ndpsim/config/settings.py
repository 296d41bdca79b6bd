"""``key=value`` options, and the names of keys that they may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from ndpsim.base.errors import SETS, InputError, nearest
from ndpsim.config.keys import field_at, section_of
from ndpsim.config.origins import KeyPath, dotted, shown
from ndpsim.config.system import System
from ndpsim.dram.spec import standards
from ndpsim.dram.spec.overrides import timing_name

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
        raise InputError(f"{shown(text)} is not KEY=VALUE, for instance dimm.ranks=2", "form", file=SETS)
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
