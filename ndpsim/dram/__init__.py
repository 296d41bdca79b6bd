"""The channel controller: kernels over integers and arrays.

`state` lays out memory. `controller` runs it, phase by phase: `queues` takes requests, `maintenance` asks
for refreshes, `choosing` and `issuing` say what they do, `timing` knows the distances. `sink` takes the
data, `mapping` turns addresses into coordinates. `plain` is the same controller written to be read.
`masks` is the same once more, fast; `engines` chooses. `row_policies` has a module for each row policy. Tests
hold the three equal.
"""
