"""``moe``: the layers of a model under a policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.options import Table
from ndpsim.base.options.moe import MOE
from ndpsim.base.options.routing import BATCH, STEPS
from ndpsim.config import Hardware
from ndpsim.inference.layers.record import Observer
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import load_processors
from ndpsim.policies.choose import ChosenPolicy, choose_policy
from ndpsim.simulate.results.moe import PolicyRun
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, file_digests, hardware_of, scalars_of
from ndpsim.workload.models import load_model, load_moe_model
from ndpsim.workload.routing.generate import existing_file, is_spec
from ndpsim.workload.routing.trace import load_routing

_POLICY_FILE = re.compile(r"(.*?\.py)(:|$)", re.DOTALL)
_CHOSEN = ("hw", "model", "policy")
#: Fields that are equal in all runs under one policy, or that a sweep compares itself.
_NOT_MEASURED = (
    "policy",
    "parameters",
    "speedup",
    "speedup_prefill",
    "speedup_decode",
    "speedup_moe",
    "check",
)


def policy_files(policy: str) -> list[str]:
    """The file of a policy, if any."""
    file = _POLICY_FILE.match(policy)
    return [] if file is None else [file[1]]


def config_of(
    settings: Mapping[str, Any], table: Table, hardware: Hardware, policy: ChosenPolicy | None, *apart: str
) -> dict[str, Any]:
    """The configuration of layers under a policy, without the options `apart`."""
    config = {
        "hardware": hardware,
        "model": asdict(load_model(table.value(settings, "model"))),
        "policy": None if policy is None else policy.name,
        "parameters": {} if policy is None else policy.parameters.model_dump(),
        **{table[name].argument: table.value(settings, name) for name in table if name not in apart},
    }
    if "weights" not in settings:
        del config["weights"]
    return config


class SweptMoe(SweptCommand):
    """`run_moe` with one policy."""

    name = "moe"
    results = (PolicyRun,)
    parameters = MOE

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        hardware, policy = hardware_of(settings, MOE), MOE.value(settings, "policy")
        config = config_of(settings, MOE, hardware, choose_policy(policy), *_CHOSEN)
        routing = settings.get("routing")
        traces = [routing] if isinstance(routing, str) and not is_spec(routing) else []
        otherwise: dict[str, Any] = {"batch": BATCH.default, "steps": STEPS.default}
        for file in map(existing_file, traces):
            trace = load_routing(file, load_moe_model(MOE.value(settings, "model")))
            otherwise = {"batch": trace.batch, "steps": trace.steps, "layers": list(trace.layers)}
        config |= {key: value for key, value in otherwise.items() if key not in settings}
        contents = file_digests(*traces, *policy_files(policy), *load_processors(hardware).files())
        # A trace counts by its content.
        return self.resolved(config, contents, apart=["routing"] if traces else [])

    def run(self, settings: Mapping[str, Any], observer: Observer | None = None) -> PolicyRun:
        """The run of a point; `observer`: as in `run_moe`."""
        options = MOE.arguments(settings, *(name for name in MOE if name not in _CHOSEN))
        model, policies = MOE.value(settings, "model"), [MOE.value(settings, "policy")]
        return run_moe(hardware_of(settings, MOE), model, policies, observer=observer, **options).runs[0]

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return scalars_of(self.run(settings), *_NOT_MEASURED)


COMMAND = SweptMoe()
