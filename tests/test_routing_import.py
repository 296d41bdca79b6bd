"""Routing that other programs recorded: each format as its program writes it, and every mistake with its place."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import ndpsim
from calls import call
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.workload.routing import import_routing, routing_formats
from ndpsim.workload.routing.counts import BUNDLED, read_counts
from ndpsim.workload.routing.tensors import read_saved

LITE = ndpsim.load_model("deepseek-v2-lite")  # 27 layers, of which 0 is dense; 6 of 64 experts


def chosen(*shape: int, experts: int = 64, seed: int = 1) -> np.ndarray:
    """Different experts for each token: [..., k]."""
    order = np.argsort(np.random.default_rng(seed).random((*shape[:-1], experts)), axis=-1)
    return order[..., : shape[-1]].astype(np.int16)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def check_refused(path: Path | list[Path], expected: str, **asked: object) -> None:
    with refused(expected):
        import_routing(path, **asked)


# ---- vLLM ----


def test_vllm_arrays_are_sequences_of_a_batch(tmp_path):
    paths, generated, prompts = (
        [],
        [chosen(5, 26, 6, seed=n) for n in (1, 2)],
        [chosen(3, 26, 6, seed=n) for n in (3, 4)],
    )
    for number in (0, 1):
        paths.append(tmp_path / f"{number}.npz")
        np.savez(paths[-1], routed_experts=generated[number], prompt_routed_experts=prompts[number])
    trace = import_routing(paths, model=LITE)
    assert trace.layers == tuple(range(1, 27))
    assert trace.prompt_lengths == (3, 3)
    for number in (0, 1):
        assert np.array_equal(trace.ids[:, :, number], generated[number])
        assert np.array_equal(
            trace.prefill_ids[:, 3 * number : 3 * number + 3].swapaxes(0, 1), prompts[number]
        )
    assert trace.source == {"imported": "vllm", "files": ["0.npz", "1.npz"]}


@pytest.mark.parametrize("fortran", [False, True])
def test_vllm_array_of_all_layers_of_a_model_has_dense_ones_taken_out(fortran, tmp_path):
    array = chosen(4, 27, 6)
    np.save(tmp_path / "routed_experts.npy", np.asfortranarray(array) if fortran else array)
    trace = import_routing(tmp_path / "routed_experts.npy", model=LITE)
    assert np.array_equal(trace.ids[:, :, 0], array[:, 1:])


@pytest.mark.parametrize("form", ["list", "npy", "int16"])
def test_vllm_response_of_the_server(form, tmp_path):
    prompt, generated = chosen(2, 3, 4, experts=8), chosen(5, 3, 4, experts=8, seed=2)

    def value(array):
        if form == "list":
            return array.tolist()
        if form == "int16":
            data = base64.b64encode(np.ascontiguousarray(array)).decode()
            return {"encoding": "base64", "dtype": "int16", "shape": list(array.shape), "data": data}
        buffer = io.BytesIO()
        np.save(buffer, array)
        return base64.b64encode(buffer.getvalue()).decode()

    choices = [
        {"text": "routed", "routed_experts": value(generated)},
        {"routed_experts": value(generated[:4])},
    ]
    response = {"id": "cmpl", "choices": choices, "prompt_routed_experts": value(prompt)}
    path = written(tmp_path / "response.json", json.dumps(response))
    trace = import_routing(path, experts=8, steps=4)
    assert trace.ids.shape == (4, 3, 2, 4)
    for number in (0, 1):
        assert np.array_equal(trace.ids[:, :, number], generated[:4])
    assert trace.prompt_lengths == (2, 2)
    check_refused(path, "missing response.json")
    check_refused(path, "range response.json", steps=5)


def test_vllm_mistakes(tmp_path):
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    np.savez(one, routed_experts=chosen(5, 26, 6), prompt_routed_experts=chosen(2, 26, 6))
    np.savez(other, routed_experts=chosen(5, 26, 6))
    check_refused([one, other], "missing other.npz")
    np.savez(other, routed_experts=chosen(5, 25, 6))
    check_refused([one, other], "conflict other.npz")
    check_refused(other, "conflict other.npz", model=LITE)
    np.savez(other, routed_experts=chosen(5, 26))
    check_refused(other, "form other.npz routed_experts")
    np.savez(other, routed_experts=chosen(5, 26, 6) + 1)
    check_refused(other, "range other.npz ids[step 0, layer 5, token 0]", model=LITE)
    np.savez(other, routed_experts=chosen(5, 26, 5))
    check_refused(other, "conflict other.npz routing", model=LITE)
    np.savez(other, routed_experts=np.array([[[None]]]))
    check_refused(other, "type other.npz routed_experts")
    np.savez(other, something=np.ones(3))
    check_refused(other, "form other.npz format")
    check_refused(
        written(tmp_path / "r.json", '{"routed_experts": "???"}'), "form r.json choices[0].routed_experts"
    )


# ---- Megatron ----


def megatron(ids: np.ndarray, first_layer: int = 1, **more: object) -> str:
    """Records of ids [step, layer, token, k]."""
    return "".join(
        json.dumps(dict(
            rank=0, step=step, layer=first_layer + layer, num_tokens=len(rows), topk=rows.shape[1],
            top_indices=rows.tolist(), **more,
        )) + "\n"
        for step, of_step in enumerate(ids) for layer, rows in enumerate(of_step)
    )  # fmt: skip


def test_megatron_records_number_layers_from_one_and_newer_ones_from_zero(tmp_path):
    ids = chosen(3, 2, 4, 2, experts=8)
    old = import_routing(written(tmp_path / "old.jsonl", megatron(ids)), experts=8)
    new = import_routing(
        written(tmp_path / "new.jsonl", megatron(ids, 0, block="decoder", stage="pre_dispatch")), experts=8
    )
    assert old.layers == new.layers == (0, 1)
    assert np.array_equal(old.ids, ids)
    assert old == new


def test_megatron_records_without_a_block_that_have_a_layer_0_number_from_zero(tmp_path):
    ids = chosen(3, 2, 4, 2, experts=8)
    assert import_routing(written(tmp_path / "t.jsonl", megatron(ids, 0)), experts=8).layers == (0, 1)


def test_the_first_steps_are_taken_of_those_behind_the_prefill(tmp_path):
    prefill, decode = chosen(1, 2, 9, 2, experts=8), chosen(3, 2, 4, 2, experts=8, seed=2)
    path = written(tmp_path / "e.csv", f"layer_id,expert_ids\n{llama(prefill)}{llama(decode)}")
    for steps in (1, 2, 3):
        trace = import_routing(path, experts=8, steps=steps)
        assert np.array_equal(trace.ids, decode[:steps])
        assert np.array_equal(trace.prefill_ids, prefill[0])


def test_megatron_steps_before_decode_are_prefill_and_predictions_are_left_out(tmp_path):
    prefill, decode = chosen(1, 2, 9, 2, experts=8), chosen(3, 2, 4, 2, experts=8, seed=2)
    text = megatron(prefill) + megatron(decode).replace('"step": ', '"step": 1')
    text += megatron(chosen(1, 1, 4, 2, experts=8), block="mtp", mtp_idx=0)
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    trace = import_routing(path, experts=8)
    assert np.array_equal(trace.ids, decode)
    assert np.array_equal(trace.prefill_ids, prefill[0])
    assert trace.prompt_lengths == (9,)


def test_megatron_ranks_have_sequences_of_their_own(tmp_path):
    ids = chosen(3, 2, 6, 2, experts=8)
    paths = [
        written(tmp_path / f"router_trace_rank{rank}.jsonl", megatron(ids[:, :, 3 * rank : 3 * rank + 3]))
        for rank in (0, 1)
    ]
    assert np.array_equal(import_routing(paths, experts=8).ids, ids)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"layer": 2', '"layer": -2', 1), "type t.jsonl:2 layer"),
        (lambda text: text.replace('"step": 0, ', "", 1), "missing t.jsonl:1 step"),
        (lambda text: text.replace('"num_tokens": 4', '"num_tokens": 5', 1), "conflict t.jsonl:1 num_tokens"),
        (lambda text: text.replace('"topk": 2', '"topk": 3', 1), "conflict t.jsonl:1 topk"),
        (lambda text: text.replace('"layer": 2', '"layer": 1', 1), "twice t.jsonl:2"),
        (
            lambda text: text.replace('"top_indices": [[', '"top_indices": [[1.5, ', 1),
            "form t.jsonl:1 top_indices",
        ),
        (lambda text: text + "{\n", "form t.jsonl:7"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "conflict t.jsonl"),
        (lambda text: text.replace('"step": 1', '"step": 7', 1), "conflict t.jsonl"),
    ],
)
def test_megatron_mistakes(change, words, tmp_path):
    text = change(megatron(chosen(3, 2, 4, 2, experts=8)))
    check_refused(written(tmp_path / "t.jsonl", text), words, experts=8)


# ---- SGLang ----


class Tensor:
    """A stand-in that pickles as PyTorch's tensors do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)


