"""The interface of commands that can be swept."""

from __future__ import annotations

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from ndpsim.base.arguments import as_python, setting_text
from ndpsim.base.errors import InputError, did_you_mean, shown
from ndpsim.base.options import Table, refuse
from ndpsim.base.options.hardware import DEFAULT_MODEL
from ndpsim.base.reported import OF_THE_RUN, Reported, flattened, quantity_of
from ndpsim.base.run_files import note_input
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.config.nodes import scalar
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.simulate.results.cache import digest_of
from ndpsim.workload.models import Expert, load_moe_model, parse_shape
from ndpsim.workload.models.weights import own_weight_file, weight_file, weight_name

#: Keys of a device with units in its banks, as in its file.
BANK_KEYS = r"(device|unit|timings)\.\w+|refresh|clock_ps|idealise"

_NAMED = 12  # maximum metrics in a message
_IN_WORDS = ("config", "energy_note")  # fields of results that are no metrics
_SENTENCES = "prediction.counted"
_NUMBERED = re.compile(r"(.*[^ ]) (\d+)")


@dataclass(frozen=True)
class Resolved:
    """A point, equal for all ways of writing it.

    Attributes:
        config: everything that is used, with defaults: plain data and the `Hardware`.
        key: a digest of the configuration's values and of the contents of read files.
    """

    config: dict[str, Any]
    key: str

    @property
    def text(self) -> str:
        """The configuration as JSON with sorted keys; that of the hardware is made once for all points."""
        values = (f"{json.dumps(name)}: {_json_text(value)}" for name, value in sorted(self.config.items()))
        return f"{{{', '.join(values)}}}"


def _json_text(value: Any) -> str:
    return value.json_text if isinstance(value, Hardware) else json.dumps(value, sort_keys=True)


class SweptCommand(ABC):
    """A command that a sweep can run.

    `settings` are always values by key, which is an option without its leading dashes or a dotted key of the
    hardware.

    Attributes:
        name: the name of the command.
        parameters: its options by key.
        checks: additional checks of values of options, which raise InputError.
        time_metric: the metric for speed-ups.
        results: the classes of its results, whose fields are the beginnings of metrics.
        own_metrics: further metrics.
        device_keys: pattern of keys of a device with units in its banks, beside those of hardware files.
    """

    name: ClassVar[str]
    parameters: ClassVar[Table]
    checks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "weights": weight_name,
        "arbitration": checked_arbitration,
    }
    time_metric: ClassVar[str] = "time_ns"
    results: ClassVar[tuple[type, ...]] = ()
    own_metrics: ClassVar[tuple[str, ...]] = ()
    device_keys: ClassVar[str | None] = None

    def metric_beginnings(self) -> tuple[str, ...]:
        """Beginnings of the names of its metrics, up to the first dot; empty if they are unknown."""
        names = [each.name for result in self.results for each in fields(result)]
        names += ["energy_complete"] if "energy_nj" in names else []
        return tuple(dict.fromkeys(name for name in (*names, *self.own_metrics) if name not in OF_THE_RUN))

    def check_metric(self, name: str, key: str, others: Collection[str] = ()) -> None:
        """Check that a name may be a metric, as far as it can be known before any results.

        Args:
            key: the key that an error names.
            others: further valid names.

        Raises:
            InputError: it cannot be a metric.
        """
        known = (*others, *self.metric_beginnings())
        if self.metric_beginnings() and not {name, name.partition(".")[0]} & set(known):
            hint = did_you_mean(name, known) or f" (metrics: {', '.join(known[:_NAMED])}, ...)"
            problem = f"{shown(name)} is no metric of {self.name}{hint}"
            raise InputError(problem, key=key, code="unknown-name")

    def resolved(self, config: dict[str, Any], *contents: Any, apart: Collection[str] = ()) -> Resolved:
        """A point with its key, from its configuration without the values `apart`, and contents of files."""
        return Resolved(config, digest_of([self.name, config | dict.fromkeys(apart), *contents]))

    @abstractmethod
    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        """The configuration of a run, without running it.

        Raises:
            InputError: the point is impossible.
        """

    @abstractmethod
    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Run a point; returns the scalars of its result by dotted name, but no configuration or wall times.

        Earlier results are taken from the result cache.

        Raises:
            InputError: the point is impossible.
        """


def scalars_of(result: Reported, *others: str) -> dict[str, Any]:
    """The scalars of a result by dotted name, without configuration, times of the run and `others`.

    Numbered parts, such as "utilization.ndp 0", are also there together, as "utilization.ndp". With a total
    energy, `energy_complete` tells whether all components are known.
    """
    left_out = (*_IN_WORDS, *others)
    scalars = {
        name: value
        for name, value in flattened({k: v for k, v in result.to_dict().items() if k not in left_out}).items()
        if not name.startswith(_SENTENCES) and name.rpartition(".")[2] not in OF_THE_RUN
    }
    if "energy_nj.total" in scalars:
        parts = [value for name, value in scalars.items() if name.startswith("energy_nj.")]
        scalars["energy_complete"] = None not in parts
    return scalars | _of_numbered(scalars, type(result))


def numbered_part(name: str, metrics: Collection[str]) -> tuple[str, int] | None:
    """The metric of all equal parts and the number of the part whose metric this is; None: it is of no part.

    metrics: the names of all metrics of the point.
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None or found[1] not in metrics else (found[1], int(found[2]))


