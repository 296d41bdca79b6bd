"""Routing: which experts the tokens of a model choose.

A trace (`Routing`) is generated, imported from recordings of other programs, or read from a file. A SPEC
names a generator:

- ``skewed[:KEY=VALUE,...]``: hot, warm and cold experts, by default as in the TriMoE paper;
- ``popularity:NAME[:KEY=VALUE,...]``: experts with the popularity of bundled counts or of a JSON file;
- ``ranks:NAME[:KEY=VALUE,...]``: shares by rank as published for a model.

All have the keys `token_stickiness`, `step_stickiness`, `step_drift`, `drift` and `prefill_cosine`, which
``ndpsim routing generate --help`` explains. Each generator is a file in `generators`, each format a file in
`formats`.
"""

from ndpsim.workload.routing.capture import capture_routing
from ndpsim.workload.routing.generate import find_routing, generate_routing
from ndpsim.workload.routing.importing import import_routing, routing_formats
from ndpsim.workload.routing.spec import default_routing, routing_names
from ndpsim.workload.routing.statistics import RoutingStatistics, describe_routing
from ndpsim.workload.routing.trace import Routing, load_routing
