"""Configurations of other simulators, and the interface of their formats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ndpsim.base.errors import InputError
from ndpsim.config.importers.sheet import Sheet
from ndpsim.config.importers.tree import Tree
from ndpsim.config.nodes import Node, parse


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
