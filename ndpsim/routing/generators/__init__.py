"""Generators of routing, one file each; see `ndpsim.routing.spec.Generator`."""
