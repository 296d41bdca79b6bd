"""The passes of a check that need a loop over the commands: distances, rows of banks, and activations.

Kernels allocate nothing: the caller hands them their working arrays, filled with -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel

Ints = NDArray[np.int64]

_RANK, _GROUP, _BANK = 1, 2, 3  # indices of these levels in a standard
_HALF, _OTHER_HALF = 2, 3


class RuleSet(NamedTuple):
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
    apart: Ints  # by command: distance between the banks of a rank that it addresses; 0: one bank, or all
    children: Ints  # by level: nodes of this level under one parent


@inlined
def nth_last(rules: RuleSet, last: Ints, before: Ints, rule: int, level: int, node: int) -> int:
    """The command with which the window of a rule begins at a node; -1: the node has had too few commands."""
    latest = 1 << 62
    for _ in range(rules.window[rule]):
        found = -1
        for entry in range(rules.previous_first[rule], rules.previous_first[rule + 1]):
            earlier = last[node, rules.previous[entry]]
            while earlier >= latest:
                earlier = before[level, earlier]
            found = max(found, earlier)
        latest = found
        if found < 0:
            break
    return latest


@kernel
def find_early(
    clock: Ints, command: Ints, nodes: Ints, base: Ints, rules: RuleSet, last: Ints, before: Ints, found: Ints
) -> int:
    """Commands that come too soon after an earlier one.

    `nodes[level, i]` numbers the channel, rank, bank group and bank of command i, -1 where it has none;
    the numbers of a level start at `base[level]`. `last[node, kind]` and `before[level, i]` are working
    arrays: the last command of a kind at a node, and the last command of the same kind before command i.
    Returns the number of (command, rule) pairs that are broken. The first of them are rows of `found`:
    command, rule, the earlier command that delays it longest, and the missing clocks.
    """
    # For each kind of command only the last one at a node counts (for a window, the window-th last): a rule
    # has one distance for all commands of a kind, so the nearest one delays the next command most.
    count = 0
    for i in range(len(command)):
        after = command[i]
        for position in range(rules.first[after], rules.first[after + 1]):
            rule = rules.binding[position]
            missing, culprit = 0, -1
            for entry in range(rules.previous_first[rule], rules.previous_first[rule + 1]):
                kind = rules.previous[entry]
                level = rules.level[rule]
                # A command to a whole rank applies to all of its banks and bank groups; one to several banks
                # applies to all groups.
                if rules.rank_wide[kind] + rules.rank_wide[after] > 0:
                    level = min(level, _RANK)
                elif level == _GROUP and rules.apart[kind] + rules.apart[after] > 0:
                    level = _RANK
                need = rules.clocks[rule] + (rules.cycles[kind] - 1) - (rules.cycles[after] - 1)
                own = nodes[level, i]
                low, high, step = own, own + 1, 1
                if level == _BANK and rules.apart[after]:
                    step = rules.apart[after]
                    high = own + rules.children[_GROUP] * rules.children[_BANK]
                if rules.siblings[rule]:
                    low = own - (own - base[level]) % rules.children[level]
                    high = low + rules.children[level]
                for node in range(low, high, step):
                    if rules.siblings[rule] and node == own:
                        continue
                    earlier = last[node, kind]
                    if rules.window[rule] > 1:
                        earlier = nth_last(rules, last, before, rule, level, node)
                        if earlier >= 0 and command[earlier] != kind:
                            earlier = -1  # another turn of the loop looks at this kind
                    if earlier >= 0 and need - (clock[i] - clock[earlier]) > missing:
                        missing, culprit = need - (clock[i] - clock[earlier]), earlier
            if culprit >= 0:
                if count < len(found):
                    found[count, 0], found[count, 1] = i, rule
                    found[count, 2], found[count, 3] = culprit, missing
                count += 1
        for level in range(len(nodes)):
            node = nodes[level, i]
            if node < 0:
                continue
            before[level, i] = last[node, after]
            last[node, after] = i
            if level == _BANK and rules.apart[after]:
                reach = rules.children[_GROUP] * rules.children[_BANK]
                for sibling in range(node, node + reach, rules.apart[after]):
                    last[sibling, after] = i
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

    `opens[kind]`: 1: opens a row; `_HALF`: begins to open a row, and `_OTHER_HALF` must be the bank's next.
    `bank[i]` is the first bank of command i; it addresses every `stride[kind]`-th of `reach[kind]` banks.
    `touched[bank]`, a working array, is the command that last opened or closed a bank. Returns the number
    of these commands. The first of them are rows of `found`: command, bank, and the command that last
    touched the bank or -1.
    """
    count = 0
    for i in range(len(command)):
        kind = command[i]
        faulty = False
        for target in range(bank[i], bank[i] + reach[kind], stride[kind]):
            last = touched[target]
            state = opens[command[last]] if last >= 0 else 0
            if opens[kind] == _OTHER_HALF:
                fault = not (state == _HALF and row[last] == row[i])
            elif column[kind]:
                fault = not (state % 2 == 1 and row[last] == row[i])
            else:
                fault = state == _HALF or (state > 0 and opens[kind] + refreshes[kind] > 0)
            if fault and not faulty:
                if count < len(found):
                    found[count, 0], found[count, 1], found[count, 2] = i, target, last
                count += 1
                faulty = True
            if opens[kind] + closes[kind] > 0:
                touched[target] = i
    return count


@kernel
def find_unmanaged(
    command: Ints, bank: Ints, change: Ints, reach: Ints, stride: Ints, most: int, counter: Ints, found: Ints
) -> int:
    """Commands that raise the counter of a bank above `most`.

    `change[kind]`: what a command adds to the counters of its banks; they stay at 0 or more. `bank`, `reach`
    and `stride` are those of `find_row_faults`. `counter[bank]` is a working array of zeros. Returns the
    number of these commands. The first of them are rows of `found`: command, bank.
    """
    count = 0
    for i in range(len(command)):
        kind = command[i]
        if change[kind] == 0:
            continue
        for target in range(bank[i], bank[i] + reach[kind], stride[kind]):
            counter[target] = max(0, counter[target] + change[kind])
            if counter[target] == most + 1 and change[kind] > 0:
                if count < len(found):
                    found[count, 0], found[count, 1] = i, target
                count += 1
    return count
