"""Files of points: written whole or not at all, and on the disk before they get their names."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.studies.sweeps import store as store_module
from ndpsim.studies.sweeps.store import SCHEMA, Store, point_name


def record(name: str, **more: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "key": name, "status": "ok", "metrics": {"time_ns": 1 / 3, "n": None}, **more}


def stored(folder: Path, *records: dict[str, Any]) -> Store:
    store = Store(folder)
    for one in records:
        store.put(one)
    store.close()
    return store


def test_what_is_put_is_found_by_its_name_alone(tmp_path):
    store = stored(tmp_path / "a" / "b", record("one"), record("two", reason="x"))
    assert store.find("two") == record("two", reason="x")
    assert store.find("three") is None
    assert sorted(path.name for path in store.points.iterdir()) == ["one.json", "two.json"]
    assert sorted(path.name for path in store.folder.iterdir()) == ["points"]


def test_a_name_depends_on_command_point_and_version(monkeypatch):
    names = [point_name("gemv", "k"), point_name("moe", "k"), point_name("gemv", "l")]
    monkeypatch.setattr(store_module, "version", lambda: "another")
    names.append(point_name("gemv", "k"))
    monkeypatch.setattr(store_module, "SCHEMA", SCHEMA + 1)
    names.append(point_name("gemv", "k"))
    assert len(set(names)) == len(names)


def test_a_file_of_another_name_is_not_believed(tmp_path, caplog):
    store = stored(tmp_path, record("one"))
    (store.points / "one.json").rename(store.points / "two.json")
    with caplog.at_level(logging.WARNING, "ndpsim"):
        assert store.find("two") is None
    assert "two.json is damaged or of another point; its point is computed again" in caplog.text


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_a_file_that_is_damaged_anywhere_is_not_believed(tmp_path_factory, place, byte, cut):
    store = stored(tmp_path_factory.mktemp("store"), record("one"))
    file = store.points / "one.json"
    content = file.read_bytes()
    place %= len(content)
    file.write_bytes(content[:place] if cut else content[:place] + bytes([byte]) + content[place + 1 :])
    assert store.find("one") in (None, record("one"))
    if cut:
        assert store.find("one") is None


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"checksum": 3}', b"[" * 100_000, b"\xff"])
def test_a_file_that_is_no_record_is_not_believed(tmp_path, content):
    store = stored(tmp_path)
    (store.points / "one.json").write_bytes(content)
    assert store.find("one") is None


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_store_is_closed(
    tmp_path, monkeypatch
):
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(number: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file")
        sync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("name"), replace(old, new)))
    stored(tmp_path, record("one"))
    assert done[:3] == ["file", "name", "folder"]


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    store = Store(tmp_path)

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        store.put(record("one"))
        with refused("unwritable out"):
            store.close()
        with refused("unwritable out"):
            store.write_file("table.csv", b"x")
    assert [path.name for path in tmp_path.rglob("*")] == ["points"]


def test_what_a_killed_run_left_goes_with_the_next_file(tmp_path):
    left = tmp_path / f".ndpsim-{'0' * 8}-1-{'0' * 16}.tmp"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    stored(tmp_path, record("one"))
    assert not left.exists()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with refused("unwritable out"):
        Store(tmp_path / "file")


def test_records_are_text_that_people_can_read(tmp_path):
    store = stored(tmp_path, record("one"))
    assert json.loads((store.points / "one.json").read_text())["metrics"]["time_ns"] == 1 / 3
