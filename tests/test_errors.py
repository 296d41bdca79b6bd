"""Errors of users, in one line."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.base.errors import InputError, nearest, one_of


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({}, "is wrong"),
        ({"key": "dimm.ranks"}, "dimm.ranks: is wrong"),
        ({"file": "a.yaml"}, "a.yaml: is wrong"),
        ({"file": "a.yaml", "line": 7}, "a.yaml:7: is wrong"),
        ({"file": "a.yaml", "line": 7, "key": "dimm.ranks"}, "a.yaml:7: dimm.ranks: is wrong"),
        ({"line": 7}, "is wrong"),  # a line without a file is ignored
    ],
)
def test_the_parts_that_are_known_stand_in_front(parts, line):
    assert str(InputError("is wrong", **parts)) == line


def test_the_parts_can_be_read_one_by_one():
    error = InputError("is wrong", file="a.yaml", line=7, key="dimm.ranks")
    assert (error.problem, error.file, error.line, error.key) == ("is wrong", "a.yaml", 7, "dimm.ranks")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert isinstance(error, ValueError)


@given(problem=st.text(), file=st.none() | st.text(), key=st.none() | st.text())
def test_the_text_is_always_one_line(problem, file, key):
    text = str(InputError(problem, file=file, key=key))
    assert len(text.splitlines()) <= 1
    assert text == text.strip()


def test_one_of_names_the_value_the_guess_and_everything_known():
    words = one_of("strip", ["striped", "localized"], "layout")
    assert words == "unknown layout 'strip'; did you mean 'striped'? (known: localized, striped)"


def test_one_of_shows_what_is_near_of_many_names():
    words = one_of(
        "DDR5_47", [f"DDR{kind}_{rate}" for kind in range(8) for rate in range(4600, 4800, 20)], "rate"
    )
    assert "DDR5_4740" in words
    assert words.endswith(" and 56 more)")
    assert words.count(",") == 23


def test_one_of_guesses_nothing_where_nothing_is_near():
    assert one_of(17, ["striped"], "layout") == "unknown layout '17' (known: striped)"


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("trimo", ["trimoe", "edge"], "trimoe"),
        ("dimm.rank", ["dimm.ranks", "dimm.count"], "dimm.ranks"),
        ("DeepSeekV2", ["deepseek-v2", "deepseek-v3"], "deepseek-v2"),
        ("olmoe", ["olmoe-1b-7b", "mixtral-8x7b"], "olmoe-1b-7b"),
        ("nonsense", ["ndp_alone_ns", "tokens"], None),
        ("xyz", ["kv", "hw", "model"], None),
        ("ab", ["abacus"], None),
        ("", ["trimoe", "nCL"], None),
        ("ddr5_16GB_X8", ["DDR5_16Gb_x4", "DDR5_16Gb_x8"], "DDR5_16Gb_x8"),
    ],
)
def test_a_name_is_suggested_only_when_it_is_near(written, known, meant):
    assert nearest(written, known) == meant
