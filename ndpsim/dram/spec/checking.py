"""Checks standards, with one-line errors for their authors."""

from __future__ import annotations

from collections.abc import Collection

from ndpsim.base.errors import InputError, unknown
from ndpsim.dram.spec.standard import (
    BANK_PAIR,
    ONE_BANK,
    PAUSES_FROM,
    RANK_ORDERS,
    SAME_BANKS,
    STACK,
    WHOLE_RANK,
    WRITE_AP,
    ByRate,
    ByWidth,
    Command,
    Rule,
    Standard,
    Sum,
    latency_terms,
)

#: Maximum commands of a standard: tables have this width, so that loops over them have a fixed length.
MOST_COMMANDS = 16

# Timings of every standard, besides those of its latencies.
_NEEDED = ("rate", "tCK_ps", "nRAS", "nRP", "nRC", "nREFI")
_EVERY = ("opens", "closes", "reads", "writes", "reads and closes", "writes and closes")

# By level, the scopes of commands that address a node of the level, or for banks, several of a rank.
_SCOPES = (
    {ONE_BANK, SAME_BANKS, WHOLE_RANK, BANK_PAIR},
    {ONE_BANK, SAME_BANKS, WHOLE_RANK, BANK_PAIR},
    {ONE_BANK},
    {ONE_BANK, SAME_BANKS, BANK_PAIR},
    {ONE_BANK},
)


def missing_timings(standard: Standard, known: Collection[str]) -> list[str]:
    """The timings that every preset must have and that are not among these."""
    latencies = [*_names(standard.read_latency), *_names(standard.write_latency)]
    return [name for name in (*_NEEDED, *latencies) if name not in known]


def _names(latency: str) -> list[str]:
    """The timings of a sum; none if `latency` is no sum."""
    try:
        return [term for _, term in latency_terms(latency) if isinstance(term, str)]
    except ValueError:
        return []


def check_rule(standard: Standard, rule: Rule) -> None:
    """Check that a rule only refers to parts of the standard, and only counts what can be counted.

    Raises:
        InputError: the rule is invalid.
    """
    where = f"{standard.name}: rule {rule.name}"
    if rule.level not in standard.levels:
        raise unknown(rule.level, standard.levels, "level", key=where)
    for name in (*rule.previous, *rule.next):
        if name not in standard.names:
            raise unknown(name, standard.names, "command", key=where)
    level = standard.level_of(rule.level)
    inner = level == STACK or (level > 1 and _scopes(standard, rule) != {ONE_BANK})
    if rule.window < 1 or (rule.window > 1 and inner):
        problem = f"a window counts commands that address one {rule.level}"
        raise InputError(problem, "unsupported", key=where)


def check_scheduled(standard: Standard, rule: Rule) -> None:
    """Check that the engine can also obey a rule.

    Raises:
        InputError: the engine cannot obey the rule.
    """
    check_rule(standard, rule)
    where = f"{standard.name}: rule {rule.name}"
    level, scopes = standard.level_of(rule.level), _scopes(standard, rule)
    if not scopes <= _SCOPES[level]:
        raise InputError(f"not every command addresses one {rule.level}", "unsupported", key=where)
    if rule.siblings and (level == 0 or (level > 1 and scopes != {ONE_BANK}) or rule.window > 1):
        problem = f"no table for a rule between nodes of level {rule.level}, or for its window"
        raise InputError(problem, "unsupported", key=where)


def _scopes(standard: Standard, rule: Rule) -> set[int]:
    named = {*rule.previous, *rule.next}
    return {standard.scope_of(command) for command in standard.commands if command.name in named}


