"""Reads a `config.json`; errors name the file, the line and the key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ndpsim.base.errors import Code, InputError, shown
from ndpsim.base.run_files import note_input
from ndpsim.workload.models.expert import whole_number

_MAX_FILE_BYTES = 1 << 24


class Values(dict[str, Any]):
    """An object of a file that remembers the keys that were asked for.

    `parts`: the objects inside of which keys were asked for, by their keys.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()
        self.parts: dict[str, Values] = {}

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or `default`."""
        self.read.add(key)
        return super().get(key, default)


@dataclass(frozen=True)
class Config:
    """The object of a `config.json` that describes the text model, and its place in the file.

    `whole`: the object of the whole file, if it is another.
    """

    file: str
    text: str
    values: Values
    prefix: str  # "text_config." inside a multimodal wrapper
    whole: Mapping[str, Any] = field(default_factory=dict)

    @property
    def read(self) -> set[str]:
        """The keys that were asked for."""
        return self.values.read

    def within(self, values: Mapping[str, Any], prefix: str) -> Config:
        """An object inside; the error of a key has `prefix` before it."""
        return Config(self.file, self.text, Values(values), prefix, self.whole)

    def overlaid(self, values: Mapping[str, Any]) -> Config:
        """The same object with some values changed; keys that are read of it count as read of this one."""
        changed = self.within({**self.values, **values}, self.prefix)
        changed.values.read, changed.values.parts = self.values.read, self.values.parts
        return changed

    def part(self, key: str) -> Config:
        """The object under `key`, empty without it, whose keys count as read where they were asked for.

        Raises:
            InputError: it is no object.
        """
        values = self.values.parts.setdefault(key, Values(self.object_of(key)))
        return Config(self.file, self.text, values, f"{self.prefix}{key}.", self.whole)

    @property
    def parts(self) -> list[Config]:
        """The objects inside of which keys were asked for."""
        return [self.part(key) for key in self.values.parts]

    def error(self, key: str, problem: str, code: Code = "range") -> InputError:
        """The error `problem` with `key`, its file, and its line if the file has the key only once."""
        starts = [match.start() for match in re.finditer(rf'"{re.escape(key)}"\s*:', self.text)]
        line = self.text.count("\n", 0, starts[0]) + 1 if len(starts) == 1 else None
        return InputError(problem, code, file=self.file, line=line, key=self.prefix + key)

    def find(self, keys: tuple[str, ...]) -> str | None:
        """The first of `keys` that exists and is not null."""
        return next((key for key in keys if self.values.get(key) is not None), None)

    def integer(self, keys: tuple[str, ...], high: int, low: int = 1) -> int:
        """The whole number under the first of `keys` that exists.

        Raises:
            InputError: none exists, or it is no whole number from `low` to `high`.
        """
        key = self.find(keys)
        if key is None:
            others = f" (nor {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise self.error(keys[0], f"missing{others}", code="missing")
        value = self.values[key]
        if problem := whole_number(value, low, high):
            raise self.error(key, problem)
        return int(value)

    def integer_or(self, default: int, keys: tuple[str, ...], high: int, low: int = 0) -> int:
        """As `integer`, or `default` if none of `keys` exists."""
        return default if self.find(keys) is None else self.integer(keys, high, low)

    def string_or(self, default: str, key: str) -> str:
        """The text under `key`, or `default` without it.

        Raises:
            InputError: it is no text, or empty.
        """
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"{shown(value)} is not a name", code="type")
        return value

    def flag_or(self, default: bool, key: str) -> bool:
        """The true or false under `key`, or `default` without it.

        Raises:
            InputError: it is neither.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"{shown(value)} is neither true nor false", code="type")
        return default if value is None else value

    def list_of(self, key: str, length: int | None = None) -> list[Any]:
        """The list under `key`, empty without it.

        Raises:
            InputError: it is no list, or does not have `length` entries, one for each layer.
        """
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, "is not a list", code="type")
        if length is not None and len(value) != length:
            raise self.error(key, f"has {len(value)} entries for {length} layers", code="conflict")
        return value

    def object_of(self, key: str) -> dict[str, Any]:
        """The object under `key`, empty without it.

        Raises:
            InputError: it is no object.
        """
        value = self.values.get(key) or {}
        if not isinstance(value, dict):
            raise self.error(key, "is not a JSON object", code="type")
        return value

    def flags_of(self, key: str, layers: int) -> list[bool]:
        """The list of a 0 or 1 for each layer under `key`.

        Raises:
            InputError: it is no such list.
        """
        flags = self.list_of(key, layers)
        for layer, flag in enumerate(flags):
            if problem := whole_number(flag, 0, 1):
                raise self.error(key, f"entry {layer}: {problem}", code="form")
        return [flag == 1 for flag in flags]


class _DuplicateKeyError(ValueError):
    """An object of a JSON text has a key twice."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)

    def line(self, text: str) -> int | None:
        """The line of the second one, if the text has the key exactly twice."""
        starts = [match.start() for match in re.finditer(rf'"{re.escape(self.key)}"\s*:', text)]
        return text.count("\n", 0, starts[1]) + 1 if len(starts) == 2 else None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no key may come twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _DuplicateKeyError(key)
        values[key] = value
    return values


def parse(text: str, file: str) -> Config:
    """The text model's part of a `config.json`: `text_config` inside a multimodal wrapper.

    Raises:
        InputError: it is no JSON, or not an object.
    """
    try:
        values = json.loads(text, object_pairs_hook=_once_each)
    except _DuplicateKeyError as error:
        raise InputError("is given twice", "twice", file=file, line=error.line(text), key=error.key) from None
    except json.JSONDecodeError as error:
        raise InputError(f"invalid JSON: {error.msg}", "form", file=file, line=error.lineno) from None
    except RecursionError:
        raise InputError("invalid JSON: nested too deeply", "form", file=file) from None
    except ValueError:
        raise InputError("invalid JSON: a number with too many digits", "form", file=file) from None
    if not isinstance(values, dict):
        raise InputError("the top level is not a JSON object", "form", file=file)
    whole = Config(file, text, Values(values), "", values)
    outer = values.get("thinker_config")
    inner = outer.get("text_config") if isinstance(outer, dict) else values.get("text_config")
    if inner is None:
        return whole
    if not isinstance(inner, dict):
        raise whole.error("text_config", "is not a JSON object", code="type")
    if "model_type" not in inner and isinstance(values.get("model_type"), str):
        inner = {**inner, "model_type": f"{values['model_type']}_text"}  # as the wrapper's class has it
    return whole.within(inner, "text_config.")


def read_text(path: Path) -> str:
    """The text of the file at `path`.

    Raises:
        InputError: it is no readable file of UTF-8 text, or much too large for a `config.json`.
    """
    try:
        if not os.path.isfile(path):
            raise InputError("not a regular file", "unreadable", file=path)
        if path.stat().st_size > _MAX_FILE_BYTES:
            problem = f"larger than {_MAX_FILE_BYTES >> 20} MiB: not a config.json"
            raise InputError(problem, "too-large", file=path)
        note_input(path)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", "form", file=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", "unreadable", file=path) from None
