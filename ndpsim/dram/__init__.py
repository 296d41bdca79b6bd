"""The channel controller: kernels over integers and arrays.

`state` defines the state. `controller` runs it, phase by phase: `queues` takes requests, `maintenance`
requests refreshes, `choosing` chooses commands, `issuing` issues them, and `timing` has the distances between
them. `sink` receives the data; `mapping` turns addresses into coordinates. `fast` is a faster controller with
the same commands; `engines` chooses one of the two, and tests compare them. `schedulers`, `row_policies` and
`refresh_policies` have a module for each policy.
"""
