"""What is refused: command lines, files and arguments with one mistake each, as the case files in `refusals` have them.

A case file is a mapping of groups, each named after what its cases have in common:

- `call`: a command line. ``{}`` in it is the text of a case; without it, the words of a case follow.
- `python`: a function in place of a command line, as ``module:name``, and `always` what it is given in each case.
- `given`: files of the folder of that name that lie in the current folder.
- `content`: the file that a case is the whole content of.
- `change`: the file in which a case has other text: a case is a list of old and new texts.
- `cases`: a mapping of cases to mistakes, or a list of lists that end in the mistake; a mistake is written as in
  `mistakes`.

All is found before anything is simulated and before a file is written.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from calls import refused_call
from mistakes import refused

_HERE = Path(__file__).parent
_WORK = ("ndpsim.simulate.lane.run_channel", "ndpsim.inference.layers.costs.Costs.__init__")


def _groups() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((_HERE / "refusals").glob("*.yaml")):
        yield from yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).items()


def _cases() -> Iterator[Any]:
    for name, group in _groups():
        cases = group["cases"]
        for case in cases.items() if isinstance(cases, dict) else cases:
            *given, mistake = case
            yield pytest.param(group, given, mistake, id=f"{name}: {' '.join(map(str, given))[:40]}")


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty; nothing is simulated in it."""

    def ran(*arguments: object, **options: object) -> None:
        raise AssertionError("ran before the mistake was found")

    for work in _WORK:
        monkeypatch.setattr(work, ran)
    return here


def _words(call: str, given: list[str]) -> list[str]:
    words = shlex.split(call)
    if not given:
        return words
    return [word.replace("{}", given[0]) for word in words] if "{}" in call else words + shlex.split(given[0])


@pytest.mark.parametrize(("group", "given", "mistake"), [*_cases()])
def test_a_mistake_is_one_line_with_its_place(folder, group, given, mistake):
    for name in group.get("given", ()):
        shutil.copy(_HERE / "given" / name, name)
    if "content" in group:
        Path(group["content"]).write_text(given.pop())
    if "change" in group:
        changed = Path(group["change"])
        for old, new in zip(given[::2], given[1::2], strict=True):
            assert changed.read_text().count(old) == 1, old
            changed.write_text(changed.read_text().replace(old, new))
        given.clear()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    if "python" in group:
        module, name = group["python"].split(":")
        with refused(mistake):
            getattr(importlib.import_module(module), name)(
                **group.get("always", {}) | (given[0] if given else {})
            )
    else:
        assert refused_call(*_words(group["call"], given)) == mistake
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
