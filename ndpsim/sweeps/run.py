"""Running a sweep: what is there is found, the rest is run, and all of it becomes a table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ndpsim.arguments import flag, is_flag, path_of, progress_function, several, shown, text
from ndpsim.errors import InputError, unknown
from ndpsim.sweeps.command import SweptCommand
from ndpsim.sweeps.commands import swept_commands
from ndpsim.sweeps.definition import Definition
from ndpsim.sweeps.executors.cluster import run_on_cluster
from ndpsim.sweeps.executors.local import chosen_jobs, run_locally
from ndpsim.sweeps.file import read_definition
from ndpsim.sweeps.points import Progress, Run
from ndpsim.sweeps.store import Store
from ndpsim.sweeps.table import SweepResult
from ndpsim.sweeps.values import checked

_DESCRIBED = "sweep.json"  # what the sweep of a folder is
_MOST_POINTS = 1_000_000
#: What else makes a search another one.
_SEARCHED = ("objectives", "constraints", "derived", "sampler", "seed", "batch")


def sweep(
    command: str | os.PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    zip: bool | Sequence[Sequence[str]] = False,
    baseline: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    force: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SweepResult:
    """Run a command at many points, on all cores or on a cluster.

    >>> import ndpsim
    >>> result = ndpsim.sweep("gemv", {"tokens": [1, 2], "dimm.ranks": [2, 4]}, fixed={"shape": "256,128"})
    >>> len(result), result[0]["tokens"], result[3]["dimm.ranks"], result.failed
    (4, 1, 4, 0)

    Args:
        command: gemv, moe, relayout or dram; or a YAML file that describes a sweep; or a `Definition`.
        vary: the keys that vary, each with its values: a list, or a text as ``--vary`` takes it, "1,2,4",
            "1..8", "log:10..1000:7". A key is an option of the command without its dashes (``group-size``) or
            a key of the hardware (``dimm.ranks``). The last one changes fastest. These override the values of
            a file or a definition.
        fixed: keys with one value, the same at all points.
        zip: True: combine the n-th values of all keys, instead of all combinations. [["tokens", "bits"],
            ...]: combine the n-th values of the keys of each group.
        baseline: values of some varied keys: `speedup` compares each point with the point that has these
            values and is otherwise equal.
        out: a folder with a file for every finished point, table.csv and table.parquet. The same call
            continues an interrupted sweep; it runs points again if ndpsim or a named file has changed. None:
            nothing is stored.
        jobs: processes; None: one a core.
        cluster: address or scheduler file of a Dask cluster that runs the points (extra `cluster`). Named
            files must be there under the same path, with the same content.
        retry_failed: run points again that have failed before.
        force: replace the tables of another sweep in `out`.
        progress: called with the share of points that are done.

    Returns:
        The rows of the table. If a point fails, its row has the reason.

    Raises:
        InputError: the sweep makes no sense, or `out` cannot be written, or holds another sweep.
    """
    definition = defined(command, vary, fixed, zip, baseline)
    show = progress_function(progress)
    return run_sweep(
        definition,
        None if out is None else path_of(out, "out"),
        jobs=jobs,
        cluster=cluster,
        retry_failed=retry_failed,
        force=force,
        watch=lambda state: show(state.done / state.points),
    )


def defined(
    command: str | os.PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    zipped: bool | Sequence[Sequence[str]] = False,
    baseline: Mapping[str, Any] | None = None,
) -> Definition:
    """The definition that arguments of `sweep` mean.

    Raises:
        InputError: it makes no sense.
    """
    vary, fixed, baseline = (
        mapping_of(vary, "vary"),
        mapping_of(fixed, "fixed"),
        mapping_of(baseline, "baseline"),
    )
    for key in fixed.keys() & vary.keys():
        raise InputError("has one value and varies, too", "conflict", key=key)
    if isinstance(command, Definition):
        said = replace(
            command,
            varied={**command.varied, **vary},
            fixed={key: value for key, value in command.fixed.items() if key not in vary},
        )
    elif (name := os.fspath(path_of(command, "command"))) in swept_commands():
        said = Definition(name, varied=vary)
    elif name.endswith((".yaml", ".yml")):
        said = read_definition(name, vary)
    else:
        known = [*swept_commands(), "FILE.yaml"]
        raise unknown(name, known, "command", key="command")
    swept = command_of(said)
    varied = {key: values for key, values in said.varied.items() if key not in fixed}
    baseline = {key: value for key, value in said.baseline.items() if key not in fixed} | baseline
    said = replace(
        said,
        varied=varied,
        fixed={**said.fixed, **fixed},
        zipped=_groups(zipped, varied) or _without(said.zipped, fixed),
        baseline=baseline,
        speedup_of=said.speedup_of if baseline else None,
        published=tuple(one for one in said.published if not fixed.keys() & one.where.keys()),
    )
    return checked(swept, said)


def _groups(zipped: Any, varied: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The groups of keys whose values go together."""
    if is_flag(zipped):
        return (tuple(varied),) if zipped else ()
    return several(zipped, "zip", lambda group, name: several(group, name, text))


