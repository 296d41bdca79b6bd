"""The fast controller: FR-FCFS with any row policy and queues of up to 2048 requests.

The requests of a queue stand in a ring of 64 slots, a chunk, in the order of their arrival, so that a set
of requests is a 64-bit mask and the oldest of a set is its lowest bit; longer queues have several chunks.
`state` and `fields` lay this out; `slots` moves requests in and out, `one_chunk` and `chunks` say in which
ring, `banks` follows the rows, `timing` the distances. `choose` says what comes next, `issue` what follows
from it, and `step` is the work of one clock, which every run goes through: `controller` runs a channel
alone, and `dimm.arbiter` controllers that share ranks, or lanes around a relayout. `blocking` says
what one of these keeps another from, `observe` what one learns of another. `hits` does the steps in which
only row hits wait; with longer queues, and rows that a policy closes, there are neither these nor
fast-forward: `every_step`.

`fast_forward` goes on as before where a stream comes into a state that it was in: `fingerprint` says when it
may be one, `signature` writes states down, `transitions` lead from one to the next, `periods` of them repeat,
`serving` gives their bursts to the sink, and `transition_table` lays out what is recorded. `words` and
`vectors` have the machine instructions that Numba has no word for; `chunk_points` and `row_policy_points` say
where the code depends on the type of queues and on the row policy.

It issues what `dram.controller` issues, clock by clock; tests hold the two equal.
"""
