"""The runs of claims: each runs once for all claims, and is found in the cache by its configuration."""

from __future__ import annotations

import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options import Table
from ndpsim.config.files import data_folder
from ndpsim.simulate.results.cache import stored_beside_results
from ndpsim.studies.claims.claim import ClaimRun
from ndpsim.studies.claims.quantities import QUANTITIES, ClaimQuantity
from ndpsim.studies.sweeps.command import Resolved, SweptCommand
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import Task, reason_of
from ndpsim.studies.sweeps.executors.local import run_locally
from ndpsim.studies.sweeps.store import point_name
from ndpsim.studies.sweeps.values import one_value


class _AnyCommand(SweptCommand):
    """The command or quantity that a run names."""

    name = "claim"
    parameters = Table()

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        return _command(settings["command"]).resolve(settings["given"])

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return _command(settings["command"]).measure(settings["given"])


#: Metrics by dotted name, or the reason why there are none.
Result = dict[str, Any] | str

#: The key of all other models in a mapping by model; without it these models have no value.
OTHER_MODELS = ""

#: The reason of a run that was not started, as the time was up.
TIME_IS_UP = "the time was up"

_ANY = _AnyCommand()
_KIND = "claim"


def _command(name: str) -> SweptCommand:
    return QUANTITIES[name] if name in QUANTITIES else swept_commands()[name]


@dataclass(frozen=True)
class ResolvedRun:
    """A run with all places of `Claim.over` filled in.

    Attributes:
        command: see `ClaimRun`.
        settings: the arguments by key, as JSON; runs with equal arguments are equal.
    """

    command: str
    settings: str


def takes(run: ClaimRun, key: str) -> bool:
    """Whether the run's command has a key: an option, or a key of the hardware."""
    parameters = _command(run.command).parameters
    return key in parameters or ("." in key and "hw" in parameters)


def filled(run: ClaimRun, values: Mapping[str, Any]) -> ResolvedRun:
    """A run with ``{KEY}`` replaced by values, and a mapping by model replaced by the value for its model.

    ``{validation}`` stands for the folder of published figures.

    Raises:
        InputError: the command has no such key or value.
    """
    values = {"validation": data_folder("validation"), **values}
    model = str(_filled(run.given.get("model"), values))
    settings = {}
    for key, value in run.given.items():
        by_model = value if isinstance(value, dict) else {OTHER_MODELS: value}
        for name in (model, OTHER_MODELS):
            if name in by_model:
                settings[key] = _taken(run.command, key, json.dumps(_filled(by_model[name], values)))
                break
    return ResolvedRun(run.command, json.dumps(settings, sort_keys=True))


@functools.lru_cache(maxsize=1 << 14)
def _taken(command: str, key: str, value: str) -> Any:
    """A value for the command, as JSON; cached because all claims use the same values."""
    return one_value(_command(command), key, json.loads(value))


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(entry, values) for entry in value]
    if not isinstance(value, str):
        return value
    for key, filling in values.items():
        if value == f"{{{key}}}":
            return filling
        value = value.replace(f"{{{key}}}", str(filling))
    return value


def measured(
    runs: Iterable[ResolvedRun],
    jobs: int,
    progress: Callable[[float], None] = lambda share: None,
    seconds: float = math.inf,
) -> dict[ResolvedRun, Result]:
    """The metrics of each run, or the reason why it has none; results of earlier runs are in the cache.

    Args:
        jobs: processes.
        progress: called with the share of runs that are done.
        seconds: after this time no run is started; runs that are left have the reason `TIME_IS_UP`.
    """
    end = time.monotonic() + seconds
    found, tasks, runs_of = _found(dict.fromkeys(runs))
    total = len(found) + sum(map(len, runs_of.values()))
    if tasks:
        in_time = itertools.takewhile(lambda task: time.monotonic() < end, tasks)
        with closing(run_locally(_ANY, in_time, jobs)) as answers:  # type: ignore[type-var]
            for task, answer in answers:
                ok = answer["status"] == "ok"
                found |= dict.fromkeys(runs_of[task.name], answer["metrics"] if ok else str(answer["reason"]))
                if ok:
                    _store(task.name, answer["metrics"])
                progress(len(found) / total)
    left = (run for of in runs_of.values() for run in of if run not in found)
    return found | dict.fromkeys(left, TIME_IS_UP)


def _found(
    runs: Iterable[ResolvedRun],
) -> tuple[dict[ResolvedRun, Result], list[Task], dict[str, list[ResolvedRun]]]:
    """Results that are known without a run, tasks for all others, and the runs of each task."""
    found: dict[ResolvedRun, Result] = {}
    tasks: list[Task] = []
    runs_of: dict[str, list[ResolvedRun]] = {}
    for run in runs:
        settings = {"command": run.command, "given": json.loads(run.settings)}
        try:
            resolved = _ANY.resolve(settings)
        except InputError as error:
            found[run] = reason_of(error)
            continue
        name = point_name(run.command, resolved.key)
        if isinstance(_command(run.command), ClaimQuantity):
            found[run] = resolved.config
        elif name in runs_of:
            runs_of[name].append(run)
        elif (metrics := _stored(name)) is not None:
            found[run] = metrics
        else:
            runs_of[name] = [run]
            tasks.append(Task(name, settings, resolved.key))
    return found, tasks, runs_of


def _stored(name: str) -> dict[str, Any] | None:
    content = stored_beside_results().read(f"{_KIND}-{name}")
    return None if content is None else json.loads(content)


def _store(name: str, metrics: dict[str, Any]) -> None:
    stored_beside_results().write(f"{_KIND}-{name}", json.dumps(metrics).encode())
