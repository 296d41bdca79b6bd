"""Values with their origins: leaves of hardware files with their source or assumption, and `--set`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ndpsim.base.errors import SETS, Code, InputError, one_of
from ndpsim.config.nodes import Node, parse

#: The keys of an annotated leaf; no section of a hardware file has a key of these names.
ANNOTATION = ("value", "source", "assumption")

Kind = Literal["source", "assumption", "set", "default", "stated"]
KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """The source of a value.

    Attributes:
        file: the file, or `SETS`.
        line: its line there, from 1; None: there is none.
        text: the annotation, the option, or the reason for the default; else empty.
        kind: "source" or "assumption" for a value with this annotation, "stated" for a value without one,
            "set" for an option, "default" for a value that is not given.
    """

    file: str
    line: int | None
    text: str
    kind: Kind

    def __str__(self) -> str:
        """One phrase for tables: the source, ``assumption: ...``, ``default, ...``, option or FILE:LINE."""
        if self.kind == "assumption":
            return f"assumption: {self.text}"
        if self.kind == "default":
            return f"default, {self.text}"
        return self.text or self.file + (f":{self.line}" if self.line else "")

    def error(self, problem: str, key: str | None, code: Code) -> InputError:
        """The error `problem` with `key`, at this place."""
        if self.kind == "set" and key is not None:
            key = key.replace("dram.overrides.", "dram.", 1)  # as the user typed it
        return InputError(problem, code, file=self.file, line=self.line, key=key)


def dotted(path: KeyPath) -> str:
    """``("dimm", "ranks")`` as ``dimm.ranks``."""
    return ".".join(path)


def shown(value: object) -> str:
    """`value` for an error message, in YAML form, cut to a readable length."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


@dataclass
class Draft:
    """Values on their way to a `System`: nested plain data, and the origin of every part of it."""

    values: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def at(self, path: KeyPath) -> Any:
        """The value at `path`; None if there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def has(self, path: KeyPath) -> bool:
        """Whether `path` has a value, which may be null."""
        parent = self.at(path[:-1])
        return isinstance(parent, dict) and path[-1] in parent

    def remove(self, path: KeyPath) -> None:
        """Remove the value of `path`, if it has one."""
        if self.has(path):
            del self.at(path[:-1])[path[-1]]
        self._forget_origins(path)

    def _forget_origins(self, path: KeyPath) -> None:
        self.origins = {key: origin for key, origin in self.origins.items() if key[: len(path)] != path}

    def origin(self, path: KeyPath) -> Origin:
        """The origin of `path`, or of the nearest section around it with an origin."""
        while path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def error(self, problem: str, key: str, code: Code) -> InputError:
        """The error `problem` of a dotted key, at the place of its value."""
        return self.origin(tuple(key.split("."))).error(problem, key, code)

    def replace(self, path: KeyPath, value: Any, origins: dict[KeyPath, Origin]) -> None:
        """Put `value`, whose parts have `origins`, at `path`. Do nothing if a part above is not a mapping."""
        section = self.values
        for key in path[:-1]:
            if section.get(key) is None:
                section[key] = {}
            section = section[key]
            if not isinstance(section, dict):
                return
        section[path[-1]] = value
        self._forget_origins(path)
        self.origins.update(origins)

    def set(self, path: KeyPath, text: str) -> None:
        """Put the YAML value `text`, a change of a call, at `path`.

        Raises:
            InputError: `text` is no YAML value.
        """
        origin = Origin(SETS, None, f"--set {dotted(path)}={text}", "set")
        try:
            node = parse(text, SETS)
            values, inner = _read(node, SETS, path)
        except InputError as error:
            raise origin.error(error.problem, error.key or dotted(path), error.code) from None
        self.replace(path, values, dict.fromkeys(inner, origin))


def draft_of(node: Node, file: str, path: KeyPath = ()) -> Draft:
    """The values under `node`, the root of `file`, as a draft whose origins begin with `path`.

    Raises:
        InputError: it is not a mapping, or an annotated leaf is malformed.
    """
    if not isinstance(node.value, dict):
        problem = f"must be a mapping of keys to values, not {shown(node.value)}"
        raise InputError(problem, "type", file=file, line=node.line)
    draft = Draft({}, {path: Origin(file, 1, "", "stated")})
    for key, child in node.value.items():
        draft.values[key], origins = _read(child, file, (*path, key))
        draft.origins.update(origins)
    return draft


def _read(node: Node, file: str, path: KeyPath) -> tuple[Any, dict[KeyPath, Origin]]:
    """The plain value of `node` and the origins of all its parts."""
    if isinstance(node.value, dict) and not node.value.keys().isdisjoint(ANNOTATION):
        value, origin = _annotated(node.value, Origin(file, node.line, "", "stated"), path)
        return value, {path: origin}
    origins = {path: Origin(file, node.line, "", "stated")}
    if isinstance(node.value, list):
        return [_read(child, file, (*path, str(n)))[0] for n, child in enumerate(node.value)], origins
    if not isinstance(node.value, dict):
        return node.value, origins
    values = {}
    for key, child in node.value.items():
        values[key], inner = _read(child, file, (*path, key))
        origins.update(inner)
    return values, origins


def _annotated(parts: dict[str, Node], origin: Origin, path: KeyPath) -> tuple[Any, Origin]:
    """The value and origin of a leaf written with its source or assumption."""
    for problem in _annotation_problems(parts):
        raise origin.error(problem, dotted(path), "form")
    kind: Kind = "source" if "source" in parts else "assumption"
    text = " ".join(str(parts[kind].value).split())
    value = parts["value"].value
    plain = [entry.value for entry in value] if isinstance(value, list) else value
    return plain, Origin(origin.file, origin.line, text, kind)


def _is_leaf(node: Node) -> bool:
    entries = node.value if isinstance(node.value, list) else [node]
    return not any(isinstance(entry.value, dict | list) for entry in entries)


def _annotation_problems(parts: dict[str, Node]) -> Iterator[str]:
    for name in parts:
        if name not in ANNOTATION:
            yield one_of(name, ANNOTATION, "key of an annotated value")
    if "value" not in parts:
        yield "has no value; write {value: ..., source: ...} or {value: ..., assumption: ...}"
    elif not _is_leaf(parts["value"]):
        yield "an annotated value is a number, a word or a list of them; annotate the values one by one"
    stated = [name for name in ("source", "assumption") if name in parts]
    if len(stated) != 1:
        yield f"has {'both' if stated else 'neither'} of source and assumption; give exactly one"
    for name in stated:
        text = parts[name].value
        if not isinstance(text, str) or not text.strip():
            yield f"{name} must be a sentence, not {shown(text)}"
