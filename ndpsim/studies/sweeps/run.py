"""Runs a sweep: points without a stored result are run, and all become a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from os import PathLike
from typing import Any, TypeAlias

from ndpsim.base.arguments import is_flag, path_of, plain_mapping, several, text
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.options.settings import called_with
from ndpsim.base.options.swept import STUDIES, StudyOptions
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors.cluster import run_on_cluster
from ndpsim.studies.sweeps.executors.local import chosen_jobs, run_locally
from ndpsim.studies.sweeps.file import read_definition
from ndpsim.studies.sweeps.points import SweepRun, shares
from ndpsim.studies.sweeps.table import SweepResult
from ndpsim.studies.sweeps.values import Definition, checked

# ---- Executes runs in their folders; a run replaces the tables of another only if forced


def execute(run: SweepRun, name: str, described: Mapping[str, Any]) -> None:
    """Run all points, after writing `described` to the file `name` of the run's folder.

    Raises:
        InputError: the folder cannot be written, or holds the tables of another run that must not be
            replaced, or another run took the folder meanwhile, or the cluster does not exist.
    """
    options = run.options
    jobs = chosen_jobs(options.jobs)
    with closing(run):
        run.claim(name, described)
        if options.cluster is None:
            run.take(run_locally(run.command, run.tasks(), jobs))
        else:
            run.take(run_on_cluster(run.command, run.tasks(), options.cluster))


# ---- Runs a sweep: points without a stored result are run, and all become a table


Study: TypeAlias = str | os.PathLike[str] | Definition
Values: TypeAlias = Mapping[str, Any] | None
Zipped: TypeAlias = bool | Sequence[Sequence[str]]

_MOST_POINTS = 1_000_000


@called_with(StudyOptions)
def sweep(
    command: str | PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    zip: bool | Sequence[Sequence[str]] = False,
    baseline: Mapping[str, Any] | None = None,
    settings: StudyOptions,
    progress: Callable[[float], None] | bool | None = None,
) -> SweepResult:
    """Run a command at many points, on all cores or on a cluster (extra `cluster`).

    >>> import ndpsim
    >>> result = ndpsim.sweep("gemv", {"tokens": [1, 2], "dimm.ranks": [2, 4]}, fixed={"shape": "256,128"})
    >>> len(result), result[0]["tokens"], result[3]["dimm.ranks"], result.failed
    (4, 1, 4, 0)

    Args:
        command: gemv, moe, relayout, dram or serve; or a YAML file that describes a sweep; or a `Definition`.
        vary: the keys that vary, each with its values: a list, or a text as ``--vary`` takes it, "1,2,4",
            "1..8", "log:10..1000:7". A key is an option of the command without its dashes (``group-size``) or
            a key of the hardware (``dimm.ranks``). The last key changes fastest. These override the values of
            a file or a definition.
        fixed: keys with the same value at all points.
        zip: True: combine the n-th values of all keys, instead of all combinations. [["tokens", "bits"],
            ...]: combine the n-th values of the keys of each group.
        baseline: values of some varied keys: `speedup` compares each point with the point that has these
            values and is otherwise equal.
        progress: called with the share of points that are done.

    Returns:
        The rows of the table. If a point fails, its row has the reason.

    Raises:
        InputError: the sweep is invalid, or `out` cannot be written, or holds another sweep.
    """
    return run_sweep(defined(command, vary, fixed, zip, baseline), settings, shares(progress))


def defined(
    command: Study, vary: Values = None, fixed: Values = None, zipped: Zipped = False, baseline: Values = None
) -> Definition:
    """The definition from arguments of `sweep`.

    Raises:
        InputError: the arguments are invalid.
    """
    vary, fixed = plain_mapping(vary, "vary"), plain_mapping(fixed, "fixed")
    baseline = plain_mapping(baseline, "baseline")
    for key in fixed.keys() & vary.keys():
        raise InputError("has a fixed value and varies; give one of them", "conflict", key=key)
    if isinstance(command, Definition):
        said = replace(
            command,
            varied={**command.varied, **vary},
            fixed={key: value for key, value in command.fixed.items() if key not in vary},
        )
    elif (name := os.fspath(path_of(command, "command"))) in swept_commands():
        said = Definition(name, varied=vary)
    elif name.endswith(STUDIES):
        said = read_definition(name, vary)
    else:
        raise no_study(name)
    varied = {key: values for key, values in said.varied.items() if key not in fixed}
    baseline = {key: value for key, value in said.baseline.items() if key not in fixed} | baseline
    said = replace(
        said,
        varied=varied,
        fixed={**said.fixed, **fixed},
        zipped=_groups(zipped, varied) or _without(said.zipped, fixed),
        baseline=baseline,
        speedup_of=said.speedup_of if baseline else None,
        published=tuple(value for value in said.published if not fixed.keys() & value.where.keys()),
    )
    return checked(said)


def no_study(name: str) -> InputError:
    """The error for a name that is neither a command nor a file of a sweep or search."""
    return unknown(
        name, [*swept_commands(), *(f"FILE{ending}" for ending in STUDIES)], "command or file", key="command"
    )


def _groups(zipped: Any, varied: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The groups of keys whose values are combined."""
    if is_flag(zipped):
        return (tuple(varied),) if zipped else ()
    return several(zipped, "zip", lambda group, name: several(group, name, text))


def _without(groups: Sequence[Sequence[str]], fixed: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Groups of keys without those that no longer vary."""
    within = (tuple(key for key in group if key not in fixed) for group in groups)
    return tuple(group for group in within if len(group) > 1)


def run_sweep(definition: Definition, options: StudyOptions, *watching: Callable[..., Any]) -> SweepResult:
    """Run a sweep with a definition from `defined`; see `sweep`, and for `watching` see `SweepRun`.

    Raises:
        InputError: the folder cannot be written, or holds another sweep, or the cluster does not exist.
    """
    points = definition.points()
    if len(points) > _MOST_POINTS:
        raise InputError(f"{len(points):,} points are more than {_MOST_POINTS:,}", "too-large", key="vary")
    run = SweepRun(definition, points, options, *watching)
    execute(run, "sweep.json", asdict(definition))
    return run.result()
