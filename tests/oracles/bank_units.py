"""Controllers of units in banks as plain objects: every channel, every clock, rules looked up one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ndpsim.dram.banks.programs import Line
from ndpsim.dram.spec.extension import LEVELS, BankDevice

_COORDINATES = {"channel": (), "same-bank": ("bank",)} | {
    level: LEVELS[: n + 1] for n, level in enumerate(LEVELS)
}


@dataclass
class Asked:
    """A request in a queue."""

    word: str
    command: str
    place: tuple[int, ...]
    row: int
    column: int
    arrived: int = 0
    line: int = 0


@dataclass
class Past:
    """A command that has issued."""

    clock: int
    place: tuple[int, ...]


class Banks:
    """The banks of a channel, and the clocks of its commands."""

    def __init__(self, device: BankDevice) -> None:
        self.device, self.extension = device, device.extension
        self.command = {command.name: command for command in device.commands}
        self.numbers = [
            (p, r, g, b)
            for p in range(device.shape[0])
            for r in range(device.shape[1])
            for g in range(device.shape[2])
            for b in range(device.shape[3])
        ]
        self.rows: dict[tuple[int, ...], set[int]] = {number: set() for number in self.numbers}
        self.half: dict[tuple[int, ...], bool] = dict.fromkeys(self.numbers, False)
        self.past: dict[str, list[Past]] = defaultdict(list)
        self.paths = self.extension.paths in device.ideal
        self.several = self.extension.row_sets in device.ideal

    def of(self, name: str, place: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The banks on which a command at a place acts."""
        path = self.command[name].path
        fixed = [n for n, level in enumerate(LEVELS) if level in path]
        return [number for number in self.numbers if all(number[n] == place[n] for n in fixed)]

    def next(self, asked: Asked) -> str:
        command = self.command[asked.command]
        if not command.opened_by:
            return command.name
        banks = self.of(command.name, asked.place)
        states = [(self.half[bank], self.rows[bank]) for bank in banks]
        if self.several:
            for _, rows in states:
                if not rows:
                    return command.opened_by
                if asked.row not in rows:
                    return command.closed_by
            return command.name
        if any(rows and asked.row not in rows for _, rows in states):
            return command.closed_by
        if any(half for half, _ in states):
            return self.command[command.opened_by].completed_by
        closed = [not rows for _, rows in states]
        if not any(closed):
            return command.name
        if all(closed) or self.extension.reopens in self.device.ideal:
            return command.opened_by
        return command.closed_by

    def meets(
        self, level: str, previous: str, then: tuple[int, ...], name: str, place: tuple[int, ...]
    ) -> bool:
        for n, coordinate in enumerate(LEVELS):
            if coordinate not in _COORDINATES[level]:
                continue
            both = coordinate in self.command[previous].path and coordinate in self.command[name].path
            if (self.paths or both) and then[n] != place[n]:
                return False
        return True

    def ready(self, name: str, place: tuple[int, ...], clock: int) -> bool:
        for rule in self.device.rules:
            if name not in rule.next:
                continue
            if self.paths and self.command[name].checked_at_channel and rule.level != "channel":
                continue
            if rule.window > 1:
                if not self.window_ready(rule, name, place, clock):
                    return False
                continue
            for previous in rule.previous:
                for past in self.past[previous]:
                    if clock - past.clock < self.device.clocks(rule.latency) and self.meets(
                        rule.level, previous, past.place, name, place
                    ):
                        return False
        return self.misplaced_ready(name, place, clock)

    def misplaced_ready(self, name: str, place: tuple[int, ...], clock: int) -> bool:
        """Rules that are also kept at a wrong bank: rank and bank group are read one level too low."""
        for rule in self.extension.misplaced(self.device.ideal):
            for previous in rule.previous if name in rule.next else ():
                for past in self.past[previous]:
                    wrong = past.place[0], past.place[1], past.place[3]
                    late = clock - past.clock < self.device.clocks(rule.latency)
                    if late and (place[1], place[2], place[3]) == wrong:
                        return False
        return True

    def window_ready(self, rule, name, place, clock) -> bool:
        nodes = {number[: len(_COORDINATES[rule.level])] for number in self.of(name, place)}
        for node in nodes:
            count = min(self.opened(rule, name, place, node), rule.window)
            for previous in rule.previous:
                for past in self.past[previous]:
                    if clock - past.clock < self.device.clocks(rule.latency):
                        count += min(self.opened(rule, previous, past.place, node), rule.window)
            if count > rule.window:
                return False
        return True

    def opened(self, rule, name, place, node) -> int:
        return sum(number[: len(node)] == node for number in self.of(name, place))

    def issue(self, name: str, place: tuple[int, ...], row: int, clock: int) -> None:
        command = self.command[name]
        self.past[name].append(Past(clock, place))
        self.past[name] = self.past[name][-64:]
        if not (command.opens or command.closes):
            return
        for bank in self.of(name, place):
            if command.closes:
                self.rows[bank], self.half[bank] = set(), False
            elif command.completed_by:
                self.half[bank] = True
            else:
                self.half[bank] = False
                self.rows[bank] = {*self.rows[bank], row} if self.several else {row}

    @property
    def closed(self) -> bool:
        return not any(self.rows.values()) and not any(self.half.values())


