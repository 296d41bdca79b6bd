"""PrefixSplit against all possible assignments; tables of losses, bundled and from files."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mistakes import refused
from ndpsim.policies.published.cxl.prefix_split import bit_budget, prefix_split
from ndpsim.policies.published.cxl.quantisation import read_losses


@functools.cache
def in_order(experts: int) -> dict[int, list[tuple[int, ...]]]:
    """Of all 4^experts assignments, those in which none has more bits than one before it, by steps above 1."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for bits in itertools.product((1, 2, 3, 4), repeat=experts):
        if all(earlier >= later for earlier, later in itertools.pairwise(bits)):
            found.setdefault(sum(bits) - experts, []).append(bits)
    return found


def brute_force(losses: np.ndarray, budget: int) -> tuple[object, list[tuple[int, ...]]]:
    """The least total loss of all assignments that spend the budget, and all with that loss, exactly."""
    table = [[Fraction(loss) for loss in row] for row in losses.tolist()]
    totals = {
        bits: sum((row[one - 1] for row, one in zip(table, bits, strict=True)), Fraction(0))
        for bits in in_order(len(table))[budget]
    }
    least = min(totals.values())
    return least, [bits for bits, total in totals.items() if total == least]


@pytest.mark.parametrize("experts", range(8))
def test_no_assignment_of_up_to_seven_experts_loses_less_whatever_the_budget(experts):
    random = np.random.default_rng(experts)
    for budget in range(3 * experts + 1):
        mean = 1 + Fraction(budget, max(experts, 1))
        for most in (1, 3, 1000):  # few different numbers make many ties; none of the tables is monotone
            losses = random.integers(-most, most + 1, (experts, 4))
            split = prefix_split(losses, float(mean))
            _, best = brute_force(losses, budget)
            assert split == min(best, key=lambda bits: (bits.count(4), bits.count(3)))


@given(st.data())
def test_any_average_and_any_losses_get_the_best_split_of_the_whole_number_below(data):
    experts = data.draw(st.integers(1, 7))
    # Multiples of 1/64 up to 2^20: sums of doubles are exact, as those of fractions are.
    losses = data.draw(arrays(np.int64, (experts, 4), elements=st.integers(-(2**26), 2**26))) / 64
    mean = data.draw(st.floats(1, 4))
    budget = math.floor(experts * (Fraction(mean) - 1) + Fraction(1, 10**9))
    split = prefix_split(losses, mean)
    least, best = brute_force(losses, budget)
    assert split in best
    assert sum(split) - experts == budget
    assert sum(Fraction(row[bits - 1]) for row, bits in zip(losses.tolist(), split, strict=True)) == least


def test_a_budget_that_is_no_whole_number_goes_to_the_one_below_or_the_nearest():
    # 4 x (2.4 - 1) = 5.6 and 4 x (2.375 - 1) = 5.5, 4 x (2.35 - 1) = 5.4.
    assert [bit_budget(4, mean) for mean in (2.4, 2.375, 2.35)] == [5, 5, 5]
    assert [bit_budget(4, mean, "nearest") for mean in (2.4, 2.375, 2.35)] == [6, 6, 5]
    assert [bit_budget(experts, 1 + 1.1, "floor") for experts in (10, 30)] == [
        11,
        33,
    ]  # 2.1 - 1 < 1.1 in doubles
    assert [bit_budget(5, mean) for mean in (0.0, 1.0, 4.0, 9.0)] == [0, 0, 15, 15]


def test_more_bits_go_where_they_gain_most_as_far_as_the_order_allows():
    # A hand-solved case: R = 3 x (2 - 1) = 3. (2, 2, 2) gains 4 + 4 + 4, (3, 2, 1) 5 + 4, (4, 1, 1) 6.
    equal = np.array([[10, 6, 5, 4]] * 3)
    assert prefix_split(equal, 2) == (2, 2, 2)
    # Expert 0 now gains 16 by 4 bits: (4, 1, 1) gains 16, (3, 2, 1) 5 + 4, (2, 2, 2) 12.
    assert prefix_split(np.array([[20, 16, 15, 4], *equal[1:].tolist()]), 2) == (4, 1, 1)
    # That the last expert would gain most changes nothing: none has more bits than one before it.
    assert prefix_split(np.array([*equal[1:].tolist(), [20, 16, 15, 0]]), 2) == (2, 2, 2)


@pytest.mark.parametrize("losses", [np.zeros((2, 3)), np.zeros(4), np.array([[0, 1, 2, np.nan]])])
def test_losses_of_another_shape_or_not_finite_are_refused(losses):
    with refused("form losses"):
        prefix_split(losses, 2)


# Tables


def test_the_bundled_table_says_that_it_is_synthetic_and_obeys_the_rule_in_its_header():
    losses = read_losses(None, (0, 5), 20)
    assert losses.shape == (2, 20, 4)
    for expert, bits in itertools.product(range(20), (1, 2, 3, 4)):
        sensitivity = 0.5 + (7 * (expert % 16) % 16) / 16
        assert losses[1, expert, bits - 1] == pytest.approx(sensitivity * 4.0**-bits, rel=1e-7)
    file = Path(__file__).parent.parent / "ndpsim/policies/published/cxl/quantisation_loss_synthetic.csv"
    assert file.read_text().startswith("# Synthetic: no model was quantised")


def test_tables_by_layer_are_read_from_csv_and_npz_alike(tmp_path):
    losses = np.random.default_rng(1).random((4, 3, 4))
    np.savez(tmp_path / "t.npz", loss=losses)
    lines = [
        f"{layer},{expert},{bits},{float(losses[layer, expert, bits - 1])!r}"
        for layer, expert, bits in itertools.product((1, 3), range(3), (4, 1, 2, 3))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["# measured", "layer,expert,bits,loss", *lines]))
    for name in ("t.npz", "t.csv"):
        assert np.array_equal(read_losses(str(tmp_path / name), (1, 3), 3), losses[[1, 3]])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("no.csv", None, "unreadable no.csv"),
        ("a.csv", b"\xff\xfe", "form a.csv:1"),
        ("a.npz", b"no archive", "unreadable a.npz"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_one_line(tmp_path, name, content, words):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with refused(words):
        read_losses(str(file), (0,), 1)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"other": np.zeros((1, 1, 4))}, "missing a.npz"),
        ({"loss": np.zeros((1, 2, 4))}, "form a.npz loss"),
        ({"loss": np.full((1, 1, 4), np.inf)}, "range a.npz loss"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, expected):
    np.savez(tmp_path / "a.npz", **arrays)
    with refused(expected):
        read_losses(str(tmp_path / "a.npz"), (0,), 1)
