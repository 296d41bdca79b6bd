"""Damaged files of every format: refused in one line that names the file, or read."""

from __future__ import annotations

import base64
import copy
import gzip
import io
import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ndpsim
from builders import gguf_file
from calls import GIVEN
from fuzz.outcomes import attempt, examples
from ndpsim.config import data_path
from ndpsim.config.files import data_folder
from ndpsim.config.parts import load_part
from ndpsim.dram.banks.programs import read_program
from ndpsim.policies.published.cxl import read_losses
from ndpsim.studies.banks import read_case
from ndpsim.studies.sweeps.file import read_definition
from test_command_formats import EXPECTED
from test_dramsys import WHOLE
from test_python_face import AIM, PROGRAM, UNIT_COMMANDS
from test_routing_import import recorded, save
from test_workload_formats import READ

_IDS = np.array([[[[0, 1]]], [[[1, 2]]]], np.int16)  # [step, layer, token, k]


def _bytes(write: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    write(file, *arguments, **named)
    return file.getvalue()


def _text(content: Any) -> bytes:
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def _of_torch() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return save(Path(folder) / "a.pt", {"records": [recorded(_IDS[0].reshape(1, 1, 2), 2)]}).read_bytes()


def _of_gguf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = gguf_file.write(Path(folder) / "m.gguf", gguf_file.METADATA, gguf_file.small())
        return Path(path).read_bytes()


def _of_routing() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ndpsim.Routing(4, (0, 1), np.zeros((2, 2, 1, 1), np.int16)).save(Path(folder) / "r.npz")
        return (Path(folder) / "r.npz").read_bytes()


def _of_unit_commands() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ndpsim.write_unit_commands(Path(folder) / "u.csv", UNIT_COMMANDS, AIM)
        return (Path(folder) / "u.csv").read_bytes()


def _model_beside(path: Path) -> Any:
    return ndpsim.load_model(shutil.copy(GIVEN / "config.json", path.parent))


def _unit_beside(path: Path) -> Any:
    return ndpsim.load_hardware(shutil.copy(GIVEN / "hw.yaml", path.parent))


_NPY = _bytes(np.save, _IDS[:, 0])
_ROUTING = {
    "routed.npy": _NPY,
    "routed.npz": _bytes(np.savez, routed_experts=_IDS[:, 0]),
    "base64.json": _text({"choices": [{"routed_experts": base64.b64encode(_NPY).decode()}]}),
    "raw.json": _text(
        {"routed_experts": {"data": base64.b64encode(_IDS.tobytes()).decode(), "shape": [2, 1, 2]}}
    ),
    "sglang.pt": _of_torch(),
    "megatron.jsonl": b'{"rank": 0, "step": 4, "layer": 1, "num_tokens": 1, "top_indices": [[3, 17]]}\n',
    "llama.csv": b"layer_id,expert_ids\n3,52 40\n4,1 2\n3,52 40\n4,1 2\n",
    "dynande.csv": b"layer_id,token_id,expert_0,expert_1\n0,17,0.0,0.1\n",
    "counts.json": b'{"experts_per_token": 2, "counts": [[2, 2, 2], [1, 2, 3]]}',
}
_LOSSES = b"layer,expert,bits,loss\n" + b"".join(
    b"%d,%d,%d,0.5\n" % (layer, expert, bits)
    for layer in (0, 1)
    for expert in (0, 1)
    for bits in (1, 2, 3, 4)
)
_CASE = Path(__file__).parents[2] / "validation/banks/aim_gemv_4096x1536.yaml"
_TRACES = {
    "addresses": b"LD 0x40\nST 0x80\n" * 3,
    "timed": b"0x40 READ 10\n0x80 WRITE 20\n",
    "places": b"R 0,0,0,0,1,2\nW 0,0,1,1,1,2\n",
    "records.npy": _bytes(np.save, np.zeros(3, [("address", np.int64), ("write", np.int8)])),
}


#: For each kind of file: a good one, the end of its name, and what reads it.
FILES: dict[str, tuple[bytes, str, Callable[[Path], Any]]] = {
    **{name: (content, name, ndpsim.import_routing) for name, content in _ROUTING.items()},
    **{f"trace {name}": (content, name, ndpsim.read_requests) for name, content in _TRACES.items()},
    "commands": (EXPECTED["ndpsim"].encode(), "c.csv", ndpsim.read_commands),
    **{f"requests {name}": (_text(row[0]), "r.txt", ndpsim.import_requests) for name, row in READ.items()},
    "counts": (
        b"layer,expert,count\n0,0,3\n0,1,3\n",
        "c.csv",
        lambda path: ndpsim.import_routing(path, experts_per_token=2),
    ),
    "hardware": (data_path("hwconfigs", "trimoe").read_bytes(), "h.yaml", ndpsim.load_hardware),
    "model": ((GIVEN / "config.json").read_bytes(), "config.json", ndpsim.load_model),
    "sweep": ((GIVEN / "sweep.yaml").read_bytes(), "s.yaml", read_definition),
    "dramsim3": ((GIVEN / "dramsim3.ini").read_bytes(), "d.ini", ndpsim.import_hardware),
    "ramulator 2": ((GIVEN / "ramulator20.yaml").read_bytes(), "r.yaml", ndpsim.import_hardware),
    "dramsys": (_text(WHOLE), "d.json", ndpsim.import_hardware),
    "gguf": (_of_gguf(), "m.gguf", ndpsim.load_model),
    "index": (
        _text({"metadata": {"total_size": 7e9, "dtype": "BF16"}, "weight_map": {"lm_head.weight": "a"}}),
        "model.safetensors.index.json",
        _model_beside,
    ),
    "quantization": (
        _text({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}),
        "hf_quant_config.json",
        _model_beside,
    ),
    "routing": (_of_routing(), "own.npz", ndpsim.load_routing),
    "part": ((GIVEN / "cpu.yaml").read_bytes(), "cpu.yaml", lambda path: load_part(str(path))),
    "unit": ((GIVEN / "unit.yaml").read_bytes(), "unit.yaml", _unit_beside),
    "mapping": ((GIVEN / "mapping.yaml").read_bytes(), "mapping.yaml", ndpsim.load_hardware),
    "bank hardware": (
        (data_folder("hwconfigs") / "banks/aim.yaml").read_bytes(),
        "b.yaml",
        ndpsim.load_bank_hardware,
    ),
    "unit commands": (
        _of_unit_commands(),
        "u.csv",
        lambda path: ndpsim.read_unit_commands(path, AIM),
    ),
    "program": (PROGRAM.read_bytes(), "p.csv", lambda path: read_program(path, AIM)),
    "losses": (_LOSSES, "l.csv", lambda path: read_losses(str(path), (0, 1), 2)),
    "losses.npz": (
        _bytes(np.savez, loss=np.ones((2, 2, 4))),
        "l.npz",
        lambda path: read_losses(str(path), (0, 1), 2),
    ),
    "bank case": (_CASE.read_bytes(), "case.yaml", read_case),
}

_LIES = [
    b"99999999999",
    b"-1",
    b"1e400",
    b"NaN",
    b"\xff\xfe",
    b"\0",
    b"[" * 3000,
    b'"',
    b"\xed\xa0\x80",
    b"{",
    b"",
    b"x" * 5000,
]


def damaged(content: bytes, damages: list[tuple[str, int, int, bytes]]) -> bytes:
    """Content with damages: each is a kind, a place, a length and a piece."""
    for kind, start, length, piece in damages:
        start %= len(content) + 1
        end = min(start + length, len(content))
        if kind == "cut":
            content = content[:start]
        elif kind == "replace":
            content = content[:start] + piece + content[end:]
        elif kind == "repeat":
            content = content[:end] + content[start:end] * (length % 5) + content[end:]
        elif kind == "size":  # four or eight bytes that say how much follows
            size = struct.pack("<q", (length % 3 - 1) << 8 * (length % 8))[: 8 if length % 2 else 4]
            content = content[:start] + size + content[start + len(size) :]
        elif kind == "number":  # the next number after the place
            digits = [index for index in range(start, len(content)) if content[index : index + 1].isdigit()][
                :1
            ]
            content = b"".join((content[: digits[0]], piece, content[digits[0] + 1 :])) if digits else content
        else:
            content = gzip.compress(content, mtime=0)[: None if length % 2 else -3]
    return content


_DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["cut", "replace", "repeat", "number", "size", "gzip"]),
        st.integers(0, 1 << 12),
        st.integers(0, 40),
        st.one_of(st.sampled_from(_LIES), st.binary(max_size=8)),
    ),
    min_size=1,
    max_size=3,
)


