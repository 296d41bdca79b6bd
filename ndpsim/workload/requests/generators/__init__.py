"""Generators of arrivals, one file each; see `ndpsim.workload.requests.spec.ArrivalGenerator`."""
