"""Routing: which experts the tokens of a model choose.

A trace (`Routing`) is generated, imported from what other programs recorded, or read from a file. A
generator is named by a SPEC:

- ``skewed[:KEY=VALUE,...]``: hot, warm and cold experts, by default as in the TriMoE paper;
- ``popularity:NAME[:KEY=VALUE,...]``: as popular as counts say, bundled ones or those of a JSON file;
- ``ranks:NAME[:KEY=VALUE,...]``: shares by rank as published for a model.

All take `token_stickiness`, `step_stickiness`, `step_drift`, `drift` and `prefill_cosine`; ``ndpsim routing
generate --help`` says what they mean. One file a generator in `generators`, one a format in `formats`.
"""

from ndpsim.routing.capture import capture_routing
from ndpsim.routing.generate import find_routing, generate_routing
from ndpsim.routing.importing import import_routing, routing_formats
from ndpsim.routing.spec import default_routing, routing_names
from ndpsim.routing.statistics import RoutingStatistics, describe_routing
from ndpsim.routing.trace import Routing, load_routing