class Storage:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class TorchPickler(pickle.Pickler):
    """Writes what ``torch.save`` writes, without PyTorch."""

    def __init__(self, file: io.BytesIO, storages: list[np.ndarray]) -> None:
        super().__init__(file, protocol=2)
        self.storages = storages

    def reducer_override(self, value: object):
        if isinstance(value, Tensor):
            array = value.array
            strides = tuple(stride // array.itemsize for stride in array.strides)
            return rebuild, (Storage(array), 0, array.shape, strides, False, OrderedDict())
        return NotImplemented

    def persistent_id(self, value: object):
        if isinstance(value, Storage):
            self.storages.append(value.array)
            kind = {"i4": IntStorage, "i8": LongStorage}[value.array.dtype.str[1:]]
            return "storage", kind, str(len(self.storages) - 1), "cpu", value.array.size
        return None


def rebuild(*arguments: object) -> None:
    raise AssertionError


class IntStorage: ...


class LongStorage: ...


def save(path: Path, content: object) -> Path:
    """`content` as ``torch.save`` writes it."""
    file, storages = io.BytesIO(), []
    TorchPickler(file, storages).dump(content)
    here = __name__.encode()
    pickled = file.getvalue().replace(b"c" + here + b"\nrebuild", b"ctorch._utils\n_rebuild_tensor_v2")
    pickled = pickled.replace(b"c" + here + b"\nIntStorage", b"ctorch\nIntStorage")
    pickled = pickled.replace(b"c" + here + b"\nLongStorage", b"ctorch\nLongStorage")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for number, array in enumerate(storages):
            archive.writestr(f"archive/data/{number}", array.tobytes())
    return path


def recorded(ids: np.ndarray, mode: int, **more: object) -> dict:
    """A record of ids [layer, token, k], of which layer 0 is dense and columns beyond the k are -1."""
    full = np.full((len(ids) + 1, ids.shape[1], 8), -1, np.int32)
    full[1:, :, : ids.shape[2]] = ids
    return dict(
        forward_pass_id=0, rank=0, gatherer_key="primary", input_ids=[1], forward_mode=mode,
        topk_ids_of_layer=Tensor(full), misc_objects=[], **more,
    )  # fmt: skip


def test_sglang_records(tmp_path):
    prefill, decode = chosen(2, 7, 3, experts=10), chosen(4, 2, 3, 3, experts=10, seed=2)
    physical = np.stack([np.random.default_rng(n).permutation(10) for n in range(3)]).astype(np.int64)
    content = dict(
        records=[
            recorded(prefill, 1, extend_seq_lens=[4, 1, 2]),
            recorded(prefill[:, :0], 4),
            *(recorded(of_step, 2, extend_seq_lens=None) for of_step in decode),
        ],
        last_physical_to_logical_map=Tensor(physical),
    )
    trace = import_routing(save(tmp_path / "recorder.pt", content))
    assert (trace.experts, trace.layers, trace.prompt_lengths) == (10, (1, 2), (4, 1, 2))
    for row in (0, 1):
        assert np.array_equal(trace.ids[:, row], physical[row + 1][decode[:, row]])
        assert np.array_equal(trace.prefill_ids[row], physical[row + 1][prefill[row]])


def test_counts_of_sglang_are_added_over_steps_and_dense_layers_are_left_out(tmp_path):
    """As its recorder writes them in the mode stat: [step][layer][expert], over all layers of the model."""
    steps = np.array([[[0, 0, 0], [3, 1, 0], [2, 2, 2]], [[0, 0, 0], [1, 2, 1], [0, 1, 1]]])
    saved = save(tmp_path / "stat.pt", dict(rank=0, logical_count=Tensor(steps)))
    (tmp_path / "step.json").write_text(json.dumps({"logical_count": steps.tolist()}))
    (tmp_path / "sum.json").write_text(json.dumps({"logical_count": steps.sum(axis=0).tolist()}))
    for path in (saved, tmp_path / "step.json", tmp_path / "sum.json"):
        counts = read_counts(path)
        assert (counts.layers, counts.model_layers) == ((1, 2), 3)
        assert counts.table("").tolist() == [[4, 3, 1], [2, 3, 3]]
        trace = import_routing(path, experts_per_token=2)
        assert trace.source["imported"] == "counts"
        assert [trace.loads(0, layer).tolist() for layer in (1, 2)] == [[4, 3, 1], [2, 3, 3]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([[0, 0]], "invalid a.json logical_count"),
        ([1, 2], "form a.json logical_count"),
        ([[1, 2], [3]], "form a.json logical_count"),
        ([[0.5, 2]], "form a.json logical_count"),
        ([[-1, 2]], "form a.json logical_count"),
        ({"c4": [[1, 2]]}, "form a.json logical_count"),
    ],
)
def test_impossible_counts_of_sglang_are_refused(content, words, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"logical_count": content}))
    with refused(words):
        import_routing(tmp_path / "a.json", experts_per_token=2)


