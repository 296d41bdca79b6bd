"""The fast controller: FR-FCFS with any row policy and queues of up to 2048 requests.

The requests of a queue are in a ring of 64 slots, a chunk, in order of arrival. A set of requests is a 64-bit
mask, and its oldest request is the lowest bit. Longer queues have several chunks. `fields` defines the state.
`slots` moves requests in and out, `one_chunk` and `chunks` choose the ring, `banks` updates rows and `timing`
the distances. `choose` chooses the next command, `issue` issues it, `step` is the work of one clock, and
`shape.Issued` is what it returns. `controller` runs a channel alone; `dimm.arbiter` runs controllers that
share ranks, or lanes around a relayout. `blocking` has the rules between them, and `observe` applies another
controller's commands. `hits` does the steps in which only row hits wait. Longer queues, and row policies that
close rows, have neither `hits` nor fast-forward: `every_step`.

`fast_forward` repeats earlier commands if a stream reaches an earlier state. `signature` records states,
`transition_table` has the transitions from one to the next, and `serving` gives their bursts to the sink.
`vectors` has machine instructions that Numba does not offer. `points` are the functions that depend on the
controller, the row policy and the type of queue.

It issues the same commands as `dram.controller` at the same clocks; tests compare the two.
"""
