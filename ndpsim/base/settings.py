"""SPECs: a name and its settings in one text, ``skewed:hot_share=0.3,drift=0.2``."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ndpsim.base.arguments import path_of, settings
from ndpsim.base.arguments import text as as_text
from ndpsim.base.errors import InputError, one_of, shown, unknown


@dataclass(frozen=True)
class Setting:
    """A number or name that a generator takes as ``key=value``.

    Attributes:
        default: the default value, which is a text for names, and an int for whole numbers.
        least, most: the limits of a number.
        meaning: a phrase that explains it, for help and messages.
    """

    name: str
    default: float | str
    meaning: str
    least: float = 0.0
    most: float = 1.0

    def read(self, text: str, key: str) -> float | str:
        """The value of `text`.

        Raises:
            InputError: the value is invalid; `key` names the setting in the message.
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
            problem = f"{shown(text)} is not {kind} from {self.least:g} to {self.most:g} ({self.meaning})"
            raise InputError(problem, "range", key=key)
        return int(value) if whole else value


@dataclass(frozen=True)
class Generator:
    """A generator that a SPEC can name.

    Attributes:
        name: the word with which a SPEC begins.
        meaning: a line that explains it.
        settings: its own settings, in addition to `common`.
        common: settings of all generators of this kind.
        key: the name of SPECs in messages, such as ``routing``.
    """

    name: str
    meaning: str
    settings: tuple[Setting, ...]
    common: ClassVar[tuple[Setting, ...]]
    key: ClassVar[str]

    def all_settings(self) -> dict[str, Setting]:
        """Its own settings and the common ones, by name."""
        return {setting.name: setting for setting in (*self.settings, *self.common)}

    def place(self, *names: str) -> str:
        """The name of a setting in an error: ``routing skewed:hot_share``."""
        return f"{self.key} {self.name}:{', '.join(names)}"

    def read(self, written: str) -> dict[str, float | str]:
        """The values of settings in ``KEY=VALUE,...``, by name.

        Raises:
            InputError: there is no such setting, or a value is invalid.
        """
        known, texts = self.all_settings(), settings(written, self.key)
        for name in texts:
            if name not in known:
                raise unknown(name, known, f"key of {self.name}", key=self.key)
        return {name: known[name].read(text, self.place(name)) for name, text in texts.items()}


G = TypeVar("G", bound=Generator)


@dataclass(frozen=True)
class Spec(Generic[G]):
    """Something to generate.

    Attributes:
        generator: the generator that a SPEC names.
        stated: the settings that the SPEC has.
        name: name of the data to generate from; empty if the generator needs none.
    """

    generator: G
    stated: Mapping[str, float | str]
    name: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name."""
        known = self.generator.all_settings()
        return {name: setting.default for name, setting in known.items()} | dict(self.stated)

    def __str__(self) -> str:
        keys = ",".join(
            f"{key}={value if isinstance(value, str) else repr(value)}" for key, value in self.stated.items()
        )
        return ":".join(part for part in (self.generator.name, self.name, keys) if part)


def begins_as_spec(text: str, kinds: Container[str]) -> bool:
    """Whether a text begins as a SPEC of one of these kinds does."""
    return text.strip().partition(":")[0] in kinds


def split_spec(text: object, kinds: Mapping[str, G], key: str) -> tuple[G, str]:
    """The generator that a SPEC names, and the rest of the SPEC.

    Raises:
        InputError: it is not a text, or names no generator.
    """
    kind, _, rest = as_text(text, key).strip().partition(":")
    if kind not in kinds:
        raise unknown(kind, kinds, f"kind of {key}", key=key)
    return kinds[kind], rest


def existing_file(value: str | PathLike[str], kinds: Iterable[str], key: str) -> Path:
    """The file that is given instead of a SPEC.

    Raises:
        InputError: there is no such file; for a mistyped SPEC, the message names the nearest generator.
    """
    path = path_of(value, key)
    try:
        found = path.exists()
    except OSError as error:  # the name is too long
        raise InputError(f"{shown(str(path))}: {error.strerror}", "unreadable", key=key) from None
    if not found:
        problem = one_of(str(path).partition(":")[0], kinds, f"kind of {key}")
        raise InputError(f"there is no file {path}; {problem}", "unknown-name", key=key)
    return path
