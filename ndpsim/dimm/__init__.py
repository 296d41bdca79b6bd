"""The DIMMs of a host channel, whose NDP units and host use their ranks at the same time.

**Controllers.** A lane is a channel of one rank with a controller of its own, which reads weights into
the lane's FIFO. A sub-channel of the host is a channel with the ranks of all DIMMs on it and has a
controller, too. Both are the controllers that run such channels alone: with one of them active, its
commands are those of `dram.controller`. A rank of a DIMM with an NDP unit belongs to two of them, and each
observes what the other issues there: rows that open and close, distances within the rank, its four-activate
window, and refreshes. The rank takes one command a clock; its pins are shared, the buses beyond it are
not. A bank that one controller has activated for a request stays open until that request has its column
command.

**Jobs and streams.** Each DIMM has a queue of jobs, whose weights its lanes read step by step, one after the
other: those of the next step are read ahead into the FIFOs when those before have all issued and the job
is released. The host has streams of requests with a start and a pace each, which take turns on a bus while
they have requests that are due. A run ends when any DIMM, or the host, has reached its goal.

**Relayout.** What moves is read and written by the controllers of the lanes, as `relayout` says; a lane takes
such requests and its reads of weights in turn. Without weights its commands are those of a relayout alone.

**Refresh.** While the host takes part, refreshes fall due as in its channel, and whichever of the two
controllers can first, issues them. Else every lane keeps its own time. A run begins wherever refresh is.

**Arbitration** says which master is first on a rank at a clock: a module of `arbitrations` each, which both
arbiters call at `arbitration_points`. Two things go before that. While the FIFO of the lane does not refill,
the host is first: it refills from when half of it is free until it is full. And whose oldest request has
waited for longer than the starvation threshold, while the other's has not, is first.

The second issues what the first leaves: a command to a bank that the first waits for would be in its way,
and so would be data in the other direction than the first's next data on that rank. A request that holds
a bank which the first waits for is finished at once. Refreshes wait for activated requests alone.

**Command buses.** Private: every lane has one of its own. Shared: the lanes of a sub-channel of a DIMM and
the host's commands to their ranks take turns on one. A command of two clocks has it for both. Of the lanes
on which the NDP unit is first, the one after the last that had the bus comes first; then the host; then
the lanes on which the host is first, in the same order. No lane reads ahead for a later job before all
that share its bus have read what they hold of the one before, so that it delays none.

**Data buses.** The host's controller spaces data on a sub-channel by the standard's rules. Activations and
results of the NDP units pass between the host and the buffer chips, each one more rank on that bus: they
take it when it is free, before the host's own data, those of several DIMMs in the order in which they are
ready.

`state` lays out memory, `staging` and `transfers` move weights, activations and results, `common` has what
both arbiters share. `readable` runs a channel clock by clock, `arbiter` by events: of each bus it does the
next step, which is that of `concurrent` (with `arrivals`, `waiting` and `stepping`) or, where lanes share
nothing but a relayout engine, of `alone`; `sharing` says which. `engines` chooses. Tests hold all equal, and
each controller alone to what it is without the other.
"""