def test_a_prompt_of_one_token_is_a_prompt(tmp_path):
    prefill, decode = chosen(2, 1, 3, experts=10), chosen(2, 2, 1, 3, experts=10, seed=2)
    records = [recorded(prefill, 1, extend_seq_lens=[1]), *(recorded(of_step, 2) for of_step in decode)]
    np.savez(tmp_path / "v.npz", routed_experts=decode[:, :, 0], prompt_routed_experts=prefill.swapaxes(0, 1))
    for path in (save(tmp_path / "recorder.pt", dict(records=records)), tmp_path / "v.npz"):
        trace = import_routing(path, experts=10)
        assert trace.prompt_lengths == (1,)
        assert np.array_equal(trace.prefill_ids, prefill)
        assert np.array_equal(trace.ids, decode)
    last = chosen(2, 4, 3, experts=10, seed=3)
    records.append(recorded(last, 1, extend_seq_lens=[4]))
    trace = import_routing(save(tmp_path / "longer.pt", dict(records=records)), experts=10)
    assert (trace.ids.shape, trace.prompt_lengths) == (decode.shape, (1, 4))
    assert np.array_equal(trace.prefill_ids, np.concatenate([prefill, last], axis=1))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (dict(logical_count=Tensor(np.ones((1, 2, 3), np.int32))), "missing recorder.pt experts_per_token"),
        (dict(records=[dict(global_physical_count=1)]), "form recorder.pt records[0].topk_ids_of_layer"),
        (dict(records=[recorded(chosen(2, 3, 2), 3)]), "range recorder.pt records[0].forward_mode"),
        (dict(records=[]), "form recorder.pt"),
        (dict(records=[recorded(chosen(2, 3, 2), 2), recorded(chosen(2, 4, 2), 2)]), "conflict recorder.pt"),
        (
            dict(
                records=[recorded(chosen(2, 3, 2), 2)],
                last_physical_to_logical_map=Tensor(np.zeros((3, 5), np.int64)),
            ),
            "range recorder.pt records[0].topk_ids_of_layer[1]",
        ),
        (
            dict(
                records=[recorded(np.array([[[0, 4]], [[1, 5]]]), 2)],
                last_physical_to_logical_map=Tensor(np.arange(15).reshape(3, 5) % 5),
            ),
            "range recorder.pt records[0].topk_ids_of_layer[2]",
        ),
    ],
)
def test_sglang_mistakes(content, words, tmp_path):
    check_refused(save(tmp_path / "recorder.pt", content), words)


