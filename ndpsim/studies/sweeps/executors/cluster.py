"""Runs points on a cluster of Dask distributed, which repeats the points of lost workers."""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from ndpsim.base.errors import InputError, shortened
from ndpsim.simulate.results.cache import version
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.executors import (
    Answer,
    Answers,
    Submitted,
    Task,
    Tasks,
    attempt,
    failure,
    reason_of,
    run_tasks,
)

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
    again: deque[Task] = deque()
    cancelled: Counter[str] = Counter()  # of a task, by its name
    with (
        distributed.utils.silence_logging_cmgr(logging.CRITICAL + 1),  # results of tasks contain its errors
        _connected(distributed.Client, address) as client,
    ):
        _check_workers(client)
        at_once = max(_AT_ONCE, _PER_THREAD * sum(client.nthreads().values()))
        executor = client.get_executor(pure=False)

        def submit(task: Task) -> Submitted:
            settings = _with_whole_paths(command, task.settings)
            future: Submitted = executor.submit(_attempt_here, command, settings, task.key)
            return future

        repeated = iter(lambda: again.popleft() if again else next(tasks, None), ...)
        for task, future in run_tasks(repeated, submit, at_once):
            if future.cancelled():  # lost with the connection or with its worker
                cancelled[task.name] += 1
                _ensure_connected(client, cancelled[task.name])
                again.append(task)
            else:
                yield task, _answer(future)


def _connected(client_of: Any, address: str) -> Any:
    """A client of the scheduler with an address or a scheduler file."""
    where = {"scheduler_file": address} if os.path.isfile(address) else {"address": address}
    if "address" in where and re.fullmatch(r"(\w+://)?[^/]+:\d+", address) is None:
        raise InputError(
            f"{shortened(address)} is neither HOST:PORT nor a scheduler file", "form", key="cluster"
        )
    try:
        return client_of(**where, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        problem = f"no Dask scheduler answers at {shortened(address)} ({' '.join(str(error).split())[:200]})"
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
        versions = client.run(version)
    except Exception as error:
        problem = f"a worker cannot import ndpsim ({reason_of(error)})"
        raise InputError(problem, "not-installed", key="cluster") from None
    others = sorted(worker for worker, there in versions.items() if there != version())
    if others:
        problem = f"has another version of ndpsim, Python, NumPy or Numba than is here: worker {others[0]}"
        raise InputError(problem, "conflict", key="cluster")


def _with_whole_paths(command: SweptCommand, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Given values with absolute paths of files, since workers have other folders."""

    def whole(name: str, value: Any) -> Any:
        if name not in command.parameters or not command.parameters[name].files:
            return value
        file, colon, part = str(value).partition(":")  # FILE.py:CLASS
        return os.path.abspath(file) + colon + part if os.path.isfile(file) else value

    return {name: whole(name, value) for name, value in settings.items()}


def _attempt_here(command: SweptCommand, settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """`attempt`, with the worker's version of ndpsim, since workers may join later."""
    return attempt(command, settings, key) | {"ndpsim": version()}


def _ensure_connected(client: Any, attempts: int) -> None:
    """Wait until the client is connected again.

    Args:
        attempts: number of cancellations of the same task.

    Raises:
        OSError: the scheduler does not return, or cancels the task repeatedly.
    """
    until = time.monotonic() + _CONNECT_S
    while client.status == "connecting" and time.monotonic() < until:
        time.sleep(0.05)
    if client.status != "running" or attempts > _ATTEMPTS:
        raise OSError(_LOST)


def _answer(future: Submitted) -> Answer:
    """The result of a task."""
    error = future.exception()
    if error is not None:
        lost = type(error).__name__ == "KilledWorker"  # its own text names a worker, which varies
        return failure("every worker that ran it ended" if lost else f"on the cluster: {reason_of(error)}")
    answer = future.result()
    if answer.pop("ndpsim") != version():
        return failure("its worker has another version of ndpsim, Python, NumPy or Numba") | {"stored": False}
    return answer
