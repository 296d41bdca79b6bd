"""Routing traces, their file and `ndpsim routing`."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ndpsim
from calls import call
from mistakes import refused
from ndpsim.base.reported import quantities
from ndpsim.workload.models import load_model
from ndpsim.workload.routing import Routing, load_routing

IDS = np.array([[[[0, 2], [1, 0], [3, 1]], [[2, 3], [0, 3], [1, 2]]]], np.int16)  # 1 step, 2 layers, 3 tokens
PREFILL = np.array([[[0, 1], [2, 3], [1, 2], [0, 3]], [[3, 0], [1, 2], [2, 0], [3, 1]]], np.int16)


def small(**changes: object) -> Routing:
    fields = dict(experts=4, layers=(1, 3), ids=IDS, prefill_ids=PREFILL, prompt_lengths=(2, 1, 1))
    return Routing(**{**fields, **changes})


def changed(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    copy = array.copy()
    copy[place] = value
    return copy


# ---- the trace ----


def test_loads_count_the_tokens_of_each_expert():
    trace = small()
    assert trace.loads(0, 1).tolist() == [2, 2, 1, 1]
    assert trace.loads(0, 3).tolist() == [1, 1, 2, 2]
    assert trace.prefill_loads(1).tolist() == [2, 2, 2, 2]
    assert (trace.steps, trace.batch, trace.experts_per_token, trace.prefill_tokens) == (1, 3, 2, 4)


def test_ids_are_narrow_and_cannot_be_changed():
    trace = small(ids=IDS.astype(np.int64))
    assert trace.ids.dtype == np.int16
    with pytest.raises(ValueError, match="read-only"):
        trace.ids[0] = 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(ids=changed(IDS, (0, 1, 2, 0), 4)), "range ids[step 0, layer 3, token 2]"),
        (dict(ids=changed(IDS, (0, 0, 1, 0), -1)), "range ids[step 0, layer 1, token 1]"),
        (dict(ids=changed(IDS, (0, 1, 0, 1), 2)), "twice ids[step 0, layer 3, token 0]"),
        (dict(prefill_ids=changed(PREFILL, (1, 3, 0), 1)), "twice prefill_ids[layer 3, token 3]"),
        (dict(ids=IDS[0]), "type ids"),
        (dict(ids=IDS / 1), "type ids"),
        (dict(layers=(1, 2, 3)), "conflict ids"),
        (dict(layers=(3, 1)), "form layers"),
        (dict(layers=()), "form layers"),
        (dict(experts=1), "range ids"),
        (dict(experts=1 << 16), "range experts"),
        (dict(prompt_lengths=(2, 3)), "conflict prompt_lengths"),
        (dict(prompt_lengths=(2, 1)), "conflict prompt_lengths"),
        (dict(prompt_lengths=(4, 0)), "range prompt_lengths"),
        (dict(prefill_ids=None), "conflict prefill_scores or prompt_lengths"),
        (dict(scores=np.ones((1, 2, 3))), "type scores"),
        (
            dict(scores=changed(np.ones(IDS.shape), (0, 1, 2, 1), np.nan)),
            "range scores[step 0, layer 3, token 2]",
        ),
        (dict(ids=IDS[:0], prefill_ids=None, prompt_lengths=()), "missing ids"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(changes, words):
    with refused(words):
        small(**changes)


def test_a_trace_is_cut_to_what_a_run_needs():
    model = load_model("mixtral-8x7b")
    equal = ndpsim.generate_routing("skewed", model, batch=6, steps=4, prompt=3)
    trace = replace(equal, prompt_lengths=(1, 5, 2, 4, 3, 3))
    cut = trace.for_model(model, batch=2, steps=3, layers=[0, 5])
    assert cut.ids.shape == (3, 2, 2, 2)
    assert np.array_equal(cut.ids, trace.ids[:3, [0, 5], :2])
    assert np.array_equal(cut.prefill_ids, trace.prefill_ids[[0, 5], :6])
    assert cut.layers == (0, 5)
    assert cut.prompt_lengths == (1, 5)


@pytest.mark.parametrize(
    ("model", "asked", "words"),
    [
        ("deepseek-v2", {}, "conflict routing"),
        ("deepseek-v2-lite", {"batch": 9}, "range batch"),
        ("deepseek-v2-lite", {"steps": 3}, "range steps"),
        ("deepseek-moe-16b", {}, "conflict routing"),
    ],
)
def test_another_models_trace_is_refused(model, asked, words):
    trace = ndpsim.generate_routing("skewed", "deepseek-v2-lite", batch=8, steps=2)
    with refused(words):
        trace.for_model(load_model(model), **asked)


def test_a_dense_layer_of_the_model_is_none_of_a_trace():
    trace = small(experts=160, layers=(0, 1))
    model = load_model("deepseek-v2")
    six = Routing(160, (0, 1), np.arange(12, dtype=np.int16).reshape(1, 2, 1, 6))
    with refused("conflict routing"):
        six.for_model(model, layers=[1])
    beyond = Routing(160, (1, 60), np.arange(12, dtype=np.int16).reshape(1, 2, 1, 6))
    with refused("conflict routing"):  # not of the option layers, which nobody gave
        ndpsim.find_routing(beyond, model)
    with refused("range layer"):
        trace.loads(0, 2)


# ---- the file ----


@pytest.mark.parametrize(
    "trace",
    [
        small(),
        small(prefill_ids=None, prompt_lengths=()),
        small(ids=np.zeros((0, 2, 0, 2), np.int16)),
        small(scores=np.full(IDS.shape, 0.5), prefill_scores=np.full(PREFILL.shape, 0.25), source={"a": "é"}),
    ],
    ids=["prefill", "decode", "prefill only", "scores"],
)
def test_a_trace_is_read_as_it_was_written(trace, tmp_path):
    path = tmp_path / "trace.npz"
    trace.save(path)
    again = load_routing(path)
    assert again == trace
    assert dict(again.source) == dict(trace.source)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.npz"]


def test_the_same_trace_is_the_same_bytes(tmp_path):
    for name in ("one.npz", "two.npz"):
        ndpsim.generate_routing("skewed", "mixtral-8x7b", batch=4, steps=2, prompt=2, seed=9).save(
            tmp_path / name
        )
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_numpy_reads_the_file_without_pickle(tmp_path):
    small().save(tmp_path / "trace.npz")
    with np.load(tmp_path / "trace.npz", allow_pickle=False) as arrays:
        assert str(arrays["format"]) == "ndpsim-routing"
        assert int(arrays["version"]) == 1
        assert np.array_equal(arrays["ids"], IDS)


def stored(path: Path, **changes: object) -> Path:
    """A file of a trace, with arrays changed, or left out where they are None."""
    buffer = io.BytesIO()
    small().save(path)
    with np.load(path) as arrays:
        values = {**dict(arrays), **changes}
    np.savez(buffer, **{name: value for name, value in values.items() if value is not None})
    path.write_bytes(buffer.getvalue())
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(version=np.int32(2)), "unsupported trace.npz version"),
        (dict(format=np.array("other")), "form trace.npz format"),
        (dict(format=None), "form trace.npz"),
        (dict(ids=None), "form trace.npz"),
        (dict(score=np.ones(3)), "unknown-name trace.npz ? scores"),
        (dict(ids=changed(IDS, (0, 0, 0, 0), 7)), "range trace.npz ids[step 0, layer 1, token 0]"),
        (dict(scores=np.full(IDS.shape, np.inf)), "range trace.npz scores[step 0, layer 1, token 0]"),
        (dict(layers=np.array([1, 2, 3])), "conflict trace.npz ids"),
        (dict(layers=np.ones((2, 2))), "type trace.npz layers"),
        (dict(experts=np.array([4])), "type trace.npz experts"),
        (dict(source=np.array("{")), "form trace.npz source"),
        (dict(source=np.array([{}], object)), "type trace.npz source"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_place(changes, words, tmp_path):
    path = stored(tmp_path / "trace.npz", **changes)
    with refused(words):
        load_routing(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a file of arrays", b"\x93NUMPY\x01\x00"])
def test_other_files_are_refused_in_a_line(content, tmp_path):
    path = tmp_path / "trace.npz"
    path.write_bytes(content)
    with refused("form trace.npz"):
        load_routing(path)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "trace.npz"
    small().save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with refused("form trace.npz"):
            load_routing(path)


def test_an_array_larger_than_its_file_is_refused_by_its_header(tmp_path):
    path = tmp_path / "trace.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, dict(descr="<i2", fortran_order=False, shape=(1 << 20, 60, 1 << 20, 6))
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids.npy", header.getvalue())
    with refused("form trace.npz ids"):
        load_routing(path)


def test_a_recording_of_another_program_is_no_trace_rather_than_a_trace_with_an_array_too_many(tmp_path):
    np.savez(tmp_path / "vllm.npz", routed_experts=np.zeros((3, 2, 2), np.int16))
    with refused("form vllm.npz"):
        load_routing(tmp_path / "vllm.npz")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with refused("unreadable none.npz"):
        load_routing(tmp_path / "none.npz")


def test_find_routing_takes_what_a_run_is_given(tmp_path):
    model = "mixtral-8x7b"
    trace = ndpsim.find_routing("skewed", model, batch=4, steps=2, seed=3)
    trace.save(tmp_path / "trace.npz")
    assert ndpsim.find_routing(tmp_path / "trace.npz", model, batch=4, steps=2) == trace
    assert ndpsim.find_routing(trace, model, batch=3, steps=1).ids.shape == (1, 32, 3, 2)
    assert ndpsim.find_routing(trace, model, steps=1).ids.shape == (1, 32, 4, 2)
    assert ndpsim.find_routing(trace, model) == trace
    part = ndpsim.find_routing(trace, model, layers=[3, 5])
    assert ndpsim.find_routing(part, model).layers == (3, 5)
    assert ndpsim.find_routing(None, model, 4, 2).source["generated"] == "popularity:mixtral-8x7b"
    for asked, words in (
        (dict(routing="skew"), "unknown-name routing ? skewed"),
        (dict(routing=trace, prompt=4), "missing prompt"),
        (dict(routing=trace, batch=5), "range batch"),
    ):
        with refused(words):
            ndpsim.find_routing(**{"model": model, "batch": 4, "steps": 2, **asked})


# ---- ``ndpsim routing``: traces to files, files to figures, mistakes in a line

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
    assert "llama-cpp" in call("list", "routing-formats")[1].split()
