"""The data of the fast controller: the shape of a channel, and records of its state (`fields`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.caching import cached_by_identity
from ndpsim.dram.controllers.one_command import OneCommand
from ndpsim.dram.fast.chunks import Chunks
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    CLASSES,
    GROUPS_PER_RANK,
    GROUPS_PER_STACK,
    MOST_CHUNKS,
    MOST_TURNS,
    OTHER_HALF,
    PREAB,
    PRESB,
    RANKS,
    REFAB,
    REFSB,
    RFMAB,
    SLOTS,
    STACKS_PER_RANK,
    TIMED_CLASSES,
    make_records,
)
from ndpsim.dram.fast.one_chunk import ONE_CHUNK
from ndpsim.dram.fast.shape import NOT_IN_WINDOW, Shape
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.dram.row_policies import row_policy
from ndpsim.dram.schedulers.FRFCFS import FRFCFS
from ndpsim.dram.spec import NO_RULE, Tables
from ndpsim.dram.spec.lower import (
    BUS,
    BUSY,
    CLOCKS,
    CLOSES_FIRST,
    COMPLETED_BY,
    COUNTED,
    CYCLES,
    INTERVAL,
    IS_REFRESH,
    LENGTH,
    LEVEL,
    ON_ANY_TICK,
    PREPARED_BY,
    SCOPE,
)
from ndpsim.dram.spec.standard import (
    ACTIVATE,
    BANK_PAIR,
    ONE_BANK,
    PRECHARGE,
    READ,
    READ_AP,
    SAME_BANKS,
    STACK,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)
from ndpsim.dram.state import (
    FAR,
    OPEN_CLOCKS,
    Policy,
    Rfm,
    number_nodes,
    put_schedule,
    refreshed,
    schedule_of,
)

Ints = NDArray[np.int64]
Records = NDArray[Any]

# The numbers of PREAB, REFAB, PRESB and REFSB are those of a standard with these commands, see
# `chunks_needed`; the last entries are no numbers, see `command_numbers`.
COMMAND_OF_CLASS = ACTIVATE, PRECHARGE, READ, WRITE, 6, 7, 8, 9, READ_AP, WRITE_AP, 10, 11, 12, 13, 14
CLASS_OF_COMMAND = np.argsort(COMMAND_OF_CLASS)

_OF_BANKS = ONE_BANK, BANK_PAIR  # scopes of refreshes of single banks

_WINDOW = 1, 4  # the level and the length of the window of activations (tFAW)


def fits(tables: Tables, policy: Policy, with_sink: bool) -> bool:
    """Whether such a channel can run with open rows, queues of one chunk and the usual commands."""
    usual = isinstance(policy.step, OneCommand) and _usual(tables, schedule_of(tables, policy))
    return usual and policy.row_cap == 0 and chunks_needed(tables, policy, with_sink) == 1


def _usual(tables: Tables, schedule: Schedule) -> bool:
    """Whether all commands have the numbers of `COMMAND_OF_CLASS`."""
    return not any(tables.commands[turn.command, SCOPE] in _OF_BANKS for turn in schedule.turns)


@cached_by_identity(16)
def chunks_needed(tables: Tables, policy: Policy, with_sink: bool) -> int:
    """Chunks that each queue needs; 0 if the fast controller cannot run such a channel."""
    if not isinstance(policy.scheduler, FRFCFS) or step_on(policy, tables) is None or policy.postpones > 0:
        return 0
    # If the sink is full, active reads may return to the read queue, one for each bank.
    returning = tables.ranks * tables.bankgroups * tables.banks_per_group if with_sink else 0
    slots = max(policy.read_slots + returning, policy.write_slots)
    # If more than half of the slots of all chunks are free, two neighbours fit into one.
    chunks = 1 if slots <= SLOTS else -(-slots // SLOTS) * 2
    groups, banks = _groups(tables)
    small = tables.ranks <= RANKS and groups <= GROUPS_PER_RANK
    small = small and banks <= BANKS_PER_GROUP and chunks <= MOST_CHUNKS
    small = small and tables.groups_per_stack * groups // tables.bankgroups in (0, GROUPS_PER_STACK)
    return chunks if small and _fits_classes(tables, schedule_of(tables, policy), policy.rfm) else 0


def _groups(tables: Tables) -> tuple[int, int]:
    """Bank groups of a rank and banks of a group, as `fields` numbers them."""
    if _halves(tables):
        return tables.bankgroups * 2, BANKS_PER_GROUP
    if tables.bankgroups > 1 or tables.banks_per_group % BANKS_PER_GROUP or tables.gap[2].max() > NO_RULE:
        return tables.bankgroups, tables.banks_per_group
    return tables.banks_per_group // BANKS_PER_GROUP, BANKS_PER_GROUP


def _halves(tables: Tables) -> bool:
    """Whether each bank group has the numbers of two."""
    return tables.groups_per_stack > 0 and tables.banks_per_group == 2 * BANKS_PER_GROUP


def _fits_classes(tables: Tables, schedule: Schedule, rfm: Rfm) -> bool:
    """Whether each command that may issue has a class, and each of its rules a place in the state."""
    requested = {turn.command for turn in schedule.turns}
    if rfm.threshold > 0:
        like = _refresh_like(tables, rfm)
        if like is None:
            return False
        requested.add(like)
    numbers = command_numbers(tables)
    of_classes = [(scope, REFSB, PRESB) for scope in (SAME_BANKS, *_OF_BANKS)] + [(WHOLE_RANK, REFAB, PREAB)]
    known = [[scope, numbers[one], numbers[other]] for scope, one, other in of_classes]
    asked = [[int(tables.commands[n, SCOPE]), n, int(tables.commands[n, CLOSES_FIRST])] for n in requested]
    issued = [*range(WRITE_AP + 1), *(number for one in asked for number in one[1:])]
    return (
        _fits_window(tables, issued)
        and all(one in known for one in asked)
        and not any(_binds_parts(tables, number) for one in asked for number in one[1:])
        and not tables.binds_siblings[2:STACK].any()
        and len(schedule.turns) <= MOST_TURNS
    )


def _refresh_like(tables: Tables, rfm: Rfm) -> int | None:
    """The refresh of the same banks as RFM and with the same rules; None: there is none."""
    like, _ = refreshed(tables).commands.get(rfm.scope, (None, 0))
    if like is None:
        return None
    counted, delayed = tables.windows[:, COUNTED:CLOCKS], tables.windows[:, CLOCKS:]
    of_both = [
        (
            *(gap[:, number] for gap in (tables.gap, tables.sibling_gap)),
            *(gap[:, :, number] for gap in (tables.gap, tables.sibling_gap)),
            counted[:, number],
            delayed[:, number],
            tables.commands[number, [CLOSES_FIRST, BUSY, BUS, CYCLES, ON_ANY_TICK]],
        )
        for number in (like, rfm.command)
    ]
    return like if all(np.array_equal(*pair) for pair in zip(*of_both, strict=True)) else None


def _binding_windows(tables: Tables, issued: list[int]) -> Ints:
    """The windows of commands that may issue."""
    counted, delayed = tables.windows[:, COUNTED:CLOCKS] > 0, tables.windows[:, CLOCKS:] > NO_RULE
    binding: Ints = tables.windows[counted[:, issued].any(axis=1) & delayed[:, issued].any(axis=1)]
    return binding


def _fits_window(tables: Tables, issued: list[int]) -> bool:
    """Whether there is at most the window of activations, with or without the refresh of banks."""
    numbers = command_numbers(tables)
    issued = [*issued, *(number for number in numbers[OTHER_HALF:RFMAB] if number >= 0)]
    windows = _binding_windows(tables, issued)
    if len(windows) == 0:
        return True
    known = [number in (ACTIVATE, numbers[OTHER_HALF], numbers[REFSB]) for number in issued]
    others = [number for number, is_known in zip(issued, known, strict=True) if not is_known]
    window = windows[0]
    return (
        len(windows) == 1
        and (window[LEVEL], window[LENGTH]) == _WINDOW
        and (window[COUNTED + ACTIVATE] > 0) != window_of_second(tables)
        and not (window[[COUNTED + other for other in others]] > 0).any()
        and not (window[[CLOCKS + other for other in others]] > NO_RULE).any()
    )


@cached_by_identity(16)
def _window(tables: Tables) -> tuple[Ints, int]:
    """The distances of the window by class, [0, class], from an ACT's first cycle; `refresh_in_window`."""
    distances, in_window = np.full((1, TIMED_CLASSES), NO_RULE, dtype=np.int64), NOT_IN_WINDOW
    second, refresh = command_numbers(tables)[OTHER_HALF], command_numbers(tables)[REFSB]
    cycles = int(tables.commands[second if window_of_second(tables) else ACTIVATE, CYCLES])
    numbers = {ACT: ACTIVATE} | ({REFSB: refresh} if refresh < len(tables.commands) else {})
    opening = [second] if second >= 0 else []
    for window in _binding_windows(tables, [*numbers.values(), *opening])[:1]:
        for place, number in numbers.items():
            distances[0, place] = max(NO_RULE, window[CLOCKS + number] + cycles - 1)
            if place == REFSB and window[COUNTED + number] > 0:
                in_window = int(window[COUNTED + number]) - cycles
        for number in opening:  # which the first half waits for, see `SplitActivation.on`
            to_first = window[CLOCKS + number] - tables.commands[ACTIVATE, CYCLES]
            distances[0, ACT] = max(distances[0, ACT], to_first + cycles - 1)
    return distances, in_window


