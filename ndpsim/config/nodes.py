"""Parses YAML text to a tree of nodes with line numbers.

The tree is built from parser events with an explicit stack, because recursive composing overflows the C stack
on deep nesting. Plain scalars follow the core schema of YAML 1.2: ``1e3`` is a number and ``yes`` a word.
"""

from __future__ import annotations

import dataclasses
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ndpsim.base.errors import Code, InputError
from ndpsim.base.run_files import note_input

MAX_BYTES = 1 << 20
MAX_NODES = 10_000  # after aliases are expanded
MAX_DEPTH = 50
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
MAX_KEY = 100

Scalar = str | int | float | bool | None

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Node:
    """A scalar, a list or a mapping. `line` is the line of its key, or its own line without a key, from 1.

    `size` and `height` count nodes and levels with aliases expanded.
    """

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    size: int = 1
    height: int = 1


def plain_of(node: Node) -> Any:
    """The scalars, lists and mappings under a node, without their lines."""
    if isinstance(node.value, dict):
        return {key: plain_of(child) for key, child in node.value.items()}
    return [plain_of(child) for child in node.value] if isinstance(node.value, list) else node.value


def line_of(root: Node, path: tuple[Any, ...]) -> int:
    """The line of the node at a path of keys and numbers, or of the last part of the path that exists."""
    node = root
    for part in path:
        children = node.value if isinstance(node.value, dict | list) else {}
        if part in (range(len(children)) if isinstance(children, list) else children):
            node = children[part]
    return node.line


@dataclass
class _Open:
    """A list or mapping whose end has not been parsed yet; `key` waits for its value."""

    children: list[Node] | dict[str, Node]
    line: int
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    size: int = 1
    height: int = 1


def _read_bytes(path: Path) -> bytes:
    """Content of `path`, up to one byte over the limit; OSError where it cannot be read."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not a file name", "form")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError("is a directory, not a file", "unreadable", file=path)
    if not stat.S_ISREG(mode):
        raise InputError("is not a regular file", "unreadable", file=path)
    note_input(path)
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def read_text(path: Path) -> str:
    """The text of the YAML file at `path`.

    Raises:
        InputError: it is missing, no regular file, unreadable, larger than 1 MiB or not UTF-8.
    """
    try:
        data = _read_bytes(path)
    except FileNotFoundError:
        raise InputError("no such file", "unreadable", file=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", "unreadable", file=path) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"is larger than {MAX_BYTES} bytes", "too-large", file=path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not a text file in UTF-8", "form", file=path, line=line) from None


def parse(text: str, file: str) -> Node:
    """The one document in `text`; `file` is the file that errors name.

    Raises:
        InputError: no document or several, a syntax error, a tag, a key given twice or that is no word,
            an alias inside its own anchor, or a tree above 10 000 nodes or 50 levels.
    """
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except UnicodeEncodeError:  # an option of undecodable bytes
        raise InputError("is not text in UTF-8", "form", file=file) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # libyaml reads ahead, up to a limit of its own.
        if mark is not None and "maximum nesting" in str(error):
            raise builder.error(_TOO_DEEP, mark.line + 1, code="too-large") from None
        raise _syntax_error(error, text, file) from None
    if builder.root is None:
        raise InputError("is empty", "form", file=file)
    return builder.root


def _syntax_error(error: yaml.YAMLError, text: str, file: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        position = getattr(error, "position", None)
        line = None if position is None else text.count("\n", 0, position) + 1
        return InputError(
            f"not YAML: {getattr(error, 'reason', None) or error}", "form", file=file, line=line
        )
    lines = text.splitlines()
    line = min(mark.line + 1, max(len(lines), 1))
    indent = re.match(r"\s*", lines[line - 1] if lines else "")
    hint = "; indent with spaces, not tabs" if indent and "\t" in indent[0] else ""
    return InputError(f"not YAML: {getattr(error, 'problem', error)}{hint}", "form", file=file, line=line)


def scalar(text: str) -> Scalar:
    """A plain scalar by the core schema of YAML 1.2, decimal numbers only."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


@dataclass
class _Builder:
    file: str
    root: Node | None = None
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, Node | None] = field(default_factory=dict)  # None: not complete yet
    nodes: int = 0

    def error(self, problem: str, line: int, key: str | None = None, *, code: Code = "form") -> InputError:
        path = [level.key for level in self.stack if level.key is not None] + ([key] if key else [])
        return InputError(problem, code, file=self.file, line=line, key=".".join(path) or None)

    def take(self, event: yaml.Event) -> None:
        """Add the node of a parser event to the tree."""
        line = event.start_mark.line + 1 if event.start_mark else 1
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.error(
                f"the tag '{tag}' is not supported; write plain values", line, code="unsupported"
            )
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self.error("holds more than one document", line)
        if isinstance(event, yaml.ScalarEvent):
            self.add_scalar(event, line)
        elif isinstance(event, yaml.AliasEvent):
            self.add_alias(event.anchor or "", line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.grow(1, 1, line)
            if event.anchor is not None:
                self.anchors[event.anchor] = None
            children: list[Node] | dict[str, Node] = {} if isinstance(event, yaml.MappingStartEvent) else []
            self.stack.append(_Open(children, line, event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self.stack.pop()
            self.add(Node(done.children, done.line, done.size, done.height + 1), done.anchor)

    def grow(self, size: int, height: int, line: int) -> None:
        self.nodes += size
        if self.nodes > MAX_NODES:
            raise self.error(f"holds more than {MAX_NODES} values, aliases expanded", line)
        if len(self.stack) + height > MAX_DEPTH:
            raise self.error(_TOO_DEEP, line, code="too-large")

    def add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        self.grow(1, 1, line)
        level = self.stack[-1] if self.stack else None
        if level is not None and isinstance(level.children, dict) and level.key is None:
            self.begin_key(level, event.value, line)
        else:
            self.add(Node(event.value if event.style else scalar(event.value), line), event.anchor)

    def begin_key(self, level: _Open, name: str, line: int) -> None:
        if not name or len(name) > MAX_KEY or not name.isprintable():
            raise self.error(f"{name[:MAX_KEY]!r} is not a key: 1 to {MAX_KEY} printable characters", line)
        earlier = level.children.get(name) if isinstance(level.children, dict) else None
        if earlier is not None:
            raise self.error(f"is given twice, first in line {earlier.line}", line, name, code="twice")
        level.key, level.key_line = name, line

    def add_alias(self, anchor: str, line: int) -> None:
        if anchor not in self.anchors:
            raise self.error(f"the alias '*{anchor}' has no anchor", line)
        node = self.anchors[anchor]
        if node is None:
            raise self.error(f"the alias '*{anchor}' is inside its own anchor", line)
        self.grow(node.size, node.height, line)
        self.add(node, None)

    def add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        level = self.stack[-1]
        level.size += node.size
        level.height = max(level.height, node.height)
        if isinstance(level.children, list):
            level.children.append(node)
        elif level.key is None:
            raise self.error(
                "a key must be a single word, not a list, a mapping or an alias", node.line, code="type"
            )
        else:
            level.children[level.key] = dataclasses.replace(node, line=level.key_line)
            level.key = None
