"""A cached value equals that which the next call would make."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mistakes import refused
from ndpsim import load_hardware, load_model
from ndpsim.base import caching
from ndpsim.base.caching import FileCache
from ndpsim.base.errors import InputError
from ndpsim.base.files import ensure_writable
from ndpsim.base.run_files import inputs_protected
from ndpsim.config import data_path

MODEL = {
    "model_type": "mixtral",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


@pytest.fixture
def settled(monkeypatch):
    """Treat files as unchanging as soon as they are written."""
    monkeypatch.setattr(caching, "_STABLE_NS", -(10**12))


@pytest.fixture
def hardware(tmp_path):
    """A copy of a bundled hardware file, beside its units."""
    text = data_path("hwconfigs", "trimoe").read_text()
    for unit in ("gemv", "activation", "relayout"):
        text = text.replace(f"{unit}: trimoe_{unit}", f"{unit}: {unit}.yaml")
        shutil.copy(data_path("rtl_params", f"trimoe_{unit}"), tmp_path / f"{unit}.yaml")
    path = tmp_path / "hw.yaml"
    path.write_text(text)
    return path


def swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def model(folder: Path, **changes: int) -> str:
    path = folder / "model.json"
    path.write_text(json.dumps(MODEL | changes))
    return str(path)


def test_what_was_made_of_files_is_cached_until_one_of_them_changes(settled, tmp_path):
    made, file = FileCache[str](2), tmp_path / "file"
    file.write_text("one")
    made.store("key", [file, tmp_path], "made of one")
    assert made.find("key") == "made of one"
    file.write_text("two")
    assert made.find("key") is None


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_file_that_takes_the_place_of_another_of_its_size_and_time_is_seen(settled, tmp_path, keep_time):
    made, file, other = FileCache[str](2), tmp_path / "file", tmp_path / "other"
    file.write_text("one")
    other.write_text("two")
    if keep_time:
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        os.utime(other, ns=times)
    made.store("key", [file], "made of one")
    os.replace(other, file)
    assert made.find("key") is None


def test_a_file_that_goes_or_comes_is_seen(settled, tmp_path):
    made, there, absent = FileCache[str](2), tmp_path / "there", tmp_path / "absent"
    there.touch()
    made.store("of there", [there], "one")
    made.store("of absent", [absent], "other")
    there.unlink()
    assert (made.find("of there"), made.find("of absent")) == (None, "other")
    absent.touch()
    assert made.find("of absent") is None


def test_files_are_inputs_of_the_call_that_finds_what_was_made_of_them(settled, tmp_path):
    made, file = FileCache[str](2), tmp_path / "file"
    file.write_text("one")
    made.store("key", [file], "made")
    with inputs_protected():
        made.find("key")
        with refused("unwritable --json"):
            ensure_writable(file, "--json")


def test_nothing_is_cached_of_a_file_that_has_just_been_written(tmp_path):
    made, file = FileCache[str](2), tmp_path / "file"
    file.write_text("one")
    assert made.store("key", [file], "made") == "made"
    assert made.find("key") is None


def test_only_the_last_are_cached(settled, tmp_path):
    made = FileCache[int](2)
    for number in range(3):
        made.store(number, [tmp_path], number)
    assert [made.find(number) for number in range(3)] == [None, 1, 2]


@pytest.mark.usefixtures("settled")
class TestHardware:
    def test_is_read_once_while_its_files_stay(self, hardware):
        assert load_hardware(str(hardware)) is load_hardware(str(hardware))
        assert load_hardware("trimoe") is load_hardware("trimoe")

    def test_is_read_again_when_its_file_changes(self, hardware):
        assert load_hardware(str(hardware)).lanes == 8
        swap(hardware, "ranks: {value: 4", "ranks: {value: 2")
        assert load_hardware(str(hardware)).lanes == 4

    def test_is_read_again_when_the_file_of_a_unit_changes(self, hardware):
        assert load_hardware(str(hardware)).ndp.gemv.fifo_bursts != 19
        swap(hardware.parent / "gemv.yaml", "fifo_bursts:\n  value: 32", "fifo_bursts:\n  value: 19")
        assert load_hardware(str(hardware)).ndp.gemv.fifo_bursts == 19

    def test_is_read_again_when_a_unit_changes_and_all_its_values_were_set(self, hardware):
        """Nothing of the file counts, but that it can be read does."""
        fields = load_hardware(str(hardware)).system.ndp.relayout.model_dump(exclude_none=True)
        sets = [f"ndp.relayout.{name}={value}" for name, value in fields.items()]
        load_hardware(str(hardware), sets)
        (hardware.parent / "relayout.yaml").write_text("[")
        with pytest.raises(InputError):
            load_hardware(str(hardware), sets)

    def test_of_the_same_relative_path_depends_on_the_folder(self, hardware, tmp_path, monkeypatch):
        other = tmp_path / "other"
        shutil.copytree(tmp_path, other)
        swap(other / "hw.yaml", "ranks: {value: 4", "ranks: {value: 2")
        monkeypatch.chdir(tmp_path)
        assert load_hardware("hw.yaml").lanes == 8
        monkeypatch.chdir(other)
        assert load_hardware("hw.yaml").lanes == 4

    def test_gives_way_to_a_bundled_file_of_its_name(self, hardware, tmp_path, monkeypatch):
        bundled = tmp_path / "bundled" / "hwconfigs"
        shutil.copytree(tmp_path, bundled)
        monkeypatch.setattr(
            "ndpsim.config.load.data_names", lambda kind: sorted(p.stem for p in bundled.iterdir())
        )
        monkeypatch.setattr("ndpsim.config.load.data_path", lambda kind, name: bundled / f"{name}.yaml")
        monkeypatch.setattr("ndpsim.config.load.data_folder", lambda kind: bundled)
        monkeypatch.chdir(tmp_path)
        hardware.rename("mine")
        assert load_hardware("mine").lanes == 8
        swap(bundled / "hw.yaml", "ranks: {value: 4", "ranks: {value: 2")
        (bundled / "hw.yaml").rename(bundled / "mine.yaml")
        assert load_hardware("mine").lanes == 4


@pytest.mark.usefixtures("settled")
class TestModel:
    def test_is_read_once_while_its_file_stays(self, tmp_path):
        path = model(tmp_path)
        assert load_model(path) is load_model(path)
        assert load_model("mixtral-8x7b") is load_model("mixtral-8x7b")

    def test_is_read_again_when_its_file_changes(self, tmp_path):
        assert load_model(model(tmp_path)).hidden == 256
        assert load_model(model(tmp_path, hidden_size=512)).hidden == 512

    def test_that_is_gone_is_an_error(self, tmp_path):
        path = model(tmp_path)
        load_model(path)
        Path(path).unlink()
        with refused("unreadable model.json"):
            load_model(path)
