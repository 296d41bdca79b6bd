"""``relayout``: experts move from one layout to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.relayout import MOVED, RELAYOUT
from ndpsim.config import load_hardware
from ndpsim.simulate import simulate_relayout
from ndpsim.simulate.machine import named_weights
from ndpsim.simulate.results import RelayoutResult
from ndpsim.studies.sweeps.command import (
    Resolved,
    SweptCommand,
    expert_of,
    hardware_sets,
    scalars_of,
    weight_format,
)

_TOPOLOGY = "link.topology"


class SweptRelayout(SweptCommand):
    """`simulate_relayout`."""

    name = "relayout"
    results = (RelayoutResult,)
    parameters = RELAYOUT

    def _sets(self, settings: Mapping[str, Any]) -> list[str]:
        if "topology" in settings and _TOPOLOGY in settings:
            raise InputError(f"{_TOPOLOGY} sets the same key; give one of them", "conflict", key="topology")
        topology = [f"{_TOPOLOGY}={settings['topology']}"] if "topology" in settings else []
        return [*hardware_sets(settings, RELAYOUT), *topology]

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        RELAYOUT.check_needs(settings)
        hardware = load_hardware(RELAYOUT.value(settings, "hw"), self._sets(settings))
        weights, model = named_weights(expert_of(settings), weight_format(settings))
        config = {
            "hardware": hardware,
            "model": model,
            "weights": asdict(weights),
            **{
                RELAYOUT[name].argument: RELAYOUT.value(settings, name)
                for name in (*MOVED, "other-dimms", "no-host")
            },
        }
        return self.resolved(config, apart=["model"])

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        options = RELAYOUT.arguments(settings, *MOVED, "other-dimms", "no-host")
        return scalars_of(
            simulate_relayout(
                load_hardware(RELAYOUT.value(settings, "hw"), self._sets(settings)),
                expert_of(settings),
                bits=weight_format(settings),
                cache=True,
                **options,
            )
        )


COMMAND = SweptRelayout()