@dataclass
class Log:
    """Commands in the order of issue: clock, channel, name, place, row, column; -1 as in traces."""

    device: BankDevice
    commands: list[tuple] = field(default_factory=list)

    def add(self, clock: int, channel: int, name: str, place: tuple[int, ...], row: int, column: int) -> None:
        command = next(c for c in self.device.commands if c.name == name)
        shown = tuple(n if level in command.path else -1 for n, level in zip(place, LEVELS, strict=True))
        self.commands.append(
            (clock, name, channel, *shown, row if command.row else -1, column if command.column else -1)
        )

    def sorted(self) -> list[tuple]:
        return sorted(self.commands, key=lambda command: (command[0], command[2]))


class WriteMode:
    """Whether writes of the host go first."""

    def __init__(self) -> None:
        self.on = False

    def review(self, reads: list, writes: list) -> bool:
        if not self.on and (len(writes) > 25 or not reads):
            self.on = True
        elif self.on and len(writes) < 7 and reads:
            self.on = False
        return self.on


class LookAhead:
    """A channel of AttAcc's controller."""

    def __init__(self, device: BankDevice, number: int, log: Log) -> None:
        self.banks, self.device, self.number, self.log = Banks(device), device, number, log
        self.pim: list[Asked] = []
        self.reads: list[Asked] = []
        self.writes: list[Asked] = []
        self.active: list[Asked] = []
        self.refreshes: list[int] = []
        self.answers: list[int] = []
        self.mode = WriteMode()
        self.last_pim = False

    def offer(self, asked: Asked, clock: int) -> bool:
        queue = {"RD": self.reads, "WR": self.writes}.get(asked.word, self.pim)
        if asked.word == "RD" and any(
            (w.place, w.row, w.column) == (asked.place, asked.row, asked.column) for w in self.writes
        ):
            self.answers.append(clock)
            return True
        if len(queue) > 32:
            return False
        asked.arrived = clock - 1
        queue.append(asked)
        return True

    def look(self, queue: list[Asked], clock: int) -> tuple[Asked, str, bool] | None:
        """The best request, its next command, and whether it is ready."""
        following = {id(a): "BARRIER" if a.word == "BARRIER" else self.banks.next(a) for a in queue}

        def hit(asked: Asked) -> bool:
            return following[id(asked)] == asked.command and bool(self.banks.command[asked.command].uses)

        noted = {a.place for a in queue if a.word != "BARRIER" and hit(a)}
        if queue and queue[0].word == "BARRIER":
            queue.pop(0)
        if not queue:
            return None
        if queue[0].word == "BARRIER":
            return queue[0], "BARRIER", True

        def ready(asked: Asked) -> bool:
            return self.banks.ready(following[id(asked)], asked.place, clock)

        best, limited, before = queue[0], False, [queue[0].command]
        for asked in queue[1:]:
            if asked.word == "BARRIER":
                limited = True
                continue
            command = self.banks.command[following[id(asked)]]
            blocked = set(self.banks.command[asked.command].waits_for) & set(before)
            before.append(asked.command)
            if blocked or (limited and not (command.opens or command.closes)):
                continue
            if not hit(asked) and asked.place in noted:
                continue
            if ready(asked) != ready(best):
                best = asked if ready(asked) else best
            elif asked.arrived < best.arrived:
                best = asked
        return best, following[id(best)], ready(best)

    def bus(self, name: str) -> str:
        return "" if name == "BARRIER" else self.banks.command[name].bus

    def protected(self, asked: Asked, name: str) -> bool:
        command = self.banks.command[name]
        if not command.closes:
            return False
        if self.banks.several:
            return any(other.place == asked.place for other in self.active)
        closing = set(self.banks.of(name, asked.place))
        return any(other is not asked and other.place in closing for other in self.active)

    def search(self, clock: int, wanted: str | None) -> str:
        """One search; returns the class of the command looked at last."""
        looked = ""
        found = self.look(self.active, clock)
        if found is not None:
            looked = self.bus(found[1])
            if found[2] and (wanted is None or looked == wanted):
                self.issue(self.active, found, clock)
                return looked
        if self.refreshes:
            looked, place = "row", (self.refreshes[0], 0, 0, 0)
            name = "REFab" if self.banks.closed else "PREA"
            if wanted is None or wanted == "row":
                if self.banks.ready(name, place, clock):
                    self.banks.issue(name, place, 0, clock)
                    self.log.add(clock, self.number, name, place, -1, -1)
                    if name == "REFab":
                        self.refreshes.pop(0)
                return looked
            if "A11" not in self.device.ideal:
                return looked
        found = self.look(self.pim, clock)
        self.last_pim = False
        if found is not None:
            looked = self.bus(found[1])
            if found[2] and (wanted is None or looked == wanted):
                self.last_pim = True
                self.issue(self.pim, found, clock)
                return looked
        queue = self.writes if self.mode.review(self.reads, self.writes) else self.reads
        found = self.look(queue, clock)
        if found is None:
            return ""
        looked = self.bus(found[1])
        if found[2] and (wanted is None or looked == wanted):
            self.issue(queue, found, clock)
        return looked

    def issue(self, queue: list[Asked], found: tuple[Asked, str, bool], clock: int) -> None:
        asked, name, _ = found
        if name == "BARRIER":
            queue.remove(asked)
            return
        if self.protected(asked, name):
            return
        self.banks.issue(name, asked.place, asked.row, clock)
        self.log.add(clock, self.number, name, asked.place, asked.row, asked.column)
        if name == asked.command:
            queue.remove(asked)
            if name == "RD":
                self.answers.append(clock + self.device.clocks("nCL + nBL"))
            return
        opened = asked.word in ("RD", "WR") and self.banks.command[name].opens
        if opened and (queue is not self.active or not self.last_pim):
            queue.remove(asked)
            self.active.append(asked)

    def act(self, clock: int) -> None:
        if self.answers and self.answers[0] <= clock:
            self.answers.pop(0)
        if self.device.refreshes and clock % self.device.clocks("nREFI") == 0:
            self.refreshes += range(self.device.shape[0])
        looked = self.search(clock, None)
        self.search(clock, {"row": "column", "column": "row"}.get(looked, "none"))

    @property
    def idle(self) -> bool:
        return not (self.pim or self.reads or self.writes or self.active or self.answers or self.refreshes)


