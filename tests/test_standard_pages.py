"""A mistake in a standard's page gives one line with the page, the place, the value and what is allowed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.dram.spec import standards

DDR3 = re.search(
    r"^```python\n(.*?)^```$",
    (Path(__file__).parents[1] / "docs" / "adding" / "dram-standard.md").read_text(),
    re.DOTALL | re.MULTILINE,
)[1]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Reads DDR3's page with a text of it changed."""
    package = sys.modules["ndpsim.dram.spec.standards"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    file = tmp_path / "mine.py"

    def read(old, new):
        assert old in DDR3
        file.write_text(DDR3.replace(old, new))
        return standards()

    standards.cache_clear()
    yield read
    sys.modules.pop("ndpsim.dram.spec.standards.mine", None)
    vars(package).pop("mine", None)
    standards.cache_clear()


def test_the_page_of_the_docs_is_read(page):
    assert "DDR3" in page("DDR3", "DDR3")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # A missing timing, of a rule, of a preset, and of all.
        ("nRTP=5, ", "", ["rule tRTP: latency: unknown timing of DDR3_1333H 'nRTP'", "known: nBL, nCCD"]),
        ('"nRRD")', '"nRDD")', ["rule tRRD: latency: unknown timing of DDR3_1333H 'nRDD'; did you mean 'nRRD'?"]),
        ("nCWL=7, ", "", ["speed DDR3_1333H: states no nCWL, and nothing derives it"]),
        ('        "nREFI": Every(7800),\n', "", ["speed DDR3_1333H: states no nREFI"]),
        # A wrong level.
        ('Rule("tRRD", "rank"', 'Rule("tRRD", "ranks"', ["rule tRRD: level: unknown level 'ranks'; did you mean 'rank'?"]),
        ('"channel", "rank", "bankgroup", "bank"', '"channel", "rank", "bank"', ["has the levels channel, rank, bank; they are four"]),
        ('"channel", "rank", "bankgroup", "bank"', '"channel", "rank", "stack", "half", "bankgroup", "bank"', ["has the levels channel, rank, stack, half"]),
        # A wrong command, or none of the standard's.
        ('("ACT",), ("ACT",), "nRRD"', '("ACT",), ("ACTT",), "nRRD"', ["rule tRRD: next: unknown command 'ACTT'; did you mean 'ACT'?"]),
        ('("PREpb", "PREab"), ("REFab"', '("PREpb", "PREsb"), ("REFab"', ["rule tRP: previous: unknown command 'PREsb'"]),
        ('("ACT",), ("ACT",), "nRRD"', '("ACT",), "ACT", "nRRD"', ["rule tRRD: next: 'ACT' is no tuple of names"]),
        ('Command("ACT", "bank", opens=True)', 'Command("ACT", "bank")', ["no command opens one bank"]),
        ('Command("ACT", "bank", opens=True)', '"ACT"', ["commands: 'ACT' is no Command(...)"]),
        ('Command("ACT", "bank", opens=True)', 'Command("ACT", "bank", opens=True, cycles=1.5)', ["cycles of ACT: 1.5 is not a whole number"]),
        # Numbers that are not whole.
        ("Every(7800)", "Every(127.5)", ["derived nREFI: 127.5 is not a whole number"]),
        ("2048: 160", "2048: 127.5", ["derived nRFC: 127.5 is not a whole number"]),
        ("(1333, 20)", "(1333, 20.5)", ["derived nFAW: 20.5 is not a whole number"]),
        ("nRCD=9, ", "nRCD=13.5, ", ["speed DDR3_1333H: nRCD: 13.5 is not a whole number from 0"]),
        ("rate=1333, ", 'rate="1333", ', ["speed DDR3_1333H: rate: '1333' is not a whole number from 1"]),
        ("prefetch=8", "prefetch=7.5", ["prefetch: 7.5 is not a whole number"]),
        ("1024, 8, 1, 8, 1 << 14, 1024", "1024, 5, 1, 8, 1 << 14, 1024", ["organisation DDR3_1Gb_x8: dq: 5 does not divide"]),
        ('derived={', 'derived={"nXY": 12,', ["derived nXY: 12 is none of AtLeast, ByChannelDensity, ByDensity"]),
        ('"nCL + nCCD + 2 - nCWL"', '"nCL * 2"', ["rule tRTW: latency: 'nCL * 2' is not a sum of timings"]),
        # The page's own code.
        ("_ORGANISATIONS = {", "_ORGANISATIONS = {**{}['x']}\n_OLD = {", ["KeyError: 'x'"]),
        ("STANDARD = Standard(", "STANDARD = Standard(speed=1, ", ["TypeError: "]),
        ("STANDARD = Standard(", "OTHER = Standard(", ["STANDARD: the page does not end in STANDARD = Standard(...)"]),
        ("STANDARD = Standard(", "STANDARD = Standard((", ["SyntaxError: "]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_names_page_place_and_value(page, old, new, words):
    with pytest.raises(InputError) as caught:
        page(old, new)
    problem = str(caught.value)
    assert re.search(r"/mine\.py(:\d+)?: ", problem), problem
    assert "\n" not in problem
    for word in words:
        assert word in problem


def test_an_error_of_the_pages_code_has_the_line_that_raised_it(page):
    before = DDR3.splitlines().index("_ORGANISATIONS = {")
    with refused(f"form mine.py:{before + 2}"):
        page("_ORGANISATIONS = {", "def _wrong():\n    return {}['x']\n_OLD = _wrong()\n_ORGANISATIONS = {")
