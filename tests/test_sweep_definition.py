"""What a sweep is: values of keys, points, YAML files; and files of points."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.small_config import write_config
from calls import GIVEN
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.inference.processors import table as tables
from ndpsim.studies.sweeps import records as records_module
from ndpsim.studies.sweeps import store as store_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import attempt
from ndpsim.studies.sweeps.file import read_definition
from ndpsim.studies.sweeps.records import RecordFile, line_of
from ndpsim.studies.sweeps.store import SCHEMA, Store, point_name
from ndpsim.studies.sweeps.values import Definition, checked, values_of
from ndpsim.workload.routing import generate_routing

GEMV, MOE, RELAYOUT, DRAM, SERVE = map(swept_commands().get, ("gemv", "moe", "relayout", "dram", "serve"))


@pytest.mark.parametrize(
    ("key", "text", "values"),
    [
        ("tokens", "1,2,4", (1, 2, 4)),
        ("tokens", "1..4", (1, 2, 3, 4)),
        ("tokens", "1..3,8", (1, 2, 3, 8)),
        ("tokens", "3..3", (3,)),
        ("tokens", "1..8:3", (1, 4, 7)),
        ("tokens", "log:2..5:2", (2, 5)),
        ("tokens", "log:1..64:4", (1, 4, 16, 64)),
        ("tokens", "log:1..4:9", (1, 2, 3, 4)),
        ("dimm.ranks", "1, 2", (1, 2)),
        ("link.link_gbps", "log:10..1000:3", (10.0, 100.0, 1000.0)),
        ("link.link_gbps", "log:0.1..1:3", (0.1, 0.316, 1.0)),
        ("host.cpu_tflops", "log:0.01..0.1:3", (0.01, 0.03162, 0.1)),
        ("link.link_gbps", "12.5,25", (12.5, 25)),
        ("dram.refresh", "none,all-bank", ("none", "all-bank")),
        ("layout", "localized,sharded:4", ("localized", "sharded:4")),
        ("dram.nCL", "38..40", (38, 39, 40)),
        ("bits", "16;gate=4,up=4,down=8", (16, {"gate": 4, "up": 4, "down": 8})),
        ("layout", "sharded:4;", ("sharded:4",)),
    ],
)
def test_values_are_lists_ranges_or_a_factor_apart(key, text, values):
    assert values_of(GEMV, key, text) == values


def test_a_value_that_a_rule_excludes_is_refused_with_the_rule():
    with pytest.raises(InputError, match=r"link\.link_gbps: 0\.0316 has more than three decimals$"):
        values_of(GEMV, "link.link_gbps", [0.0316])
    with pytest.raises(InputError, match=r"100,000 characters"):
        values_of(GEMV, "link.link_gbps", ["x" * 100_000])


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(2, 30))
def test_numbers_a_factor_apart_begin_and_end_where_they_are_asked_to(low, more, count):
    values = values_of(GEMV, "link.link_gbps", f"log:{low}..{low + more}:{count}")
    assert (values[0], values[-1], len(values)) == (low, low + more, count)
    exact = np.geomspace(low, low + more, count)
    assert np.abs(np.array(values) - exact).max() <= 0.0005001


def test_a_hundred_thousand_values_are_the_most():
    assert len(values_of(MOE, "seed", "1..100000")) == 100_000


def test_python_gives_lists_ranges_arrays_and_single_values():
    assert values_of(GEMV, "tokens", range(1, 4)) == (1, 2, 3)
    assert values_of(GEMV, "tokens", np.array([1, 2])) == (1, 2)
    assert values_of(GEMV, "tokens", [[3, 1, 2], 4]) == ([3, 1, 2], 4)
    assert values_of(GEMV, "tokens", np.int64(7)) == (7,)
    assert values_of(GEMV, "bits", [16, {"gate": 4, "up": 4, "down": 8}])[1]["down"] == 8


def test_the_last_key_changes_fastest():
    points = Definition("gemv", {}, {"a": (1, 2), "b": ("x", "y")}).points()
    assert [tuple(point.values()) for point in points] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_zipped_values_go_together_and_others_with_each_of_them():
    varied = {"a": (1, 2), "b": ("x", "y"), "c": (5, 6)}
    points = Definition("gemv", {}, varied, zipped=(("a", "c"),)).points()
    assert [tuple(point.values()) for point in points] == [(1, "x", 5), (1, "y", 5), (2, "x", 6), (2, "y", 6)]
    assert len(Definition("gemv", {}, varied, zipped=(("a", "b", "c"),)).points()) == 2
    with refused("conflict zip"):
        Definition("gemv", {}, {"a": (1,), "b": (1, 2)}, zipped=(("a", "b"),)).points()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"baseline": {"bits": 16}}, "unknown-key baseline"),
        ({"zipped": (("tokens", "bits"),)}, "unknown-key zip"),
        ({"speedup_of": "time_ns"}, "conflict speedup_of"),
        ({"speedup_of": "cycles", "baseline": {"tokens": 1}}, "type speedup_of"),
        ({"zipped": (("tokens", "tokens"),)}, "twice zip"),
        (
            {"varied": {"tokens": (1, 2, 1), "bits": (4, 4, 4)}, "zipped": (("tokens", "bits"),)},
            "twice tokens",
        ),
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(change, words):
    with refused(words):
        checked(Definition("gemv", **{"varied": {"tokens": (1, 2)}, **change}))


def test_keys_that_are_taken_together_may_have_a_value_again():
    varied = {"tokens": (1, 2, 1), "bits": (4, 4, 8)}
    points = checked(Definition("gemv", {}, varied, zipped=(("tokens", "bits"),))).points()
    assert [tuple(point.values()) for point in points] == [(1, 4), (2, 4), (1, 8)]


# YAML files

FILE = (GIVEN / "sweep.yaml").read_text()


def written(folder: Path, text: str) -> Path:
    (folder / "sweep.yaml").write_text(text)
    return folder / "sweep.yaml"


def test_a_file_says_all_that_a_sweep_is(tmp_path):
    read = read_definition(written(tmp_path, FILE))
    assert read.varied == {"dimm.ranks": (1, 2), "tokens": (1, 2, 3, 4)}
    assert (read.command, read.fixed, read.title) == ("gemv", {"model": "mixtral-8x7b"}, "Ranks and tokens")
    assert [(one.low, one.high, one.where) for one in read.published] == [
        (1.9, 1.9, {"tokens": 1}),
        (1, 2, {"tokens": 2}),
    ]


def test_keys_that_vary_on_the_command_line_are_those_of_the_file_no_more(tmp_path):
    read = read_definition(written(tmp_path, FILE), {"tokens": "8", "model": ["mixtral-8x7b", "deepseek-v2"]})
    assert read.varied["tokens"] == (8,)
    assert read.fixed == {}


# What a point comes to


def test_a_point_has_one_key_whatever_it_is_called(tmp_path):
    copy = tmp_path / "mine.yaml"
    from ndpsim.config.files import data_path

    copy.write_text(data_path("hwconfigs", "trimoe").read_text())
    for folder in ("rtl_params",):
        for file in data_path("hwconfigs", "trimoe").parent.parent.joinpath(folder).glob("*.yaml"):
            (tmp_path / file.name).write_text(file.read_text())
    same = [
        {"tokens": 1},
        {"hw": "trimoe", "model": "qwen3-235b-a22b"},
        {"dimm.ranks": 4, "layout": "localized"},
        {"shape": "4096,1536"},
    ]
    assert len({GEMV.resolve(one).key for one in same}) == 1
    other = [{"tokens": 2}, {"dimm.ranks": 2}, {"bits": 8}, {"shape": "4096,1535"}, {"engine": "host-read"}]
    assert len({GEMV.resolve(one).key for one in [*same[:1], *other]}) == 6


def test_contents_of_files_are_what_a_point_depends_on(tmp_path):
    trace = tmp_path / "a.trace"
    trace.write_text("LD 0x0\n")
    (tmp_path / "b.trace").write_text("LD 0x0\n")
    key = DRAM.resolve({"trace": str(trace)}).key
    assert DRAM.resolve({"trace": str(tmp_path / "b.trace")}).key == key
    trace.write_text("LD 0x40\n")
    assert DRAM.resolve({"trace": str(trace)}).key != key
    beside = {"host-traffic": "saturate", "host-pattern": str(trace)}
    before = GEMV.resolve(beside).key
    trace.write_text("LD 0x80\n")
    assert GEMV.resolve(beside).key != before


def expert_times(folder: Path) -> Path:
    """A copy of a bundled table of a GPU's expert times."""
    bundled = next(Path(tables.__file__).parent.glob("*/*h100*.csv"))
    return Path(shutil.copy(bundled, folder / "times.csv"))