def window_of_second(tables: Tables) -> bool:
    """Whether the window of activations counts their second halves."""
    second = int(tables.commands[ACTIVATE, COMPLETED_BY])
    return second >= 0 and bool((tables.windows[:, COUNTED + second] > 0).any())


def _binds_parts(tables: Tables, command: int) -> bool:
    """Whether a rule of stacks, or of groups for more than one bank, applies to a command or after it."""
    one_bank = tables.commands[command, SCOPE] == ONE_BANK
    of_groups = np.full_like(tables.gap[2], NO_RULE) if one_bank else tables.gap[2]
    of_parts = np.stack((of_groups, tables.gap[STACK], tables.sibling_gap[STACK]))
    return bool(max(of_parts[:, command].max(), of_parts[:, :, command].max()) > NO_RULE)


def step_on(policy: Policy, tables: Tables) -> Any:
    """The part of a fast step that the controller of the standard does; None if there is no such step."""
    on = getattr(policy.step, "on", None)
    return None if on is None else on(tables)


@cached_by_identity(16)
def other_numbers(tables: Tables) -> Ints | None:
    """`command_numbers`, but None where these are `COMMAND_OF_CLASS`."""
    numbers = np.array(command_numbers(tables))
    return None if ((numbers == COMMAND_OF_CLASS) | (numbers < 0)).all() else numbers


