"""A DIMM whose NDP unit and host want its ranks at the same time: every lane and bus, clock by clock.

**Lanes.** A lane is a channel with one rank. Two owners ask it for data: the NDP unit, for weights, through
its FIFO (`dram.sink`), and the host, for reads and writes. Each has read and write queues of its own, so
that neither crowds the other out, and each chooses among its requests as the controller does; both share
the rows, the timing rules, the command bus, the data bus and the refreshes of the lane. It is the
controller of `dram.controller`, phase by phase, with the owners asked in turn; without host requests it
issues the very same commands.

**Arbitration** says whose turn is first on a clock: the host's (``host-first``), the NDP unit's
(``ndp-first``), or by turns for a number of clocks each, beginning with the host (``slice``). Two things go
before that. While the NDP unit is not hungry, the host is first: it is hungry from when half of its FIFO is
free until the FIFO is full. And whose oldest request has waited for longer than a given patience, while the
other's has not, is first: nobody waits for ever.

The other owner takes every clock that the first has no ready command for, but stays out of its way: it
touches no bank that the first waits for, and turns the bus around for none of its requests while the first
has an open row to read from or write to. Only a request that holds a bank which the first waits for finishes
at once. Writes are collected until the write queue is four fifths full or nobody has a read, and are then
written until one fifth is left and somebody has one; nobody waits for a write that is being collected.

**Buses.** The ranks of a sub-channel share one bus to the host. It carries one transfer at a time: data of
reads in the order in which they reach the buffer chip, data of writes in the order of the host's requests,
activations and results of the NDP unit. A change of direction or of rank costs the clocks it costs by the
standard's rules. The host's requests of a sub-channel go out in order, one a clock at most; a read goes
when the host has one of as many places for its data as the controller's read buffer has, a write when
its data has the bus, and both when their lane has a slot. Activations and results go before other data:
they are the host's own transfers, and it waits for them. Data passes the buffer chip without delay.

`state` lays out memory, `arbiter` runs a lane, `bus` a bus, `weights` the FIFOs, and `engine` all of them.
`plain` is the same once more, written to be read. Tests hold the two equal.
"""
