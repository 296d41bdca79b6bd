"""``ndpsim requests``: requests to files, files to figures, mistakes in a line."""

from __future__ import annotations

import json

import pytest

import ndpsim
from calls import call, refused_call

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