@cached_by_identity(16)
def command_numbers(tables: Tables) -> list[int]:
    """The number of each class's command; -1: there is none.

    If a standard refreshes single banks, or pairs, instead of one of every group, REFSB is this refresh, with
    PRE before it.
    """
    numbers = list(COMMAND_OF_CLASS)
    refreshes = refreshed(tables).commands
    for scope in _OF_BANKS:
        if SAME_BANKS not in refreshes and scope in refreshes:
            numbers[PRESB], numbers[REFSB] = PRECHARGE, refreshes[scope][0]
    others = (ACTIVATE, COMPLETED_BY), (READ, PREPARED_BY), (WRITE, PREPARED_BY)
    numbers[CLASSES:] = [
        *(int(tables.commands[command, by]) for command, by in others),
        *(_rfm_of_class(tables, numbers, command) for command in (REFAB, REFSB)),
    ]
    return numbers


def _activate_to_refresh(tables: Tables) -> int:
    """Clocks from ACT to REFSB of a rank, for `dram.choosing.delays_refresh`."""
    numbers, gap = command_numbers(tables), tables.gap[:2]
    if not 0 <= numbers[REFSB] < len(tables.commands):
        return 0
    opening = [number for number in (numbers[ACT], numbers[OTHER_HALF]) if number >= 0]
    return int(gap[:, opening, numbers[REFSB]].max())


