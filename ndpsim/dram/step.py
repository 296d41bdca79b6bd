"""One step of the general controller: it chooses a request and issues its command."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined, overridable
from ndpsim.dram.choosing import choose
from ndpsim.dram.issuing import column_command, issue
from ndpsim.dram.state import BANK, FAR, GROUP, INDEX, RANK, ROW, Channel, Policy


class Issued(NamedTuple):
    """What a step has issued. Without a command, `queue` is -1, and only `next_ready` counts."""

    queue: int  # whose request issued
    command: int
    rank: int  # its rank, bank group and bank, as nodes
    group: int
    bank: int
    row: int  # of the request
    request: int  # its number
    next_ready: int  # without a command: when there may be one


@overridable
def instead(rules, channel, queue, slot, command, clock):
    """Whether the controller class issues another command instead of the chosen one."""
    return False


@inlined
def scheduled_by(channel, scheduler):
    """The channel with another scheduler, for steps that may issue fewer commands."""
    policy = channel.policy
    restricted = Policy(
        scheduler,
        policy.row_cap,
        policy.refresh,
        policy.read_slots,
        policy.write_slots,
        policy.write_mode_from,
        policy.write_mode_below,
        policy.rows,
        policy.step,
        policy.own_bank,
        policy.drops_precharges,
        policy.rfm,
        policy.postpones,
        policy.pulls_in,
        policy.any_order,
    )
    return Channel(
        restricted,
        channel.shape,
        channel.state,
        channel.latencies,
        channel.source,
        channel.sink,
        channel.commands,
    )


@inlined
def issue_chosen(channel, queue, slot, command, clock):
    """Issue the command of a request that was chosen in an earlier step."""
    issue(channel, queue, slot, command, clock)


@inlined
def issued(queue, command, rank, group, bank, row, request, next_ready):
    """All fields as numbers of one type, so that each return of a step has the same type."""
    return Issued(queue, command, rank, group, bank, row, request, next_ready)


@inlined
def step(channel, blocking, credit, other_credit, clock):
    """One command at most; for the arguments see `choosing.choose`. Returns `Issued`."""
    queue, slot, command, wake = choose(channel, credit, other_credit, blocking, clock)
    if slot < 0:
        return issued(-1, -1, 0, 0, 0, -1, -1, wake)
    state = channel.state
    entry = state.entry
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    row, request = entry[queue, ROW, slot], entry[queue, INDEX, slot]
    if not instead(channel.policy.step, channel, queue, slot, command, clock):
        command = column_command(channel.policy.rows, state.rows, command, bank)
        issue(channel, queue, slot, command, clock)
    return issued(queue, command, rank, group, bank, row, request, FAR)
