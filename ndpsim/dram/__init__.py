"""The channel controller: kernels over integers and arrays.

`state` lays out memory. `controller` runs it, phase by phase: `queues` takes requests, `maintenance` asks
for refreshes, `choosing` chooses commands, `issuing` carries them out, and `timing` has the distances between
them. `sink` takes the data; `mapping` turns addresses into coordinates. `fast` is a faster implementation of
the same; `engines` chooses between them, and tests hold both equal. `schedulers`, `row_policies` and
`refresh_policies` have a module for each policy.
"""
