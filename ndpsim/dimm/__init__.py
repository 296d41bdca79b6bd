"""The DIMMs of a host channel, whose NDP units and host use their ranks at the same time.

**Controllers.** A lane is a channel of one rank with a controller of its own, which reads weights into
the lane's FIFO. A sub-channel of the host is a channel with the ranks of all DIMMs on it and has a
controller, too. Both are the controllers that run such channels alone: if only one is active, it issues
the commands of `dram.controller`. A rank of a DIMM with an NDP unit belongs to two controllers, and each
observes the commands of the other on this rank: rows that open and close, distances within the rank, its
four-activate window, and refreshes. The rank takes one command a clock; its pins are shared, the buses
beyond it are not. A bank that one controller has activated for a request stays open until that request
has its column command.

**Jobs and streams.** Each DIMM has a queue of jobs. Its lanes read their weights step by step: weights of the
next step are read ahead into the FIFOs when all reads of the previous step have issued and the job is
released. The host has streams of requests, each with a start and a rate. Streams with due requests take
turns on a bus. A run ends when any DIMM, or the host, has reached its goal.

**Relayout.** The controllers of the lanes read and write the bursts that move (`relayout`). A lane takes
these requests and its reads of weights in turn. Without weights its commands are those of a relayout alone.

**Refresh.** With a host, refreshes are due as in the host's channel, and the controller that can do so first
issues them. Without a host every lane has its own refresh times. A run may begin at any phase of refresh.

**Arbitration** decides which master is first on a rank at a clock. Each arbitration is a module of
`arbitrations`, which both arbiters call at `arbitration_points`. Two rules have precedence. While the FIFO of
the lane does not refill, the host is first; it refills from when half of it is free until it is full. If the
oldest request of only one master has waited for longer than the starvation threshold, this master is first.

The second master issues only commands that do not delay the first: no command to a bank that the first waits
for, and no data in the other direction than the first's next data on that rank. A request that holds a bank
which the first waits for is completed at once. Refreshes wait only for activated requests.

**Command buses.** Private: every lane has its own. Shared: the lanes of a sub-channel of a DIMM, and the
host's commands to their ranks, take turns on one bus. A command of two clocks occupies it for two clocks. The
order is: the lanes on which the NDP unit is first, beginning after the lane that had the bus last; the host;
the lanes on which the host is first, in the same order. A lane reads ahead for a later job only after all
lanes on its bus have read their weights of the job before, so that it delays none of them.

**Data buses.** The host's controller spaces data on a sub-channel by the standard's rules. Activations and
results of the NDP units pass between the host and the buffer chips; each chip is a further rank on that bus.
They take the bus when it is free, before the host's own data, and those of several DIMMs in the order in
which they are ready.

`state` lays out memory, `staging` moves weights, activations and results, and `common` has what both arbiters
share. `readable` runs a channel clock by clock under any policy, `arbiter` by events under those of the fast
controller. `arbiter` does the next step of each bus: the step of `concurrent` (with `arrivals` and
`stepping`), or the step of `alone` if lanes share only a relayout engine; `sharing` decides. `engines`
chooses an arbiter. Tests compare the two, and compare each controller alone with a run without the other.
"""
