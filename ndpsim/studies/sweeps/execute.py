"""Executes runs in their folders; a run replaces the tables of another only if forced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from ndpsim.base.arguments import shown
from ndpsim.base.errors import InputError
from ndpsim.studies.sweeps.executors.cluster import run_on_cluster
from ndpsim.studies.sweeps.executors.local import chosen_jobs, run_locally
from ndpsim.studies.sweeps.points import SweepRun

#: Keys besides a sweep's definition in which searches differ.
_SEARCHED = ("objectives", "constraints", "derived", "sampler", "seed", "batch")


def execute(run: SweepRun, name: str, described: Mapping[str, Any]) -> None:
    """Run all points, after writing `described` to the file `name` of the run's folder.

    Raises:
        InputError: the folder cannot be written, or holds the tables of another run that must not be
            replaced, or the cluster does not exist.
    """
    options = run.options
    jobs = chosen_jobs(options.jobs)
    with closing(run):
        if not options.force:
            _check_folder(run, name, described)
        run.write_file(name, json.dumps(described, indent=2).encode() + b"\n")
        if options.cluster is None:
            run.take(run_locally(run.command, run.tasks(), jobs))
        else:
            run.take(run_on_cluster(run.command, run.tasks(), options.cluster))


def _check_folder(run: SweepRun, name: str, now: Mapping[str, Any]) -> None:
    """Check that the tables in a run's folder, which will be replaced, are of the same run.

    The run may have more values now.
    """
    folder = run.options.folder
    if folder is None:
        return
    try:
        problem = _difference(json.loads((folder / name).read_bytes()), json.loads(json.dumps(now)))
    except FileNotFoundError:
        files = (f"{run.table}.csv", f"{run.table}.parquet")
        tables = [file for file in files if (folder / file).exists()]
        problem = f"holds a {tables[0]} that is not from a run" if tables else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        problem = f"holds a {name} that is not from a run"
    if problem is not None:
        problem = f"{str(folder)[:200]} {problem}; --force, in Python force=True, replaces its tables"
        raise InputError(problem, key="out", code="unwritable")


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The difference of a run from an earlier one, except for further values and points, if any."""
    if before["command"] != now["command"]:
        return f"holds a run of {before['command']}, not of {now['command']}"
    if list(before["varied"]) != list(now["varied"]):
        return f"holds a run over {', '.join(before['varied'])}"
    for key in sorted({*before["fixed"], *now["fixed"]}):
        values = [definition.get(key) for definition in (before["fixed"], now["fixed"])]
        if values[0] != values[1]:
            there, here = ("its default" if value is None else shown(value) for value in values)
            return f"holds a run with {key} {there}, not {here}"
    for key, values in before["varied"].items():
        is_range = isinstance(values, str)
        gone = [value for value in ([values] if is_range else values) if value not in now["varied"][key]]
        if gone:
            return f"holds a run over {key} that has {shown(gone[0])}, too"
    for name in _SEARCHED:
        if before.get(name) != now.get(name):
            return f"holds a search with {name} {shown(before.get(name))}, not {shown(now.get(name))}"
    return None