def test_no_code_of_a_saved_file_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    file = io.BytesIO()
    pickle.Pickler(file, protocol=2).dump({"records": [Evil()]})
    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("archive/data.pkl", file.getvalue())
    check_refused(tmp_path / "evil.pt", "unsupported evil.pt")


@pytest.mark.parametrize("shape", [(3, 5), (2, 8), (1 << 40, 1)])
def test_a_tensor_beyond_its_storage_is_refused(shape, tmp_path):
    path = save(tmp_path / "t.pt", {"t": Tensor(np.arange(14, dtype=np.int32).reshape(2, 7))})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    small, large = pickle.dumps((2, 7), 2)[2:-1], pickle.dumps(shape, 2)[2:-1]
    pattern = small.split(b"q")[0]
    assert pattern in members["archive/data.pkl"]
    members["archive/data.pkl"] = members["archive/data.pkl"].replace(pattern, large.split(b"q")[0], 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with refused("form t.pt"):
        read_saved(path)


def test_what_pytorch_saves_is_read(tmp_path):
    torch = pytest.importorskip("torch", reason="needs pip install 'ndpsim[capture]'")
    base = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
    content = dict(
        a=base, b=base.transpose(0, 2)[1:], c=[torch.ones(2, dtype=torch.bool), 1.5], d=torch.zeros(0, 3)
    )
    torch.save(content, tmp_path / "t.pt")
    found = read_saved(tmp_path / "t.pt")
    assert np.array_equal(found["a"], base.numpy())
    assert np.array_equal(found["b"], base.transpose(0, 2)[1:].numpy())
    assert found["c"][0].tolist() == [True, True]
    assert found["c"][1] == 1.5
    assert found["d"].shape == (0, 3)


# ---- llama.cpp ----


def llama(ids: np.ndarray) -> str:
    """Rows of ids [pass, layer, token, k] of the layers 3, 4, ..."""
    rows = [
        f"{3 + layer},{' '.join(map(str, token))}"
        for of_pass in ids for layer, tokens in enumerate(of_pass) for token in tokens.tolist()
    ]  # fmt: skip
    return "\n".join(rows) + "\n"


def test_llama_cpp_rows(tmp_path):
    prefill, decode = chosen(1, 4, 7, 8), chosen(5, 4, 1, 8, seed=2)
    trace = import_routing(
        written(tmp_path / "e.csv", f"layer_id,expert_ids\n{llama(prefill)}{llama(decode)}"), experts=64
    )
    assert trace.layers == (3, 4, 5, 6)
    assert np.array_equal(trace.ids, decode)
    assert np.array_equal(trace.prefill_ids, prefill[0])


def test_the_largest_id_says_how_many_experts_there_are_where_nothing_else_does(tmp_path):
    trace = import_routing(written(tmp_path / "e.csv", "layer_id,expert_ids\n3,52 40 85\n3,1 2 3\n"))
    assert trace.experts == 86
    assert trace.source["notes"] == ["86 experts, as the largest id says; give the model, or the number"]


# ---- DynaNDE ----


def dynande(ids: np.ndarray, experts: int, layer: int) -> str:
    """A file of ids [token, k]: the sooner an expert, the higher its score."""
    lines = ["layer_id,token_id," + ",".join(f"expert_{expert}" for expert in range(experts))]
    for token, of_token in enumerate(ids.tolist()):
        scores = {expert: 0.5 / 2**place for place, expert in enumerate(of_token)}
        lines.append(
            f"{layer},{token}," + ",".join(f"{scores.get(expert, 0):.6f}" for expert in range(experts))
        )
    return "\n".join(lines) + "\n"


def test_dynande_files_of_layers_and_positions(tmp_path):
    ids = chosen(3, 2, 5, 3, experts=8)  # step, layer, token
    paths = [
        written(tmp_path / f"{step}_{layer}.csv", dynande(ids[step, layer], 8, 2 + layer))
        for step in range(3) for layer in range(2)
    ]  # fmt: skip
    trace = import_routing(paths)
    assert (trace.experts, trace.layers) == (8, (2, 3))
    assert np.array_equal(trace.ids, ids)
    assert trace.scores[0, 0, 0].tolist() == [0.5, 0.25, 0.125]
    assert np.array_equal(import_routing(paths, steps=2).scores, trace.scores[:2])


def test_dynande_files_may_have_their_layer_in_the_name_alone(tmp_path):
    """As the published samples: a folder for each position of the token, layer 0 in each row."""
    ids = chosen(2, 2, 5, 3, experts=8)
    paths = []
    for step in range(2):
        (tmp_path / f"{step}").mkdir()
        for row, layer in enumerate((2, 10)):
            name = f"model-290m_epoch5473_layer{layer}_shard0_64x512.csv"
            paths.append(written(tmp_path / f"{step}" / name, dynande(ids[step, row], 8, 0)))
    trace = import_routing(paths)
    assert trace.layers == (2, 10)
    assert np.array_equal(trace.ids, ids)
    assert import_routing([paths[0], paths[2]]).layers == (0,)


def test_dynande_takes_the_highest_scores(tmp_path):
    path = written(
        tmp_path / "a.csv", "layer_id,token_id,expert_0,expert_1,expert_2\n0,0,0.2,0.5,0.3\n0,1,0.6,0.1,0.3\n"
    )
    assert import_routing(path, experts_per_token=2).ids[0, 0].tolist() == [[1, 2], [0, 2]]
    one_layer = import_routing([path, path], experts_per_token=1)
    assert one_layer.ids[:, 0].tolist() == [[[1], [0]], [[1], [0]]]


def test_dynande_k_beyond_the_scores_is_refused(tmp_path):
    path = written(tmp_path / "a.csv", "layer_id,token_id,expert_0,expert_1\n0,0,0.2,0\n")
    check_refused(path, "conflict a.csv:2", experts_per_token=2)


# ---- counts ----


def test_counts_become_tokens_with_just_these_loads(tmp_path):
    table = [[5, 3, 2, 2], [1, 1, 6, 4]]
    content = json.dumps({"experts_per_token": 2, "layers": [1, 4], "counts": table})
    trace = import_routing(written(tmp_path / "counts.json", content))
    assert (trace.layers, trace.steps, trace.batch) == ((1, 4), 1, 6)
    assert [trace.loads(0, layer).tolist() for layer in (1, 4)] == table


def test_fiddlers_popularity(tmp_path):
    content = json.dumps({"total_input_tokens": 3, "expert_popularity": [[2, 2, 1, 1], [3, 1, 1, 1]]})
    path = written(tmp_path / "mmlu.json", content)
    assert import_routing(path, experts_per_token=2).loads(0, 1).tolist() == [3, 1, 1, 1]
    check_refused(path, "missing mmlu.json experts_per_token")


def test_bundled_counts_can_be_imported():
    trace = import_routing(BUNDLED / "mixtral-8x7b-instruct.json")
    assert (trace.steps, trace.batch, trace.experts, len(trace.layers)) == (1, 10386, 8, 32)
    assert "of high-school-biology, machine-learning, the first is taken" in trace.source["notes"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([[2, 1], [2, 2]], "invalid c.json layer 0"),
        ([[2, 2], [4, 2]], "invalid c.json layer 1"),
        ([[3, 1, 0]], "range c.json layer 0, expert 0"),
    ],
)
def test_counts_that_no_tokens_have_are_refused(table, words, tmp_path):
    check_refused(written(tmp_path / "c.json", json.dumps(table)), words, experts_per_token=2)


