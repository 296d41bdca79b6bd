"""Traces that are read as they run: blocks, NumPy's files, threads, and requests that wait across chunks."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calls import refused_call
from mistakes import refused
from ndpsim.dram.traces import Requests, read_requests, stream_requests
from ndpsim.simulate import run_trace, trace_channel

COUNT = 30_000
LPDDR5 = {"standard": "LPDDR5", "org": "LPDDR5_8Gb_x16", "timing": "LPDDR5_6400"}
MEASURED = {"wall_s", "compile_s", "run_s"}


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few thousand requests: as few as queues allow."""
    monkeypatch.setattr(trace_channel, "_CHUNK", 1024)
    monkeypatch.setattr(trace_channel, "_LEAST_CHUNK", 1024)


def mixed(count: int = COUNT, seed: int = 3) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.of(rng.integers(0, 1 << 23, count) * 64, rng.random(count) < 0.3)


def stream(count: int = COUNT) -> Requests:
    return Requests.of(np.arange(count) * 64, np.zeros(count, dtype=np.int64))


def starving(count: int = COUNT) -> Requests:
    """A request for another row of a bank whose open row is hit as long as the trace lasts."""
    address = np.arange(count) % 64 * 64
    address[40] = 1 << 30
    return Requests.of(address, np.zeros(count, dtype=np.int64))


def timed() -> Requests:
    requests, rng = mixed(), np.random.default_rng(5)
    gaps = rng.choice([0, 1, 40, 60_000_000], COUNT, p=[0.4, 0.4, 0.1998, 0.0002])
    return Requests(requests.address, requests.write, cycle=np.cumsum(gaps))


def blocks(requests: Requests, size: int = 777):
    """The requests as arrays, in blocks."""
    columns = [requests.address, requests.write]
    columns += [] if requests.cycle is None else [requests.cycle]
    for first in range(0, len(requests), size):
        yield tuple(column[first : first + size] for column in columns)


def figures(result: Any) -> dict[str, Any]:
    return {name: value for name, value in result.to_dict().items() if name not in MEASURED}


RUNS = {
    "mixed": (mixed, {"ranks": 2}),
    "stream": (stream, {}),
    "starving": (starving, {"scheduler": "FRFCFS-RowHit", "refresh": "none"}),
    "closed": (mixed, {"row_policy": "closed-cap", "refresh": "same-bank"}),
    "long queues": (mixed, {"read_buffer": 200, "write_buffer": 100}),
    "announced": (mixed, {**LPDDR5, "wrap": True}),
    "channels": (mixed, {"channels": 4, "mapper": "MOP4CLXOR"}),
    "timed": (timed, {"ranks": 2}),
}


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("name", RUNS)
def test_chunks_and_blocks_change_no_figure(name, monkeypatch):
    make, options = RUNS[name]
    requests = make()
    in_blocks = figures(run_trace(blocks(requests), **options))
    monkeypatch.undo()
    whole = figures(run_trace(requests, **options))
    shares = [outcome.pop("fast_forwarded") for outcome in (in_blocks, whole)]
    assert in_blocks == whole
    assert name != "stream" or min(shares) > 0.5  # not equal: lookups begin anew with a chunk


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("name", ["mixed", "starving", "announced", "timed"])
def test_both_controllers_agree_over_chunks(name):
    make, options = RUNS[name]
    run_trace(blocks(make()), exact_check=True, **options)


@pytest.mark.usefixtures("short_chunks")
def test_recorded_commands_are_those_of_one_chunk(monkeypatch):
    def commands() -> np.ndarray:
        recorded = run_trace(blocks(mixed()), ranks=2, record_commands=True)
        return recorded.command_traces[0].columns()

    in_chunks = commands()
    monkeypatch.undo()
    assert (in_chunks == commands()).all()


@pytest.mark.usefixtures("short_chunks")
def test_threads_change_nothing():
    one, several = (figures(run_trace(mixed(), channels=8, jobs=jobs)) for jobs in (1, 3))
    assert one == several


@pytest.mark.usefixtures("short_chunks")
def test_blocks_are_asked_for_as_they_run():
    given = []

    def endless():
        for number in itertools.count():
            given.append(number)
            yield (
                np.array([number % 1024 * 64] * 1000 if number < 100 else [1 << 60]),
                np.zeros(1000 if number < 100 else 1, dtype=np.int64),
            )

    with refused("range"):
        run_trace(endless(), jobs=1)
    assert len(given) == 101


