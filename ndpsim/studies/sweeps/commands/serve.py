"""``serve``: requests served under a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.base.options.serve import SERVE
from ndpsim.inference.processors import load_processors
from ndpsim.inference.serving.machines import default_policy
from ndpsim.inference.serving.server import run_serving
from ndpsim.policies.choose import choose_policy
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, file_digests, hardware_of, scalars_of
from ndpsim.studies.sweeps.commands.moe import config_of, policy_files
from ndpsim.workload.models import load_model
from ndpsim.workload.requests.spec import is_spec, parse_spec
from ndpsim.workload.routing.generate import is_spec as is_routing_spec

_CHOSEN = ("hw", "model", "policy")
_NOT_MEASURED = ("per_request", "over_time")


class SweptServe(SweptCommand):
    """`run_serving`."""

    name = "serve"
    results = (ServingResult,)
    parameters = SERVE

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        hardware, model = hardware_of(settings, SERVE), load_model(SERVE.value(settings, "model"))
        named = SERVE.value(settings, "policy") or default_policy(model, hardware)
        policy = None if named is None else choose_policy(named)
        config = config_of(settings, SERVE, hardware, policy, *_CHOSEN)
        requests = str(settings.get("requests", ""))
        apart = [] if is_spec(requests) else ["requests"]  # a file counts by its content
        recorded = parse_spec(requests).settings["lengths"] if is_spec(requests) else requests
        routing = settings.get("routing")
        traces = [] if routing is None or is_routing_spec(routing) else [routing]
        apart += ["routing"] if traces else []
        files = *traces, *policy_files(named or ""), *load_processors(hardware).files()
        return self.resolved(config, file_digests(recorded, *files), apart=apart)

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        options = SERVE.arguments(settings, *(name for name in SERVE if name not in _CHOSEN))
        result = run_serving(
            hardware_of(settings, SERVE),
            SERVE.value(settings, "model"),
            policy=SERVE.value(settings, "policy"),
            **options,
        )
        return scalars_of(result, *_NOT_MEASURED)


COMMAND = SweptServe()