# ---- all formats ----


def test_formats_are_told_apart(tmp_path):
    np.savez(tmp_path / "a.npz", routed_experts=chosen(2, 3, 2))
    np.save(tmp_path / "a.npy", chosen(2, 3, 2))
    files = {
        "counts": written(tmp_path / "a.json", "[[2, 2]]"),
        "dynande": written(tmp_path / "a.csv", dynande(chosen(2, 2, experts=4), 4, 0)),
        "llama-cpp": written(tmp_path / "b.csv", f"layer_id,expert_ids\n{llama(chosen(1, 2, 3, 4))}"),
        "megatron": written(tmp_path / "a.jsonl", megatron(chosen(1, 2, 3, 4))),
        "passes-json": written(tmp_path / "p.json", passes([[5, 1]], [0, 4])),
        "sglang": save(tmp_path / "a.pt", dict(records=[recorded(chosen(2, 3, 2), 2)])),
        "vllm": tmp_path / "a.npz",
    }
    assert set(files) == set(routing_formats())
    for name, path in files.items():
        asked = {"experts_per_token": 2} if name == "counts" else {}
        trace = import_routing(path, **asked)
        assert trace.source["imported"] == name
        assert import_routing(path, format=name, **asked) == trace
    assert import_routing(tmp_path / "a.npy").source["imported"] == "vllm"


