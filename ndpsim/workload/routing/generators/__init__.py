"""Generators of routing, one file each; see `ndpsim.workload.routing.spec.RoutingGenerator`."""
