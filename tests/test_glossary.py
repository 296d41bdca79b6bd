"""The glossary against the code: identifiers that it names exist, words that it retires do not occur."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of each row of tables, without headings and rules."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [cells for line in lines if (cells := [cell.strip() for cell in line])[0] not in ("word", "not")]


TERMS, RETIRED = (rows(part) for part in PAGE.split("## Words not used in code"))


@cache
def identifiers() -> frozenset[str]:
    """Words of the page that the package defines or uses as names, those of its modules and folders included."""
    asked, found = set(re.findall(r"`(\w+)`", PAGE)), set()
    for path in (ROOT / "ndpsim").rglob("*.py"):
        found |= {path.stem, path.parent.name}
        text = path.read_text(encoding="utf-8")
        if asked.isdisjoint(set(re.findall(r"\w+", text)) - found):
            continue
        for node in ast.walk(ast.parse(text)):
            named = (getattr(node, key, None) for key in ("name", "arg", "id", "attr"))
            found |= {name for name in named if isinstance(name, str)}
    return frozenset(found)


@pytest.mark.parametrize("cells", TERMS, ids=lambda cells: cells[0])
def test_identifiers_of_a_term_exist(cells):
    assert len(cells) == 3
    assert set(re.findall(r"`(\w+)`", cells[2])) <= identifiers()


def test_every_word_has_one_row():
    words = [word for cells in TERMS for word in cells[0].split(", ")]
    assert len(words) == len(set(words)) > 100


def test_terms_name_code():
    assert sum(bool(cells[2]) for cells in TERMS) > 40


@pytest.mark.parametrize("cells", RETIRED, ids=lambda cells: cells[0])
def test_retired_words_are_no_identifiers(cells):
    for word in re.findall(r"`(\w+)`", cells[0]):
        assert word not in identifiers()
