"""Sweeps on a cluster of two worker processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders.swept_fake import register, run_here, runs
from mistakes import refused
from ndpsim.studies.search.run import optimize
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import cluster as cluster_module
from ndpsim.studies.sweeps.run import sweep

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"
CONNECT = "3s"  # dask waits half a minute for a worker that has just ended


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(swept_commands(), "fake", register())


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


@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.long)], ids=["whole", "lost"])
def test_a_cluster_makes_the_same_tables_if_it_loses_a_worker_too(
    scheduler_file, tmp_path, monkeypatch, lost
):
    folder = tmp_path / "meeting"
    folder.mkdir()
    file = tmp_path / "input.txt"
    file.write_text("abc")
    monkeypatch.chdir(tmp_path)
    vary = {"how": ["ok", "refused", *["killed-once"] * lost], "n": "1..8"}
    points = 8 * len(vary["how"])
    fixed = {"folder": str(folder), "file": "input.txt"}  # workers have other folders
    on_cluster = sweep("fake", vary, fixed=fixed, out=tmp_path / "cluster", cluster=scheduler_file)
    assert (folder / "killed").exists() == lost
    assert runs(folder) >= points + lost  # what a lost worker had finished may be run again
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    here = sweep("fake", vary, fixed=fixed, out=tmp_path / "here")
    assert here == on_cluster
    for table in ("table.csv", "table.parquet"):
        assert (tmp_path / "cluster" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()
    assert sweep("fake", vary, fixed=fixed, out=tmp_path / "cluster", cluster=scheduler_file).found == points


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