# ---- Files of NumPy


def saved(path: Path, requests: Requests, **others: str) -> Path:
    """The requests as NumPy saves them; `others`: types of columns."""
    columns = requests.to_arrays()
    records = np.empty(
        len(requests), dtype=[(name, others.get(name, values.dtype)) for name, values in columns.items()]
    )
    for name, values in columns.items():
        records[name] = values
    np.save(path, records)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("make", [mixed, timed])
def test_a_file_of_numpy_has_the_same_requests(tmp_path, make, pack):
    path = saved(tmp_path / "trace.npy", make(), address="<u8", write="u1")
    path.write_bytes(pack(path.read_bytes()))
    assert read_requests(path) == make()


def test_a_file_of_numpy_with_coordinates(tmp_path):
    places = np.arange(18, dtype=np.int32).reshape(3, 6) % 2
    requests = Requests(None, np.array([0, 1, 0]), place=places)
    assert read_requests(saved(tmp_path / "trace.npy", requests)) == requests


def test_files_of_numpy_that_are_no_traces(tmp_path):
    path = saved(tmp_path / "trace.npy", stream(100))
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with refused("unreadable trace.npy"):
        read_requests(path)
    path.write_bytes(content[:20])
    with refused("form trace.npy"):
        read_requests(path)
    path.write_bytes(content)
    with refused("conflict trace.npy"):
        read_requests(path, "ramulator2")
    for records in (np.zeros(3), np.zeros((3, 2)), np.zeros(0, dtype=[("address", "i8"), ("write", "i1")])):
        np.save(path, records)
        with refused("form trace.npy"):
            read_requests(path)
    saved(path, stream(3))
    records = np.load(path)
    records["address"][1] = -64
    np.save(path, records)
    with refused("range trace.npy address"):
        read_requests(path)


def test_cycles_that_decrease_between_blocks_of_a_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpsim.dram.traces.reader._BLOCK", 2)
    path = tmp_path / "trace.npy"
    np.save(
        path,
        np.array(
            [(0, 0, 5), (64, 0, 6), (0, 0, 4)], dtype=[("address", "i8"), ("write", "i1"), ("cycle", "i8")]
        ),
    )
    with refused("invalid trace.npy"):
        read_requests(path)


# ---- Blocks that are none


BAD = {
    "missing requests": [],
    "type requests": [5],
    "conflict requests": [([0], [0]), ([64], [0], [5])],
    "invalid requests": [([0], [0], [9]), ([64], [0], [5])],
    "range requests": [([0], [0]), ([-64], [0])],
}


@pytest.mark.parametrize("mistake", BAD)
def test_bad_blocks_are_refused(mistake):
    with refused(mistake):
        run_trace(iter(BAD[mistake]))


def test_empty_blocks_are_left_out():
    result = run_trace(iter([([], []), ([0, 64], [0, 0]), ([], []), ([128], [1])]))
    assert (result.reads, result.writes) == (2, 1)


def test_a_line_of_a_later_block_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpsim.dram.traces.reader._BLOCK", 10)
    path = tmp_path / "late.trace"
    path.write_text(
        "# text\n" + "0: read 0x40\n" * 35 + "\n# more\n" + "0: read 0x40\n" * 10 + f"0: read {1 << 60:#x}\n"
    )
    with refused("range late.trace:49"):
        run_trace(path)
    assert read_requests(path).line(45) == 49


def test_a_stream_says_how_much_of_its_file_it_has_read(tmp_path):
    path = tmp_path / "long.trace"
    path.write_text("LD 0x40\n" * 400_000)
    requests = stream_requests(path)
    shares = [requests.expected(read) for read in itertools.accumulate(map(len, requests))]
    assert shares[-1] == 400_000
    assert all(150_000 < share < 500_000 for share in shares)


def test_threads_of_a_sweep_of_loads_are_refused(tmp_path):
    path = tmp_path / "few.trace"
    path.write_text("LD 0x40\n")
    assert refused_call("dram", path, "--sweep-load", "--jobs", 2) == "conflict --jobs"
