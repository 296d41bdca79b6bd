"""A command to sweep that takes no time and can fail in every way, in this process or in another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options import Parameter, Several, Whole, table
from ndpsim.simulate.results.cache import digest_of
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, file_digests
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import Answers, Task, attempt

ENDLESS_S = 100  # of a point that takes longer than its test may


class Fake(SweptCommand):
    """The time of point `n` is 100 / n ns; `how` is the kind of failure, `folder` is shared by points and the test.

    Neither `called`, a name, nor `folder` is part of a point's identity.
    """

    name = "fake"
    parameters = table(
        {
            "Fake": (
                Parameter("n", "A number.", Whole(1)),
                Parameter("parts", "Numbers.", Several(Whole(1))),
                Parameter("how", "What goes wrong.", default="ok"),
                Parameter("called", "A name.", default="x"),
                Parameter("folder", "Where points meet the test."),
                Parameter("file", "An input.", files=("",)),
            )
        }
    )

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        if given.get("how") == "unresolved":
            raise InputError("there is no such point", key="how")
        config = {name: given.get(name) for name in ("n", "parts", "how")}
        contents = file_digests(given["file"]) if "file" in given else []
        return Resolved(config, digest_of([config, contents]))

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        n, how = given.get("n", 1), given.get("how", "ok")
        folder = Path(given["folder"]) if "folder" in given else None
        if folder is not None:
            (folder / f"run-{n}-{how}-{os.urandom(4).hex()}").touch()
        _go_wrong(how, n, folder)
        metrics: dict[str, Any] = {"time_ns": 100 / n, "energy_nj.total": n * n, "bound": "memory"}
        if "file" in given:
            metrics["letters"] = len(Path(given["file"]).read_text())
        if "parts" in given:
            parts = given["parts"] if isinstance(given["parts"], list) else [given["parts"]]
            metrics["sum"] = sum(parts)
        return metrics


def _go_wrong(how: str, n: int, folder: Path | None) -> None:
    if how == "refused":
        raise InputError(f"{n} is refused", key="n")
    if how == "broken":
        raise ZeroDivisionError("two\nlines")
    if how == "exits":
        raise SystemExit(3)
    if how == "endless":
        time.sleep(ENDLESS_S)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "killed-once" and folder is not None:
        with contextlib.suppress(FileExistsError):  # the first of them ends its process
            (folder / "killed").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    if how == "waits" and folder is not None:  # for the test to open the gate
        os.write(1, b"printed by a point")
        os.write(2, b"printed by a point")
        while not (folder / "gate").exists():
            time.sleep(0.002)
    if how == "until-mended" and folder is not None and not (folder / "mended").exists():
        raise InputError("nobody has mended it")


def register() -> Fake:
    """Register the command in this process."""
    swept_commands()["fake"] = Fake()
    return Fake()


def run_here(command: SweptCommand, tasks: Iterator[Task], jobs: int) -> Answers:
    """A `run_locally` without processes."""
    for task in tasks:
        yield task, attempt(command, task.settings, task.key)


def runs(folder: Path) -> int:
    """The number of points that were run with this folder."""
    return len(list(folder.glob("run-*")))


def records_in(out: Path) -> list[dict[str, Any]]:
    """The records of points in the folder of a sweep, which may still run."""
    files = sorted((out / "points").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines(True) if line.endswith("\n")]
    return [json.loads(line)["record"] for line in lines]