def check_standard(standard: Standard) -> None:
    """Check that a standard has everything that the simulator needs.

    Raises:
        InputError: the standard lacks something, or refers to missing parts.
    """
    if len(standard.levels) not in (4, 5) or len(set(standard.levels)) != len(standard.levels):
        problem = (
            f"has the levels {', '.join(standard.levels)}; they are four, from a channel to its banks, "
            "or five with stacks of bank groups"
        )
        raise InputError(problem, "unsupported", key=standard.name)
    if len(standard.names) > MOST_COMMANDS:
        problem = f"has {len(standard.names)} commands, more than {MOST_COMMANDS}"
        raise InputError(problem, "too-large", key=standard.name)
    if len(set(standard.names)) != len(standard.names):
        raise InputError("two commands have the same name", "twice", key=standard.name)
    _check_commands(standard)
    for preset, speed in standard.speeds.items():
        known = {*speed, *standard.derived}
        missing = missing_timings(standard, known)
        if missing:
            raise InputError(f"preset {preset} states no {', '.join(missing)}", "missing", key=standard.name)
        _check_sums(standard, set(speed), speed["rate"], f"preset {preset}")
        for field in ("burst", "read_latency", "write_latency"):
            _check_latency(getattr(standard, field), known, f"{standard.name}: {field}, preset {preset}")
        for command in standard.commands:
            interval = command.interval if command.refreshes else ""
            times = command.busy, interval, command.pause, command.complete_within, command.keeps_prepared
            for latency in (*times, command.second_burst):
                _check_latency(latency, known, f"{standard.name}: command {command.name}, preset {preset}")
        for rule in (*standard.rules, *standard.checked_rules):
            _check_latency(rule.latency, known, f"{standard.name}: rule {rule.name}, preset {preset}")
    for rule in standard.rules:
        check_scheduled(standard, rule)
    for rule in standard.checked_rules:
        check_rule(standard, rule)


def _check_sums(standard: Standard, known: set[str], rate: int, where: str) -> None:
    """Check that each sum of timings (`Sum`) has terms that are known when it is computed."""
    for name, derivation in standard.derived.items():
        while isinstance(derivation, ByRate):
            derivation = derivation.special.get(rate, derivation.otherwise)
        sums = [derivation.latency] if isinstance(derivation, Sum) else []
        if isinstance(derivation, ByWidth):
            sums = [clocks for clocks in derivation.by_dq.values() if isinstance(clocks, str)]
        for latency in sums:
            _check_latency(latency, known, f"{standard.name}: derived {name}, {where}")
        known.add(name)


def _check_latency(latency: str, known: set[str], where: str) -> None:
    try:
        terms = latency_terms(latency)
    except ValueError as error:
        raise InputError(str(error), "form", key=where) from None
    for _, term in terms:
        if isinstance(term, str) and term not in known:
            raise unknown(term, known, "timing", key=where)


def _effects(command: Command) -> str:
    names = ("opens", "reads", "writes", "closes", "refreshes")
    return " and ".join(name for name in names if getattr(command, name))


def _check_commands(standard: Standard) -> None:
    effects = [_effects(command) for command in standard.commands if standard.scope_of(command) == ONE_BANK]
    missing = [words for words in _EVERY if words not in effects]
    if missing:
        raise InputError(f"no command {missing[0]} one {standard.levels[-1]}", "missing", key=standard.name)
    for number, command in enumerate(standard.by_number):
        where = f"{standard.name}: command {command.name}"
        if command.cycles < 1:
            raise InputError("holds its command bus for less than a cycle", "range", key=where)
        moves = (command.reads or command.writes) and not command.second_burst
        if number > WRITE_AP and (command.opens or moves):
            problem = f"a second command that {_effects(command)}: no controller issues it"
            raise InputError(problem, "unsupported", key=where)
        if (command.refreshes or command.manages) and not command.closes:
            _check_closes_first(standard, command, where)
        if command.ranks not in RANK_ORDERS:
            raise unknown(command.ranks, RANK_ORDERS, "order of ranks", key=where)
        if command.round_of not in ("", *standard.levels[1:-1]):
            raise unknown(command.round_of, standard.levels[1:-1], "level", key=where)
        if command.pause_from not in PAUSES_FROM:
            raise unknown(command.pause_from, PAUSES_FROM, "beginning of a pause", key=where)
        if command.prepared_at not in ("", *standard.levels[:2]):
            raise unknown(command.prepared_at, standard.levels[:2], "level", key=where)
        for name in (command.completed_by, command.prepared_by, command.started_by, command.stopped_by):
            if name and name not in standard.names:
                raise unknown(name, standard.names, "command", key=where)


def _check_closes_first(standard: Standard, command: Command, where: str) -> None:
    """A refresh or RFM needs its banks closed, by a command to just these, or for a pair to each of them."""
    scope = standard.scope_of(command)
    closed = ONE_BANK if scope == BANK_PAIR else scope
    same = [
        closing.name
        for closing in standard.by_number
        if closing.closes
        and not closing.reads
        and not closing.writes
        and standard.scope_of(closing) == closed
    ]
    if command.closes_first not in same:
        names = ", ".join(same) or "nothing"
        problem = f"closes_first is '{command.closes_first}'; commands that close the same banks: {names}"
        raise InputError(problem, "conflict", key=where)
