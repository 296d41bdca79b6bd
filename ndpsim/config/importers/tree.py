"""Configurations of other simulators, a YAML tree that remembers which of its keys have been read, and the
interface of formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.units import exact
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.nodes import Node, parse, plain_of
from ndpsim.config.origins import shown


@dataclass
class Tree:
    """A part of a YAML file: a mapping, which may be missing or empty.

    Raises:
        InputError: this part, or a requested value, has another kind.
    """

    node: Node
    file: Path
    path: tuple[str, ...] = ()
    _read: set[str] = field(default_factory=set)
    _inner: list[Tree] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.node.value is not None and not isinstance(self.node.value, dict):
            raise self.here.error(f"{shown(self.node.value)} is not a mapping of keys to values", code="type")

    @property
    def _children(self) -> dict[str, Node]:
        return self.node.value if isinstance(self.node.value, dict) else {}

    @property
    def here(self) -> Place:
        """The place of this part."""
        return Place(self.file, self.node.line, ".".join(self.path))

    def place(self, key: str) -> Place:
        """The place of `key`, or where it would be."""
        child = self._children.get(key)
        return Place(self.file, self.node.line if child is None else child.line, ".".join((*self.path, key)))

    def names(self) -> list[str]:
        """The keys of this part."""
        return list(self._children)

    def part(self, key: str) -> Tree:
        """The mapping at `key`, empty where it is missing."""
        self._read.add(key)
        inner = Tree(self._children.get(key, Node(None, self.node.line)), self.file, (*self.path, key))
        self._inner.append(inner)
        return inner

    def parts(self, key: str) -> list[Tree]:
        """The mappings of the list at `key`, none where it is missing."""
        self._read.add(key)
        child = self._children.get(key, Node(None, self.node.line))
        if child.value is not None and not isinstance(child.value, list):
            raise self.place(key).error(f"{shown(child.value)} is not a list", code="type")
        inner = [
            Tree(node, self.file, (*self.path, f"{key}[{number}]"))
            for number, node in enumerate(child.value or ())
        ]
        self._inner += inner
        return inner

    def value(self, key: str) -> Any:
        """The value at `key`; None if it is missing."""
        self._read.add(key)
        return plain_of(self._children[key]) if key in self._children else None

    def word(self, key: str) -> str | None:
        """A word, None where it is missing."""
        value = self.value(key)
        if value is not None and not isinstance(value, str):
            raise self.place(key).error(f"{shown(value)} is not a word", code="type")
        return value

    def whole(self, key: str) -> int | None:
        """A whole number, None where it is missing."""
        value = self.value(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.place(key).error(f"{shown(value)} is not a whole number", code="type")
        return value

    def number(self, key: str) -> Fraction | None:
        """A number from 0 to a million, as written; None where it is missing."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
            raise self.place(key).error(f"{shown(value)} is not a number from 0 to a million", code="range")
        return exact(value)

    def wholes(self, key: str) -> list[int]:
        """A list of whole numbers, empty where it is missing."""
        values = self.value(key)
        if values is None:
            return []
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
            raise self.place(key).error(f"{shown(values)} is not a list of whole numbers", code="type")
        return values

    def unread(self) -> Iterator[Place]:
        """The keys that were not read, outermost first."""
        for key in self._children:
            if key not in self._read:
                yield self.place(key)
        for inner in self._inner:
            yield from inner.unread()


@dataclass(frozen=True)
class Configuration:
    """A file of another simulator: its path and its text."""

    path: Path
    text: str

    @cached_property
    def root(self) -> Node:
        """The root of its YAML or JSON.

        Raises:
            InputError: it is neither.
        """
        return parse(self.text, str(self.path))

    @property
    def keys(self) -> dict[str, Node]:
        """The outermost keys of its YAML or JSON; empty if it is neither, or no mapping."""
        with suppress(InputError):
            return self.root.value if isinstance(self.root.value, dict) else {}
        return {}

    @property
    def tree(self) -> Tree:
        """The YAML or JSON in it, as a tree that remembers which keys have been read."""
        return Tree(self.root, self.path)


@dataclass(frozen=True)
class ConfigurationFormat:
    """A format of configurations.

    Attributes:
        meaning: a phrase that names the program and its file.
        recognises: whether a file has this format.
        read: puts the values of a file on the sheet; raises InputError if ndpsim does not support one.
    """

    meaning: str
    recognises: Callable[[Configuration], bool]
    read: Callable[[Configuration, Sheet], None]