def run_look_ahead(lines: list[Line], device: BankDevice, most: int = 200_000) -> tuple[int, list[tuple]]:
    """Run a program; returns its last clock and its commands."""
    log, words = Log(device), device.extension.requests
    channels = [LookAhead(device, n, log) for n in range(device.sizes["channels"])]
    left = [
        (channel, Asked(line.word, words[line.word].command, line.place, line.row, line.column))
        for line in lines
        for channel in line.channels
    ]
    position = 0
    for clock in range(1, most):
        while position < len(left) and channels[left[position][0]].offer(left[position][1], clock):
            position += 1
        for channel in channels:
            channel.act(clock)
        if position == len(left) and all(channel.idle for channel in channels):
            return clock, log.sorted()
    raise AssertionError("no end")


class InOrder:
    """A channel of aim_simulator's controller."""

    def __init__(self, device: BankDevice, number: int, log: Log) -> None:
        self.banks, self.device, self.number, self.log = Banks(device), device, number, log
        self.pim: list[Asked] = []
        self.reads: list[Asked] = []
        self.writes: list[Asked] = []
        self.active: list[Asked] = []
        self.refreshes = 0
        self.answers: list[tuple[int, Asked | None]] = []
        self.waiting: list[Asked] = []
        self.mode, self.write_mode = device.extension.modes[0], WriteMode()
        self.on_way, self.synced = 0, -1
        self.answered: list[Asked] = []

    def offer(self, clock: int) -> None:
        while self.waiting:
            asked, word = self.waiting[0], self.device.extension.requests[self.waiting[0].word]
            if word.host:
                read = word.command == "RD"
                queue = self.reads if read else self.writes
                if self.pim:
                    return
                if read and "C4" in self.device.ideal and self.writes:
                    self.answers.append((clock, None))
                    self.waiting.pop(0)
                    continue
            else:
                queue = self.pim
                if self.reads or self.writes:
                    return
            if len(queue) > 32:
                return
            queue.append(asked)
            self.waiting.pop(0)

    def step(self, asked: Asked, clock: int) -> str:
        name = self.banks.next(asked)
        prepared = self.banks.command[name].prepared_by
        return prepared if name == asked.command and prepared and clock > self.synced else name

    def act(self, clock: int) -> None:
        self.answer(clock)
        if self.device.refreshes and clock % self.device.clocks("nREFI") == 0:
            self.refreshes += 1
        if self.first_ready(self.active, clock):
            return
        if self.refreshes:
            name, place = "REFab" if self.banks.closed else "PREA", (0, 0, 0, 0)
            if self.ready(name, place, clock) and self.has_mode(name, clock):
                self.banks.issue(name, place, 0, clock)
                self.log.add(clock, self.number, name, place, -1, -1)
                self.refreshes -= name == "REFab"
            return
        if self.pim:
            asked = self.pim[0]
            if not asked.command:
                if self.active and self.device.extension.leaves_accesses not in self.device.ideal:
                    return
                self.pim.pop(0)
                self.answers.append((clock + 1, asked))
                return
            name = self.step(asked, clock)
            if self.ready(name, asked.place, clock):
                self.issue(self.pim, asked, name, clock)
            return
        queue = self.writes if self.write_mode.review(self.reads, self.writes) else self.reads
        self.first_ready(queue, clock)

    def first_ready(self, queue: list[Asked], clock: int) -> bool:
        for asked in queue:
            name = self.step(asked, clock)
            if self.ready(name, asked.place, clock):
                blocked = any(other.place == asked.place for other in self.active)
                if not (name == "PRE" and blocked and queue is not self.active):
                    self.issue(queue, asked, name, clock)
                return True
        return False

    def ready(self, name: str, place: tuple[int, ...], clock: int) -> bool:
        """Whether rules allow a command, and the change of mode that it needs."""
        change = self.device.extension.mode_change
        moved = self.banks.command[name].mode in ("", self.mode)
        return self.banks.ready(name, place, clock) and (
            moved or self.banks.ready(change, (0, 0, 0, 0), clock)
        )

    def has_mode(self, name: str, clock: int) -> bool:
        needed, change = self.banks.command[name].mode, self.device.extension.mode_change
        if needed in ("", self.mode):
            return True
        self.mode = needed
        self.banks.issue(change, (0, 0, 0, 0), 0, clock)
        self.log.add(clock, self.number, change, (0, 0, 0, 0), -1, -1)
        return False

    def issue(self, queue: list[Asked], asked: Asked, name: str, clock: int) -> None:
        if not self.has_mode(name, clock):
            return
        command, final = self.banks.command[name], self.banks.command[asked.command]
        self.banks.issue(name, asked.place, asked.row, clock)
        self.log.add(clock, self.number, name, asked.place, asked.row, asked.column)
        if final.prepared_by == name:
            self.synced = clock + self.device.clocks(final.synced) + 1
            return
        if name == final.name:
            if final.prepared_by:
                self.synced = clock + self.device.clocks(final.synced)
            latency = clock + self.device.clocks(final.latency)
            if final.answers:
                self.answers.append((latency, asked))
            else:
                self.on_way = max(self.on_way, latency)
            queue.remove(asked)
        elif self.device.extension.requests[asked.word].host and command.opens and queue is not self.active:
            queue.remove(asked)
            self.active.append(asked)

    def answer(self, clock: int) -> None:
        if not self.answers or self.answers[0][0] > clock:
            return
        asked = self.answers[0][1]
        if asked is not None and not asked.command and clock <= self.on_way:
            return
        self.answers.pop(0)
        if asked is not None:
            self.answered.append(asked)

    @property
    def idle(self) -> bool:
        return not (self.pim or self.reads or self.writes or self.active or self.answers or self.waiting)


