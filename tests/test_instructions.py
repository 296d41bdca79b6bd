"""Machine instructions of kernels do what numpy and Python do; Numba's inner steps are those of tried releases."""

from __future__ import annotations

import hashlib
import inspect
import operator
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.types import Function

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


TRIED = pytest.mark.skipif(not releases.IS_TRIED, reason="kernels are compiled by what is public in Numba")

# ---- Kernels take shorter steps than Numba's, with the same outcome


def _ways(numbers: np.ndarray, places: tuple[int, ...], found: np.ndarray) -> int:
    """Variables set on some ways only, loops with several ways back, constant indices from both ends."""
    last, kept, turns = 0, numbers[0], 0
    while turns < 40:
        turns += 1
        if numbers[turns % 5] & 1:
            kept += numbers[-1]
            if kept > 60:
                continue
            last = turns
        elif kept & 2:
            kept -= numbers[1] * places[2]
            continue
        for number in numbers:
            if number == kept:
                break
            if number < 0:
                continue
            found[-1] += number
            kept, last = last, kept
        found[0] = kept
        found[1] += last
    if turns > 50:
        word = 7
    elif kept > 0:
        word = last
    else:
        word = kept
    return word + found[0] - found[-1]


@pytest.mark.parametrize("seed", range(4))
def test_ways_through_a_kernel_are_those_of_python(seed):
    numbers = np.random.default_rng(seed).integers(-9, 9, 5)
    outcomes = []
    for run in (_ways, kernel(_ways)):
        found = np.zeros(3, dtype=np.int64)
        outcomes.append((int(run(numbers, (1, 2, 3), found)), found.tolist()))
    assert outcomes[0] == outcomes[1]


@TRIED
def test_elements_at_constant_places_are_of_one_type_found_once(monkeypatch):
    asked = Counter()
    look_up = Function.get_call_type

    def counted(self, *call):
        asked[self.typing_key] += 1
        return look_up(self, *call)

    monkeypatch.setattr(Function, "get_call_type", counted)

    @kernel
    def turned(numbers, found):
        found[0], found[1], found[2] = numbers[2], numbers[1], numbers[0]
        found[3], found[4] = numbers[-1], 7

    found = np.zeros(5, dtype=np.uint16)
    turned(np.arange(4, dtype=np.int16), found)
    assert found.tolist() == [2, 1, 0, 3, 7]
    most = 2 if numba.config.BOUNDSCHECK else 1  # Numba asks again for code that checks bounds
    assert asked[operator.getitem] <= most  # none: another kernel has asked
    assert asked[operator.setitem] <= 2 * most  # of elements and of a constant


@TRIED
@pytest.mark.parametrize(
    ("wrong", "said"), [(lambda number: number.size, "'size'"), (lambda number: np.zeros(3), "zeros")]
)
def test_what_cannot_be_compiled_is_named_with_its_line(wrong, said):
    with pytest.raises(numba.core.errors.NumbaError) as problem:
        kernel(wrong)(3)
    assert said in str(problem.value)
    assert f'{Path(__file__).name}", line {wrong.__code__.co_firstlineno}' in str(problem.value)


# ---- The inner steps of Numba that ndpsim builds on are those of the releases that it was tried with

#: Of the source of each step, the first digits of its SHA-256; the same in all releases of TRIED.
SOURCES = {
    "_make_subtarget": "ca842c5b0306130d",
    "BaseContext.get_function": "a3602598ea18d983",
    "BaseLower.lower_block": "af922b61e9aa50d9",
    "CodeLibrary._raise_if_finalized": "1da89a71b49d9877",
    "CompilerBase._compile_core": "9f6b3c1986df5151",
    "CompileResult._rebuild": "44fa9dc2255883ab",
    "CompileResult._reduce": "5f86eacfa5202c20",
    "ConstraintNetwork.propagate": "01b516bfb28ce9fc",
    "CPUCallConv.call_function": "63b21494a809dcf4",
    "CPUCodegen._pass_builder": "035dd9dd5f6dedc5",
    "CPUCodeLibrary._finalize_final_module": "95bbf4fcbb90ed99",
    "CPUCodeLibrary._optimize_final_module": "e405bd473752613b",
    "CPUCodeLibrary.add_ir_module": "fb6dd665f0f609c4",
    "CPUCodeLibrary.finalize": "4b4c34b83488a72f",
    "DefaultPassBuilder.define_nopython_lowering_pipeline": "9e7ddc0e96eaaecf",
    "DefaultPassBuilder.define_typed_pipeline": "bd5ccc7ef772a33a",
    "DefaultPassBuilder.define_untyped_pipeline": "0cb11451d06eef49",
    "Dispatcher.compile": "0ab4aee15e79bb1d",
    "Dispatcher.get_call_template": "f15b62d0e9c0f605",
    "Interpreter.interpret": "66c8c30e8404f521",
    "Interpreter.post_process": "a3014179ddc6118e",
    "IRLegalization.run_pass": "841f4ad8f8e281fc",
    "IRProcessing.run_pass": "d0d78fd5dbf441ab",
    "Lower.delvar": "45cd88aeddd83956",
    "Lower.lower_binop": "254bcd18aacc6171",
    "Lower.lower_getitem": "76f8c6ed4f7e86d4",
    "Lower.lower_inst": "e479506025a295fc",
    "Lower.lower_setitem": "84ed9f0254ea25af",
    "Lower.storevar": "16d897dd729a5836",
    "NativeLowering.run_pass": "0b482df4865451f4",
    "PassManager._runPass": "ecb83032771bf665",
    "populate_array": "e86886c14bfc63b2",
    "PostProcessor.run": "e1a8e77d6f179cfd",
    "PreLowerStripPhis.run_pass": "eb4cd97a452fb1f7",
    "ReconstructSSA.run_pass": "346788ca27b40ddc",
    "RewriteRegistry.apply": "a003d2f11d8c21a2",
    "type_inference_stage": "875f932a82c7a0ac",
    "typing.BaseContext._get_global_type": "8ffe6b81175d1eec",
    "typing.BaseContext.resolve_setitem": "23bf7bd25a9bec9a",
    "typing.BaseContext.resolve_value_type": "671d7dab79111d11",
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
