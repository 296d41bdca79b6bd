"""``ndpsim routing``: traces to files, files to figures, mistakes in a line."""

from __future__ import annotations

import json

import numpy as np

import ndpsim
from calls import call
from ndpsim.base.reported import quantities

SMALL = ("--model", "mixtral-8x7b", "--batch", "16", "--steps", "3")


def test_generate_writes_what_python_generates(tmp_path):
    path = tmp_path / "F.npz"
    status, out, err = call(
        "routing", "generate", "skewed:step_stickiness=0.2", *SMALL, "--prompt", 2, "--seed", 7, "-o", path
    )
    assert (status, err) == (0, "")
    assert str(path) in out
    assert "3 steps of 16 sequences, 32 prompt tokens" in out
    python = ndpsim.generate_routing("skewed:step_stickiness=0.2", "mixtral-8x7b", 16, 3, 2, 7)
    assert ndpsim.load_routing(path) == python
    assert (
        call(
            "routing",
            "generate",
            "skewed:step_stickiness=0.2",
            *SMALL,
            "--prompt",
            2,
            "--seed",
            7,
            "-o",
            tmp_path / "G.npz",
        )[0]
        == 0
    )
    assert (tmp_path / "G.npz").read_bytes() == path.read_bytes()


def test_generate_offline_is_another_trace(tmp_path):
    for name, more in (("a", ()), ("b", ("--offline",))):
        assert call("routing", "generate", "skewed", *SMALL, *more, "-o", tmp_path / f"{name}.npz")[0] == 0
    one, other = (ndpsim.load_routing(tmp_path / f"{name}.npz") for name in "ab")
    assert not np.array_equal(one.ids, other.ids)
    assert other.source["offline"] is True


def test_counts_say_their_model_where_none_is_given(tmp_path):
    path = tmp_path / "F.npz"
    assert (
        call("routing", "generate", "popularity:olmoe-1b-7b", "--batch", 2, "--steps", 1, "-o", path)[0] == 0
    )
    assert ndpsim.load_routing(path).experts == 64
    assert call("routing", "generate", "skewed", "--batch", 2, "--steps", 1, "-o", path)[0] == 0
    assert ndpsim.load_routing(path).experts == 128


def test_describe_says_the_same_of_a_spec_and_of_its_file(tmp_path):
    path, spec = tmp_path / "F.npz", "ranks:mixtral-8x7b:data=github"
    assert call("routing", "generate", spec, *SMALL, "-o", path)[0] == 0
    of_file, of_spec = call("routing", "describe", path), call("routing", "describe", spec, *SMALL)
    assert of_file == of_spec
    status, out, err = of_file
    assert (status, err) == (0, "")
    assert out.startswith(
        "ranks:mixtral-8x7b:data=github, seed 1: 2 of 8 experts in 32 layers, 3 steps of 16 sequences\n"
    )
    assert "hot (5% of experts)" in out
    assert "rest 60 (60% of experts)" in out
    statistics = ndpsim.describe_routing(ndpsim.load_routing(path))
    for name, of in quantities(ndpsim.RoutingStatistics).items():
        assert (of.label in out) is (getattr(statistics, name) is not None), name
    assert statistics.token_reuse.reuse.in_unit("%") in out
    assert statistics.token_reuse.reuse.in_unit("%") in repr(statistics)


def test_describe_writes_json_and_pictures(tmp_path):
    plot = tmp_path / "F.pdf"
    status, out, _ = call(
        "routing", "describe", "skewed", *SMALL, "--json", "-", "--plot", plot, "--panels", "ranks"
    )
    assert status == 0
    found = json.loads(out)
    python = ndpsim.describe_routing(ndpsim.generate_routing("skewed", "mixtral-8x7b", 16, 3))
    assert found == json.loads(json.dumps(python.to_dict()))
    assert set(found["decode"]["shares"]["hot"]) == {"value", "error", "least", "most"}
    assert plot.read_bytes().startswith(b"%PDF")


def test_import_says_what_it_had_to_guess(tmp_path):
    source, path = tmp_path / "e.csv", tmp_path / "F.npz"
    source.write_text("layer_id,expert_ids\n3,52 40 85\n3,1 2 3\n")
    status, out, err = call("routing", "import", source, "-o", path)
    assert status == 0
    assert all(said in out for said in (str(path), "llama-cpp", "3 of 86 experts in 1 layer, 1 step of 2"))
    assert err == "ndpsim: note: 86 experts, as the largest id says; give the model, or the number\n"
    assert ndpsim.load_routing(path).ids[0, 0].tolist() == [[52, 40, 85], [1, 2, 3]]


def test_an_old_file_stays_where_the_new_one_fails(tmp_path):
    path = tmp_path / "F.npz"
    path.write_bytes(b"old")
    assert call("routing", "generate", "skewed:hot_share=0.6,warm_share=0.3", *SMALL, "-o", path)[0] == 2
    assert path.read_bytes() == b"old"


def test_list_has_specs_and_formats():
    assert call("list", "routing")[1].splitlines()[:3] == [
        "popularity:mixtral-8x7b", "popularity:mixtral-8x7b-instruct", "popularity:olmoe-1b-7b"
    ]  # fmt: skip
    assert "llama-cpp" in call("list", "routing-formats")[1].splitlines()
