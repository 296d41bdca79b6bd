"""Sweeps in processes: the same tables whoever is killed, and nothing that outlives its sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.swept_fake import ENDLESS_S, records_in, register, run_here, runs
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import local
from ndpsim.studies.sweeps.run import sweep

TABLES = ("table.csv", "table.parquet")
#: The command line with the command of these tests.
PROGRAM = "from builders import swept_fake; swept_fake.register(); from ndpsim.__main__ import run; run()"


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(swept_commands(), "fake", register())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where points meet the test."""
    there = tmp_path / "meeting"
    there.mkdir()
    return there


class Unusable:
    """A function that ends the process with status 3 as soon as it gets there."""

    sent = 0  # times

    def __call__(self, parent: int) -> None: ...

    def __reduce__(self):
        self.sent += 1
        return os._exit, (3,)


def tables(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in TABLES]


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it does not come true"
        time.sleep(0.005)


def workers_of(process: int) -> list[int]:
    """The processes for points of a process."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    numbers = [int(number) for file in children for number in file.read_text().split()]
    return [one for one in numbers if b"loky.backend.popen" in Path(f"/proc/{one}/cmdline").read_bytes()]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def command_line() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts sweeps, which do not outlive a test that fails."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "sweep", "fake", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def messages(err: str) -> str:
    """Standard error without the progress, which a sweep shows if it takes long."""
    return "".join(line for line in err.splitlines(True) if "points/s" not in line)


def test_tables_are_the_same_however_many_processes_there_are(tmp_path, monkeypatch):
    vary = {"n": "1..12", "how": ["ok", "refused"]}
    sweep("fake", vary, out=tmp_path / "3", jobs=3)
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    sweep("fake", vary, out=tmp_path / "here")
    assert tables(tmp_path / "3") == tables(tmp_path / "here")


def test_a_point_whose_process_is_killed_is_run_once_more_and_the_others_go_on(tmp_path, folder):
    vary = {"how": ["killed", "killed-once", "ok"], "n": [1, 2]}
    result = sweep("fake", vary, fixed={"folder": str(folder)}, out=tmp_path / "out", jobs=2)
    assert [row["reason"] for row in result] == [
        *["the process that ran it was killed by SIGKILL, 2 times"] * 2,
        *[None] * 4,
    ]
    assert runs(folder) == 2 * 2 + 3 + 2
    assert (result.failed, len(records_in(tmp_path / "out"))) == (2, 6)


def test_processes_end_with_the_sweep_that_is_interrupted(tmp_path, folder):
    """As in a notebook: the interruption is an exception, and what is finished is stored."""

    interrupted = []

    def interrupt(share: float) -> None:
        if share > 0:
            interrupted.append(time.monotonic())
            raise KeyboardInterrupt

    vary = {"how": ["ok", "endless"]}
    with pytest.raises(KeyboardInterrupt):
        sweep("fake", vary, fixed={"folder": str(folder)}, out=tmp_path / "out", jobs=2, progress=interrupt)
    assert workers_of(os.getpid()) == []
    assert time.monotonic() - interrupted[0] < ENDLESS_S / 2
    assert [record["status"] for record in records_in(tmp_path / "out")] == ["ok"]


def test_processes_that_cannot_start_end_the_sweep_in_one_line(monkeypatch):
    unusable = Unusable()
    monkeypatch.setattr(local, "_prepare", unusable)
    with pytest.raises(OSError, match="cannot start: 3 in a row ended, the last ended with status 3"):
        sweep("fake", {"n": [1]}, jobs=1)
    assert unusable.sent == 3


TERMINATED, KILLED = ("SIGTERM", 143, "ndpsim: terminated\n"), ("SIGKILL", -9, "")
INTERRUPTED = ("SIGINT", 130, "ndpsim: interrupted\n")


@pytest.mark.parametrize(
    "ends",
    [(KILLED,), pytest.param((TERMINATED, INTERRUPTED), marks=pytest.mark.long)],
    ids=["killed", "terminated and interrupted"],
)
def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path, folder, command_line, ends):
    arguments = ["--folder", str(folder), "--vary", "how=ok,waits", "--vary", "n=1..4", "--jobs", "2"]
    out, begun = tmp_path / "fake.sweep", 4
    for name, status, said in ends:
        process = command_line(*arguments, cwd=tmp_path)
        begun += 2  # each worker's first point that waits
        wait_until(lambda begun=begun: runs(folder) == begun and len(records_in(out)) == 4)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        process.send_signal(getattr(signal, name))
        printed, err = process.communicate(timeout=60)
        assert (process.returncode, printed, messages(err)) == (status, "", said)
        wait_until(lambda workers=workers: not any(map(is_alive, workers)))
        assert [path.name for path in out.rglob("*.tmp")] == []
    (folder / "gate").touch()
    process = command_line(*arguments, cwd=tmp_path)
    printed, err = process.communicate(timeout=60)
    assert (process.returncode, messages(err)) == (0, "")
    assert "4 simulated, 4 reused" in printed
    assert runs(folder) == begun + 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute_module, "run_locally", run_here)
        vary = {"how": ["ok", "waits"], "n": "1..4"}
        sweep("fake", vary, fixed={"folder": str(folder)}, out=tmp_path / "undisturbed")
    assert tables(out) == tables(tmp_path / "undisturbed")


def test_two_sweeps_at_once_in_one_folder_do_no_harm(tmp_path, folder, command_line):
    arguments = ["--folder", str(folder), "--vary", "n=1..20", "--jobs", "1"]
    both = [command_line(*arguments, cwd=tmp_path) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert (process.returncode, messages(err)) == (0, "")
    out = tmp_path / "fake.sweep"
    assert len({record["key"] for record in records_in(out)}) == 20
    assert len(list((out / "points").glob("*.jsonl"))) <= 2
    assert sorted(path.name for path in out.iterdir()) == ["points", "sweep.json", *TABLES]
    found = sweep("fake", {"n": "1..20"}, fixed={"folder": str(folder)}, out=out)
    assert found.found == 20