def test_a_table_that_changes_while_its_point_is_run_makes_no_result(tmp_path, monkeypatch):
    table = expert_times(tmp_path)
    given = {"gpu.expert_times": [str(table)]}
    key = MOE.resolve(given).key
    monkeypatch.setattr(type(MOE), "measure", lambda *_: {"n": table.write_text(f"{table.read_text()}\n")})
    answer = attempt(MOE, given, key)
    assert (answer["status"], answer["stored"]) == ("failed", False)


def test_the_code_of_a_policy_and_tables_of_a_processor_are_what_a_point_depends_on(tmp_path):
    policy = tmp_path / "mine.py"
    code = (
        "from ndpsim.policies import Policy\n"
        "class Mine(Policy):\n    name = 'mine'\n    title = 'Mine'\n    def assign(self, view): ...\n"
    )
    policy.write_text(code)
    asked = {"policy": f"{policy}:Mine"}
    key = MOE.resolve(asked).key
    policy.write_text(f"{code}# changed\n")
    assert MOE.resolve(asked).key != key
    table = expert_times(tmp_path)
    asked = {"gpu.expert_times": [str(table)]}
    key = MOE.resolve(asked).key
    table.write_text(f"{table.read_text()}\n")
    assert MOE.resolve(asked).key != key


def test_recorded_lengths_of_requests_are_what_a_point_depends_on(tmp_path):
    lengths, keys = tmp_path / "lengths.csv", set()
    for tokens in (8, 9, 8):
        lengths.write_text(f"id,arrival_s,input_tokens,output_tokens\n0,0,{tokens},4\n")
        keys.add(SERVE.resolve({"requests": f"poisson:rate=2,lengths={lengths}"}).key)
    assert len(keys) == 2


