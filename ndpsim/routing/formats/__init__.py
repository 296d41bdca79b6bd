"""Formats of recorded routing, one file each; see `ndpsim.routing.recorded.RoutingFormat`."""
