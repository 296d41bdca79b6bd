"""The fast controller: FR-FCFS with any row policy and queues of up to 2048 requests.

The requests of a queue stand in a ring of 64 slots in the order of their arrival, so that a set of
requests is a 64-bit mask and the oldest of a set is its lowest bit; longer queues have several rings. `state`
lays this out; `slots` moves requests in and out, `one_segment` and `segments` say in which ring, `banks`
follows the rows, `choose` and `issue` say what comes next and what follows from it, and `controller` runs it
all. `hits` does the steps in which only row hits wait; with longer queues, and rows that a policy closes,
there are neither these nor fast-forward: `every_step`.

`fast_forward` goes on as before where a stream comes into a state that it was in: `fingerprint` says when it
may be one, `signature` writes states down, `transitions` lead from one to the next, `periods` of them repeat,
`serving` gives their bursts to the sink, and `transition_table` lays out what is recorded. `fields` names
every field of the state. `words` and `rows` have the machine instructions that Numba has no word for;
`segment_points` and `row_points` say where the code depends on the type of queues and on the row policy.

It issues what `dram.controller` issues, clock by clock; tests hold the two equal.
"""
