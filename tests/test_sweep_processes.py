"""Sweeps in processes and on a cluster: the same tables whoever is killed, and nothing that outlives its sweep."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from mistakes import refused
from ndpsim.studies.search.run import optimize
from ndpsim.studies.sweeps import execute as execute_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import cluster as cluster_module
from ndpsim.studies.sweeps.executors import local
from ndpsim.studies.sweeps.run import sweep
from swept_fake import ENDLESS_S, register, run_here, runs

TABLES = ("table.csv", "table.parquet")
#: The command line with the command of these tests.
PROGRAM = "import swept_fake; swept_fake.register(); from ndpsim.__main__ import run; run()"


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
    assert (result.failed, len(list((tmp_path / "out" / "points").iterdir()))) == (2, 6)


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
    (file,) = (tmp_path / "out" / "points").iterdir()
    assert json.loads(file.read_text())["status"] == "ok"


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
    [(TERMINATED, KILLED), pytest.param((INTERRUPTED,), marks=pytest.mark.long)],
    ids=["killed", "interrupted"],
)
def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path, folder, command_line, ends):
    arguments = ["--folder", str(folder), "--vary", "how=ok,waits", "--vary", "n=1..4", "--jobs", "2"]
    points, begun = tmp_path / "fake.sweep" / "points", 4
    for name, status, said in ends:
        process = command_line(*arguments, cwd=tmp_path)
        begun += 2  # each worker's first point that waits
        wait_until(lambda begun=begun: runs(folder) == begun and len(list(points.iterdir())) == 4)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, messages(err)) == (status, "", said)
        wait_until(lambda workers=workers: not any(map(is_alive, workers)))
        assert [path.name for path in points.parent.rglob("*.tmp")] == []
    (folder / "gate").touch()
    process = command_line(*arguments, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, messages(err)) == (0, "")
    assert "4 computed, 4 found" in out
    assert runs(folder) == begun + 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute_module, "run_locally", run_here)
        vary = {"how": ["ok", "waits"], "n": "1..4"}
        sweep("fake", vary, fixed={"folder": str(folder)}, out=tmp_path / "undisturbed")
    assert tables(points.parent) == tables(tmp_path / "undisturbed")


def test_two_sweeps_at_once_in_one_folder_do_no_harm(tmp_path, folder, command_line):
    arguments = ["--folder", str(folder), "--vary", "n=1..20", "--jobs", "1"]
    both = [command_line(*arguments, cwd=tmp_path) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert (process.returncode, messages(err)) == (0, "")
    out = tmp_path / "fake.sweep"
    assert len(list((out / "points").iterdir())) == 20
    assert sorted(path.name for path in out.iterdir()) == ["points", "sweep.json", *TABLES]
    found = sweep("fake", {"n": "1..20"}, fixed={"folder": str(folder)}, out=out)
    assert found.found == 20


# ---- Sweeps on a cluster of two worker processes of this machine

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"
CONNECT = "3s"  # dask waits half a minute for a worker that has just ended


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers, processes of their own as on a cluster, in a folder of their own."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    named = ["--scheduler-file", str(file)]
    own = ["--no-dashboard", "--local-directory", str(folder), "--nthreads", "1"]
    commands = [
        [SCHEDULER, *named, "--no-dashboard", "--host", "127.0.0.1", "--port", "0"],
        *([WORKER, *named, *own, "--host", "127.0.0.1"] for _ in range(2)),
    ]
    settings = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": CONNECT,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", *command],
            cwd=folder,
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    until = time.monotonic() + 60
    while not (file.exists() and file.read_text().strip().endswith("}")):
        assert time.monotonic() < until
        time.sleep(0.02)
    with dask.config.set({"distributed.comm.timeouts.connect": CONNECT}):
        yield str(file)
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_cluster_that_loses_a_worker_makes_the_same_tables(scheduler_file, tmp_path, monkeypatch):
    folder = tmp_path / "meeting"
    folder.mkdir()
    file = tmp_path / "input.txt"
    file.write_text("abc")
    monkeypatch.chdir(tmp_path)
    vary = {"how": ["ok", "refused", "killed-once"], "n": "1..8"}
    fixed = {"folder": str(folder), "file": "input.txt"}  # workers have other folders
    on_cluster = sweep("fake", vary, fixed=fixed, out=tmp_path / "cluster", cluster=scheduler_file)
    assert (folder / "killed").exists()
    assert runs(folder) >= 25  # what a lost worker had finished may be run again
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    here = sweep("fake", vary, fixed=fixed, out=tmp_path / "here")
    assert here == on_cluster
    for table in ("table.csv", "table.parquet"):
        assert (tmp_path / "cluster" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()
    assert sweep("fake", vary, fixed=fixed, out=tmp_path / "cluster", cluster=scheduler_file).found == 24


def test_a_search_on_a_cluster_is_the_one_of_this_process(scheduler_file, monkeypatch):
    given = {"vary": {"n": "1..500"}, "objectives": {"time_ns": "minimize", "energy_nj.total": "minimize"}}
    there = optimize("fake", **given, budget=24, cluster=scheduler_file)
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    assert there == optimize("fake", **given, budget=24)


def test_a_file_that_is_another_on_the_workers_makes_no_result(scheduler_file, tmp_path, monkeypatch):
    file = tmp_path / "input.txt"
    file.write_text("abc")
    whole = cluster_module._with_whole_paths

    def changed(command, given):
        file.write_text("abcde")
        return whole(command, given)

    monkeypatch.setattr(cluster_module, "_with_whole_paths", changed)
    result = sweep(
        "fake", {"n": [1]}, fixed={"file": str(file)}, out=tmp_path / "out", cluster=scheduler_file
    )
    assert result[0]["reason"] == "a file that is named is not as it was when the sweep began"
    assert list((tmp_path / "out" / "points").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (type("KilledWorker", (Exception,), {})("tcp://1.2.3.4:5"), "every worker that ran it ended"),
        (ValueError("what\nwent wrong"), "on the cluster: ValueError: what went wrong"),
    ],
)
def test_a_point_that_the_cluster_gives_up_has_failed(error, reason):
    future: Future = Future()
    future.set_exception(error)
    assert cluster_module._answer(future) == {"status": "failed", "reason": reason, "metrics": {}}


def test_a_cluster_that_is_lost_ends_the_sweep(monkeypatch):
    for client, attempts in (("closed", 1), ("connecting", 1), ("running", 4)):
        monkeypatch.setattr(cluster_module, "_CONNECT_S", 0.1)
        with pytest.raises(OSError, match="the same command goes on with what is unfinished"):
            cluster_module._ensure_connected(SimpleNamespace(status=client), attempts)


def test_a_task_that_is_cancelled_while_the_cluster_is_there_runs_again(
    scheduler_file, tmp_path, monkeypatch
):
    """As where the connection is lost for a moment."""
    import distributed

    submit, cancelled = distributed.Client.submit, []

    def cancelling(client, *arguments, **options):
        future = submit(client, *arguments, **options)
        if not cancelled:
            cancelled.append(future.key)
            future.cancel()
        return future

    monkeypatch.setattr(distributed.Client, "submit", cancelling)
    result = sweep("fake", {"n": [1, 2]}, cluster=scheduler_file)
    assert len(cancelled) == 1
    assert [row["status"] for row in result] == ["ok", "ok"]


def test_what_a_worker_of_another_version_says_is_not_stored():
    answer = {"status": "ok", "metrics": {"time_ns": 1.0}, "stored": True, "ndpsim": "0" * 20}
    future: Future = Future()
    future.set_result(answer)
    taken = cluster_module._answer(future)
    assert (taken["status"], taken["stored"]) == ("failed", False)


def test_workers_of_another_version_are_refused(scheduler_file, monkeypatch):
    import distributed

    monkeypatch.setattr(distributed.Client, "run", lambda client, version: {"tcp://there:1": "0" * 20})
    with refused("conflict cluster"):
        sweep("fake", {"n": [1]}, cluster=scheduler_file)


def test_where_nobody_answers_one_line_says_so(monkeypatch):
    monkeypatch.setattr(cluster_module, "_CONNECT_S", 0.2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with refused("unreadable cluster"):
            sweep("fake", {"n": [1]}, cluster=address)


@pytest.mark.parametrize(
    ("address", "code"),
    [("nonsense", "form"), ("tcp://", "form"), ("tcp://nowhere.invalid:1", "unreadable"), ("", "missing")],
)
def test_an_address_that_is_none_is_refused(address, code, monkeypatch):
    monkeypatch.setattr(cluster_module, "_CONNECT_S", 0.2)
    with refused(f"{code} cluster"):
        sweep("fake", {"n": [1]}, cluster=address)


def test_without_dask_a_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refused("not-installed cluster"):
        sweep("fake", {"n": [1]}, cluster="tcp://127.0.0.1:1")
