"""The channel controller: kernels over integers and arrays.

`state` lays out memory. `controller` runs it, phase by phase: `queues` takes requests, `maintenance` asks
for refreshes, `choosing` and `issuing` say what they do, `timing` knows the distances. `sink` takes the
data, `mapping` turns addresses into coordinates. `fast` is the same once more, fast; `engines` chooses;
tests hold the two equal. `schedulers`, `row_policies` and `refresh_policies` have a module for each policy.
"""