def _of_numbered(scalars: Mapping[str, Any], result: type) -> dict[str, float]:
    """The mean or the sum of numbered parts, as their quantity has it, under their name without a number."""
    groups: dict[str, list[float]] = {}
    for name, value in scalars.items():
        if value is not None and (numbered := _NUMBERED.fullmatch(name)):
            groups.setdefault(numbered[1], []).append(value)
    how = {name: quantity_of(name, (result,)).numbered for name in groups}
    return {
        name: sum(values) / (len(values) if how[name] == "mean" else 1)
        for name, values in groups.items()
        if how[name]
    }


# ---- Options of a command for sweeps and the command line


def plain(value: Any) -> Any:
    """A value of Python, where texts are read as YAML."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    value = as_python(value)
    return scalar(value.strip()) if isinstance(value, str) else value


def expert_of(settings: Mapping[str, Any]) -> str | Expert:
    """The given model or shape.

    Raises:
        InputError: both are given.
    """
    if "shape" in settings:
        if "model" in settings:
            raise InputError("give a model or a shape, not both", "conflict", key="shape")
        return parse_shape(settings["shape"])
    return str(settings.get("model", DEFAULT_MODEL))


def weight_format(settings: Mapping[str, Any]) -> ExpertFormat:
    """The format that the options of `ndpsim.base.options.hardware` describe, else that of the model's file.

    Raises:
        InputError: the options are invalid.
    """
    if "weights" in settings:
        said = "bits", "group-size", "scale-bits", "zero-point-bits", "shape"
        refuse(settings, "is not for weights of a file of a model", *said)
        model = load_moe_model(settings.get("model", DEFAULT_MODEL))
        return expert_format_of(weight_file(settings["weights"], model))
    if settings.keys().isdisjoint(("bits", "group-size", "scale-bits", "zero-point-bits", "shape")):
        own = own_weight_file(load_moe_model(settings.get("model", DEFAULT_MODEL)))
        if own is not None:
            return expert_format_of(own)
    return ExpertFormat.of(
        settings.get("bits", 16),
        settings.get("group-size", 0),
        settings.get("scale-bits", 16),
        settings.get("zero-point-bits"),
    )


def hardware_of(settings: Mapping[str, Any], parameters: Table) -> Hardware:
    """The given or default hardware, with given keys.

    Raises:
        InputError: there is no such hardware.
    """
    return load_hardware(parameters.value(settings, "hw"), hardware_sets(settings, parameters))


def bank_hardware_of(settings: Mapping[str, Any], parameters: Table, rules: str = "standard") -> BankHardware:
    """The device with units in its banks, with given keys.

    Raises:
        InputError: there is no such device, or no such key.
    """
    return load_bank_hardware(parameters.value(settings, "hw"), hardware_sets(settings, parameters), rules)


def hardware_sets(settings: Mapping[str, Any], parameters: Table) -> list[str]:
    """The given keys of the hardware, in the form of ``--set``."""
    return [f"{key}={setting_text(value)}" for key, value in settings.items() if key not in parameters]


def file_digests(*paths: str | os.PathLike[str]) -> list[str | None]:
    """Digests of the contents of files; None for names that are not files, such as bundled ones."""
    return [_file_digest(Path(path)) for path in paths]


def _file_digest(path: Path) -> str | None:
    note_input(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except (OSError, ValueError):
        return None