def _without(groups: Sequence[Sequence[str]], fixed: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Groups of keys without those that vary no more."""
    within = (tuple(key for key in group if key not in fixed) for group in groups)
    return tuple(group for group in within if len(group) > 1)


def mapping_of(value: Any, name: str) -> dict[str, Any]:
    """An argument whose keys are texts, as a dict of its own; None: an empty one.

    Raises:
        InputError: it is no such mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{shown(value)} is no mapping of keys", "type", key=name)
    return dict(value)


def command_of(definition: Definition) -> SweptCommand:
    """The command of a definition.

    Raises:
        InputError: there is none of that name.
    """
    commands = swept_commands()
    if definition.command not in commands:
        raise unknown(definition.command, commands, "command", key="command")
    return commands[definition.command]


def run_sweep(
    definition: Definition,
    out: Path | None = None,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    force: bool = False,
    watch: Callable[[Progress], None] = lambda state: None,
) -> SweepResult:
    """As `sweep`, of a definition that `defined` has made; `watch` is called after every point.

    Raises:
        InputError: `out` cannot be written, or holds another sweep, or there is no such cluster.
    """
    command = command_of(definition)
    workers, force = workers_of(jobs, cluster), flag(force, "force")
    retry_failed = flag(retry_failed, "retry_failed")
    points = definition.points()
    if len(points) > _MOST_POINTS:
        raise InputError(f"{len(points):,} points are more than {_MOST_POINTS:,}", "too-large", key="vary")
    run = Run(definition, command, points, None if out is None else Store(out), retry_failed, watch)
    execute(run, workers, _DESCRIBED, asdict(definition), force)
    return run.result()


def _check_folder(run: Run, name: str, now: Mapping[str, Any]) -> None:
    """Make sure that the tables in a run's folder, which are going to be replaced, are of the same run.

    Values may have been added to it since.
    """
    folder = run.folder
    if folder is None:
        return
    try:
        problem = _difference(json.loads((folder / name).read_bytes()), json.loads(json.dumps(now)))
    except FileNotFoundError:
        files = (f"{run.table}.csv", f"{run.table}.parquet")
        tables = [file for file in files if (folder / file).exists()]
        problem = f"{tables[0]} there is of no run" if tables else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        problem = f"{name} there is of no run"
    if problem is not None:
        problem = f"{str(folder)[:200]}: {problem}; force replaces its tables"
        raise InputError(problem, key="out", code="unwritable")


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What a run has that an earlier one had not, except for further values and points; None: nothing."""
    if before["command"] != now["command"]:
        return f"a run of {before['command']} is there, not of {now['command']}"
    if list(before["varied"]) != list(now["varied"]):
        return f"a run over {', '.join(before['varied'])} is there"
    for key in sorted({*before["fixed"], *now["fixed"]}):
        values = [of.get(key) for of in (before["fixed"], now["fixed"])]
        if values[0] != values[1]:
            return f"a run with {key} {shown(values[0])} is there, not {shown(values[1])}"
    for key, values in before["varied"].items():
        is_range = isinstance(values, str)
        gone = [value for value in ([values] if is_range else values) if value not in now["varied"][key]]
        if gone:
            return f"a run over {key} with {shown(gone[0])} is there, too"
    for name in _SEARCHED:
        if before.get(name) != now.get(name):
            return f"a search with {name} {shown(before.get(name))} is there, not {shown(now.get(name))}"
    return None


@dataclass(frozen=True)
class Workers:
    """Where points run: in `jobs` processes of this machine, or on the cluster at an address."""

    jobs: int
    cluster: str | None


def workers_of(jobs: int | None, cluster: str | None) -> Workers:
    """The workers that these arguments of `sweep` mean.

    Raises:
        InputError: both are given, or one makes no sense.
    """
    if jobs is not None and cluster is not None:
        raise InputError("the cluster says how many points run at once; leave it out", "conflict", key="jobs")
    if cluster is not None and not text(cluster, "cluster").strip():
        raise InputError("is empty: give the address of a scheduler, or its file", "missing", key="cluster")
    return Workers(chosen_jobs(jobs), cluster)


def execute(run: Run, workers: Workers, name: str, described: Mapping[str, Any], force: bool) -> None:
    """Run all points; what is `described` becomes the file `name` of the run's folder first.

    Raises:
        InputError: the folder cannot be written, or holds the tables of another run and there is no
            `force`, or there is no such cluster.
    """
    with closing(run):
        if not force:
            _check_folder(run, name, described)
        run.write_file(name, json.dumps(described, indent=2).encode() + b"\n")
        if workers.cluster is None:
            run.take(run_locally(run.command, run.tasks(), workers.jobs))
        else:
            run.take(run_on_cluster(run.command, run.tasks(), workers.cluster))