def test_addresses_beyond_the_memory_are_folded_at_a_point_that_wraps(tmp_path):
    given = []
    for first in (0, 8 << 30):
        given.append({"trace": str(tmp_path / f"{first}.trace"), "wrap": True})
        Path(given[-1]["trace"]).write_text(f"LD {first:#x}\nST {first + 64:#x}\n")
    assert DRAM.measure(given[0]) == DRAM.measure(given[1])


@pytest.mark.parametrize("command", swept_commands().values(), ids=lambda command: command.name)
def test_configurations_and_options_are_plain_data(command, tmp_path):
    (tmp_path / "a.trace").write_text("LD 0x0\n")
    given = {"trace": str(tmp_path / "a.trace")} if command is DRAM else {}
    resolved = command.resolve(given)
    config = json.loads(resolved.text)
    assert config.keys() == resolved.config.keys()
    assert json.dumps(config, sort_keys=True) == resolved.text


def test_metrics_hold_neither_configuration_nor_wall_times(tmp_path):
    (tmp_path / "a.trace").write_text("LD 0x0\nST 0x40\n")
    small = {"shape": "512,64"}
    for command, options in (
        (GEMV, small),
        (GEMV, {**small, "engine": "host-read"}),
        (GEMV, {**small, "host-traffic": "saturate"}),
        (RELAYOUT, {**small, "topology": "full", "link.ports": 15, "no-host": True}),
        (DRAM, {"trace": str(tmp_path / "a.trace"), "nCL": 44}),
    ):
        metrics = command.measure(options)
        assert metrics["time_ns"] > 0
        assert all(value is None or isinstance(value, (int, float, str)) for value in metrics.values())
        assert not [name for name in metrics if name.startswith("config") or name.endswith("_s")]


