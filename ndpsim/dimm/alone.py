"""The step of a lane that shares nothing but a relayout engine, on the fast controller."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dimm.common import commands_at, data_sink
from ndpsim.dimm.relayout import (
    enqueue_request,
    looks_for_offers,
    next_request,
    record_served_request,
    source_of,
)
from ndpsim.dram.fast.choose import mode_changes
from ndpsim.dram.fast.controller import queue_request, refresh, step_of
from ndpsim.dram.fast.fields import RD, READS, WR, WRITES
from ndpsim.dram.fast.vectors import filled
from ndpsim.dram.state import NEXT_REFRESH, SERVED, Channel


class Alone(NamedTuple):
    """Every lane is a bus of its own around a relayout engine, without a host and without weights."""


@inlined
def step_bus(sharing, setup, agents, lanes, hosts, wakeups, bus, clock):
    """A step of a bus (`arbiter`); its lane has the same number."""
    policy, relayout, state, wake = setup.policy, agents.relayout, lanes.states[bus], wakeups.wake[bus]
    source = source_of(relayout, agents.weights, bus)
    request = next_request(relayout, policy, bus, state.queued[READS], state.queued[WRITES], clock)
    if request >= 0:
        # No burst is read or written twice: it is queued without a look at the addresses of others.
        slot = enqueue_request(relayout, agents.weights, bus, request, clock)
        wake[0] = min(wake[0], queue_request(lanes.shape, state, source, slot, clock))
    if clock >= state.value[NEXT_REFRESH]:
        wake[0] = clock
        if not refresh(lanes.shape, policy, state, clock):
            return False
    if clock >= wake[0] or mode_changes(policy, state):
        sink, trace = data_sink(agents.claims, agents.claims.no_credit), commands_at(lanes.commands, bus)
        channel = Channel(policy, lanes.shape, state, lanes.latencies[0, 0], source, sink, trace)
        issued, _, wake[0] = step_of(channel, filled(clock), clock)
        if issued.command == RD or issued.command == WR:
            state.value[SERVED] -= 1
            record_served_request(relayout, bus, issued.request, clock)
    wakeups.due[bus] = max(clock + 1, min(wake[0], state.value[NEXT_REFRESH]))
    reads, writes = state.queued[READS], state.queued[WRITES]
    if looks_for_offers(relayout, policy, bus, reads, writes, clock + 1) or mode_changes(policy, state):
        wakeups.due[bus] = clock + 1
    return True
