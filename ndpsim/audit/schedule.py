"""Judges a log of `ndpsim moe` without trusting what wrote it.

It imports nothing of the orchestrator, its policies or the simulator. It knows only the form of the log,
which `ndpsim/inference/layers/log.py` describes.

>>> from ndpsim.audit import check_schedule
>>> check_schedule("log.jsonl.gz").ok  # doctest: +SKIP
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from ndpsim.audit.log_lines import Finding, Findings, LogReport, begins_with, judge_log
from ndpsim.audit.schedule_layer import layer_findings
from ndpsim.audit.schedule_moves import ExpertLocations
from ndpsim.audit.schedule_rules import Fault, Figures, Header, estimate_faults, unknown_keys
from ndpsim.base.errors import InputError
from ndpsim.base.reported import quantity

_SUFFIXES = (".jsonl", ".jsonl.gz")
_VERSION = 4
# What a log has, see `ndpsim/inference/layers/log.py`.
_RUN_KEYS = {
    "log", "policy", "parameters", "model", "experts", "experts_per_token", "zero_experts", "layers", "batch",
    "prompt_tokens", "dimms", "channels", "channel_of_dimm", "expert_bytes", "dimm_bytes", "gpu_experts",
    "token_bytes", "expert_buffers", "copy_engines", "link_ports", "gbps", "gpu_order", "bits", "replicas",
    "placement"
}  # fmt: skip
_LAYER_KEYS = {
    "policy", "phase", "step", "layer", "start_ns", "end_ns", "window_ns", "tokens", "loads", "placement",
    "estimates", "assign", "bits", "estimated_ns", "details", "jobs", "migrations", "residents",
    "under_way", "bound_ns", "bottleneck", "critical_path"
}  # fmt: skip
_JOB_KEYS = {
    "resource", "kind", "expert", "share", "tokens", "start_ns", "end_ns", "bytes", "alone_ns",
    "read_limit_gbps", "pcie_part"
}  # fmt: skip
_MIGRATION_KEYS = {
    "kind", "layer", "expert", "from", "to", "bytes", "decided_ns", "start_ns", "end_ns", "hidden_ns"
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class ScheduleReport(LogReport):
    """The outcome of a check.

    Attributes:
        runs, layers, jobs, migrations: the number of each that was checked.
        count: number of findings.
        findings: the first of them, in the order of the log.
    """

    runs: int = field(metadata=quantity("runs"))
    layers: int = field(metadata=quantity("layers"))
    jobs: int = field(metadata=quantity("jobs"))
    migrations: int = field(metadata=quantity("migrations"))
    count: int = field(metadata=quantity("findings"))
    findings: tuple[Finding, ...]


def is_schedule_log(path: str | PathLike[str]) -> bool:
    """Whether a file is a log of `ndpsim moe`: by the end of its name, else by how it begins."""
    return str(path).endswith(_SUFFIXES) or begins_with(path, b'{"log":')


def check_schedule(path: str | PathLike[str], limit: int = 20) -> ScheduleReport:
    """Check a log against rules that hold for every schedule.

    The rules: every pair of a token and an expert is computed once, on an engine that can compute it. An
    exclusive resource does one thing at a time, and nothing is faster than alone. Layers follow each other
    and contain their jobs. No transfer is faster than its link. An expert is where it was at the start, or
    where a migration took it, from the migration's end on. Capacities are kept. The critical path goes from
    the beginning of a layer to its end, most of it on the bottleneck. No layer is faster than the bound of
    its loads. Windows fill the time between layers. Estimates are no less than links and DIMMs allow. The log
    has no unknown entries.

    >>> ndpsim.check_schedule("layers.jsonl.gz").ok  # doctest: +SKIP
    True

    Args:
        path: a log, plain or gzip.
        limit: findings to describe.

    Raises:
        InputError: the file cannot be read or is no such log; `limit` is out of range.
    """
    judge, found = judge_log(path, limit, "ndpsim moe", _Judge)
    numbers = judge.runs, judge.layers, judge.jobs, judge.migrations, found.count
    return ScheduleReport(*numbers, tuple(found.first))


class _Judge:
    """Reads the log line by line, and has the state of the current run."""

    def __init__(self, first: dict[str, Any], findings: Findings) -> None:
        self.runs = self.layers = self.jobs = self.migrations = 0
        self._findings = findings
        self._run: _Run | None = None
        self._number = 0
        self.line(1, first)

    def line(self, number: int, content: dict[str, Any]) -> None:
        if "log" in content:
            self.end()
            if content["log"] != _VERSION:
                problem = f"{content['log']!r} is not {_VERSION}, the only form that is read"
                raise InputError(problem, "form", key="log")
            self._run = _Run(Header.of(content), ExpertLocations(content))
            self.runs += 1
            self._findings.add(number, "", unknown_keys(content, _RUN_KEYS, "the run"))
            self._findings.add(number, "", self._run.locations.capacity_faults())
        elif self._run is None:
            raise InputError("is no log of ndpsim moe or serve: no line before it describes the run", "form")
        else:
            where = f"step {content['step']}, layer {content['layer']}: "
            if content["phase"] == "prefill":
                where = f"prefill, layer {content['layer']}: "
            self.layers += 1
            self.jobs += len(content["jobs"])
            self.migrations += len(content["migrations"])
            self._findings.add(number, where, self._run.faults(content))
        self._number = number

    def end(self) -> None:
        """Check the end of a run."""
        if self._run is not None:
            self._findings.add(self._number, "", self._run.end_faults())


class _Run:
    """The state of a run so far."""

    def __init__(self, machine: Header, locations: ExpertLocations) -> None:
        self.machine, self.locations = machine, locations
        self._phase = "prefill" if machine.prompt_tokens else "decode"
        self._step = self._row = 0
        self._begun = False
        self._figures = Figures()

    def faults(self, line: dict[str, Any]) -> Iterator[Fault]:
        yield from unknown_keys(line, _LAYER_KEYS, "the layer")
        for job in line["jobs"]:
            yield from unknown_keys(job, _JOB_KEYS, "a job")
        for migration in line["migrations"]:
            yield from unknown_keys(migration, _MIGRATION_KEYS, "a migration")
        first, self._begun = self._row == 0 and self._begun, True
        yield from self._order_faults(line)
        yield from self._figures.faults(line, first)
        yield from estimate_faults(self.machine, line)
        locations = self.locations
        yield from locations.before(line)
        yield from layer_findings(self.machine, line, locations.arrivals(line), locations.replicas(line))
        yield from locations.after(line)

    def _order_faults(self, line: dict[str, Any]) -> Iterator[Fault]:
        found = line["phase"], line["step"], line["layer"]
        expected = self._phase, self._step, self.machine.layers[self._row]
        if line["policy"] != self.machine.policy:
            yield "order", f"policy {line['policy']!r} in the run of {self.machine.policy!r}"
        if found != expected:
            yield (
                "order",
                "{} step {}, layer {} comes where {} step {}, layer {} is due".format(*found, *expected),
            )
            self._phase, self._step = found[0], found[1]
            if found[2] not in self.machine.layers:
                return
            self._row = self.machine.layers.index(found[2])
        self._row += 1
        if self._row == len(self.machine.layers):
            self._row = 0
            self._step = self._step + 1 if self._phase == "decode" else 0
            self._phase = "decode"

    def end_faults(self) -> Iterator[Fault]:
        """Faults at the end of a run: everything that is missing."""
        if self._row:
            missing = len(self.machine.layers) - self._row
            yield (
                "order",
                f"the run ends within a step: {missing} of {len(self.machine.layers)} layers are missing",
            )