def test_a_point_under_a_policy_has_the_metrics_of_its_run(tmp_path):
    given = {"hw": "dali-7532-3090", "model": write_config(tmp_path), "batch": 4, "steps": 2}
    given |= {"layers": [1], "policy": "fiddler"}
    metrics = MOE.measure(given)
    assert metrics["tokens_per_s"] > 0
    assert metrics["pairs"] == 4 * 2 * 2
    assert not {"speedup", "policy"} & set(metrics)
    assert MOE.resolve(given).config["layers"] == [1]
    assert MOE.resolve({"policy": "trimoe:relayout=false"}).config["parameters"]["relayout"] is False


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        (GEMV, {"model": "mixtral-8x7b", "shape": "512,64"}, "conflict shape"),
        (GEMV, {"host-reads": 0.5}, "conflict host-reads"),
        (GEMV, {"start-clock": 5, "host-traffic": 4}, "conflict start-clock"),
        (GEMV, {"refresh-phases": 5, "engine": "host-read"}, "conflict refresh-phases"),
        (GEMV, {"scale-bits": 8}, "conflict scale-bits"),
        (GEMV, {"engine": "host-read", "tokens": 2}, "conflict tokens"),
        (RELAYOUT, {"topology": "ring", "link.topology": "mesh"}, "conflict topology"),
        (DRAM, {}, "missing trace"),
        (DRAM, {"trace": "none.trace"}, "unreadable none.trace"),
        (DRAM, {"trace": "none.trace", "hw": "trimoe", "ranks": 2}, "conflict ranks"),
        (MOE, {"policy": "trimo"}, "unknown-name policy ? trimoe"),
    ],
)
def test_a_point_that_cannot_be_says_why(command, given, words):
    with refused(words):
        command.resolve(given)


def test_a_point_of_a_routing_trace_says_the_batch_steps_and_layers_that_the_trace_has(tmp_path):
    path = str(tmp_path / "F.npz")
    generate_routing("skewed", "mixtral-8x7b", 8, 2).save(path)
    given = {"model": "mixtral-8x7b", "routing": path}
    point = MOE.resolve(given)
    assert (point.config["batch"], point.config["steps"], point.config["layers"]) == (8, 2, list(range(32)))
    assert MOE.resolve(given | {"batch": 8, "steps": 2}).key == point.key
    assert MOE.resolve(given | {"batch": 7}).config["batch"] == 7
    assert MOE.resolve(given | {"batch": 7}).key != point.key


# ---- Records of points: on the disk before they count, and lines of a killed run left out


def record(name: str, **more: Any) -> dict[str, Any]:
    metrics = {"time_ns": 1 / 3, "n": None}
    return {
        "schema": SCHEMA,
        "key": name,
        "status": "ok",
        "metrics": metrics,
        "config": '{"a": [1, "b"]}',
        **more,
    }


def stored(folder: Path, *records: dict[str, Any]) -> Store:
    store = Store(folder)
    for one in records:
        store.put(one)
    store.close()
    return store


def only_file(store: Store) -> Path:
    (file,) = store.points.iterdir()
    return file


def alone(store: Store, name: str, content: bytes | None = None) -> Path:
    """The file of a point alone, as earlier versions wrote it."""
    whole = {**record(name), "config": {"a": [1, "b"]}}
    whole["checksum"] = records_module._checksum(records_module._text(whole))
    file = store.points / f"{name}.json"
    file.write_bytes(records_module._text(whole) if content is None else content)
    return file


def test_what_is_put_is_found_by_its_name_alone(tmp_path):
    store = stored(tmp_path / "a" / "b", record("one"), record("two", reason="x"))
    assert store.find("two") == record("two", reason="x")
    assert store.find("three") is None
    assert len(only_file(store).read_text().splitlines()) == 2
    assert sorted(path.name for path in store.folder.iterdir()) == ["points"]


