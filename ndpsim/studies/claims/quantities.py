"""Values that claims use besides runs: a machine's values, a model's shape, an expert on a processor,
the statistics of a routing, the experts in the GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ndpsim.base.options import Choice, Parameter, Table, Whole, joined, table
from ndpsim.base.options.hardware import HW
from ndpsim.base.options.moe import MOE
from ndpsim.base.reported import flattened
from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.processors import load_processors
from ndpsim.inference.processors.memory import dense_weight_bytes
from ndpsim.simulate.results.cache import digest_of
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, hardware_of
from ndpsim.studies.sweeps.commands.moe import COMMAND
from ndpsim.workload.models import load_model
from ndpsim.workload.routing import describe_routing
from ndpsim.workload.routing.generate import find_routing
from ndpsim.workload.routing.trace import Ids

_MODEL = Table({"model": MOE["model"]})
_BITS = Parameter("bits", "Bits of a weight.", Whole(1), 16)
_DEVICE = Parameter("device", "Which.", Choice(("gpu", "cpu"), "processor"), "gpu")
_TOKENS = Parameter("tokens", "Tokens that go through the expert.", Whole(1), 1)
_GENERATED = ("batch", "steps", "prompt", "seed")


class ClaimQuantity(SweptCommand):
    """A quantity that is computed at once; its result is its configuration."""

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        values = self.measure(settings)
        return Resolved(values, digest_of([self.name, values]))


class HardwareValues(ClaimQuantity):
    """All values of a hardware file, with timings and derived values."""

    name = "hardware"
    parameters = Table({"hw": HW})

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        hardware = hardware_of(settings, self.parameters)
        return flattened(hardware.to_dict())


class ModelValues(ClaimQuantity):
    """The shape of a model, and `parameters`, the number of its weights without norms and biases."""

    name = "model"
    parameters = joined(_MODEL, table({"": (_BITS,)}))

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        model = load_model(settings.get("model", "deepseek-v2"))
        experts, weights = model.routed_experts * model.moe_layers, model.expert.weights
        expert_bytes = model.expert.weight_bytes(settings.get("bits", 16))
        return {
            **flattened(asdict(model)),
            "parameters": experts * weights + sum(dense_weight_bytes(model, bits=8).values()),
            "expert_weights": weights,
            "expert_weight_bytes": expert_bytes,
            "experts_bytes": experts * expert_bytes,
            "experts_weights": experts * weights,
        }


class ProcessorTimes(ClaimQuantity):
    """The time of one expert on the GPU or the CPU of a machine."""

    name = "processor"
    parameters = joined(_MODEL, table({"": (HW, _DEVICE, _TOKENS, _BITS)}))

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        hardware = hardware_of(settings, self.parameters)
        processors, model = load_processors(hardware), load_model(settings.get("model", "deepseek-v2"))
        device = processors.cpu if settings.get("device", "gpu") == "cpu" else processors.gpu
        time = device.expert_time(model.expert, settings.get("tokens", 1), settings.get("bits", 16))
        return {"time_ns": time.time_ns}


class RoutingQuantities(SweptCommand):
    """The statistics of a generated routing trace."""

    name = "routing"
    parameters = Table({name: MOE[name] for name in ("model", "routing", *_GENERATED)})

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        config = {**settings, "model": asdict(load_model(settings.get("model", "deepseek-v2")))}
        return Resolved(config, digest_of([self.name, "reuse", config]))

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        generated = MOE.arguments(settings, *_GENERATED)
        routing = find_routing(settings.get("routing"), MOE.value(settings, "model"), **generated)
        return flattened(describe_routing(routing, pairs=False).to_dict() | {"reuse": reuse_of(routing.ids)})


def reuse_of(ids: Ids) -> dict[str, float | None]:
    """The reuse of experts by a sequence over several steps.

    The shares are relative to the tokens that reuse an expert of the previous token. `two_before`: tokens
    with an expert of both previous tokens, but none of all three. `three_before`: tokens with an expert of
    three or more previous tokens. None: there is no such token.

    Args:
        ids: see `Routing.ids`; the first three steps are only compared with later ones.
    """
    chosen = np.zeros((*ids.shape[:3], int(ids.max()) + 1), bool)
    np.put_along_axis(chosen, ids.astype(np.int64), True, axis=-1)
    again = [chosen[3:] & chosen[2:-1]]
    for back in (1, 0):
        again.append(again[-1] & chosen[back : back - 3])
    reusing, two, three = (int(experts.any(axis=-1).sum()) for experts in again)
    shares = {"two_before": two - three, "three_before": three}
    return {name: count / reusing if reusing else None for name, count in shares.items()}


class Residency(SweptCommand):
    """The experts in the GPU's memory during a run.

    `first` and `last`: the share of the experts computed by the GPU that are in its memory, in the first and
    in the last eight decode steps: `mean` over all layers, `best` in the layer with the highest share.
    `experts`: the number of residents at the end of the run.
    """

    name = "residency"
    parameters = MOE

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        moe = COMMAND.resolve(settings)
        return Resolved(moe.config, digest_of([self.name, moe.key]))

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        seen: dict[tuple[int, int], list[bool]] = {}
        experts = 0

        def count(_: RunRecord, layer: LayerRecord) -> None:
            nonlocal experts
            experts = layer.residents
            if layer.phase == "decode":
                on_gpu = [job if isinstance(job, int) else job.expert for job in layer.assignment.gpu]
                hits = layer.placement.resident[on_gpu].tolist()
                seen.setdefault((layer.step // 8, layer.layer), []).extend(hits)

        COMMAND.run(settings, count)
        groups = {"first": 0, "last": max(group for group, _ in seen)}
        rates = {
            name: _hit_rates([seen[when] for when in seen if when[0] == n]) for name, n in groups.items()
        }
        return flattened({"experts": experts, **rates})


def _hit_rates(layers: Sequence[Sequence[bool]]) -> dict[str, float | None]:
    computing = [hits for hits in layers if hits]
    if not computing:
        return {"mean": None, "best": None}
    best = max(sum(hits) / len(hits) for hits in computing)
    return {"mean": sum(map(sum, computing)) / sum(map(len, computing)), "best": best}


_ALL = HardwareValues(), ModelValues(), ProcessorTimes(), RoutingQuantities(), Residency()
QUANTITIES = {quantity.name: quantity for quantity in _ALL}
