"""Routing: which experts the tokens of a model choose."""

from ndpsim.routing.file import load_routing
from ndpsim.routing.generate import find_routing, generate_routing
from ndpsim.routing.spec import default_routing
from ndpsim.routing.statistics import RoutingStatistics, describe_routing
from ndpsim.routing.trace import Routing

__all__ = [
    "Routing",
    "RoutingStatistics",
    "default_routing",
    "describe_routing",
    "find_routing",
    "generate_routing",
    "load_routing",
]
