"""Runs points on a cluster of Dask distributed, which repeats the points of lost workers."""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.simulate.results.cache import version
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.executors import Answers, Task, Tasks
from ndpsim.studies.sweeps.executors.attempt import attempt, failure, reason_of

_CONNECT_S = 10.0
_WORKERS_S = 60.0  # to wait for the first worker
_ATTEMPTS = 3  # attempts of a task that the scheduler cancels
_LOST = "the scheduler of the cluster is lost; the same command goes on with what is unfinished"
_AT_ONCE = 1000  # minimum tasks at the scheduler
_PER_THREAD = 4  # tasks at the scheduler for each thread of the workers


def run_on_cluster(command: SweptCommand, tasks: Tasks, address: str) -> Answers:
    """Run tasks on the workers of a scheduler.

    A task whose worker is lost is repeated by the rules of the cluster, and finally reported as failed.

    Args:
        address: address of the scheduler, ``tcp://HOST:PORT``, or its scheduler file.

    Raises:
        InputError: Dask is not installed, no scheduler answers, it has no workers, or a worker has another
            version of ndpsim.
        OSError: the scheduler is lost.
    """
    try:
        distributed: Any = importlib.import_module("distributed")  # optional and slow to import
    except ImportError:
        raise InputError(
            "needs Dask: pip install 'ndpsim[cluster]'", "not-installed", key="cluster"
        ) from None
    with _quietly(), _connected(distributed.Client, address) as client:
        _check_workers(client)
        at_once = max(_AT_ONCE, _PER_THREAD * sum(client.nthreads().values()))
        submitted: dict[str, Task] = {}
        futures = distributed.as_completed(loop=client.loop)

        def submit(task: Task) -> None:
            given = _with_whole_paths(command, task.given)
            future = client.submit(_attempt_here, command, given, task.key, pure=False)
            submitted[future.key] = task
            futures.add(future)

        def submit_more() -> None:
            while len(submitted) < at_once and (following := next(tasks, None)) is not None:
                submit(following)

        submit_more()
        cancelled: Counter[str] = Counter()
        for future in futures:
            task = submitted.pop(future.key)
            if future.status in ("cancelled", "lost"):  # lost with the connection or with its worker
                cancelled[task.name] += 1
                _ensure_connected(client, cancelled[task.name])
                submit(task)
                continue
            yield task, _answer(future)
            submit_more()


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence Dask in the block, since results of tasks contain its errors."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for log in levels:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _connected(client_of: Any, address: str) -> Any:
    """A client of the scheduler with an address or a scheduler file."""
    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    if "address" in where and re.fullmatch(r"(\w+://)?[^/]+:\d+", address) is None:
        raise InputError(f"{address[:200]} is neither HOST:PORT nor a scheduler file", "form", key="cluster")
    try:
        return client_of(**where, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        problem = f"no Dask scheduler answers at {address} ({' '.join(str(error).split())[:200]})"
        raise InputError(problem, "unreadable", key="cluster") from None


def _check_workers(client: Any) -> None:
    """Check that there are workers, with the versions of this process."""
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError:
        raise InputError(
            f"the cluster has no workers after {_WORKERS_S:.0f} s", "unreadable", key="cluster"
        ) from None
    try:
        versions = client.run(_version_there)
    except Exception as error:
        problem = f"a worker cannot import ndpsim ({reason_of(error)})"
        raise InputError(problem, "not-installed", key="cluster") from None
    others = sorted(worker for worker, there in versions.items() if there != version())
    if others:
        problem = f"has another version of ndpsim, Python, NumPy or Numba than is here: worker {others[0]}"
        raise InputError(problem, "conflict", key="cluster")


def _version_there() -> str:
    return version()


def _with_whole_paths(command: SweptCommand, given: Mapping[str, Any]) -> dict[str, Any]:
    """Given values with absolute paths of files, since workers have other folders."""

    def whole(name: str, value: Any) -> Any:
        if name not in command.parameters or not command.parameters[name].files:
            return value
        file, colon, part = str(value).partition(":")  # FILE.py:CLASS
        return os.path.abspath(file) + colon + part if os.path.isfile(file) else value

    return {name: whole(name, value) for name, value in given.items()}


def _attempt_here(command: SweptCommand, given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """`attempt`, with the worker's version of ndpsim, since workers may join later."""
    return attempt(command, given, key) | {"ndpsim": version()}


def _ensure_connected(client: Any, attempts: int) -> None:
    """Wait until the client is connected again.

    Args:
        attempts: number of cancellations of the same task.

    Raises:
        OSError: the scheduler does not return, or cancels the task repeatedly.
    """
    until = time.monotonic() + _CONNECT_S
    while client.status != "running":
        if client.status in ("closing", "closed", "failed") or time.monotonic() > until:
            raise OSError(_LOST)
        time.sleep(0.05)
    if attempts > _ATTEMPTS:
        raise OSError(_LOST)


def _answer(future: Any) -> dict[str, Any]:
    """The result of a task."""
    if future.status == "error":
        error = future.exception()
        lost = type(error).__name__ == "KilledWorker"  # its own text names a worker, which varies
        return failure("every worker that ran it ended" if lost else f"on the cluster: {reason_of(error)}")
    answer: dict[str, Any] = future.result()
    if answer.pop("ndpsim") != version():
        return failure("its worker has another version of ndpsim, Python, NumPy or Numba") | {"stored": False}
    return answer