def test_runs_in_one_folder_have_files_of_their_own_and_find_each_others_records(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    assert second.find("one") is None
    first.put(record("one"))
    first.close()
    assert second.find("one") == record("one")
    second.put(record("two"))
    second.close()
    assert len(list(first.points.iterdir())) == 2
    assert first.find("two") == record("two")


def test_a_success_replaces_a_failure_and_not_the_reverse(tmp_path):
    failed = record("one", reason="x") | {"status": "failed"}
    store = stored(tmp_path, failed)
    assert store.find("one") == failed
    stored(tmp_path, record("one"))
    stored(tmp_path, failed)
    assert store.find("one") == Store(tmp_path).find("one") == record("one")
    stored(tmp_path / "one file", record("one"), failed)
    assert Store(tmp_path / "one file").find("one") == record("one")


def test_a_name_depends_on_command_point_and_version(monkeypatch):
    names = [point_name("gemv", "k"), point_name("moe", "k"), point_name("gemv", "l")]
    monkeypatch.setattr(store_module, "version", lambda: "another")
    names.append(point_name("gemv", "k"))
    monkeypatch.setattr(store_module, "SCHEMA", SCHEMA + 1)
    names.append(point_name("gemv", "k"))
    assert len(set(names)) == len(names)


def test_the_file_of_a_point_alone_is_found(tmp_path):
    store = Store(tmp_path)
    alone(store, "one")
    assert store.find("one") == record("one")


def test_a_file_of_another_name_is_not_believed(tmp_path, caplog):
    store = Store(tmp_path)
    alone(store, "one").rename(store.points / "two.json")
    with caplog.at_level(logging.WARNING, "ndpsim"):
        assert store.find("two") is None
    assert "two.json is damaged or of another point; its point is computed again" in caplog.text


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans(), is_alone=st.booleans())
def test_a_file_that_is_damaged_anywhere_is_not_believed(tmp_path_factory, place, byte, cut, is_alone):
    folder = tmp_path_factory.mktemp("store")
    file = alone(Store(folder), "one") if is_alone else only_file(stored(folder, record("one")))
    content = file.read_bytes()
    place %= len(content)
    file.write_bytes(content[:place] if cut else content[:place] + bytes([byte]) + content[place + 1 :])
    found = Store(folder).find("one")
    assert found in (None, record("one"))
    assert not (cut and found)


def test_a_line_that_was_cut_off_hides_no_other(tmp_path, caplog):
    store = stored(tmp_path, record("one"), record("two"), record("three"))
    file = only_file(store)
    file.write_bytes(file.read_bytes()[:-20])
    stored(tmp_path, record("four"))
    with caplog.at_level(logging.WARNING, "ndpsim"):
        again = Store(tmp_path)
        assert [again.find(name) is not None for name in ("one", "two", "three", "four")] == [1, 1, 0, 1]
    assert caplog.text == ""  # a killed run is nothing to warn of


def test_a_damaged_line_is_said_and_a_later_record_replaces_it(tmp_path, caplog):
    file = only_file(stored(tmp_path, record("one"), record("two")))
    file.write_bytes(file.read_bytes().replace(b"0.3333", b"0.4444", 1))
    with caplog.at_level(logging.WARNING, "ndpsim"):
        again = Store(tmp_path)
        assert (again.find("one"), again.find("two")) == (None, record("two"))
    assert f"a line of {file} is damaged; its point is computed again" in caplog.text
    stored(tmp_path, record("one"))
    assert Store(tmp_path).find("one") == record("one")


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"checksum": 3}', b"[" * 100_000, b"\xff"])
def test_a_file_that_is_no_record_is_not_believed(tmp_path, content):
    store = stored(tmp_path)
    alone(store, "one", content)
    (store.points / "lines.jsonl").write_bytes(content + b"\n")
    assert store.find("one") is None


def test_a_record_is_on_the_disk_and_its_file_in_the_folder_before_the_store_is_closed(tmp_path, monkeypatch):
    done: list[str] = []
    sync = os.fsync

    def fsync(number: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file")
        sync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    stored(tmp_path, record("one"))
    assert done == ["file", "folder"]


def full(number: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_lines_that_are_not_on_the_disk_are_removed(tmp_path, monkeypatch):
    file = RecordFile(tmp_path)
    file.append([line_of(record("one"))])
    before = file.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            file.append([line_of(record("two"))])
    assert file.path.read_bytes() == before
    file.append([line_of(record("three"))])
    assert file.path.read_bytes() == before + line_of(record("three"))


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    store = Store(tmp_path)
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
    Store(tmp_path).write_file("table.csv", b"x")
    assert not left.exists()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with refused("unwritable out"):
        Store(tmp_path / "file")


def test_records_are_text_that_people_can_read(tmp_path):
    store = stored(tmp_path, record("one"))
    assert json.loads(only_file(store).read_text())["record"]["metrics"]["time_ns"] == 1 / 3
