"""Requests: their limits, their rate, and ndpsim's own CSV."""

from __future__ import annotations

import gzip

import pytest

from ndpsim.base.errors import InputError
from ndpsim.workload.requests import Requests, import_requests, load_requests, save_requests


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
        (HEADER + "a,1e3,1,1\n", "type", 2, "arrival_s"),
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