def _attempt(name: str, damages: list[tuple[str, int, int, bytes]], folder: Path) -> Any:
    content, end, read = FILES[name]
    path = folder / "damaged" / name.replace(" ", "-") / end
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(damaged(content, damages))
    return attempt(read, path)


@pytest.mark.parametrize("name", FILES)
def test_a_good_file_of_every_kind_is_read(name, tmp_path):
    assert _attempt(name, [("replace", 0, 0, b"")], tmp_path) is None


@settings(max_examples=400)
@given(name=st.sampled_from(sorted(FILES)), damages=_DAMAGES)
@example(name="routed.npz", damages=[("replace", 130, 8, b"'''")])
@example(name="bank case", damages=[("number", 721, 0, b"NaN")])
@example(name="losses", damages=[("number", 25, 0, b"9" * 30)])
@example(name="model", damages=[("replace", 1, 0, b'"sliding_window": [1],')])
def test_a_damaged_file_is_refused_in_a_line_or_read(name, damages, tmp_path_factory):
    _attempt(name, damages, tmp_path_factory.getbasetemp())


@pytest.mark.long
@settings(max_examples=examples(50_000))
@given(name=st.sampled_from(sorted(FILES)), damages=_DAMAGES)
def test_damaged_files_for_hours(name, damages, tmp_path_factory):
    _attempt(name, damages, tmp_path_factory.getbasetemp())


