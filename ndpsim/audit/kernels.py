"""The passes of a check that need a loop over the commands: distances, rows of banks, and activations.

Kernels allocate nothing: the caller hands them their working arrays, filled with -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel

Ints = NDArray[np.int64]

_RANK, _GROUP, _BANK = 1, 2, 3  # the places of these levels in a standard
_HALF, _OTHER_HALF = 2, 3


class Rules(NamedTuple):
    """The timing rules of a standard as arrays, indexed by rule unless said otherwise."""

    first: Ints  # by command: where its rules start in `binding`
    binding: Ints  # the rules that bind a command as the later one
    previous_first: Ints  # where the rule's earlier commands start in `previous`
    previous: Ints
    level: Ints
    window: Ints
    siblings: Ints  # 1: binds the other children of the parent of the command's node
    clocks: Ints  # latency as written in the standard
    cycles: Ints  # by command: its clocks on the command bus
    rank_wide: Ints  # by command: 1 when it addresses a whole rank
    apart: Ints  # by command: numbers of banks between those of a rank that it addresses, 0: one bank, or all
    children: Ints  # by level: nodes of this level under one parent


@inlined
def nth_last(rules: Rules, last: Ints, before: Ints, rule: int, level: int, at: int) -> int:
    """The command from which the window of a rule counts at a node: of all that it counts, -1: too few."""
    latest = 1 << 62
    for _ in range(rules.window[rule]):
        found = -1
        for place in range(rules.previous_first[rule], rules.previous_first[rule + 1]):
            earlier = last[at, rules.previous[place]]
            while earlier >= latest:
                earlier = before[level, earlier]
            found = max(found, earlier)
        latest = found
        if found < 0:
            break
    return latest


@kernel
def find_early(
    clock: Ints, command: Ints, node: Ints, base: Ints, rules: Rules, last: Ints, before: Ints, found: Ints
) -> int:
    """Commands that come too soon after an earlier one.

    `node[level, i]` numbers the channel, rank, bank group and bank of command i, -1 where it has none;
    the numbers of a level start at `base[level]`. `last[node, kind]` and `before[level, i]` are working
    arrays: the last command of a kind at a node, and the one before command i of its kind at its node.
    Returns how many (command, rule) pairs are broken, the first of them as rows of `found`: command,
    rule, the earlier command that keeps it waiting longest, and the clocks missing.
    """
    # For each kind of command only the last one at a node counts (for a window, the window-th last): a rule
    # has one distance for all commands of a kind, so the nearest one delays the next command most.
    count = 0
    for i in range(len(command)):
        after = command[i]
        for entry in range(rules.first[after], rules.first[after + 1]):
            rule = rules.binding[entry]
            missing, culprit = 0, -1
            for place in range(rules.previous_first[rule], rules.previous_first[rule + 1]):
                kind = rules.previous[place]
                level = rules.level[rule]
                # A command to a whole rank applies to all of its banks and bank groups; one to several banks
                # applies to all groups.
                if rules.rank_wide[kind] + rules.rank_wide[after] > 0:
                    level = min(level, _RANK)
                elif level == _GROUP and rules.apart[kind] + rules.apart[after] > 0:
                    level = _RANK
                need = rules.clocks[rule] + (rules.cycles[kind] - 1) - (rules.cycles[after] - 1)
                own = node[level, i]
                low, high, step = own, own + 1, 1
                if level == _BANK and rules.apart[after]:
                    step = rules.apart[after]
                    high = own + rules.children[_GROUP] * rules.children[_BANK]
                if rules.siblings[rule]:
                    low = own - (own - base[level]) % rules.children[level]
                    high = low + rules.children[level]
                for at in range(low, high, step):
                    if rules.siblings[rule] and at == own:
                        continue
                    earlier = last[at, kind]
                    if rules.window[rule] > 1:
                        earlier = nth_last(rules, last, before, rule, level, at)
                        if earlier >= 0 and command[earlier] != kind:
                            earlier = -1  # another turn of the loop looks at this kind
                    if earlier >= 0 and need - (clock[i] - clock[earlier]) > missing:
                        missing, culprit = need - (clock[i] - clock[earlier]), earlier
            if culprit >= 0:
                if count < len(found):
                    found[count, 0], found[count, 1] = i, rule
                    found[count, 2], found[count, 3] = culprit, missing
                count += 1
        for level in range(len(node)):
            at = node[level, i]
            if at < 0:
                continue
            before[level, i] = last[at, after]
            last[at, after] = i
            if level == _BANK and rules.apart[after]:
                reach = rules.children[_GROUP] * rules.children[_BANK]
                for other in range(at, at + reach, rules.apart[after]):
                    last[other, after] = i
    return count


@kernel
def find_row_faults(
    command: Ints,
    bank: Ints,
    row: Ints,
    opens: Ints,
    closes: Ints,
    column: Ints,
    refreshes: Ints,
    reach: Ints,
    stride: Ints,
    touched: Ints,
    found: Ints,
) -> int:
    """Commands whose bank is not in the state that they need.

    `opens[kind]`: 1 opens a row, `_HALF` begins to, `_OTHER_HALF` then has to follow before anything else.
    `bank[i]` is the first bank of command i; by command, it addresses every `stride`-th of `reach` banks.
    `touched[bank]`, a working array, is the command that last opened or closed a bank. Returns how many
    there are, the first of them as rows of `found`: command, bank, and the command that last touched the
    bank or -1.
    """
    count = 0
    for i in range(len(command)):
        kind = command[i]
        faulty = False
        for b in range(bank[i], bank[i] + reach[kind], stride[kind]):
            by = touched[b]
            state = opens[command[by]] if by >= 0 else 0
            if opens[kind] == _OTHER_HALF:
                fault = not (state == _HALF and row[by] == row[i])
            elif column[kind]:
                fault = not (state % 2 == 1 and row[by] == row[i])
            else:
                fault = state == _HALF or (state > 0 and opens[kind] + refreshes[kind] > 0)
            if fault and not faulty:
                if count < len(found):
                    found[count, 0], found[count, 1], found[count, 2] = i, b, by
                count += 1
                faulty = True
            if opens[kind] + closes[kind] > 0:
                touched[b] = i
    return count


@kernel
def find_unmanaged(
    command: Ints, bank: Ints, change: Ints, reach: Ints, stride: Ints, most: int, counter: Ints, found: Ints
) -> int:
    """Commands with which the counter of a bank exceeds `most`.

    `change[kind]`: what a command adds to the counters of its banks; they stay at 0 or more. For banks see
    `find_row_faults`. `counter[bank]` is a working array of zeros. Returns how many there are, the first of
    them as rows of `found`: command, bank.
    """
    count = 0
    for i in range(len(command)):
        kind = command[i]
        if change[kind] == 0:
            continue
        for b in range(bank[i], bank[i] + reach[kind], stride[kind]):
            counter[b] = max(0, counter[b] + change[kind])
            if counter[b] == most + 1 and change[kind] > 0:
                if count < len(found):
                    found[count, 0], found[count, 1] = i, b
                count += 1
    return count
