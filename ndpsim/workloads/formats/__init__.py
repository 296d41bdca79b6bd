"""Formats of recorded requests, one file each; see `ndpsim.workloads.recorded.WorkloadFormat`."""
