"""Machine instructions of kernels do what numpy and Python do; Numba's inner steps are those of tried releases."""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ndpsim.base.jit import inner_steps, kernel, releases
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    bits,
    both,
    either,
    filled,
    larger,
    least,
    lowest,
    merged,
    ones,
    raise_times,
    read_times,
    rotate,
    set_element,
    set_vector,
    smaller,
    up_to,
    vector_at,
    where_none,
    with_element,
    words_differ,
    write_times,
)


@kernel
def run_on_vectors(rows, place, word, vectors, words):
    one, other = vector_at(rows, 0), vector_at(rows, 1)
    set_vector(vectors, 0, larger(one, other))
    set_vector(vectors, 1, smaller(one, other))
    set_vector(vectors, 2, both(one, other))
    set_vector(vectors, 3, either(one, other))
    set_vector(vectors, 4, filled(word))
    set_vector(vectors, 5, with_element(one, place, word))
    set_vector(vectors, 6, up_to(one, word))
    set_vector(vectors, 7, where_none(one))
    set_vector(vectors, 8, other)
    set_element(vectors, 8, place, word)
    words[0] = bits(one)
    words[1] = least(one)
    words[2] = merged(one)


@kernel
def run_on_rows(times, distances, command, clock, over, table, found):
    raise_times(times, 0, distances, command, clock)
    write_times(table, 3, times, 1, 2, over, clock)
    read_times(table, 3, times, 2, 4, clock + 5)
    last = times[1, 7] + times[3, 7]
    found[0] = words_differ(times[1], 0, times[3], 0, clock, last) != 0


@kernel
def run_on_words(mask, places, found):
    found[0] = lowest(mask)
    found[1] = ones(mask)
    found[2] = rotate(mask, places)
    found[3] = assume_nonnegative(places)


def test_vectors_are_compared_and_changed_word_by_word():
    random = np.random.default_rng(1)
    for _ in range(100):
        rows = random.integers(-3, 4, (2, 5)) * random.choice([1, 1 << 33])
        place, word = int(random.integers(4)), int(random.integers(-3, 4))
        vectors, words = np.full((9, 5), 99), np.zeros(3, dtype=np.int64)
        run_on_vectors(rows, place, word, vectors, words)
        one, other = rows[0, :4].tolist(), rows[1, :4].tolist()
        assert vectors[:, 4].tolist() == [99] * 9
        assert vectors[:, :4].tolist() == [
            [max(pair) for pair in zip(one, other, strict=True)],
            [min(pair) for pair in zip(one, other, strict=True)],
            [left & right for left, right in zip(one, other, strict=True)],
            [left | right for left, right in zip(one, other, strict=True)],
            [word] * 4,
            [*one[:place], word, *one[place + 1 :]],
            [-(left <= word) for left in one],
            [-(left == 0) for left in one],
            [*other[:place], word, *other[place + 1 :]],
        ]
        assert words.tolist() == [
            sum((left < 0) << number for number, left in enumerate(one)),
            min(one),
            one[0] | one[1] | one[2] | one[3],
        ]


def test_rows_are_raised_written_and_read_back():
    random = np.random.default_rng(2)
    for _ in range(100):
        times, distances = random.integers(0, 100, (4, 8)), random.integers(0, 100, (3, 8))
        command, clock, over = (int(random.integers(most)) for most in (3, 100, 100))
        times[1] = times[3] + clock
        times[1, random.integers(8)] += random.integers(2)
        expected, table = times.copy(), np.full(9, -1)
        expected[0] = np.maximum(times[0], clock + distances[command])
        written = np.maximum(times[1, 2:6], over) - clock
        expected[2, 4:8] = written + clock + 5
        found = np.zeros(1, dtype=np.int64)
        run_on_rows(times, distances, command, clock, over, table, found)
        assert times.tolist() == expected.tolist()
        assert table.tolist() == [-1, -1, -1, *written, -1, -1]
        assert found[0] == (expected[1] != expected[3] + clock).any()