def _refresh_after_third(tables: Tables) -> int:
    """The clocks after the third last command of the window (tFAW) until which REFSB may issue at once, see
    `dram.choosing.waits_until`; FAR: always.
    """
    refresh, gap = command_numbers(tables)[REFSB], tables.gap[1]
    distances, in_window = _window(tables)
    window = int(distances[0, ACT])
    if in_window == NOT_IN_WINDOW or window <= NO_RULE:
        return FAR
    spacing, held = int(gap[ACTIVATE, ACTIVATE]), int(gap[refresh, ACTIVATE])
    if held <= NO_RULE or window - spacing - int(gap[ACTIVATE, refresh]) < held:
        return FAR
    return window - held + spacing


def _rfm_of_class(tables: Tables, numbers: list[int], refresh: int) -> int:
    """The number of the RFM command of the same banks as a refresh's class; -1: there is none."""
    commands = tables.commands
    if numbers[refresh] >= len(commands):
        return -1
    alike = (commands[:, IS_REFRESH] == 1) & (commands[:, SCOPE] == commands[numbers[refresh], SCOPE])
    return next(iter(np.flatnonzero(alike & (commands[:, INTERVAL] == 0)).tolist()), -1)


def make_shape(tables: Tables, rows: Any = None, chunks: int = 1, step: Any = None) -> Shape:
    """The shape of a channel with these tables."""
    return _usual_shape(tables)._replace(
        queues=ONE_CHUNK if chunks == 1 else Chunks(chunks),
        rows=row_policy("open", 0) if rows is None else rows,
        step=OneCommand() if step is None else step,
    )


@cached_by_identity(16)
def _usual_shape(tables: Tables) -> Shape:
    """What tables alone say of a shape."""
    busy = tables.commands[COMMAND_OF_CLASS[REFAB] :, BUSY]
    groups, banks = _groups(tables)
    return Shape(
        ranks=tables.ranks,
        bankgroups=groups,
        banks_per_group=banks,
        group_shift=3 if _halves(tables) else 2,
        other_half=int(_halves(tables)),
        first_bank=number_nodes(tables).first_bank,
        window=int(_window(tables)[0].max()),
        refresh_in_window=_window(tables)[1],
        read_latency=tables.read_latency,
        burst=tables.burst,
        refresh_interval=tables.refresh_interval,
        refresh_cycles=int(busy[0]) if len(busy) else 0,
        activate_to_refresh=_activate_to_refresh(tables),
        refresh_after_third=_refresh_after_third(tables),
        queues=None,
        rows=None,
        groups_at_once=tables.bankgroups if SAME_BANKS in refreshed(tables).commands else 1,
        pair=groups * BANKS_PER_GROUP // 2 if BANK_PAIR in refreshed(tables).commands else 0,
        step=None,
    )


@cached_by_identity(16)
def _command_class(tables: Tables) -> list[int]:
    """By number the class of a command that closes or refreshes banks, 0 for others."""
    numbers = command_numbers(tables)[: REFSB + 1]
    return [numbers.index(n) if n in numbers else 0 for n in range(len(tables.commands))]