def run_in_order(lines: list[Line], device: BankDevice, most: int = 200_000) -> tuple[int, list[tuple]]:
    """Run a program; returns its last clock and its commands."""
    log, words = Log(device), device.extension.requests
    channels = [InOrder(device, n, log) for n in range(device.sizes["channels"])]
    position, decoding, blocking = 0, False, 0
    for clock in range(1, most):
        if decoding:
            for channel in channels:
                channel.offer(clock)
            if not any(channel.waiting for channel in channels):
                decoding = False
        elif not blocking and position < len(lines):
            line, word = lines[position], words[lines[position].word]
            position += 1
            to = range(len(channels)) if word.everywhere else line.channels
            if word.command or word.everywhere:
                for number in to:
                    for n in range(line.size):
                        asked = Asked(line.word, word.command, line.place, line.row, n, line=position)
                        channels[number].waiting.append(asked)
                    channels[number].offer(clock)
                blocking = len(to) * line.size if word.blocks else 0
                decoding = any(channel.waiting for channel in channels)
        for channel in channels:
            channel.answered.clear()
            channel.act(clock)
            blocking -= sum(words[asked.word].blocks for asked in channel.answered)
        done = position == len(lines) and not blocking and not decoding
        if done and (words[lines[-1].word].ends or all(channel.idle for channel in channels)):
            return clock, log.sorted()
    raise AssertionError("no end")
