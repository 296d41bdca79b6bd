"""Generated requests: distributions against their closed forms, seeds, and impossible SPECs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mistakes import refused
from ndpsim.workload.requests import (
    Requests,
    describe_requests,
    generate_requests,
    load_requests,
    save_requests,
)
from ndpsim.workload.requests.drawing import exponential, gamma, lognormal, normal

MANY = 200_000


def random(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def moments(numbers: np.ndarray) -> tuple[float, float, float]:
    """Mean, variance and skewness."""
    centred = numbers - numbers.mean()
    return numbers.mean(), numbers.var(), (centred**3).mean() / numbers.std() ** 3


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 3.0, 50.0])
def test_gamma_numbers_have_the_moments_of_the_distribution(shape):
    mean, variance, skewness = moments(gamma(shape, MANY, random()))
    assert mean == pytest.approx(1, abs=5 / math.sqrt(shape * MANY))
    assert variance == pytest.approx(1 / shape, rel=0.05)
    assert skewness == pytest.approx(2 / math.sqrt(shape), rel=0.1, abs=0.02)


def test_a_gamma_distribution_of_shape_1_is_exponential():
    quantiles = np.linspace(0.05, 0.95, 19)
    expected = -np.log1p(-quantiles)
    for numbers in (exponential(MANY, random()), gamma(1.0, MANY, random(2))):
        assert np.quantile(numbers, quantiles) == pytest.approx(expected, rel=0.02)


def test_normal_and_log_normal_numbers():
    mean, variance, skewness = moments(normal(MANY, random()))
    assert (mean, skewness) == (pytest.approx(0, abs=0.01), pytest.approx(0, abs=0.02))
    assert variance == pytest.approx(1, rel=0.01)
    numbers = lognormal(1000, 0.8, MANY, random())
    assert numbers.mean() == pytest.approx(1000, rel=0.01)
    assert np.log(numbers).std() == pytest.approx(0.8, rel=0.01)
    assert np.median(numbers) == pytest.approx(1000 * math.exp(-0.32), rel=0.01)


@pytest.mark.parametrize(
    ("spec", "burstiness"),
    [("poisson:rate=20", 1.0), ("gamma:rate=20", 0.5), ("gamma:rate=20,burstiness=4", 4.0)],
)
def test_arrivals_have_the_rate_and_burstiness_that_are_asked_for(spec, burstiness):
    found = describe_requests(generate_requests(f"{spec},requests=50000"))
    assert found.requests_per_s == pytest.approx(20, rel=5 / math.sqrt(50000 * burstiness))
    assert found.burstiness == pytest.approx(burstiness, rel=0.05)


def test_the_first_request_arrives_at_0_and_all_at_whole_nanoseconds():
    arrival_ns = generate_requests("poisson:rate=3").arrival_ns
    assert arrival_ns[0] == 0
    assert (arrival_ns == np.rint(arrival_ns)).all()
    assert len(arrival_ns) == 300


def test_lengths_are_fixed_or_log_normal_and_cut():
    fixed = generate_requests("poisson:input_tokens=700,output_tokens=9.6")
    assert (set(fixed.prompt_tokens.tolist()), set(fixed.output_tokens.tolist())) == ({700}, {10})
    spread = generate_requests(
        "poisson:requests=20000,input_sigma=1,input_most=4000,output_tokens=2,output_sigma=2"
    )
    assert spread.prompt_tokens.max() == 4000
    assert spread.output_tokens.min() == 1
    assert spread.output_tokens.max() > 100
    assert np.corrcoef(spread.prompt_tokens, spread.output_tokens)[0, 1] == pytest.approx(0, abs=0.03)


def test_lengths_of_a_file_are_drawn_in_pairs(tmp_path):
    save_requests(Requests([0.0, 1.0, 2.0], [10, 20, 30], [1, 2, 3]), tmp_path / "r.csv")
    drawn = generate_requests(f"closed-loop:requests=3000,lengths={tmp_path / 'r.csv'}")
    assert (drawn.prompt_tokens == 10 * drawn.output_tokens).all()
    assert np.bincount(drawn.output_tokens)[1:] == pytest.approx(1000, abs=150)


def test_a_closed_loop_says_how_many_requests_are_in_the_system():
    requests = generate_requests("closed-loop:concurrency=7")
    assert requests.closed_loop == 7
    assert not requests.arrival_ns.any()
    assert describe_requests(requests).requests_per_s is None


def test_the_same_seed_gives_the_same_requests_and_another_one_others():
    spec = "gamma:rate=2,input_sigma=1,output_sigma=1"
    one, same, other = (generate_requests(spec, seed) for seed in (3, 3, 4))
    for name in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert (getattr(one, name) == getattr(same, name)).all()
        assert (getattr(one, name) != getattr(other, name)).any()


def test_arrivals_and_lengths_do_not_depend_on_each_other():
    plain, spread = (generate_requests(f"poisson:rate=2{more}") for more in ("", ",input_sigma=1"))
    assert (plain.arrival_ns == spread.arrival_ns).all()
    again = generate_requests("poisson:rate=4,input_sigma=1")
    assert (again.prompt_tokens == spread.prompt_tokens).all()
    assert again.arrival_ns == pytest.approx(plain.arrival_ns / 2, abs=2)


def test_requests_are_loaded_from_a_spec_a_file_or_themselves(tmp_path):
    requests = generate_requests("poisson", 5)
    save_requests(requests, tmp_path / "r.csv")
    assert (load_requests("poisson", 5).arrival_ns == requests.arrival_ns).all()
    assert (load_requests(tmp_path / "r.csv").arrival_ns == requests.arrival_ns).all()
    assert load_requests(requests) is requests


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("poison", "unknown-name requests ? poisson"),
        ("poisson:rat=1", "unknown-name requests ? rate"),
        ("poisson:burstiness=1", "unknown-name requests"),
        ("poisson:rate=0", "range requests poisson:rate"),
        ("poisson:rate=x", "range requests poisson:rate"),
        ("poisson:requests=2.5", "range requests poisson:requests"),
        ("poisson:requests=0", "range requests poisson:requests"),
        ("poisson:input_tokens=0", "range requests poisson:input_tokens"),
        ("poisson:rate", "form requests"),
        ("poisson:rate=1,rate=2", "twice requests"),
        ("gamma:burstiness=0", "range requests gamma:burstiness"),
        ("closed-loop:concurrency=0", "range requests closed-loop:concurrency"),
        ("closed-loop:rate=1", "unknown-name requests"),
        ("poisson:lengths=none.csv", "unreadable none.csv"),
        ("poisson:lengths=none.csv,input_sigma=1", "conflict requests poisson:input_sigma"),
    ],
)
def test_an_impossible_spec_is_refused(spec, expected):
    with refused(expected):
        generate_requests(spec)


def test_a_name_that_is_neither_file_nor_spec_gets_the_nearest_kind():
    with refused("unknown-name requests ? poisson"):
        load_requests("poissson:rate=1")


def test_statistics_by_hand():
    requests = Requests(
        [1e9, 1e9, 1.5e9, 3e9],
        [5, 8, 9, 1],
        [1, 2, 3, 4],
        block_tokens=4,
        blocks=([0, 1], [0, 2], [0, 2, 3], [4]),
    )
    found = describe_requests(requests)
    assert (found.requests, found.span_s, found.requests_per_s) == (4, 2.0, 1.5)
    assert found.peak_requests_per_s == 3
    # Times between arrivals 0, 0.5 and 1.5 s: mean 2/3, variance (4 + 1/4 + 25/4) / 27 = 7/18.
    assert found.burstiness == pytest.approx((4 / 9) / (7 / 18))
    assert (found.prompt_tokens.total, found.prompt_tokens.mean) == (23, 5.75)
    assert (found.prompt_tokens.min, found.prompt_tokens.p50, found.prompt_tokens.max) == (1, 6.5, 9)
    assert (found.output_tokens.total, found.output_tokens.p90) == (10, pytest.approx(3.7))
    assert (found.blocks.tokens, found.blocks.count, found.blocks.distinct) == (4, 8, 5)
    assert found.blocks.reused_share == pytest.approx(3 / 8)


def test_seconds_of_the_peak_are_counted_from_the_first_arrival():
    requests = Requests([2.5e9, 3.1e9, 3.7e9, 3.9e9], [1] * 4, [1] * 4)
    assert describe_requests(requests).peak_requests_per_s == 2


@pytest.mark.parametrize(("arrival_s", "burstiness"), [([0, 1, 4], 4.0), ([0, 1], None), ([0, 1, 2], None)])
def test_burstiness_needs_two_times_between_arrivals_that_differ(arrival_s, burstiness):
    # Of times of 1 and 3 s the mean is 2 s and the standard deviation 1 s.
    requests = Requests(np.array(arrival_s) * 1e9, [1] * len(arrival_s), [1] * len(arrival_s))
    assert describe_requests(requests).burstiness == burstiness
