"""All lanes and buses of a DIMM, clock by clock."""

from __future__ import annotations

from ndpsim._jit import kernel
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.sharing.arbiter import step_lane
from ndpsim.dram.sharing.bus import step_bus
from ndpsim.dram.sharing.state import BURSTS_LEFT, JOBS, NDP, TAKEN, UNDER_WAY
from ndpsim.dram.sharing.weights import give_to_multipliers, next_step
from ndpsim.dram.state import CLOCK, NEXT_REFRESH, REFRESHES

__all__ = [
    "DONE",
    "JOBS_DONE",
    "LATE",
    "NOTHING",
    "RECORD_FULL",
    "REQUESTS_DONE",
    "STUCK",
    "WEIGHTS_READ",
    "run",
]

# What `run` returns.
DONE, LATE, RECORD_FULL, STUCK = range(4)

# What `run` runs for.
WEIGHTS_READ, JOBS_DONE, REQUESTS_DONE, NOTHING = range(4)


@kernel
def is_reached(goal, weights, buses, transfers, traffic):
    """Whether all weights of the step, all jobs, or all offered requests are done."""
    if goal == WEIGHTS_READ:
        return weights.value[BURSTS_LEFT] == 0
    for bus in range(buses.at.shape[0]):
        if goal == JOBS_DONE and buses.at[bus] < transfers.value[JOBS]:
            return False
        if goal == REQUESTS_DONE and (
            buses.value[bus, TAKEN] < traffic.offered[bus] or buses.value[bus, UNDER_WAY] > 0
        ):
            return False
    return goal != NOTHING


@kernel
def record_is_full(commands):
    """Whether a lane may have no room for its next command."""
    room = commands.entry.shape[1]
    if room == 0:
        return False
    for lane in range(commands.length.shape[0]):
        if commands.length[lane] == room:
            return True
    return False


@kernel
def run(setup, lanes, weights, buses, transfers, traffic, commands, goal, until_clock):
    """Run until `goal` is reached, but no further than to the clock `until_clock`.

    Returns DONE, or LATE when that clock came first; RECORD_FULL when a command trace needs more room; STUCK
    when refresh can never catch up. The DIMM stands before its next clock in every case, so a run can be
    taken up again.
    """
    count = lanes.due.shape[0]
    clock = lanes.value[NDP, 0, CLOCK]
    for lane in range(count):
        value = lanes.value[NDP, lane]
        value[NEXT_REFRESH] = next_refresh(setup.tables, setup.policy.refresh, value[REFRESHES])
        next_step(weights, lane, value)
        give_to_multipliers(setup, lanes, weights, transfers, lane)
        lanes.due[lane] = min(lanes.due[lane], clock)
    outcome = DONE
    while not is_reached(goal, weights, buses, transfers, traffic):
        if clock >= until_clock:
            outcome = LATE
            break
        if record_is_full(commands):
            outcome = RECORD_FULL
            break
        for bus in range(buses.at.shape[0]):
            step_bus(setup, lanes, buses, transfers, traffic, bus, clock)
        for lane in range(count):
            if lanes.due[lane] <= clock and not step_lane(
                setup, lanes, weights, buses, transfers, commands, lane, clock
            ):
                outcome = STUCK
        if outcome == STUCK:
            break
        clock += 1
    lanes.value[NDP, 0, CLOCK] = clock
    return outcome
