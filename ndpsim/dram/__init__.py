"""The channel controller: kernels over integers and arrays.

`state` lays out memory, `controller` runs it, `sink` takes its data, `mapping` turns addresses into
coordinates. `plain` is the same controller written to be read; tests hold the two equal.
"""