def test_an_imported_trace_is_not_imported_again(tmp_path):
    ndpsim.generate_routing("skewed", LITE, batch=2, steps=1).save(tmp_path / "t.npz")
    check_refused(tmp_path / "t.npz", "conflict t.npz")


def test_what_is_asked_and_cannot_be_is_refused(tmp_path):
    path = written(tmp_path / "e.csv", f"layer_id,expert_ids\n{llama(chosen(3, 2, 1, 4, experts=8))}")
    assert import_routing(path, steps=2).steps == 2
    check_refused(path, "range steps", steps=4)
    check_refused(path, "range experts", experts=0)
    check_refused(path, "unknown-name format ? llama-cpp", format="llama")
    check_refused(path, "conflict experts or experts_per_token", experts=8, model=LITE)
    check_refused([], "missing files")
    check_refused(tmp_path / "none.csv", "unreadable none.csv")
    check_refused(written(tmp_path / "x", "hello\n"), "form x format")
    check_refused(
        written(tmp_path / "x.csv", "layer_id,expert_ids\n3,9 1\n"),
        "range x.csv ids[step 0, layer 3, token 0]",
        experts=8,
    )


def test_memory_is_bounded(tmp_path, monkeypatch):
    path = written(tmp_path / "e.csv", f"layer_id,expert_ids\n{llama(chosen(3000, 2, 1, 4, experts=8))}")
    monkeypatch.setenv("NDPSIM_MEMORY_GIB", "0.0001")
    check_refused(path, "too-large e.csv:4097")
    packed = tmp_path / "c.json.gz"
    packed.write_bytes(gzip.compress(b"[[" + b"1," * 100_000 + b"1]]"))
    check_refused(packed, "too-large c.json.gz")


