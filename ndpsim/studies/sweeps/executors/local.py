"""Runs points in processes on this machine.

loky spawns the processes. They only import ndpsim, so that a script that calls `sweep` needs no
``if __name__ == "__main__"``.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Lock, Thread, local
from typing import Any

from ndpsim.base.options.swept import STUDY
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.executors import Answer, Answers, Task, Tasks, attempt, failure, run_tasks

_ATTEMPTS = 2  # attempts of a point whose process ends
_STARTS = 3  # attempts to start a process
_PARENT_S = 0.2  # between two looks at whether the parent still exists


def chosen_jobs(jobs: int | None) -> int:
    """The number of processes for the argument `jobs`; None: one for each core.

    Raises:
        InputError: it is not a number of processes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if jobs is None else STUDY["jobs"].checked(jobs)


def run_locally(command: SweptCommand, tasks: Tasks, jobs: int) -> Answers:
    """Run tasks in `jobs` processes.

    A task whose process ends is tried once more, then reported as failed.

    Raises:
        OSError: processes end at their start.
    """
    processes = _Processes(command)
    threads = ThreadPoolExecutor(jobs, initializer=_block_interrupts)
    try:
        # One task more waits, so that no process does while a result is processed.
        for task, future in run_tasks(tasks, lambda task: threads.submit(processes.run, task), jobs + 1):
            yield task, future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        processes.end()
        threads.shutdown()


def _block_interrupts() -> None:
    """Ctrl-C does not reach the processes that this thread starts: its receiver ends them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


class _Processes:
    """A process for each thread, in an executor of its own, since one that ends takes along its executor."""

    def __init__(self, command: SweptCommand) -> None:
        self._command = command
        self._mine = local()
        self._all: list[Any] | None = []  # executors; None: no more are made
        self._lock = Lock()

    def run(self, task: Task) -> Answer:
        """Run a task in this thread's process.

        Raises:
            OSError: processes end at their start.
        """
        for _ in range(_ATTEMPTS):
            executor = getattr(self._mine, "executor", None) or self._started()
            self._mine.executor = executor
            try:
                answer: Answer = executor.submit(attempt, self._command, task.settings, task.key).result()
                return answer
            except BrokenProcessPool as error:
                self._mine.executor = None
                how = _end_in_words(error)
        return failure(f"the process that ran it {how}, {_ATTEMPTS} times")

    def _started(self) -> Any:
        for _ in range(_STARTS):
            executor = self._new()
            try:
                executor.submit(repr, self._command).result()  # it can import what points need
                return executor
            except BrokenProcessPool as error:
                how = _end_in_words(error)
        raise OSError(f"processes for points cannot start: {_STARTS} in a row ended, the last {how}")

    def _new(self) -> Any:
        from loky import ProcessPoolExecutor  # noqa: PLC0415 (slow to import)
        from loky.backend.resource_tracker import ensure_running  # noqa: PLC0415

        with self._lock:
            if self._all is None:
                raise InterruptedError
            # loky's tracker removes semaphores after Ctrl-C, and would warn of each.
            sys.warnoptions.append("ignore:resource_tracker")
            ensure_running()
            sys.warnoptions.pop()
            self._all.append(ProcessPoolExecutor(1, initializer=_prepare, initargs=(os.getpid(),)))
            return self._all[-1]

    def end(self) -> None:
        """End all processes, also within a point."""
        with self._lock:
            executors, self._all = self._all or [], None
        for executor in executors:
            executor.shutdown(kill_workers=True)


def _end_in_words(error: BrokenProcessPool) -> str:
    code = re.search(r"\{(\w+)\((-?\d+)\)", str(error))
    if code is None:
        return f"ended: {' '.join(str(error).split())[:200]}"
    return f"was killed by {code[1]}" if code[2].startswith("-") else f"ended with status {code[2]}"


def _prepare(parent: int) -> None:
    """Prepare a new process: it reads and prints nothing, and ends with its parent, even within a point."""
    from loky import process_executor  # noqa: PLC0415

    process_executor._USE_PSUTIL = False  # else loky restarts a process whose memory grows by 300 MB
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_S)
    os._exit(0)
