"""Judges a log of `ndpsim serve` without trusting what wrote it.

It imports nothing of the serving engine or its schedulers. It knows only the form of the log, which
docs/serving.md describes.

>>> from ndpsim.audit import check_serving
>>> check_serving("serving.jsonl.gz").ok  # doctest: +SKIP
True
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from ndpsim.audit.log_lines import Finding, Findings, LogReport, begins_with, judge_log
from ndpsim.audit.schedule_rules import Fault, close, is_later, unknown_keys
from ndpsim.audit.serving_blocks import Served
from ndpsim.audit.serving_engine import EngineCheck, LockstepCheck
from ndpsim.audit.serving_schedulers import LogLimits
from ndpsim.base.errors import InputError
from ndpsim.base.reported import quantity

_VERSION = 1
_BEGIN = b'{"serving_log":'
_LIMITS = set(LogLimits.__dataclass_fields__)
_OPTIONAL = {
    "async_scheduling",
    "lockstep",
    "preemption",
    "room_bytes",
    "block_bytes",
    "expert_bytes",
    "state_bytes",
    "host_bytes",
}
_RUN_KEYS = {"serving_log", "policy", "model", *_LIMITS}
_REQUEST_KEYS = {"request", "id", "engine", "arrival_ns", "prompt_tokens", "output_tokens", "hashes"}
_STEP_KEYS = {
    "step", "engine", "formed_ns", "start_ns", "end_ns", "scheduled", "allocated", "cached", "preempted",
    "finished", "freed", "waiting", "left", "to_host", "to_gpu", "rooms"
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class ServingReport(LogReport):
    """The outcome of a check.

    Attributes:
        requests, steps, tokens: the number of each that was checked; a token counts whenever it is computed.
        count: number of findings.
        findings: the first of them, in the order of the log.
    """

    requests: int = field(metadata=quantity("requests"))
    steps: int = field(metadata=quantity("steps"))
    tokens: int = field(metadata=quantity("tokens"))
    count: int = field(metadata=quantity("findings"))
    findings: tuple[Finding, ...]


def is_serving_log(path: str | PathLike[str]) -> bool:
    """Whether a file is a log of `ndpsim serve`, by how it begins."""
    return begins_with(path, _BEGIN)


def check_serving(path: str | PathLike[str], limit: int = 20) -> ServingReport:
    """Check a log of `ndpsim serve` against the rules of a serving engine.

    The rules: every token is computed once, and again only after a preemption. No step has more tokens or
    requests than allowed. A block of the KV cache belongs to one sequence from its allocation until it is
    freed, and all blocks are freed. The blocks that have been free longest are allocated first. If blocks and
    experts share memory, both fit at any time, and an expert is evicted only if a block lacks space. A prefix
    is reused if and only if blocks with the same tokens are in the cache. Requests are admitted in order of
    arrival, preempted requests first. Steps of an engine follow each other. A request ends with its last
    token. A closed loop keeps its number of requests. The steps of the schedulers `vllm` and `static` are
    also checked against the rules of these schedulers.

    >>> ndpsim.check_serving("requests.jsonl.gz").ok  # doctest: +SKIP
    True

    Args:
        path, limit: as in `check_schedule`.

    Raises:
        InputError: as there.
    """
    judge, found = judge_log(path, limit, "ndpsim serve", _Judge)
    return ServingReport(*judge.counts, found.count, tuple(found.first))


class _Judge:
    """Reads line after line."""

    def __init__(self, header: Mapping[str, Any], findings: Findings) -> None:
        if header["serving_log"] != _VERSION:
            problem = f"{header['serving_log']!r} is not {_VERSION}, the only form that is read"
            raise InputError(problem, "form", key="serving_log")
        named = {name for name in _LIMITS if name in header or name not in _OPTIONAL}
        limits = LogLimits(**{name: header[name] for name in named})
        if min(limits.engines, limits.block_tokens, limits.blocks, limits.max_batch, limits.max_tokens) < 1:
            raise ValueError("an engine without blocks or places")
        self._requests: dict[int, Served] = {}
        self._engines = [EngineCheck(limits, self._requests) for _ in range(limits.engines)]
        self._together = LockstepCheck(limits.engines) if limits.lockstep else None
        self._closed_loop = limits.closed_loop
        self._ends_ns: list[float] = []
        self._latest_ns = 0.0
        self._findings, self._number = findings, 1
        self._steps = self._tokens = 0
        self._findings.add(1, "", unknown_keys(header, _RUN_KEYS, "the run"))

    def line(self, number: int, content: Mapping[str, Any]) -> None:
        self._number = number
        if "request" in content:
            where = f"request {content['request']}: "
            self._findings.add(number, where, self._request(content))
        else:
            where = f"step {content['step']} of engine {content['engine']}: "
            self._findings.add(number, where, self._step(content))

    def end(self) -> None:
        """The log has ended."""
        for number, engine in enumerate(self._engines):
            self._findings.add(self._number, f"engine {number}: ", engine.end())
        if self._together is not None:
            self._findings.add(self._number, "the last step: ", self._together.end())

    @property
    def counts(self) -> tuple[int, int, int]:
        """Requests, steps and tokens until now."""
        return len(self._requests), self._steps, self._tokens

    def _request(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        yield from unknown_keys(line, _REQUEST_KEYS, "the request")
        request = Served(
            line["request"],
            line["engine"],
            line["arrival_ns"],
            line["prompt_tokens"],
            line["output_tokens"],
            line.get("hashes", ()),
        )
        if request.number != len(self._requests):
            yield "arrival", f"comes where request {len(self._requests)} is due"
        if min(request.prompt_tokens, request.output_tokens) < 1:
            yield "length", f"has {request.prompt_tokens} prompt and {request.output_tokens} output tokens"
        if is_later(self._latest_ns, request.arrival_ns):
            yield "arrival", f"arrives at {request.arrival_ns} ns, before the one in front of it"
        self._latest_ns = request.arrival_ns
        yield from self._loop_faults(request)
        self._requests[request.number] = request
        yield from self._engines[request.engine].arrived(request)

    def _loop_faults(self, request: Served) -> Iterator[Fault]:
        """In a closed loop a request arrives when another ends."""
        if self._closed_loop is None or request.number < self._closed_loop:
            return
        ending = request.number - self._closed_loop
        if ending >= len(self._ends_ns):
            yield "closed-loop", f"{self._closed_loop} requests are there already"
        elif not close(self._ends_ns[ending], request.arrival_ns):
            due = self._ends_ns[ending]
            yield "closed-loop", f"arrives at {request.arrival_ns} ns, and the one before it ends at {due} ns"

    def _step(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        yield from unknown_keys(line, _STEP_KEYS, "the step")
        self._steps += 1
        self._tokens += sum(row[2] for row in line["scheduled"])
        yield from self._engines[line["engine"]].step(line)
        if self._together is not None:
            yield from self._together.step(line)
        for _ in line["finished"]:
            insort(self._ends_ns, line["end_ns"])
