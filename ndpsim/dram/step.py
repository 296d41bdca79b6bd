"""One step of the general controller: it chooses a request and issues its command."""

from __future__ import annotations

from ndpsim.base.jit import inlined, overridable
from ndpsim.dram.choosing import choose
from ndpsim.dram.issuing import column_command, issue
from ndpsim.dram.state import BANK, GROUP, INDEX, RANK, ROW, Policy

_NONE = -1


@overridable
def instead(rules, tables, channel, commands, queue, slot, command, clock):
    """Whether the controller class issues another command instead of the chosen one."""
    return False


@inlined
def scheduled_by(policy, scheduler):
    """The policy with another scheduler, for steps that may issue fewer commands."""
    return Policy(
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


@inlined
def issue_chosen(tables, policy, channel, sink, commands, queue, slot, command, clock):
    """Issue the command of a request that was chosen in an earlier step."""
    issue(tables, policy, channel, sink, commands, queue, slot, command, clock)


@inlined
def step(tables, policy, channel, sink, commands, blocking, credit, other_credit, clock):
    """One command at most; for the arguments see `choosing.choose`.

    Returns:
        The queue whose request issued, -1: none; the command; its rank, bank group and bank as nodes; the row
        and the number of the request; and, where there is no command, when there may be one.
    """
    queue, slot, command, wake = choose(tables, policy, channel, credit, other_credit, blocking, clock)
    if slot < 0:
        return _NONE, _NONE, 0, 0, 0, _NONE, _NONE, wake
    entry = channel.entry
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    row, request = entry[queue, ROW, slot], entry[queue, INDEX, slot]
    if instead(policy.step, tables, channel, commands, queue, slot, command, clock):
        return queue, command, rank, group, bank, row, request, wake
    command = column_command(policy.rows, channel.rows, command, bank)
    issue(tables, policy, channel, sink, commands, queue, slot, command, clock)
    return queue, command, rank, group, bank, row, request, wake
