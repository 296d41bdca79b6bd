"""The timing kit: controller's tables, checker and page agree on every pair of commands at every level."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mistakes import refused
from ndpsim.base.choices import RULES
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.dram.spec import Device, Rule, resolve, standards
from ndpsim.dram.spec.standard import BANK_PAIR, SAME_BANKS, WHOLE_RANK
from ndpsim.simulate.timing import Issued, addressed
from ndpsim.timing import Probe

Place = dict[str, int]
CASES = [(standard, rules) for standard in standards() for rules in RULES]

NAMES = {
    name: {*page.derived, *(timing for speed in page.speeds.values() for timing in speed)}
    for name, page in standards().items()
}
#: These move data in time; the distance from a read to a write must fit them.
OF_DATA = {"nCL", "nCWL", "nRL", "nWL", "nBL", "nBL_min", "nBL_max", "nRTW", "nCAS"}


# A page's rules, evaluated directly.


class Page:
    """The rules of a device's page: what the checker and the tables must both come to."""

    def __init__(self, device: Device) -> None:
        self.device, self.standard = device, device.standard
        self.command = {one.name: one for one in self.standard.commands}
        self.scope = {name: self.standard.scope_of(one) for name, one in self.command.items()}

    def is_bound(self, rule: Rule, before: Issued, then: Issued) -> bool:
        """Whether a rule is for two commands at these places."""
        scopes = {self.scope[before.name], self.scope[then.name]}
        channel, rank, *_, group, bank = self.standard.levels
        if rule.level == channel:
            return True
        same_rank = before.rank == then.rank
        if rule.level == rank:
            return same_rank is not rule.siblings
        if not same_rank or WHOLE_RANK in scopes:
            return same_rank
        # A pair of banks is half of the groups apart.
        half = self.device.bankgroups // (2 if BANK_PAIR in scopes else 1)
        same_group = before.group % half == then.group % half or SAME_BANKS in scopes
        if rule.level == group:
            return same_group is not rule.siblings
        if rule.level == bank:
            return same_group and (before.bank == then.bank) is not rule.siblings
        stacks = {one.group // self.device.groups_per_stack for one in (before, then)}
        return (len(stacks) == 1) is not rule.siblings

    def earliest(self, so_far: list[Issued], then: Issued) -> int:
        """The first clock of a command after others: rules, one command at a time on each bus, edges."""
        after = self.command[then.name]
        at = [so_far[-1].clock if so_far else 1]
        at += [
            one.clock + self.command[one.name].cycles
            for one in so_far
            if self.command[one.name].bus == after.bus
        ]
        for rule in (*self.standard.rules, *self.standard.checked_rules):
            if then.name in rule.next:
                bound = [
                    one for one in so_far if one.name in rule.previous and self.is_bound(rule, one, then)
                ]
                if rule.window > 1:
                    bound = [bound[-rule.window]] if len(bound) >= rule.window else []
                apart = self.device.clocks(rule.latency)
                at += [one.clock + apart + self.command[one.name].cycles - after.cycles for one in bound]
        ticks = 1 if after.on_any_tick else self.standard.ticks_per_clock
        return max(at) + (1 - max(at)) % ticks


def has_all_timings(standard: str, org: str, rules: str) -> bool:
    """Whether the page states tRFC of a device: of large GDDR6 and GDDR7 devices no source is known."""
    try:
        resolve(standard, org, next(iter(standards()[standard].under(rules).speeds)), rules=rules)
    except InputError as error:
        assert error.code == "missing"
        return False
    return True


def names_of(device: Device) -> list[str]:
    """The commands, but for those with two bursts, which no controller issues: the tables know one burst."""
    return [one.name for one in device.standard.by_number if not one.second_burst]


def device_of(standard: str, rules: str, chosen: random.Random | None = None) -> Device:
    """A channel of two ranks at least, with stacks if there are any; or any presets."""
    page = standards()[standard].under(rules)
    stated = [org for org in page.organisations if has_all_timings(standard, org, rules)]
    orgs = sorted(stated, key=lambda org: -page.organisations[org].stacks)
    org, timing = orgs[0], next(iter(page.speeds))
    if chosen is not None:
        org, timing = chosen.choice(orgs), chosen.choice(list(page.speeds))
    changed = None
    if chosen is not None:
        # No two rules have equal sums, so that none can stand for another; and windows bind.
        names = sorted(NAMES[standard] - {"rate", "tCK_ps", *OF_DATA})
        known = resolve(standard, org, timing, 1, rules=rules).timings
        changed = {name: known[name] + chosen.randrange(20) for name in names if name in known}
        changed |= {rule.latency: 900 for rule in page.rules if rule.window > 1 and rule.latency in changed}
        changed["nRC"] = changed["nRAS"] + changed["nRP"] + 7
    ranks = 1 if page.organisations[org].ranks else 3
    return resolve(standard, org, timing, ranks, changed, rules)


def sizes_of(device: Device) -> Place:
    levels, inner = device.standard.levels, (device.groups_per_stack, device.banks_per_group)
    stacks = (device.stacks,) if len(levels) > 4 else ()
    return dict(zip(levels[1:], (device.ranks, *stacks, *inner), strict=True))


def places(device: Device) -> Iterator[Place]:
    """Beside a first bank: the same; another in each of its levels alone, and in all levels at once."""
    sizes = {name: size for name, size in sizes_of(device).items() if size > 1}
    base = dict.fromkeys(sizes, 0)
    yield base
    for name, size in sizes.items():
        yield {**base, name: 1}
        yield {**base, name: size - 1}
    yield dict.fromkeys(sizes, 1)


def of_command(device: Device, name: str, place: Place) -> Place:
    """The coordinates that a command addresses."""
    return {key: value for key, value in place.items() if key in addressed(device, name)}


def probe_place(probe: Probe, name: str, place: Place) -> tuple[int, ...]:
    """Rank, bank group over all stacks, bank, row and column."""
    return probe._candidate(name, place)[2:]


@pytest.mark.parametrize(("standard", "rules"), CASES)
def test_tables_checker_and_page_agree_on_every_pair_at_every_level(standard, rules):
    device = device_of(standard, rules)
    page, asked, names = Page(device), 0, names_of(device)
    for before in names:
        probe = Probe.of(device, rows=False)
        probe.issue(before, **of_command(device, before, next(places(device))))
        for after in names:
            distinct = {tuple(of_command(device, after, place).items()) for place in places(device)}
            for place in map(dict, distinct):
                found = probe.why(after, **place)
                then = Issued(0, after, *probe_place(probe, after, place))
                assert found.clock == page.earliest(probe.commands, then), (before, after, place, found)
                asked += 1
    assert asked > 2 * len(names) ** 2


@pytest.mark.parametrize(("standard", "rules"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_tables_checker_and_page_agree_on_random_commands(standard, rules, seed):
    """Windows, too: a walk has many commands close together, each at its first clock or a little later."""
    chosen = random.Random(f"{standard} {rules} {seed}")
    device = device_of(standard, rules, chosen)
    page, probe, names = Page(device), Probe.of(device, rows=False), names_of(device)
    of_clock = {of for one in device.standard.commands for of in (one.started_by, one.stopped_by)}
    names = [name for name in names if name not in of_clock]  # reads behind them need the read clock to run
    counted = {name for rule in device.standard.rules if rule.window > 1 for name in rule.previous}
    # Refreshes that count in a window are few, since their tRFC hides it.
    of_row = {of for one in page.command.values() if one.opens for of in (one.name, one.completed_by)}
    opening = [name for name in names if name in of_row] * 6 + sorted(counted & set(names))
    bound = set()
    for step in range(80):
        # Half of the walk opens rows, quickly, so that windows bind.
        name = chosen.choice(opening) if step < 30 or step % 4 == 0 else chosen.choice(names)
        place = {key: chosen.randrange(size) for key, size in sizes_of(device).items()}
        if step < 30:
            place[device.standard.levels[1]] = 0
        place = of_command(device, name, place)
        found = probe.why(name, **place)
        then = Issued(0, name, *probe_place(probe, name, place))
        assert found.clock == page.earliest(probe.commands, then), (step, name, place, found)
        bound.add(found.rule)
        probe.issue(name, clock=found.clock, **place)
    windows = {rule.name for rule in device.standard.rules if rule.window > 1}
    assert bound > {"command bus"} or len(bound) > 5
    assert windows & bound or not windows  # GDDR7 has no tFAW


# What a probe says.


def test_both_sides_of_a_limit():
    """DDR4-3200AA (JESD79-4): tRCD 22 clocks, a closed bank opens after tRAS 52 and tRP 22."""
    probe = Probe("DDR4", timing="DDR4_3200AA")
    opened = probe.issue("ACT", bank=1, row=5)
    for wrong in (opened + 21, opened + 23):
        with pytest.raises(
            AssertionError,
            match=r"^DDR4 DDR4_3200AA: RD not from clock \d+, but 23 \(controller 23, checker 23\): RD from clock 23: tRCD, nRCD = 22 clocks after ACT at clock 1$",
        ):
            probe.assert_earliest("RD", bank=1, clock=wrong)
    probe.assert_earliest("RD", bank=1, clock=opened + 22)
    closed = probe.issue("PREpb", bank=1)
    assert closed == opened + 52
    probe.assert_earliest("ACT", bank=1, clock=closed + 22)
    assert probe.why("ACT", bank=1) == ("ACT", 75, "tRC", "nRC", 74, "ACT", 1, 75, 75)


def test_the_first_command_and_one_at_any_time_are_bound_by_nothing():
    probe = Probe("DDR5")
    assert (probe.earliest("ACT"), probe.why("ACT").rule) == (1, "")
    assert probe.issue("ACT", clock=100) == 100
    assert probe.why("ACT", rank=1) == ("ACT", 102, "command bus", "", 0, "", -1, 102, 102)


def test_a_row_is_that_of_the_bank_unless_given():
    probe = Probe("DDR5")
    probe.issue("ACT", bank=2, row=9)
    assert probe.issue("RD", bank=2) == 35
    with refused("conflict RD rank 0 bankgroup 0 bank 2 row 8 column 0") as caught:
        probe.earliest("RD", bank=2, row=8)
    assert str(caught.value).endswith("row state: bankgroup 0 bank 2 has row 9 open since ACT at clock 1")


@pytest.mark.parametrize(
    ("command", "place", "words"),
    [
        ("RX", {}, "unknown-name command"),
        ("RD", {"bank": 4}, "range bank"),
        ("RD", {"bank": 1.0}, "type bank"),
        ("RD", {"bnk": 1}, "unknown-name RD ? bank"),
        ("PREab", {"bank": 1}, "conflict PREab"),
        ("PREsb", {"bankgroup": 1}, "conflict PREsb"),
        ("RD", {}, "conflict RD rank 0 bankgroup 0 bank 0 row 0 column 0"),
    ],
)
def test_a_bad_command_is_refused(command, place, words):
    probe = Probe("DDR5")
    for ask in (probe.issue, probe.earliest, probe.why):
        with refused(words):
            ask(command, **place)
    with refused(words):
        probe.assert_earliest(command, clock=100, **place)
    assert not probe.commands


def test_a_command_that_comes_too_early_is_refused_with_the_rule():
    probe = Probe("DDR5")
    probe.issue("ACT")
    with refused("range RD") as caught:
        probe.issue("RD", clock=34)
    assert "tRCD, nRCD = 34 clocks after ACT at clock 1" in str(caught.value)
    with refused("range clock"):
        probe.issue("RD", clock=0)
    assert len(probe.commands) == 1


def test_a_distance_between_commands_of_unlike_cycles_is_told_twice():
    """Timings count between last cycles: an ACT of HBM3 has three half clocks, a RD one; nRCDRD is 31 clocks."""
    probe = Probe("HBM3", timing="HBM3_6400Mbps")
    probe.issue("ACT", bank=0, row=5)
    told = "RD from clock 65: tRCDRD, nRCDRD = 62 clocks after ACT at clock 1 (64 between their first cycles)"
    assert str(probe.why("RD", bank=0)) == told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rules": "jedec"}, "unknown-name rules"),
        ({"rows": 1}, "type rows"),
        ({"overrides": {"nCl": 3}}, "unknown-name nCl ? nCL"),
    ],
)
def test_a_bad_channel_is_refused(arguments, words):
    with refused(words):
        Probe(**arguments)


def test_names_of_levels_are_those_of_the_standard():
    assert Probe("HBM3").issue("ACT", pseudochannel=1, stack=0, bankgroup=3, bank=3, row=4) == 1
    assert Probe("GDDR6").issue("ACT", bankgroup=3, bank=3) == 1
    with refused("conflict ACT"):
        Probe("GDDR6").issue("ACT", rank=0)
    with refused("unknown-name ACT"):
        Probe("DDR4").issue("ACT", stack=0)


def test_a_difference_between_controller_and_checker_is_an_error(monkeypatch):
    probe = Probe("DDR5")
    gap = probe._tables._tables.gap.copy()
    gap[3] += 1
    monkeypatch.setattr(probe._tables, "_tables", probe._tables._tables._replace(gap=gap))
    probe.issue("ACT")
    with pytest.raises(
        MismatchError,
        match=r"^RD after ACT at clock 1: the controller's tables allow it from clock 36, the checker from clock 35 \(tRCD\)$",
    ):
        probe.earliest("RD")


def test_what_only_the_checker_asks_for_is_said():
    """A second REFab within tRFC: no controller sends it, no table forbids it."""
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    rule = Rule("tRFC", "rank", ("REFab",), ("REFab",), "nRFC")
    rules = tuple(
        one for one in device.standard.rules if not ("REFab" in one.previous and "REFab" in one.next)
    )
    standard = replace(device.standard, rules=rules, checked_rules=(rule,))
    probe = Probe.of(replace(device, standard=standard))
    probe.issue("REFab")
    found = probe.why("REFab")
    assert (found.controller, found.checker, found.clock) == (2, 709, 709)
    assert str(found).endswith("nRFC = 708 clocks after REFab at clock 1 (the controller alone: 2)")
