"""Generators of arrivals, one file each; see `ndpsim.workloads.spec.ArrivalGenerator`."""
