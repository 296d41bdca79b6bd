"""``moe``: the layers of a model under a policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.errors import InputError
from ndpsim.moe import load_model
from ndpsim.moe.weights import weight_name
from ndpsim.orchestrator.record import Observer
from ndpsim.orchestrator.run import run_moe
from ndpsim.policies.choose import choose_policy
from ndpsim.processors import load_processors
from ndpsim.results.form import digest_of
from ndpsim.results.moe import PolicyRun
from ndpsim.routing.generate import existing_file, is_spec
from ndpsim.routing.trace import load_routing
from ndpsim.sweeps.command import Parameter, Resolved, SweptCommand
from ndpsim.sweeps.parameters import (
    choice,
    file_digests,
    hardware_sets,
    options_of,
    whole,
    word,
)
from ndpsim.sweeps.scalars import scalars_of

#: Options that are arguments of `run_moe`, by their names there.
_NAMES = {
    "batch": "batch",
    "steps": "steps",
    "routing": "routing",
    "seed": "seed",
    "prompt": "prompt",
    "prefix": "prefix",
    "bits": "bits",
    "dense-bits": "dense_bits",
    "weights": "weights",
    "kv": "kv",
    "kv-bits": "kv_bits",
    "context": "context",
    "gpu-experts": "gpu_experts",
    "arbitration": "arbitration",
}
_RUN = "[0-9]{1,6}(-[0-9]{1,6})?"
_POLICY_FILE = re.compile(r"(.*?\.py)(:|$)", re.DOTALL)
#: Of a run under one policy: what is the same everywhere, or what a sweep compares itself.
_NOT_MEASURED = ("policy", "speedup", "speedup_moe", "check")


def _layers(value: Any) -> list[int]:
    """Numbers of layers, also as the text ``0-7,20``."""
    if isinstance(value, list | tuple):
        return sorted({whole("", "", 0).take(one) for one in value})
    text = str(value).replace(" ", "")
    if not re.fullmatch(f"{_RUN}(,{_RUN})*", text, re.ASCII):
        raise InputError(f"'{text[:40]}' is not of the form 0-7 or 3,5,8-11")
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    if not numbers:
        raise InputError(f"'{text[:40]}' ends before it begins")
    return sorted(numbers)


class Moe(SweptCommand):
    """`run_moe` with one policy."""

    name = "moe"
    results = (PolicyRun,)
    default_metric = "tokens_per_s"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "hw": word("The hardware: a name or a file", "trimoe", is_file=True),
        "model": word("A bundled model or a config.json", "deepseek-v2", is_file=True),
        "policy": word("NAME[:KEY=VALUE,...] or FILE.py:CLASS", "trimoe", is_file=True),
        "batch": whole("Sequences decoded together", 512),
        "steps": whole("Decode steps", 16),
        "routing": word(
            "What tokens choose: a trace, or what ndpsim routing generate takes", "the model's", is_file=True
        ),
        "seed": whole("The same seed, the same result", 1, 0),
        "prompt": whole("Prompt tokens of each sequence", "no prefill"),
        "prefix": whole("Tokens of each sequence that the KV cache has before the prompt", 0, 0),
        "layers": Parameter("Only these layers of the model, from 0: 0-7,20", "all", _layers),
        "bits": whole("Bits of a weight of a routed expert", 16),
        "dense-bits": whole("Bits of any other weight", 16),
        "weights": Parameter("A weight file, which says the bits of all weights", "none", weight_name),
        "kv": choice("Where the KV cache lies", "auto", ("auto", "gpu", "host"), "place"),
        "kv-bits": whole("Bits of a value in the KV cache", 16),
        "context": whole("Tokens that a decoded token attends to", 512),
        "gpu-experts": whole("Experts of a layer that the GPU has room for", "what fits", 0),
        "arbitration": Parameter("Whose command comes first", "host-first", checked_arbitration),
    }

    def _hardware(self, given: Mapping[str, Any]) -> Hardware:
        return load_hardware(given.get("hw", "trimoe"), hardware_sets(given, self.parameters))

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """See `SweptCommand`."""
        hardware, model = self._hardware(given), load_model(given.get("model", "deepseek-v2"))
        asked = given.get("policy", "trimoe")
        policy = choose_policy(asked)
        routing, file = given.get("routing"), _POLICY_FILE.match(asked)
        traces = [routing] if isinstance(routing, str) and not is_spec(routing) else []
        config = {
            "hardware": hardware.to_dict(),
            "model": asdict(model),
            "policy": policy.name,
            "parameters": policy.parameters.model_dump(),
            **{name: given.get(key, self._default(key)) for key, name in _NAMES.items() if key != "weights"},
            **options_of(given, {"weights": "weights"}),
            "layers": given.get("layers"),
        }
        for trace in map(load_routing, map(existing_file, traces)):
            of_trace = {"batch": trace.batch, "steps": trace.steps, "layers": list(trace.layers)}
            config |= {key: value for key, value in of_trace.items() if key not in given}
        policy_files = [file[1]] if file is not None else []
        contents = file_digests(*traces, *policy_files, *load_processors(hardware).files())
        named = {} if traces == [] else {"routing": None}  # a trace counts by what is in it
        return Resolved(config, digest_of([self.name, config | named, contents]))

    def _default(self, key: str) -> Any:
        parameter = self.parameters[key]
        try:
            return parameter.take(parameter.default)
        except InputError:  # in words
            return None if key != "routing" else parameter.default

    def run(self, given: Mapping[str, Any], observer: Observer | None = None) -> PolicyRun:
        """The run of a point; `observer`: as in `run_moe`."""
        options = options_of(given, _NAMES | {"layers": "layers"})
        policies = [given.get("policy", "trimoe")]
        model = given.get("model", "deepseek-v2")
        return run_moe(self._hardware(given), model, policies, observer=observer, **options).runs[0]

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `SweptCommand`."""
        return {
            name: value
            for name, value in scalars_of(self.run(given)).items()
            if name.partition(".")[0] not in (*_NOT_MEASURED, "parameters")
        }


COMMAND = Moe()
