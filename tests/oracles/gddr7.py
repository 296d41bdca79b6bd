"""A GDDR7 controller of a few lines, clock by clock: FR-FCFS, open rows, no refresh.

It is written from the description of Ramulator 2.1 (`gddr7_controller.cpp`, commit c5b1c3a) and shares nothing
with ndpsim but the rules of the page. Its commands are equal to Ramulator's in the case without refresh.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ndpsim.dram.spec import Device

COLUMNS = ("RD", "WR", "RCKSTRT", "RCKSTOP")
TWO_CLOCKS = ("ACT", *COLUMNS)


@dataclass(eq=False)
class Request:
    write: bool
    bank: int
    row: int
    column: int
    address: int
    arrived: int = 0


@dataclass
class Gddr7:
    """A channel; commands are (clock, name, bank or -1, row or -1, column or -1)."""

    device: Device
    rck: str = "always-on"
    idle: int = 32
    slots: int = 32
    clock: int = 0
    reads: list[Request] = field(default_factory=list)
    writes: list[Request] = field(default_factory=list)
    active: list[Request] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    issued: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    writing: bool = False
    runs: bool = False
    last_read: int = -1
    last: dict[str, dict[int, int]] = field(default_factory=dict)  # by command and bank, its last clock

    def __post_init__(self) -> None:
        names = [command.name for command in self.device.standard.commands]
        #: By the later command: the earlier one, the banks that it binds, and the clocks between them.
        self.rules: dict[str, list[tuple[str, str, int]]] = {name: [] for name in names}
        for before in names:
            for name in names:
                one, two = (2 if kind in TWO_CLOCKS else 1 for kind in (before, name))
                if (before in COLUMNS) == (name in COLUMNS):
                    self.rules[name].append((before, "all", one))
                for rule in self.device.standard.rules:
                    if before in rule.previous and name in rule.next:
                        binds = "all" if rule.level != "bank" else "others" if rule.siblings else "same"
                        clocks = self.device.clocks(rule.latency) + one - two
                        self.rules[name].append((before, binds, clocks))

    def ready(self, name: str, bank: int) -> bool:
        """Whether all rules and the bus allow a command now."""
        for before, binds, clocks in self.rules[name]:
            for other, clock in self.last.get(before, {}).items():
                bound = binds == "all" or (binds == "same") == (bank == other)
                if bound and self.clock < clock + clocks:
                    return False
        return True

    def issue(self, name: str, bank: int = -1, row: int = -1, column: int = -1) -> None:
        self.issued.append((self.clock, name, bank, row, column))
        self.last.setdefault(name, {})[bank] = self.clock

    def next_of(self, request: Request) -> str:
        if request.bank not in self.open:
            return "ACT"
        if self.open[request.bank] != request.row:
            return "PREpb"
        return "WR" if request.write else "RD"

    def serve(self, queue: list[Request], of_columns: bool) -> bool:
        """The oldest ready request of a queue, one whose command needs this bus."""
        stopped = self.rck == "start-with-rckstrt" and not self.runs
        found = []
        for request in queue:
            name = self.next_of(request)
            held = name == "PREpb" and any(other.bank == request.bank for other in self.active)
            if (name in COLUMNS) == of_columns and not held and not (stopped and name == "RD"):
                found.append((not self.ready(name, request.bank), request.arrived, len(found), request, name))
        if not found or min(found)[0]:
            return False
        *_, request, name = min(found)
        if name == "ACT":
            self.open[request.bank] = request.row
            self.issue(name, request.bank, request.row)
            queue.remove(request)
            self.active.append(request)
        elif name == "PREpb":
            del self.open[request.bank]
            self.issue(name, request.bank)
        else:
            self.issue(name, request.bank, request.row, request.column)
            queue.remove(request)
        return True

    def turn(self, of_columns: bool) -> None:
        if of_columns and self.serve(self.active, True):
            return
        many, few = len(self.writes) > 0.8 * self.slots, len(self.writes) < 0.2 * self.slots
        if not self.writing:
            self.writing = many or not self.reads
        elif few and self.reads:
            self.writing = False
        self.serve(self.writes if self.writing else self.reads, of_columns)

    def of_clock(self) -> str | None:
        """The command that starts or stops the read clock."""
        waits = bool(self.reads) or any(not request.write for request in self.active)
        if self.rck == "always-on":
            return None
        if self.rck == "start-with-rckstrt" and not self.runs and waits:
            return "RCKSTRT"
        if self.runs and self.last_read >= 0 and not waits and self.clock - self.last_read >= self.idle:
            return "RCKSTOP"
        return None

    def step(self, request: Request | None) -> bool:
        """One clock, in which a request is offered; whether it is accepted."""
        accepted = request is not None and self.take(request)
        self.clock += 1
        before = len(self.issued)
        name = self.of_clock()
        if name is not None and self.ready(name, -1):
            self.issue(name)
        else:
            name = None
            self.turn(True)
        new = self.issued[before:]
        self.turn(False)
        if name is not None:
            self.runs = name == "RCKSTRT"
        elif new and new[0][1] == "RD":
            self.runs, self.last_read = True, self.clock
        return accepted

    def take(self, request: Request) -> bool:
        if any(request.address == other.address for other in self.writes):
            return True  # forwarded, or coalesced
        queue = self.writes if request.write else self.reads
        if len(queue) == self.slots:
            return False
        request.arrived = self.clock
        queue.append(request)
        return True


def run(
    device: Device, requests: list[Request], cycles: list[int] | None, until: int, **options: Any
) -> list:
    """The commands up to a clock, for requests that are offered from their cycles on, or at once."""
    channel, place = Gddr7(device, **options), 0
    while channel.clock < until:
        offered = place < len(requests) and (cycles is None or cycles[place] <= channel.clock)
        place += channel.step(requests[place] if offered else None)
    return channel.issued
