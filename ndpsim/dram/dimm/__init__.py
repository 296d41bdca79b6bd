"""A DIMM whose NDP unit and host use its ranks at the same time.

**Controllers.** A lane is a channel of one rank with a controller of its own, which reads weights into
the lane's FIFO. A sub-channel of the host is a channel with the ranks of all DIMMs on it and has a
controller, too. Both are the controllers that run such channels alone: with one of them active, its
commands are those of `dram.controller`. A rank of this DIMM belongs to two of them, and each observes
what the other issues there: rows that open and close, distances within the rank, its four-activate
window, and refreshes. The rank takes one command a clock; its pins are shared, the buses beyond it are
not. A bank that one controller has activated for a request stays open until that request has its column
command.

**Refresh.** While the host takes part, refreshes fall due as in its channel, and whichever of the two
controllers can first, issues them. Else every lane keeps its own time.

**Arbitration** says whose turn is first on a rank at a clock: the host's (``host-first``), the NDP unit's
(``ndp-first``), or by turns for a number of clocks each, beginning with the host (``slice``). Two things
go before that. While the FIFO of the lane does not refill, the host is first: it refills from when half
of it is free until it is full. And whose oldest request has waited for longer than the starvation
threshold, while the other's has not, is first.

The second issues what the first leaves: a command to a bank that the first waits for would be in its way,
and so would be data in the other direction than the first's next data on that rank. A request that holds
a bank which the first waits for is finished at once. Refreshes wait for nobody but activated requests.

**Buses.** The host's controller spaces data on a sub-channel by the standard's rules. Activations and
results of the NDP unit pass between the host and the buffer chip, one more rank on that bus: they take it
when it is free, before the host's own data.

`state` lays out memory, `staging` and `transfers` move weights, activations and results, `common` has
what both arbiters share, `readable` and `arbiter` (with `beside` and `stepping`) run a DIMM clock by
clock and by events, and `engines` chooses. Tests hold the two equal, and each controller alone to what it
is without the other.
"""
