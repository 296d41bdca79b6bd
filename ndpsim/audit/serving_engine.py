"""One engine of a log of `ndpsim serve`, checked step by step against the rules of every scheduler."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ndpsim.audit.schedule_rules import Fault, close, is_later
from ndpsim.audit.serving_blocks import BlockPool, RoomCheck, RoomLine, Served, numbers_of
from ndpsim.audit.serving_schedulers import BlocksOf, EngineState, LogLimits, Scheduled, StepLine, rules_of


class _Ending(NamedTuple):
    """Requests that end with a step, and the blocks that they free according to its line."""

    requests: Sequence[Served]
    freed: BlocksOf


class EngineCheck:
    """State of an engine so far."""

    def __init__(self, limits: LogLimits, requests: Mapping[int, Served]) -> None:
        self.limits, self._requests = limits, requests
        self._rules = rules_of(limits.scheduler)
        shared = limits.room_bytes is not None
        self._blocks = BlockPool(limits.blocks, limits.block_tokens, limits.prefix_cache, shared)
        self._room = (
            None
            if limits.room_bytes is None
            else RoomCheck(limits.room_bytes, limits.block_bytes, limits.expert_bytes)
        )
        self._waiting: list[Served] = []
        self._running: list[Served] = []
        self._before = EngineState(limits, self._blocks, self._waiting, self._running)
        self._inbox: list[Served] = []  # arrived, but not yet in a step
        self._ending: _Ending | None = None  # of the previous step, if the next one may be formed ahead
        self._start_ns = self._end_ns = self._formed_ns = 0.0
        self._last_step = -1

    def arrived(self, request: Served) -> Iterator[Fault]:
        """A request comes to this engine."""
        who = f"request {request.number}"
        self._inbox.append(request)
        whole = self._blocks.needed(request.whole - 1)
        if whole > self.limits.blocks:
            yield "too-long", f"{who} needs {whole} blocks, and there are {self.limits.blocks}"
        if is_later(self._formed_ns, request.arrival_ns):
            yield "late", f"{who} arrives at {request.arrival_ns} ns, and a step after it did not know of it"

    def step(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        """A step."""
        step, began_ns, ending = self._read(line), self._start_ns, self._ending
        yield from self._time_faults(line)
        yield from self._batch_faults(line, step)
        ahead = ending is not None and close(self._formed_ns, began_ns)
        self._take_in(began_ns if ending is not None else self._formed_ns)
        yield from self._unasked(step)
        tried = list(step.rooms[:-1])
        if ending is not None and not ahead:
            yield from self._nothing_ahead(step, tried[:1])
            yield from self._end(ending)
            self._take_in(self._formed_ns)
            tried = tried[1:]
        elif step.left:
            yield "preemption", "names requests that lost their blocks before it, and there was no step"
        yield from self._tries(tried)
        yield from self._begins(step.rooms[-1:])
        yield from self._rules.before(self._before, step)
        yield from self._preemptions(step)
        yield from self._moves(step)
        yield from self._rules.after(self._before, step)
        yield from self._blocks_taken(step)
        yield from self._ends(step.rooms[-1:], bool(step.preempted))
        for row in step.rows:
            yield from self._row_faults(row)
        if line["waiting"] != (wanted := numbers_of(self._waiting)):
            yield "queue", f"{line['waiting']} wait, and by arrival and preemption {wanted} should"
        self._ending = _Ending((yield from self._finished(step)), step.freed) if step.rows else None
        if ending is not None and ahead:
            yield from self._end(ending)
        if self._ending is not None and not self.limits.async_scheduling:
            yield from self._end(self._ending)
            self._ending = None

    def end(self) -> Iterator[Fault]:
        """The log has ended."""
        if self._ending is not None:
            yield from self._end(self._ending)
        for request in (*self._running, *self._waiting, *self._inbox):
            tokens = f"{request.produced} of {request.output_tokens} tokens"
            yield "unfinished", f"request {request.number} has {tokens}"

    def _nothing_ahead(self, step: StepLine, tried: Sequence[RoomLine]) -> Iterator[Fault]:
        """No step could be formed when the previous step began, except that requests were preempted."""
        empty = StepLine((), tuple(step.left), (), {}, {}, step.left, {}, {})
        yield from self._begins(tried)
        yield from self._rules.before(self._before, empty)
        yield from self._preemptions(empty)
        yield from self._rules.after(self._before, empty)
        yield from self._ends(tried, bool(step.left))

    def _tries(self, rooms: Sequence[RoomLine]) -> Iterator[Fault]:
        """Check attempts to form a step that found nothing to compute."""
        for use in rooms:
            yield from self._begins([use])
            yield from self._ends([use], preempts=False)

    def _begins(self, rooms: Sequence[RoomLine]) -> Iterator[Fault]:
        """Check shared room before a step is formed."""
        if self._room is not None and not rooms:
            yield "memory", "does not say what the GPU's memory has"
        for use in rooms:
            if self._room is None:
                yield "memory", "tells of room that blocks share with experts, and the run does not"
            else:
                yield from self._room.begin(use, self._blocks)

    def _ends(self, rooms: Sequence[RoomLine], preempts: bool) -> Iterator[Fault]:
        """Check shared room after a step is formed."""
        for use in rooms:
            if self._room is not None:
                yield from self._room.end(use, self._blocks, preempts)

    def _take_in(self, time_ns: float) -> None:
        """Add the requests that have arrived by this time to the waiting ones."""
        while self._inbox and not is_later(self._inbox[0].arrival_ns, time_ns):
            self._waiting.append(self._inbox.pop(0))

    def _read(self, line: Mapping[str, Any]) -> StepLine:
        def blocks(name: str) -> dict[Served, tuple[int, ...]]:
            return {
                self._requests[int(number)]: tuple(taken)
                for number, taken in (line.get(name, {}) if name == "left" else line[name]).items()
            }

        def requests(name: str) -> tuple[Served, ...]:
            return tuple(self._requests[number] for number in line[name])

        rows = tuple(Scheduled(self._requests[number], *rest) for number, *rest in line["scheduled"])

        def counts(name: str) -> dict[Served, int]:
            return {self._requests[int(number)]: count for number, count in line.get(name, {}).items()}

        lists = blocks("allocated"), blocks("cached"), blocks("freed")
        moved = counts("to_host"), counts("to_gpu")
        rooms = [RoomLine(*numbers) for numbers in line.get("rooms", ())]
        out = requests("preempted"), requests("finished")
        return StepLine(rows, *out, *lists, *moved, blocks("left"), rooms)

    def _time_faults(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        if line["step"] <= self._last_step:
            yield "order", f"step {line['step']} comes behind step {self._last_step}"
        if is_later(self._end_ns, line["start_ns"]):
            yield "overlap", f"begins at {line['start_ns']} ns, before the last one ends at {self._end_ns} ns"
        if not line["end_ns"] > line["start_ns"]:
            yield "time", f"ends at {line['end_ns']} ns, and begins at {line['start_ns']} ns"
        formed_ns = line.get("formed_ns", line["start_ns"])
        ahead = self._ending is not None and close(formed_ns, self._start_ns)
        if not ahead and not close(formed_ns, line["start_ns"]):
            yield "formed", f"is formed at {formed_ns} ns, when neither it nor the step before it begins"
        self._start_ns, self._end_ns, self._last_step = line["start_ns"], line["end_ns"], line["step"]
        self._formed_ns = formed_ns

    def _batch_faults(self, line: Mapping[str, Any], step: StepLine) -> Iterator[Fault]:
        tokens, limits = sum(row.tokens for row in step.rows), self.limits
        if not step.rows and not limits.lockstep:
            yield "empty", "computes nothing"
        if tokens > limits.max_tokens:
            yield "budget", f"computes {tokens} tokens, and at most {limits.max_tokens} are allowed"
        numbers = [row.request.number for row in step.rows]
        for number in sorted({number for number in numbers if numbers.count(number) > 1}):
            yield "twice", f"request {number} is in it twice"
        for request, *_ in step.rows:
            if request.engine != line["engine"]:
                yield "engine", f"request {request.number} is of engine {request.engine}"
            if is_later(request.arrival_ns, self._formed_ns):
                yield (
                    "early",
                    f"request {request.number} arrives at {request.arrival_ns} ns, after it is formed",
                )
            if request.is_over:
                yield "finish", f"request {request.number} is in it, and has ended"

    def _unasked(self, step: StepLine) -> Iterator[Fault]:
        """Only scheduled or admitted requests get blocks, and only requests that leave free blocks."""
        active = {*(row.request for row in step.rows), *self._waiting}
        left = {*step.finished, *step.preempted}
        for name, found, allowed in (
            ("allocated", step.allocated, active),
            ("cached", step.cached, active),
            ("freed", step.freed, left),
        ):
            for request in found:
                if request not in allowed:
                    yield "unasked", f"{name} names request {request.number}, which has no part in it"

    def _preemptions(self, step: StepLine) -> Iterator[Fault]:
        for request in step.preempted:
            if request not in self._running:
                yield "preemption", f"request {request.number} is preempted, and is {request.state}"
                continue
            self._running.remove(request)
            if self.limits.preemption == "swap" and self._fits_host(request):
                request.on_host = len(request.blocks)
            else:
                request.computed = 0
            yield from self._blocks.freed(request, step.freed.get(request, ()))
            request.state = "waiting"
            self._waiting.insert(0, request)

    def _fits_host(self, request: Served) -> bool:
        """Whether the host's memory has room for the blocks of a request."""
        limits, on_host = self.limits, [waiting.on_host for waiting in self._waiting if waiting.on_host]
        blocks, states = sum(on_host) + len(request.blocks), len(on_host) + 1
        size = blocks * limits.block_bytes + states * limits.state_bytes
        return limits.host_bytes is None or size <= limits.host_bytes

    def _moves(self, step: StepLine) -> Iterator[Fault]:
        """All blocks of a preempted request move to the host's memory together, and come back together."""
        back = [request for request in step.taken if request.on_host]
        for name, moved, due in (
            ("to_host", step.to_host, [request for request in step.preempted if request.on_host]),
            ("to_gpu", step.to_gpu, back),
        ):
            wanted = {request: request.on_host for request in due}
            if moved != wanted:
                said, should = ({key.number: count for key, count in c.items()} for c in (moved, wanted))
                yield "swap", f"{name} has blocks by request {said}, and should have {should}"
        for request in back:
            if step.cached.get(request):
                yield "swap", f"request {request.number} comes back from the host, and reuses blocks"

    def _blocks_taken(self, step: StepLine) -> Iterator[Fault]:
        """Requests are admitted after the tokens that the cache has; then they get blocks."""
        tokens = {row.request: row.tokens for row in step.rows}
        for request in step.touched:
            who, cached = f"request {request.number}", step.cached.get(request, ())
            if request.state == "waiting" and request.on_host:
                request.state, request.on_host = "running", 0
                self._waiting.remove(request)
                self._running.append(request)
            elif request.state == "waiting":
                findable = self._blocks.findable(request)
                if findable != len(cached):
                    yield "missed", f"{who} reuses {len(cached)} blocks, and {findable} can be found"
                yield from self._blocks.reused(request, cached)
                request.state, request.computed = "running", len(cached) * self.limits.block_tokens
                if request in self._waiting:  # a request of another engine is reported above
                    self._waiting.remove(request)
                self._running.append(request)
            elif cached:
                yield "prefix", f"{who} reuses blocks, and is {request.state}"
            yield from self._blocks.allocated(request, step.allocated.get(request, ()))
            computed = request.computed + tokens.get(request, 0)
            self._blocks.filled(request, self._rules.filled(request, computed))
        if len(self._running) > self.limits.max_batch:
            yield "batch", f"{len(self._running)} requests run, and at most {self.limits.max_batch} may"

    def _row_faults(self, row: Scheduled) -> Iterator[Fault]:
        """Faults in the number of a request's computed tokens, and in the blocks for them."""
        request, who = row.request, f"request {row.request.number}"
        if row.before != request.computed:
            yield (
                "computed",
                f"{who} has {row.before} tokens in the cache, and {request.computed} were computed",
            )
        if not 1 <= row.tokens <= request.missing:
            yield "tokens", f"{who} computes {row.tokens} tokens, and lacks {request.missing}"
        request.computed += row.tokens
        has, least = len(request.blocks), self._blocks.needed(request.computed)
        if not least <= has <= self._rules.most_blocks(self._before, request, request.computed):
            yield "room", f"{who} has {has} blocks for {request.computed} tokens, which take {least}"
        due = request.produced + (request.missing <= 0)
        if row.produced != due:
            yield "output", f"{who} has {row.produced} output tokens after it, and should have {due}"
        request.produced = due

    def _finished(self, step: StepLine) -> Generator[Fault, None, list[Served]]:
        """The requests that end with a step because they have all of their tokens; and faults."""
        due = [request for request in self._scheduled(step) if request.produced >= request.output_tokens]
        for request in due:
            if request not in step.finished:
                yield "finish", f"request {request.number} has all of its tokens, and goes on"
        for request in step.finished:
            if request not in due:
                tokens = f"{request.produced} of {request.output_tokens} tokens"
                yield "finish", f"request {request.number} ends with {tokens}"
        return list(dict.fromkeys((*due, *step.finished)))

    def _end(self, ending: _Ending) -> Iterator[Fault]:
        """Requests that have ended free their blocks and their place in the batch."""
        for request in ending.requests:
            yield from self._blocks.freed(request, ending.freed.get(request, ()))
            request.state = "finished"
            for group in (self._running, self._waiting):
                if request in group:
                    group.remove(request)

    def _scheduled(self, step: StepLine) -> Sequence[Served]:
        """Requests of a step that run."""
        requests = dict.fromkeys(row.request for row in step.rows)
        return [request for request in requests if request.state == "running"]


class LockstepCheck:
    """Steps of engines in lockstep: each step has all engines, also those without requests."""

    def __init__(self, engines: int) -> None:
        self._engines = engines
        self._first: Mapping[str, Any] | None = None
        self._seen: set[int] = set()
        self._computes = False

    def step(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        """Faults of an engine's step beside those of its peers."""
        if self._first is None or line["step"] != self._first["step"]:
            yield from self.end()
            self._first, self._seen, self._computes = line, set(), False
        for name in ("start_ns", "end_ns"):
            if not close(line[name], self._first[name]):
                yield (
                    "meet",
                    f"has {name} {line[name]}, and engine {self._first['engine']} {self._first[name]}",
                )
        self._seen.add(line["engine"])
        self._computes |= bool(line["scheduled"])

    def end(self) -> Iterator[Fault]:
        """Faults of a step after its last line."""
        if self._first is None:
            return
        missing = sorted(set(range(self._engines)) - self._seen)
        if missing:
            yield "meet", f"step {self._first['step']} has no part of engine {missing[0]}"
        if not self._computes:
            yield "empty", f"no engine computes anything in step {self._first['step']}"
