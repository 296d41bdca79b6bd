"""``serve``: requests served under a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.moe import load_model
from ndpsim.parameters.serve import SERVE
from ndpsim.policies.choose import choose_policy
from ndpsim.processors import load_processors
from ndpsim.results.serving import ServingResult
from ndpsim.routing.generate import is_spec as is_routing_spec
from ndpsim.serving.machines import default_policy
from ndpsim.serving.run import run_serving
from ndpsim.sweeps.command import Resolved, SweptCommand, scalars_of
from ndpsim.sweeps.commands.moe import config_of, policy_files
from ndpsim.sweeps.parameters import file_digests, hardware_of
from ndpsim.workloads.spec import is_spec, parse_spec

_CHOSEN = ("hw", "model", "policy", "no-prefix-cache", "no-async-scheduling")
_NOT_MEASURED = ("per_request", "over_time")


class Serve(SweptCommand):
    """`run_serving`."""

    name = "serve"
    results = (ServingResult,)
    parameters = SERVE

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """See `SweptCommand`."""
        hardware, model = hardware_of(given, SERVE), load_model(SERVE.value(given, "model"))
        asked = SERVE.value(given, "policy") or default_policy(model, hardware)
        policy = None if asked is None else choose_policy(asked)
        config = config_of(given, SERVE, hardware, policy, *_CHOSEN) | {
            "prefix_cache": not given.get("no-prefix-cache", False),
            "async_scheduling": not given.get("no-async-scheduling", False),
        }
        requests = str(given.get("requests", ""))
        apart = [] if is_spec(requests) else ["requests"]  # a file counts by its content
        recorded = parse_spec(requests).settings["lengths"] if is_spec(requests) else requests
        routing = given.get("routing")
        traces = [] if routing is None or is_routing_spec(routing) else [routing]
        apart += ["routing"] if traces else []
        files = *traces, *policy_files(asked or ""), *load_processors(hardware).files()
        return self.resolved(config, file_digests(recorded, *files), apart=apart)

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `SweptCommand`."""
        options = SERVE.arguments(given, *(name for name in SERVE if name not in _CHOSEN))
        result = run_serving(
            hardware_of(given, SERVE),
            SERVE.value(given, "model"),
            policy=SERVE.value(given, "policy"),
            prefix_cache=not given.get("no-prefix-cache", False),
            async_scheduling=not given.get("no-async-scheduling", False),
            **options,
        )
        return scalars_of(result, *_NOT_MEASURED)


COMMAND = Serve()
