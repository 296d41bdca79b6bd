"""``relayout``: experts move from one layout to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.relayout import MOVED, RELAYOUT
from ndpsim.config import load_hardware
from ndpsim.simulate import simulate_relayout
from ndpsim.simulate.results import RelayoutResult
from ndpsim.simulate.weights import named_weights
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, scalars_of
from ndpsim.studies.sweeps.parameters import expert_of, hardware_sets, weight_format

_TOPOLOGY = "link.topology"


class Relayout(SweptCommand):
    """`simulate_relayout`."""

    name = "relayout"
    results = (RelayoutResult,)
    parameters = RELAYOUT

    def _sets(self, given: Mapping[str, Any]) -> list[str]:
        if "topology" in given and _TOPOLOGY in given:
            raise InputError(f"{_TOPOLOGY} says it, too; give one of them", "conflict", key="topology")
        topology = [f"{_TOPOLOGY}={given['topology']}"] if "topology" in given else []
        return [*hardware_sets(given, RELAYOUT), *topology]

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        RELAYOUT.check_needs(given)
        hardware = load_hardware(RELAYOUT.value(given, "hw"), self._sets(given))
        weights, model = named_weights(expert_of(given), weight_format(given))
        config = {
            "hardware": hardware,
            "model": model,
            "weights": asdict(weights),
            **{
                RELAYOUT[name].argument: RELAYOUT.value(given, name)
                for name in (*MOVED, "other-dimms", "no-host")
            },
        }
        return self.resolved(config, apart=["model"])

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        options = RELAYOUT.arguments(given, *MOVED, "other-dimms", "no-host")
        return scalars_of(
            simulate_relayout(
                load_hardware(RELAYOUT.value(given, "hw"), self._sets(given)),
                expert_of(given),
                bits=weight_format(given),
                cache=True,
                **options,
            )
        )


COMMAND = Relayout()