COUNTS = [[3, 0, 3, 2], [1, 3, 2, 2]]  # of 4 tokens with 2 experts each


@pytest.mark.parametrize(
    "text",
    [
        "layer,expert_0,expert_1,expert_2,expert_3\n5,3,0,3,2\n7,1,3,2,2\n",
        "layer_id, expert_id, count\n7,0,1\n7,1,3\n7,2,2\n7,3,2\n5,0,3\n5,2,3\n5,3,2\n",
        "\ufefflayer,expert_0,expert_1,expert_2,expert_3\r\n7,1,3,2.0,2e0\r\n5,3,0,3,2\r\n",
    ],
)
def test_counts_of_csv_are_those_of_json(tmp_path, text):
    (tmp_path / "c.csv").write_text(text)
    (tmp_path / "c.json").write_text(json.dumps({"layers": [5, 7], "counts": COUNTS}))
    trace = import_routing(tmp_path / "c.csv", experts_per_token=2)
    assert trace.layers == (5, 7)
    assert [trace.loads(0, layer).tolist() for layer in (5, 7)] == COUNTS
    assert trace == import_routing(tmp_path / "c.json", experts_per_token=2)


def test_counts_of_csv_without_a_header_are_layers_from_0_and_a_popularity(tmp_path):
    path = written(tmp_path / "c.csv", "3,0,3,2\n1,3,2,2\n")
    trace = import_routing(path, experts_per_token=2)
    assert trace.layers == (0, 1)
    assert [trace.loads(0, layer).tolist() for layer in (0, 1)] == COUNTS
    shape = ndpsim.load_model("mixtral-8x7b")
    path.write_text("".join(",".join(["900"] * 7 + ["0"]) + "\n" for _ in range(32)))
    drawn = ndpsim.generate_routing(f"popularity:{path}", shape, batch=64, steps=1)
    assert set(drawn.ids.ravel().tolist()) == set(range(7))


def test_a_file_of_no_format_gets_the_command_that_lists_columns(tmp_path):
    with pytest.raises(InputError) as caught:
        import_routing(written(tmp_path / "x.csv", "expert,how often\n0,3\n"))
    assert caught.value.code == "form"
    assert str(caught.value).endswith("Formats: ndpsim list routing-formats")
    printed = call("list", "routing-formats").out
    for columns in (
        "layer,expert,count",
        "layer,expert_0",
        "layer_id,expert_ids",
        "layer_id,token_id,expert_0",
    ):
        assert columns in printed


