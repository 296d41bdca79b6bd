"""Sweeps as YAML files.

```yaml
title: NDP count and policy        # of pictures; optional
command: moe                       # gemv, moe, relayout, dram or serve
fixed:                             # one value each: options of the command, and keys of the hardware
  model: deepseek-v2
  steps: 4
vary:                              # several values each: a list, LOW..HIGH, or log:LOW..HIGH:N
  dimm.count: [4, 8, 16]
  policy: [klotski, trimoe]
zip: [[a, b]]                      # groups of keys whose n-th values are combined; true: all keys
baseline: {policy: klotski}        # adds the metric `speedup` over the point with these values ...
speedup_of: moe_ns                 # ... from this time; by default the command's own
labels: {enhanced-ktransformers: KTransformers}    # names of values in pictures
plot: {kind: lines, x: dimm.count, y: speedup, by: policy, log: x}
published:                         # values of papers to compare with
  - {metric: speedup, where: {policy: trimoe, dimm.count: 16}, value: 2.83, source: "TriMoE, Figure 6"}
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ndpsim.base.errors import InputError, did_you_mean, shown, unknown
from ndpsim.base.options.swept import KINDS
from ndpsim.config.nodes import Node, line_of, parse, plain_of, read_text
from ndpsim.report.sweep_plot import PublishedValue
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.values import Definition, checked


class _Published(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    metric: str
    where: dict[str, Any] = {}
    value: float | None = None
    low: float | None = None
    high: float | None = None
    source: str = Field(min_length=1)


class _Plot(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal[KINDS] | None = None  # type: ignore[valid-type]
    x: str | None = None
    y: str | None = None
    by: str | list[str] | None = None
    log: Literal["x", "y", "xy"] | None = None


class SharedKeys(BaseModel):
    """The keys that files of sweeps and of searches share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str | None = None
    command: str
    fixed: dict[str, Any] = {}
    vary: dict[str, Any]
    zip: bool | list[list[str]] = False
    labels: dict[str, str] = {}
    plot: _Plot = _Plot()

    def definition(self, over: dict[str, Any]) -> Definition:
        """The sweep of these keys, where those in `over` replace others."""
        varied = self.vary | over
        groups = self.zip if isinstance(self.zip, list) else [list(varied)] if self.zip else []
        return Definition(
            command=self.command,
            fixed={key: value for key, value in self.fixed.items() if key not in over},
            varied=varied,
            zipped=tuple(map(tuple, groups)),
            plot=self.plot.model_dump(exclude_none=True),
            title=self.title,
            labels=self.labels,
        )


Keys = TypeVar("Keys", bound=SharedKeys)


class _File(SharedKeys):
    baseline: dict[str, Any] = {}
    speedup_of: str | None = None
    published: list[_Published] = []


_SECTIONS: dict[str, type[BaseModel]] = {"plot": _Plot, "published": _Published}


def _section_words(key: str, known: Mapping[str, Any]) -> str:
    """Words for the section to which a key belongs; empty if there is none."""
    names = (name for name, keys in _SECTIONS.items() if key in keys.model_fields and key not in known)
    return "".join(f"; it is a key of {name}" for name in names)


def _problem(error: ValidationError, kind: type[BaseModel]) -> tuple[tuple[Any, ...], str]:
    """The place of the first mistake, and its description."""
    first = min(error.errors(include_url=False), key=lambda mistake: mistake["type"] == "missing")
    path = tuple(first["loc"])
    if first["type"] == "extra_forbidden":
        known = _SECTIONS.get(str(path[0]), kind).model_fields
        key = str(path[-1])
        return path, f"unknown key{did_you_mean(key, known) or _section_words(key, known)}"
    if first["type"] == "missing":
        return path, "is missing"
    return path, f"{shown(first['input'])} is refused: {first['msg'][0].lower()}{first['msg'][1:]}"


def read_definition(path: str | Path, varied: Mapping[str, Any] | None = None) -> Definition:
    """The sweep that a file describes.

    Args:
        path: path of a YAML file; paths in the file are relative to the current folder.
        varied: values of keys that replace fixed or varied ones of the file.

    Raises:
        InputError: the file cannot be read or has a mistake, whose line the message has.
    """
    said, root = read_file(path, _File)
    file = Path(path)
    definition = replace(
        said.definition(dict(varied or {})),
        baseline=said.baseline,
        speedup_of=said.speedup_of,
        published=tuple(_published(value, number, file, root) for number, value in enumerate(said.published)),
    )
    try:
        return checked(definition)
    except InputError as error:
        raise placed(error, file, root, ("fixed", "vary")) from None


def read_file(path: str | Path, kind: type[Keys]) -> tuple[Keys, Node]:
    """The keys of a file, and its root with the lines of keys.

    Raises:
        InputError: the file cannot be read, has other keys, or names no command that can be swept.
    """
    file = Path(path)
    root = parse(read_text(file), str(file))
    try:
        said = kind.model_validate(plain_of(root))
    except ValidationError as error:
        keys, problem = _problem(error, kind)
        key = ".".join(map(str, keys))
        raise InputError(problem, "form", file=file, line=line_of(root, keys), key=key or None) from None
    commands, line = swept_commands(), line_of(root, ("command",))
    if said.command not in commands:
        raise unknown(said.command, commands, "command", file=file, line=line, key="command")
    return said, root


def _published(said: _Published, number: int, file: Path, root: Node) -> PublishedValue:
    low, high = (said.low, said.high) if said.value is None else (said.value, said.value)
    if low is None or high is None or (said.value is not None and said.low is not None) or low > high:
        line = line_of(root, ("published", number))
        raise InputError("give a value, or low and high", "conflict", file=file, line=line, key="published")
    return PublishedValue(said.metric, said.where, low, high, said.source)


def placed(error: InputError, file: Path, root: Node, sections: Iterable[str]) -> InputError:
    """A mistake in a key of the file or of its sections, with the line of the key."""
    if error.file is not None:
        return error
    key = error.key or ""
    for path in ((key,), *((section, key) for section in sections)):
        section = root.value if len(path) == 1 else root.value.get(path[0], root).value  # type: ignore[union-attr]
        if isinstance(section, dict) and path[-1] in section:
            return error.at(file, line_of(root, path))
    return error.at(file)