def test_masks_are_counted_searched_and_turned():
    random = np.random.default_rng(3)
    for mask in (0, 1, -1, -(1 << 63), *random.integers(-(1 << 63), 1 << 63, 100)):
        places, found = int(random.integers(64)), np.zeros(4, dtype=np.int64)
        run_on_words(np.int64(mask), places, found)
        digits = f"{int(mask) & (1 << 64) - 1:064b}"
        turned = digits[64 - places :] + digits[: 64 - places]
        assert found[:2].tolist() == [64 if "1" not in digits else digits[::-1].index("1"), digits.count("1")]
        assert int(found[2]) & (1 << 64) - 1 == int(turned, 2)
        assert found[3] == places


# ---- The inner steps of Numba that ndpsim builds on are those of the releases that it was tried with

TRIED = pytest.mark.skipif(not releases.IS_TRIED, reason="kernels are compiled by what is public in Numba")

#: Of the source of each step, the first digits of its SHA-256; the same in all releases of TRIED.
SOURCES = {
    "BaseContext.get_function": "a3602598ea18d983",
    "CPUCodeLibrary._finalize_final_module": "95bbf4fcbb90ed99",
    "CPUCodeLibrary._optimize_final_module": "e405bd473752613b",
    "CPUCallConv.call_function": "63b21494a809dcf4",
    "CPUCodeLibrary.add_ir_module": "fb6dd665f0f609c4",
    "CPUCodeLibrary.finalize": "4b4c34b83488a72f",
    "CPUCodegen._pass_builder": "035dd9dd5f6dedc5",
    "CodeLibrary._raise_if_finalized": "1da89a71b49d9877",
    "CompileResult._rebuild": "44fa9dc2255883ab",
    "CompileResult._reduce": "5f86eacfa5202c20",
    "CompilerBase._compile_core": "9f6b3c1986df5151",
    "DefaultPassBuilder.define_nopython_lowering_pipeline": "9e7ddc0e96eaaecf",
    "DefaultPassBuilder.define_typed_pipeline": "bd5ccc7ef772a33a",
    "DefaultPassBuilder.define_untyped_pipeline": "0cb11451d06eef49",
    "Dispatcher.compile": "0ab4aee15e79bb1d",
    "Dispatcher.get_call_template": "f15b62d0e9c0f605",
    "Lower.lower_binop": "254bcd18aacc6171",
    "Lower.lower_getitem": "76f8c6ed4f7e86d4",
    "Lower.lower_setitem": "84ed9f0254ea25af",
    "NativeLowering.run_pass": "0b482df4865451f4",
    "PassManager._runPass": "ecb83032771bf665",
    "_make_subtarget": "ca842c5b0306130d",
    "populate_array": "e86886c14bfc63b2",
}


def changed(name: str, step: Callable[..., object]) -> str | None:
    """What is to be done about a step that is not the one that ndpsim was tried with; None: it is."""
    source = inspect.getsource(inspect.unwrap(step))
    if hashlib.sha256(source.encode()).hexdigest()[:16] == SOURCES[name]:
        return None
    version = releases.numba.__version__
    return f"Numba {version} changes {name}: see whether ndpsim/base/jit/inner_steps.py still fits, then renew SOURCES"


@TRIED
@pytest.mark.parametrize("name", SOURCES)
def test_a_step_of_numba_that_ndpsim_builds_on_is_the_one_it_was_tried_with(name):
    assert changed(name, inner_steps.inner_steps()[name]) is None


@TRIED
def test_a_changed_step_is_named_with_the_release():
    said = changed("NativeLowering.run_pass", inner_steps.inner_steps()["CompileResult._reduce"])
    assert said.startswith(f"Numba {releases.numba.__version__} changes NativeLowering.run_pass: ")


@TRIED
def test_every_step_is_compared():
    assert set(inner_steps.inner_steps()) == set(SOURCES)


@TRIED
def test_the_project_allows_the_releases_that_its_inner_steps_were_tried_with_and_others():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert "numba>=0.62" in project["dependencies"]
    assert releases.numba.__version__ in releases.TRIED
