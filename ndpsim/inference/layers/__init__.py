"""The orchestrator: layers of a model on the engines of a machine, under a policy, event by event.

**A step.** Each layer begins with a *window*: the GPU computes the layer's own attention and dense parts, and
the KV cache comes over PCIe if the host has it. Then tokens are routed, the policy assigns, and the layer's
jobs run:

- activations of tokens with an expert outside the GPU go to the host, once for each token; experts of CPU and
  DIMMs wait for them;
- the GPU computes shared experts, then the policy's experts strictly in its order. Missing experts are copied
  in that order, as many at once as PCIe has copy engines, and as far ahead as there are buffers. The GPU
  waits for an expert whose copy has already begun, and this copy then has normal priority;
- the CPU computes its experts one after the other, and reads the weights of each meanwhile;
- every DIMM computes its experts one after the other, each for its simulated time, which includes
  activations in and results out;
- results go back, once for each token, when CPU and all DIMMs are done.

The layer ends when results have arrived and the GPU is done. Then the policy decides migrations, which begin
at once: copies one after the other, relayouts as many at once as a relayout unit moves experts. Migrations
have low priority on PCIe; DRAM and links have no priorities.

**Shared resources** are PCIe in each direction, each channel of the host and each wire of the links;
`events.sharing` has the rule. `costs` has all times, and `contention` the mutual slowdown of NDP units, host
and relayouts, all from cycle-level simulations. `exact_layer` measures the error of rates.

**Assumptions.** A prefill's tokens go through attention and dense parts in pieces, which need no more GPU
memory than a decode step and take the time of all tokens at once. The host sums results while they arrive, in
no extra time. Vectors use no DRAM bandwidth. Relayouts slow down experts of NDP units. The slowdown of
relayouts by NDP units and host is measured with all three on a DIMM. An expert larger than 64 MiB moves in
slices. Evicted or moved weights free their space at once. An expert that is read from a replica is slowed
down as if it were read in full. If sharded experts and reads of only one of their DIMMs coincide, entries of
sharded reads apply to both. For a memory device on a CXL link see `contention.shared_bandwidth`. The planning
time of a policy occupies the CPU.
"""
