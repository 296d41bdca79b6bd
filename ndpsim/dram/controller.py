"""The channel controller: one step at each clock at which anything can change.

A step is: accept -> refresh -> close due rows -> choose -> issue -> jump to the next step.
Nothing changes between two steps: queues, row state and write mode only change when a request is
accepted or a command issued, and either is followed by a step on the next clock. Otherwise the next
step is the earliest clock at which a candidate becomes ready or a refresh falls due.
"""

from __future__ import annotations

from ndpsim.base.jit import by_type, inlined, kernel
from ndpsim.dram.maintenance import close_due, next_refresh, refresh
from ndpsim.dram.queues import accept, sum_queues, would_accept
from ndpsim.dram.state import CLOCK, COUNTED_UNTIL, FAR, IDLE_SINCE, NEXT_REFRESH, PAUSE, PLACE, SERVED, TAKEN

# What `run` returns.
DONE, RECORD_FULL, STUCK, PAUSED = range(4)


@inlined
def offered_from(source, value):
    """The step at which the next request of a timed source is first offered; FAR if this step has passed."""
    if source.cycle.shape[0] == 0 or value[TAKEN] >= source.admitted[0]:
        return FAR
    request = value[PLACE]
    return source.cycle[request] + 1 if source.cycle[request] >= value[COUNTED_UNTIL] else FAR


@by_type
def step(rules, channel, clock):
    """Choose and issue a command at `clock`: (whether there was one, else the clock of the next attempt)."""


@kernel
def run(channel, until_served, until_taken):
    """Run until `until_served` requests are served, or into the step that accepts request `until_taken`.

    Returns DONE; PAUSED at the clock `PAUSE`; RECORD_FULL if the command trace needs more room; STUCK if
    nothing can happen any more. In each case the channel is before its next step, so the run can be
    continued; after a pause also with requests that are due from the clock of the pause on.
    """
    tables, policy, state = channel.shape, channel.policy, channel.state
    source, commands = channel.source, channel.commands
    entry, size, value = state.entry, state.size, state.value
    clock = value[CLOCK]
    value[NEXT_REFRESH] = next_refresh(value)
    while value[SERVED] < until_served:
        if clock >= value[PAUSE]:
            value[CLOCK] = value[COUNTED_UNTIL] + 1
            return STUCK if value[PAUSE] >= FAR else PAUSED
        if 0 < commands.entry.shape[0] < commands.length[0] + policy.step.slots:
            value[CLOCK] = clock
            return RECORD_FULL
        sum_queues(size, value, clock - 1)
        accept(tables, policy, source, state, channel.latencies, clock)
        if value[TAKEN] >= until_taken:
            break
        sum_queues(size, value, clock)
        if not refresh(tables, policy, state, clock):
            value[CLOCK] = clock
            return STUCK
        looking = min(close_due(policy.rows, tables, state, clock), state.rows[0, IDLE_SINCE])
        issued, wake = step(policy.step, channel, clock)
        if issued or would_accept(policy, source, entry, size, value, clock + 1):
            clock += 1
        else:
            wake = min(min(wake, looking), min(value[NEXT_REFRESH], offered_from(source, value)))
            clock = max(clock + 1, wake)
    value[CLOCK] = value[COUNTED_UNTIL] + 1
    return DONE
