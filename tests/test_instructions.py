"""The machine instructions of kernels do what numpy and Python do."""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import kernel
from ndpsim.dram.fast.vectors import (
    bits,
    both,
    either,
    filled,
    larger,
    least,
    merged,
    raise_times,
    read_times,
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
from ndpsim.dram.fast.words import assume_nonnegative, lowest, ones, rotate


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
