"""Functions that the fast step calls; the controller class of a standard overrides them.

The functions here are for the class with one command a clock.
"""

from __future__ import annotations

from ndpsim.base.jit import overridable


@overridable
def barred(rules, state, slots_at):
    """The clocks, by class, before which no queued request can issue, according to sink and controller."""
    return slots_at


@overridable
def hits_from(rules, clock):
    """The first clock, from this one on, at which RD may issue."""
    return clock


@overridable
def at_edges(rules, times):
    """The first clocks, by class, from these on, at which commands of the class may issue."""
    return times


@overridable
def active_from(rules, state, rank, times):
    """The clocks, by class, before which no command for an active request of a rank can issue; `times`: those
    before which its RD or WR cannot.
    """
    return times


@overridable
def is_busy(rules, state):
    """Whether the next step has a command to issue that is in no queue and no list."""
    return False


@overridable
def keeps_maintenance(rules, shape, state, place, command):
    """Whether this command of the maintenance that waits at a place has to wait for the controller."""
    return False


@overridable
def avoids(rules, state, bank):
    """Whether a queued request for a bank has to wait for the controller."""
    return False


@overridable
def skips_active(rules, state, lacks_rows):
    """Whether no active request can issue now; lacks_rows: see `row_policy_points`."""
    return False


@overridable
def allows(rules, state, command):
    """Whether a command of an active request can issue now, where the row of one was closed."""
    return True


@overridable
def may_close(rules, state):
    """Whether a column command may become that with auto-precharge."""
    return True


@overridable
def instead_of_active(rules, channel, active_list, place, bank, clock):
    """Whether something else is issued than the column command of an active request."""
    return False


@overridable
def instead_of_queued(rules, channel, queue, slot, command, bank, clock):
    """Whether something else is issued than the command of a queued request."""
    return False


@overridable
def latest_opening(rules, state):
    """The number of the read whose row is being opened, -1: there is none; FAR: it is a write."""
    return -1


@overridable
def carry_controller(rules, state, table, at, row, clock, writes):
    """Write the controller's own state into a signature, or read it (`signature`); returns its end."""
    return at