# ---- Trees: YAML and JSON of the right form, with values of other kinds


#: Files that are trees, as such.
TREES = {
    name: yaml.safe_load(content)
    for name, (content, end, _) in FILES.items()
    if end.endswith((".yaml", ".json"))
}
_KINDS = (
    None, True, 0, -1, 2**63, 10**400, 0.5, 1e308, float("inf"), float("nan"), "", "x", "1e400", "x" * 3000, "../..",
    "\u202e", "a\nb", "\u0663", [], {}, [[]], [None], {"a": 1}, {"value": None}, {"value": {"value": 1}},
    {"file": "/dev/null"}, list(range(300)), {"": 1}, {1: 2},
)  # fmt: skip


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Each container of a tree with each of its keys."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [place for key in keys for place in ((tree, key), *_places(tree[key]))]


def _attempt_tree(name: str, changes: list[tuple[int, Any, str]], folder: Path) -> None:
    tree, end = copy.deepcopy(TREES[name]), FILES[name][1]
    for place, value, kind in changes:
        places = _places(tree)
        if not places:
            break
        container, key = places[place % len(places)]
        if kind == "remove":
            container.pop(key)
        elif kind == "wrap":
            container[key] = [container[key]]
        elif kind == "add" and isinstance(container, dict):
            container["x" if isinstance(value, list | dict) else value] = 1
        else:
            container[key] = copy.deepcopy(value)
    text = json.dumps(tree) if end.endswith(".json") else yaml.safe_dump(tree, sort_keys=False)
    path = folder / "trees" / name.replace(" ", "-") / end
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    attempt(FILES[name][2], path)


_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1 << 12), st.sampled_from(_KINDS), st.sampled_from(["put", "put", "remove", "wrap", "add"])
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(TREES)), changes=_CHANGES)
def test_a_value_of_another_kind_is_refused_in_a_line_or_read(name, changes, tmp_path_factory):
    _attempt_tree(name, changes, tmp_path_factory.getbasetemp())


@pytest.mark.long
@settings(max_examples=examples(50_000))
@given(name=st.sampled_from(sorted(TREES)), changes=_CHANGES)
def test_values_of_other_kinds_for_hours(name, changes, tmp_path_factory):
    _attempt_tree(name, changes, tmp_path_factory.getbasetemp())