# ---- Passes of single requests; Parquet -------------------------------------------------------------------------


def passes(prompt: list[list[int]], *steps: list[int]) -> str:
    """A request of the corpus: layers 0 and 2 are dense, 1 and 3 have the same experts."""
    experts = [prompt, *([chosen] for chosen in steps)]
    return json.dumps([{"0": None, "1": rows, "2": None, "3": rows[::-1]} for rows in experts], indent=1)


def test_passes_of_requests_are_sequences_of_a_batch(tmp_path):
    first = written(tmp_path / "0.json", passes([[5, 1], [2, 7]], [0, 4], [3, 1]))
    second = written(tmp_path / "1.json", passes([[6, 2]], [1, 0], [2, 4], [5, 3]))
    trace = import_routing([first, second], experts=8, steps=2)
    assert trace.source["imported"] == "passes-json"
    assert (trace.layers, trace.experts, trace.prompt_lengths) == ((1, 3), 8, (2, 1))
    assert trace.ids.tolist() == [[[[0, 4], [1, 0]]] * 2, [[[3, 1], [2, 4]]] * 2]
    assert trace.prefill_ids.tolist() == [[[5, 1], [2, 7], [6, 2]], [[2, 7], [5, 1], [6, 2]]]
    assert import_routing(first, experts=8).steps == 2
    with refused("missing 0.json"):
        import_routing([first, second])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"0": null}]', "conflict x.json pass 0"),
        ('[{"1": [[1, 2]]}, {"2": [[1, 2]]}]', "conflict x.json pass 1"),
        ('[{"1": [[1, 2]]}, {"1": [[1, 2], [3, 4]]}]', "conflict x.json pass 1"),
        ('[{"1": [[1, 2]], "3": [[1]]}]', "conflict x.json pass 0"),
        ('[{"1": [[1, 2]], "three": [[1, 2]]}]', "form x.json pass 0"),
        ('[{"1": [[1, 2.5]]}]', "form x.json pass 0, layer 1"),
        ('[{"1": [[1, 2]]}, 3]', "form x.json"),
    ],
)
def test_passes_with_mistakes(text, expected, tmp_path):
    with refused(expected):
        import_routing(written(tmp_path / "x.json", text))


def parquet(path, **changed):
    """A table as AISimulate publishes it: layers 1 and 3, of which each token chooses 2 of 4 experts."""
    import pyarrow
    import pyarrow.parquet

    columns = {
        "layer_id": [1] * 4 + [3] * 4,
        "expert_id": [0, 1, 2, 3] * 2,
        "activation_count": [3, 0, 3, 2, 1, 3, 2, 2],
        "routed_token_count": [4] * 8,
        "token_hit_rate": [0.75, 0.0, 0.75, 0.5, 0.25, 0.75, 0.5, 0.5],
    }
    columns = {name: values for name, values in (columns | changed).items() if values is not None}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_popularity_of_parquet_has_layers_counts_and_experts_of_a_token(tmp_path):
    trace = import_routing(parquet(tmp_path / "p.parquet"))
    assert (trace.layers, trace.ids.shape) == ((1, 3), (1, 2, 4, 2))
    assert [trace.loads(0, layer).tolist() for layer in (1, 3)] == [[3, 0, 3, 2], [1, 3, 2, 2]]
    for changed, expected in (
        ({"activation_count": None}, "missing p.parquet activation_count"),
        ({"expert_id": [0, 0, 2, 3] * 2}, "twice p.parquet expert_id"),
        ({"expert_id": [0, 1, 2, 10**6] * 2}, "range p.parquet expert_id"),
        ({"activation_count": [0.5] * 8}, "form p.parquet activation_count"),
    ):
        with refused(expected):
            import_routing(parquet(tmp_path / "p.parquet", **changed))
    (tmp_path / "p.parquet").write_bytes(b"PAR1" + bytes(100))
    with refused("form p.parquet"):
        import_routing(tmp_path / "p.parquet")
