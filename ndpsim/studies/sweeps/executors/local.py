"""Runs points in processes on this machine.

The processes are spawned, not forked, and only import ndpsim, so that a script that calls `sweep` needs no
``if __name__ == "__main__"``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter, deque
from multiprocessing import Pipe
from multiprocessing.connection import wait

from ndpsim.base.options.swept import JOBS
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.executors import Answers, Task, Tasks
from ndpsim.studies.sweeps.executors.attempt import failure

_PROGRAM = """
import sys
sys.path[:] = {path!r}
from ndpsim.studies.sweeps.executors.worker import serve
serve({descriptor})
"""
_ATTEMPTS = 2  # attempts of a point whose process ends
_STARTS = 3  # consecutive processes that may fail
_ENDING_S = 5.0  # for a process to end after it has closed its connection


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_jobs(jobs: int | None) -> int:
    """The number of processes for the argument `jobs`; None: one for each core.

    Raises:
        InputError: it is not a number of processes.
    """
    return available_cores() if jobs is None else JOBS.checked(jobs)


class _Worker:
    """A process and its task."""

    def __init__(self, command: SweptCommand) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(path=sys.path, descriptor=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self.task: Task | None = None
        self.has_started = False
        self._send(command)

    def take(self, task: Task) -> None:
        self.task = task
        self._send((task.given, task.key))

    def _send(self, what: object) -> None:
        with contextlib.suppress(OSError):  # the process has ended, which the connection will show
            self.connection.send(what)

    def end(self, wait_s: float = 0.0) -> str:
        """End the process, and return in words how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)
        self.process.kill()
        status = self.process.wait()
        self.connection.close()
        if status >= 0:
            return f"ended with status {status}"
        return f"was killed by {signal.Signals(-status).name}"


def run_locally(command: SweptCommand, tasks: Tasks, jobs: int) -> Answers:
    """Run tasks in `jobs` processes.

    A task whose process ends is tried once more, then reported as failed.

    Raises:
        OSError: processes end at their start.
    """
    pool = _Pool(command, jobs)
    try:
        yield from pool.run(tasks)
    finally:
        for worker in pool.workers:
            worker.end()


class _Pool:
    def __init__(self, command: SweptCommand, jobs: int) -> None:
        self._command, self._jobs = command, jobs
        self.workers: list[_Worker] = []
        self._again: deque[Task] = deque()
        self._ended: Counter[str] = Counter()  # ended processes of a task, by its name
        self._failed_starts = 0

    def run(self, tasks: Tasks) -> Answers:
        ahead = next(tasks, None)
        while True:
            while ahead is not None and (free := self._free()) is not None:
                free.take(ahead)
                ahead = self._following(tasks)
            busy = {worker.connection: worker for worker in self.workers if worker.task is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                task = worker.task
                answer = self._answer(worker)
                if answer is None or task is None:
                    continue
                if ahead is not None and worker.task is None and worker in self.workers:
                    worker.take(ahead)  # before the result is processed, which takes time
                    ahead = None
                yield task, answer
            if ahead is None:
                ahead = self._following(tasks)

    def _following(self, tasks: Tasks) -> Task | None:
        return self._again.popleft() if self._again else next(tasks, None)

    def _free(self) -> _Worker | None:
        """A process without a task, which may be new; None if all are busy."""
        for worker in self.workers:
            if worker.task is None:
                return worker
        if len(self.workers) == self._jobs:
            return None
        self.workers.append(_Worker(self._command))
        return self.workers[-1]

    def _answer(self, worker: _Worker) -> dict[str, object] | None:
        """The result of the worker's task; None before it exists."""
        try:
            said = worker.connection.recv()
        except (EOFError, OSError):
            return self._ending(worker)
        if worker.has_started:
            worker.task = None
            return dict(said)
        if said is not None:
            raise OSError(f"a process for points cannot start: {said}")
        worker.has_started, self._failed_starts = True, 0
        return None

    def _ending(self, worker: _Worker) -> dict[str, object] | None:
        """After a process has ended, retry its task, or report the failure."""
        self.workers.remove(worker)
        how, task = worker.end(_ENDING_S), worker.task
        assert task is not None
        if not worker.has_started:
            self._failed_starts += 1
            if self._failed_starts == _STARTS:
                raise OSError(f"processes for points cannot start: {_STARTS} in a row ended, the last {how}")
        else:
            self._ended[task.name] += 1
        if self._ended[task.name] < _ATTEMPTS:
            self._again.append(task)
            return None
        return failure(f"the process that ran it {how}, {_ATTEMPTS} times")
