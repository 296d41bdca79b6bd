"""Formats of recorded requests, one file each; see `ndpsim.workload.requests.recorded.WorkloadFormat`."""
