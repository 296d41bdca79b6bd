"""Formats of recorded routing, one file each; see `ndpsim.workload.routing.recorded.RoutingFormat`."""
