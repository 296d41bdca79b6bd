"""Arrays of files: what a file states is compared with what it has before anything is read."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mistakes import refused
from ndpsim import import_routing, load_requests, read_requests
from ndpsim.base import arrays, limits
from ndpsim.base.arrays import array_of, checked, npy_of, read_npy, read_npz
from ndpsim.workload.routing.tensors import read_saved
from test_routing_import import Tensor, save

IDS = np.array([[[0, 1]], [[2, 3]]], np.int16)


def npy(array: np.ndarray = IDS) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


#: Changes of the header of an NPY file, of which each must be refused.
DAMAGES = {
    "a quotation without an end": (b"{'descr'", b"{'''escr"),
    "a bracket without an end": (b"(2, 1, 2)", b"(2, 1, (("),
    "a negative size": (b"(2, 1, 2)", b"(2,-1, 2)"),
    "a size that is a truth value": (b"(2, 1, 2)", b"(2,True,)"),
    "no number": (b"<i2", b"|O8"),
    "no width": (b"<i2", b"<U0"),
    "no order": (b"False", b"5    "),
    "NUL bytes": (b"False", b"\0\0\0\0\0"),
    "another version": (b"NUMPY\1\0", b"NUMPY\7\0"),
    "a header that is too long": (b"NUMPY\1\0", b"NUMPY\2\0"),
}


@pytest.mark.parametrize(("old", "new"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_header_is_refused_in_every_kind_of_file(old, new, here):
    content = npy().replace(old, new)
    assert content != npy()
    Path("a.npy").write_bytes(content)
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("routed_experts.npy", content)
    Path("a.json").write_text(json.dumps({"routed_experts": base64.b64encode(content).decode()}))
    for name in ("a.npy", "a.npz", "a.json"):
        with pytest.raises(ValueError, match=name) as caught:
            import_routing(name, format="vllm")
        assert caught.value.code in ("form", "type", "unsupported")


def test_a_damaged_header_of_a_trace_is_refused(here):
    file = io.BytesIO()
    np.save(file, np.zeros(2, [("address", np.int64), ("write", np.int8)]))
    for old, new in ((b"(2,)", b"(-2,"), (b"'descr'", b"\"descr'"), (b"<i8", b"|O8")):
        Path("t.npy").write_bytes(file.getvalue().replace(old, new))
        with pytest.raises(ValueError, match="t.npy"):
            read_requests("t.npy")


def test_a_shape_that_lies_is_refused_before_memory_is_taken(here, monkeypatch):
    def read(*arguments: object) -> None:
        raise AssertionError("read before it was compared")

    monkeypatch.setattr(arrays, "_content", read)
    lying = npy().replace(b"(2, 1, 2)", b"(999999,)")
    Path("a.npy").write_bytes(lying)
    with refused("form a.npy a"):
        read_npy(Path("a.npy"))
    with refused("form a.json routed_experts"):
        npy_of(lying, Path("a.json"), "routed_experts")
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("x.npy", lying)
    with refused("form a.npz x"):
        read_npz(Path("a.npz"), lambda name: True)


def test_all_arrays_of_a_file_count_together(here, monkeypatch):
    np.savez("a.npz", a=np.zeros(1000), b=np.zeros(1000))
    monkeypatch.setenv(limits.VARIABLE, str(24_000 / (1 << 30)))
    assert read_npz(Path("a.npz"), lambda name: name == "a")["a"].shape == (1000,)
    with refused("too-large a.npz b"):
        read_npz(Path("a.npz"), lambda name: True)


def test_base64_of_an_archive_is_no_array(here):
    file = io.BytesIO()
    np.savez(file, routed_experts=IDS)
    response = {"choices": [{"routed_experts": base64.b64encode(file.getvalue()).decode()}]}
    Path("a.json").write_text(json.dumps(response))
    with refused("form a.json choices[0].routed_experts"):
        import_routing("a.json")


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("int16", [2, 1, 3]), ("int16", [-2, -1, 2]), ("int16", 5), ("int16", None), ("int16", "abc"), ("x" * 9999, [4]),
     ("object", [1]), ([1], [4]), ("int16", [1 << 40, 1 << 40])],
)  # fmt: skip
def test_bytes_of_another_size_than_stated_are_refused(dtype, shape):
    with pytest.raises(ValueError, match="a.json: key") as caught:
        array_of(IDS.tobytes(), dtype, shape, Path("a.json"), "key")
    assert len(str(caught.value)) < 400


def test_lists_of_different_lengths_are_no_array():
    with refused("form a.json key"):
        checked([[[1]], [[1, 2]]], ("token", "layer", "k"), Path("a.json"), "key")


# Files of PyTorch


def test_a_stride_of_0_makes_no_large_array_of_a_small_file(here, monkeypatch):
    path = save(Path("a.pt"), {"t": Tensor(np.arange(14, dtype=np.int32).reshape(2, 7))})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    changed = _with_shape(members["archive/data.pkl"], (2, 7), (7, 1), (1 << 27, 1), (0, 0))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | {"archive/data.pkl": changed}).items():
            archive.writestr(name, content)
    monkeypatch.setenv(limits.VARIABLE, "0.1")
    with refused("too-large a.pt"):
        read_saved(path)


def _with_shape(pickled: bytes, *shapes: tuple[int, ...]) -> bytes:
    """A pickle in which the first two tuples are replaced by the others."""

    def written(shape: tuple[int, ...]) -> bytes:
        body = b"".join(
            b"K" + bytes([size]) if size < 256 else b"J" + struct.pack("<i", size) for size in shape
        )
        return body + b"\x86"

    for old, new in zip(shapes[:2], shapes[2:], strict=True):
        assert pickled.count(written(old)) == 1
        pickled = pickled.replace(written(old), written(new))
    return pickled


def test_a_number_of_an_object_beyond_the_file_is_refused(here):
    with zipfile.ZipFile("a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02]r\xff\xff\xff\x7f.")
    with refused("form a.pt"):
        read_saved(Path("a.pt"))


def test_a_path_with_half_a_surrogate_pair_is_no_path():
    with refused("type requests"):
        load_requests("\ud800")
    with refused("type path"):
        read_requests("\ud800")