@cached_by_identity(16)
def _distances(tables: Tables, from_second: int, waits_for_second: int) -> dict[str, Ints]:
    """The fields of a record that hold distances, int64[previous class, next class].

    Of an activation in two halves: `from_second`: they count from the second one; `waits_for_second`: the
    first waits until the second could follow at once.
    """
    gap, every = tables.gap, command_numbers(tables)
    previous, following, second = every[:CLASSES], every[:TIMED_CLASSES], every[OTHER_HALF]
    if from_second:
        previous[ACT] = second

    def of_classes(between: Ints) -> Ints:
        distances = between[np.ix_(previous, following)]
        if waits_for_second:
            to_second = between[previous, second] - tables.commands[ACTIVATE, CYCLES]
            distances[:, ACT] = np.maximum(distances[:, ACT], to_second)
        return distances

    same, other = np.maximum(gap[0], gap[1]), np.maximum(gap[0], tables.sibling_gap[1])
    return {
        "of_ranks": np.concatenate((of_classes(same), of_classes(other))),
        "same_group": of_classes(gap[2]),
        "same_bank": of_classes(gap[3]),
        "of_window": _window(tables)[0],
        "of_bus": np.full((1, TIMED_CLASSES), tables.commands[ACTIVATE, CYCLES]),
        "of_stacks": np.concatenate((of_classes(gap[STACK]), of_classes(tables.sibling_gap[STACK]))),
    }


def make_states(
    tables: Tables, policy: Policy, count: int = 1, chunks: int = 1, schedule: Schedule | None = None
) -> Records:
    """This many channels at rest before clock 1: all banks closed, all queues empty.

    `schedule`: of its refreshes; None: that of the policy.
    """
    stacks = RANKS * STACKS_PER_RANK if getattr(policy.step, "has_stacks", False) else 1
    states = make_records(count, 1 if chunks == 1 else MOST_CHUNKS, stacks)
    due = schedule_of(tables, policy) if schedule is None else schedule
    for value in states["value"][:1]:
        put_schedule(value, _numbered_by_place(tables, due), _command_class(tables))
        states["value"][1:] = value
    if policy.rfm.threshold > 0:
        states["rfm"] = policy.rfm._replace(command=REFAB if policy.rfm.scope == WHOLE_RANK else REFSB)
    halves = getattr(step_on(policy, tables), "from_second", 0), getattr(policy.step, "waits_for_second", 0)
    for name, distances in _distances(tables, *halves).items():
        states[name] = distances
    states["chunk_order"] = np.arange(MOST_CHUNKS)
    return states


def _numbered_by_place(tables: Tables, schedule: Schedule) -> Schedule:
    """A schedule whose turns of one bank number it as `fields` does."""
    if not schedule.turns or tables.commands[schedule.turns[0].command, SCOPE] not in _OF_BANKS:
        return schedule
    places = (divmod(turn.bank, _groups(tables)[1]) for turn in schedule.turns)
    banks = [group * BANKS_PER_GROUP + bank for group, bank in places]
    turns = (turn._replace(bank=bank) for turn, bank in zip(schedule.turns, banks, strict=True))
    return schedule._replace(turns=tuple(turns))


def open_banks(state: Any) -> int:
    """Banks with an open row."""
    return sum(mask.bit_count() for mask in state["open_banks"].view(np.uint64).tolist())


def clocks_until_closed(state: Any, ranks: int, end: int) -> int:
    """Clocks from `end` on until auto-precharges close their banks, summed."""
    return int(np.maximum(state["closed_at"][: ranks * BANKS_PER_RANK] - end, 0).sum())


def open_row(state: Any, rank: int, bankgroup: int, bank: int, row: int, clock: int) -> None:
    """Open a row in a bank of a channel at rest, from a clock on."""
    of_rank = bankgroup * BANKS_PER_GROUP + bank
    state["open_row"][rank * BANKS_PER_RANK + of_rank] = row
    state["open_banks"][rank : rank + 1].view(np.uint64)[0] |= np.uint64(1 << of_rank)
    state["value"][OPEN_CLOCKS] -= clock


@cached_by_identity(16)
def _classes_as_commands(tables: Tables) -> Ints:
    """int64[class, command]: 1 for the command of each class."""
    return np.equal.outer(command_numbers(tables), np.arange(len(tables.commands))).astype(np.int64)


def issued_commands(states: Any, tables: Tables) -> Ints:
    """int64[..., command]: commands issued by one channel, or by each of several."""
    of_class = _classes_as_commands(tables)
    issued: Ints = states["issued"][..., : len(of_class)] @ of_class
    return issued
