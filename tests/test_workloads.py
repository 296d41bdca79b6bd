"""Requests: limits, rate, CSV files, generators against closed forms, `ndpsim requests`."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

import ndpsim
from calls import call, refused_call
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.workload.requests import (
    Requests,
    describe_requests,
    generate_requests,
    import_requests,
    load_requests,
    save_requests,
)
from ndpsim.workload.requests.spec import exponential, gamma, lognormal, normal


def _requests(**changed):
    fields = dict(arrival_ns=[0.0, 5e8, 2e9], prompt_tokens=[10, 20, 1], output_tokens=[1, 2, 3])
    return Requests(**{**fields, **changed})


@pytest.mark.parametrize(
    ("changed", "code", "key"),
    [
        (dict(arrival_ns=[0.0, 2.0, 1.0]), "range", "arrival_ns[2]"),
        (dict(arrival_ns=[-1.0, 2.0, 3.0]), "range", "arrival_ns[0]"),
        (dict(arrival_ns=[0.0, float("nan"), 3.0]), "range", "arrival_ns[1]"),
        (dict(arrival_ns=[], prompt_tokens=[], output_tokens=[]), "type", "prompt_tokens"),
        (dict(arrival_ns=["a", "b", "c"]), "type", "arrival_ns"),
        (dict(prompt_tokens=[10, 0, 1]), "range", "prompt_tokens[1]"),
        (dict(output_tokens=[1, 2, 0]), "range", "output_tokens[2]"),
        (dict(output_tokens=[1, 2, 1 << 31]), "range", "output_tokens[2]"),
        (dict(prompt_tokens=[1.5, 2.0, 3.0]), "type", "prompt_tokens"),
        (dict(prompt_tokens=[1, 2]), "conflict", "prompt_tokens"),
        (dict(output_tokens=[1, 2]), "conflict", "output_tokens"),
        (dict(ids=("a", "b")), "conflict", "ids"),
        (dict(ids=("a", "b", "a")), "twice", "ids"),
        (dict(closed_loop=0, arrival_ns=[0, 0, 0]), "range", "closed_loop"),
        (dict(closed_loop=2), "conflict", "arrival_ns"),
        (dict(block_tokens=16), "conflict", "blocks or block_tokens"),
        (dict(block_tokens=16, blocks=([0], [0], [1])), "conflict", "blocks[1]"),
        (dict(block_tokens=16, blocks=([0], [0, 1])), "conflict", "blocks"),
        (dict(block_tokens=16, blocks=([0.5], [0, 1], [1])), "type", "blocks[0]"),
    ],
)
def test_impossible_requests_are_refused(changed, code, key):
    with pytest.raises(InputError) as refused:
        _requests(**changed)
    assert (refused.value.code, refused.value.key) == (code, key)


def test_rate_is_of_the_times_between_arrivals():
    assert _requests().requests_per_s == pytest.approx(2 / 2)
    assert _requests(arrival_ns=[0, 0, 0]).requests_per_s is None


def test_another_rate_stretches_all_times_between_arrivals_alike():
    requests = _requests(arrival_ns=[1e9, 1.5e9, 3e9])
    faster = requests.at_rate(4.0)
    assert faster.requests_per_s == pytest.approx(4.0)
    assert faster.arrival_ns == pytest.approx([1e9, 1.125e9, 1.5e9])
    assert (faster.prompt_tokens == requests.prompt_tokens).all()


@pytest.mark.parametrize("changed", [dict(arrival_ns=[0, 0, 0]), dict(arrival_ns=[0, 0, 0], closed_loop=2)])
def test_requests_without_a_rate_get_no_other(changed):
    with pytest.raises(InputError) as refused:
        _requests(**changed).at_rate(1.0)
    assert refused.value.code == "conflict"


@pytest.mark.parametrize("rate", [0, -1, float("inf")])
def test_a_rate_is_above_0(rate):
    with pytest.raises(InputError) as refused:
        _requests().at_rate(rate)
    assert (refused.value.code, refused.value.key) == ("range", "requests_per_s")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        dict(arrival_ns=[0.25, 1 / 3, 3e17 + 1]),
        dict(arrival_ns=[0, 0, 0], closed_loop=2),
        dict(ids=("x", "y z", "ü")),
        dict(block_tokens=8, blocks=([0, 7], [0, 7, 9], [3])),
    ],
)
def test_requests_come_back_from_their_file_to_the_bit(changed, tmp_path):
    requests = _requests(**changed)
    save_requests(requests, tmp_path / "r.csv")
    again = load_requests(tmp_path / "r.csv")
    assert again.arrival_ns.tolist() == requests.arrival_ns.tolist()
    for name in ("prompt_tokens", "output_tokens"):
        assert getattr(again, name).tolist() == getattr(requests, name).tolist()
    assert (again.ids, again.closed_loop) == (requests.ids, requests.closed_loop)
    assert again.block_tokens == requests.block_tokens
    if requests.blocks is not None:
        assert [one.tolist() for one in again.blocks] == [one.tolist() for one in requests.blocks]


def test_only_the_first_requests_are_taken_from_a_packed_file(tmp_path):
    text = "id,arrival_s,input_tokens,output_tokens\na,0.5,3,4\nb,0.5,5,6\nc,,,\n"
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(text.encode()))
    requests = import_requests(tmp_path / "r.csv.gz", first=2)
    assert requests.ids == ("a", "b")
    assert requests.arrival_ns.tolist() == [5e8, 5e8]
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == ([3, 5], [4, 6])


HEADER = "id,arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "code", "line", "key"),
    [
        (HEADER, "form", None, None),
        (HEADER + "a,0,1,1\nb,1,0,1\n", "range", 3, "input_tokens"),
        (HEADER + "a,0,1,1\nb,1,1,0\n", "range", 3, "output_tokens"),
        (HEADER + "a,2,1,1\nb,1,1,1\n", "range", 3, "arrival_s"),
        (HEADER + "a,-1,1,1\n", "type", 2, "arrival_s"),
        (HEADER + "a,1e3.5,1,1\n", "type", 2, "arrival_s"),
        (HEADER + "a,,1,1\n", "type", 2, "arrival_s"),
        (HEADER + "a,0,1.5,1\n", "type", 2, "input_tokens"),
        (HEADER + "a,0,1\n", "form", 2, None),
        (HEADER + "a,0,1,1\na,1,1,1\n", "twice", None, "ids"),
        (
            "id,concurrency,input_tokens,output_tokens\na,2,1,1\nb,3,1,1\n",
            "conflict",
            3,
            "concurrency",
        ),
        ("id,arrival_s,input_tokens,output_tokens,blocks_4\na,0,5,1,7\n", "conflict", None, "blocks[0]"),
        ("id,arrival_s,input_tokens,output_tokens,blocks_4\na,0,5,1,7 x\n", "type", 2, "blocks_4"),
        ("id,arrival,input_tokens,output_tokens\na,0,1,1\n", "form", 1, None),
    ],
)
def test_a_file_is_refused_where_it_is_wrong(text, code, line, key, tmp_path):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        import_requests(tmp_path / "r.csv", "csv")
    assert (refused.value.code, refused.value.line, refused.value.key) == (code, line, key)
    assert refused.value.file == str(tmp_path / "r.csv")


def test_an_id_that_cannot_be_a_cell_leaves_no_file(tmp_path):
    with pytest.raises(InputError) as refused:
        save_requests(_requests(ids=("a", "b,c", "d")), tmp_path / "r.csv")
    assert (refused.value.code, refused.value.key) == ("form", "ids[1]")
    assert not (tmp_path / "r.csv").exists()


# ---- ``ndpsim requests``: requests to files, files to figures, mistakes in a line

MOONCAKE = (
    '{"timestamp": 0, "input_length": 1500, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 500, "input_length": 513, "output_length": 3, "hash_ids": [0, 3]}\n'
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n118,GPT-4,200,0,200,API log\n"
)


@pytest.fixture
def mooncake(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(MOONCAKE)
    return path


def test_generate_writes_what_python_generates(tmp_path):
    path, spec = tmp_path / "R.csv", "gamma:rate=4,requests=20,input_sigma=1"
    status, out, err = call("requests", "generate", spec, "--seed", 7, "-o", path)
    assert (status, err) == (0, "")
    assert out.startswith(f"wrote {path} from gamma:")
    python = ndpsim.generate_requests(spec, 7)
    assert (ndpsim.load_requests(path).arrival_ns == python.arrival_ns).all()
    assert path.read_text().splitlines()[0] == "id,arrival_s,input_tokens,output_tokens"
    assert call("requests", "generate", "-o", tmp_path / "S.csv")[0] == 0
    assert (
        ndpsim.load_requests(tmp_path / "S.csv").arrival_ns == ndpsim.generate_requests().arrival_ns
    ).all()


def test_import_keeps_the_blocks_of_prompts(mooncake, tmp_path):
    path = tmp_path / "R.csv"
    status, out, err = call("requests", "import", mooncake, "-o", path)
    assert (status, err) == (0, "")
    assert "trace.jsonl (mooncake): 2 requests" in out
    assert path.read_text() == (
        "id,arrival_s,input_tokens,output_tokens,blocks_512\n0,0,1500,500,0 1 2\n1,0.5,513,3,0 3\n"
    )


def test_import_says_what_it_leaves_out(tmp_path):
    (tmp_path / "b.csv").write_text(BURST)
    status, out, err = call("requests", "import", tmp_path / "b.csv", "-o", tmp_path / "R.csv")
    assert (status, err) == (0, "ndpsim: note: 1 requests failed, and are left out\n")
    assert "1 request" in out


def test_describe_says_the_same_of_a_file_and_of_what_it_was_imported_to(mooncake, tmp_path):
    call("requests", "import", mooncake, "-o", tmp_path / "R.csv")
    outs = [
        json.loads(call("requests", "describe", p, "--json", "-")[1]) for p in (mooncake, tmp_path / "R.csv")
    ]
    assert [out.pop("source")["imported"] for out in outs] == ["mooncake", "csv"]
    assert outs[0] == outs[1]
    assert outs[0]["blocks"] == {"tokens": 512, "count": 5, "distinct": 4, "reused_share": pytest.approx(0.2)}
    assert (outs[0]["requests_per_s"], outs[0]["prompt_tokens"]["total"]) == (2.0, 2013)


def test_describe_prints_rate_lengths_and_reuse(mooncake):
    status, out, err = call("requests", "describe", mooncake)
    assert (status, err) == (0, "")
    for words in ("2 requests", "2/s", "over 0.5 s", "2,013", "mean 251.5", "of 512 tokens, 20.0% as in"):
        assert words in out
    assert "1 request" in call("requests", "describe", mooncake, "--first", "1")[1]
    assert "closed loop" in call("requests", "describe", "closed-loop")[1]
    assert "at once" in call("requests", "describe", mooncake, "--first", "1")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generate", "poison", "-o", "R.csv"), "unknown-name SPEC ? poisson"),
        (("generate", "poisson:rate=0", "-o", "R.csv"), "range requests poisson:rate"),
        (("generate", "poisson", "--seed", "-1", "-o", "R.csv"), "range --seed"),
        (("generate", "poisson"), "usage --out"),
        (("generate", "poisson", "-o", "none/R.csv"), "unwritable --out"),
        (("describe", "poison"), "unknown-name FILE|SPEC ? poisson"),
        (("describe", "poisson", "--first", "3"), "conflict --first"),
        (("describe", "trace.jsonl", "--seed", "3"), "conflict --seed"),
        (("describe", "trace.jsonl", "--format", "azure-2023"), "form trace.jsonl:1"),
        (("import", "trace.jsonl", "--format", "azure", "-o", "R.csv"), "unknown-name --format ? azure-2023"),
        (("import", "trace.jsonl", "--first", "0", "-o", "R.csv"), "range --first"),
        (("import", "trace.jsonl", "-o", "trace.jsonl"), "unwritable --out"),
        (("import", "none.jsonl", "-o", "R.csv"), "unreadable none.jsonl"),
    ],
)
def test_mistakes(arguments, words, mooncake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused_call("requests", *arguments) == words
    assert mooncake.read_text() == MOONCAKE
    assert not (tmp_path / "R.csv").exists()


# ---- Generated requests: distributions against their closed forms, seeds, and impossible SPECs

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
    # Of three pairs, a third is the same with another seed.
    other = generate_requests(f"closed-loop:requests=3000,lengths={tmp_path / 'r.csv'}", seed=2)
    assert (drawn.output_tokens == other.output_tokens).mean() == pytest.approx(1 / 3, abs=0.05)


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
