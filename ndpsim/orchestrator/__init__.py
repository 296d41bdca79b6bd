"""The orchestrator: layers of a model on the engines of a machine, under a policy, event by event.

**A step.** For each layer a *window*, in which the GPU computes the layer's own attention and dense parts and
its KV cache comes over PCIe if the host has it; then the gate speaks, the policy assigns, and the layer's
jobs run:

- activations of tokens with an expert off the GPU go to the host, once a token; experts of CPU and DIMMs wait
  for them;
- the GPU computes shared experts, then the policy's experts strictly in its order. Those that are missing are
  copied in that order, as many at once as PCIe has copy engines, and as far ahead as there are buffers. One
  that is on its way already is waited for, and its copy no longer yields to others;
- the CPU computes its experts one after the other, each while it reads its weights;
- every DIMM computes its experts one after the other, each for its simulated time (activations in and results
  out among it);
- results go back, once a token, when the last of CPU and DIMMs is done.

The layer ends when results are there and the GPU is done. Then the policy is asked for migrations, which run
from there on, copies one after the other, relayouts as many at once as a relayout unit moves experts. They
yield on PCIe; DRAM and links know no priorities.

**Who shares what.** `events.sharing` has the rule. Shared are PCIe each way, each channel of the host and
each wire of the links. `costs` has every time, and `contention` how NDP units, host and relayouts slow each
other down, all from cycle-level simulations; `exact_layer` measures the error of working with rates.

**Assumptions.** A prefill's tokens go through attention and dense parts in pieces, which need no more of the
GPU's memory than a decode step, and take the time of all at once. The host sums results while they arrive and
needs no time of its own for it. Vectors take no bandwidth of DRAM. Relayouts slow experts of NDP units down,
and what these and the host cost them is measured where all meet on a DIMM. An expert beyond 64 MiB moves in
slices. Weights that are given up, or were moved, make room at once. An expert that is read from a replica is
slowed down as if it were read in full. Where sharded experts and reads of one of their DIMMs alone meet,
entries of sharded reads stand for both. A memory device on a CXL link shares its bandwidth as
`contention.shared_bandwidth` says. Planning that a policy charges takes the CPU.
"""
