"""SPECs: a name and its settings in one text, ``skewed:hot_share=0.3,drift=0.2``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ndpsim.arguments import path_of, shown
from ndpsim.errors import InputError, one_of, unknown


@dataclass(frozen=True)
class Setting:
    """A number, or a name, that a generator can be given as ``key=value``.

    Attributes:
        default: its value when it is not given; a text for settings that are names, an int for whole numbers.
        least, most: of a number.
        meaning: in words.
    """

    name: str
    default: float | str
    meaning: str
    least: float = 0.0
    most: float = 1.0

    def read(self, text: str, key: str) -> float | str:
        """The value that `text` gives.

        Raises:
            InputError: it is none; `key` names the setting in the message.
        """
        if isinstance(self.default, str):
            return text
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        whole = isinstance(self.default, int)
        if not self.least <= value <= self.most or (whole and not value.is_integer()):
            kind = "a whole number" if whole else "a number"
            problem = f"'{text[:40]}' is not {kind} from {self.least:g} to {self.most:g} ({self.meaning})"
            raise InputError(problem, "range", key=key)
        return int(value) if whole else value


def read_settings(
    written: Mapping[str, str], known: Iterable[Setting], of: str, key: str
) -> dict[str, float | str]:
    """The values of settings by their names.

    Args:
        written: texts by name, as `ndpsim.arguments.settings` takes them from ``KEY=VALUE,...``.
        of: what the SPEC begins with.
        key: of the SPEC, for messages.

    Raises:
        InputError: there is no such setting, or it has no such value.
    """
    by_name = {one.name: one for one in known}
    for name in written:
        if name not in by_name:
            raise unknown(name, by_name, f"key of {of}", key=key)
    return {name: by_name[name].read(text, place(key, of, name)) for name, text in written.items()}


def place(key: str, of: str, *names: str) -> str:
    """The key of a mistake in these settings of a SPEC: ``routing skewed:hot_share``."""
    return f"{key} {of}:{', '.join(names)}"


def spec_text(*parts: str, given: Mapping[str, Any]) -> str:
    """A SPEC of its parts and settings, as it is written."""
    keys = ",".join(
        f"{key}={value if isinstance(value, str) else repr(value)}" for key, value in given.items()
    )
    return ":".join(part for part in (*parts, keys) if part)


def existing_file(value: str | PathLike[str], key: str, kinds: Iterable[str], what: str) -> Path:
    """The file that is given where a SPEC might be; `kinds` of `what` are what SPECs begin with.

    Raises:
        InputError: there is none; a mistyped SPEC gets the nearest kind.
    """
    path = path_of(value, key)
    try:
        found = path.exists()
    except OSError as error:  # a name too long
        raise InputError(f"{shown(str(path))}: {error.strerror}", "unreadable", key=key) from None
    if not found:
        problem = one_of(str(path).partition(":")[0], kinds, what)
        raise InputError(f"there is no file {path}; {problem}", "unknown-name", key=key)
    return path
