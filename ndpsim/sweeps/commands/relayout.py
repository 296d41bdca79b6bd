"""``relayout``: experts move from one layout to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from ndpsim.config import load_hardware
from ndpsim.errors import InputError
from ndpsim.results import RelayoutResult
from ndpsim.results.form import digest_of
from ndpsim.simulate import simulate_relayout
from ndpsim.simulate.weights import named_weights
from ndpsim.sweeps.command import Parameter, Resolved, SweptCommand
from ndpsim.sweeps.commands.gemv import EXPERT, expert_of
from ndpsim.sweeps.parameters import (
    WEIGHTS,
    flag,
    hardware_sets,
    options_of,
    several,
    weight_format,
    whole,
    word,
)
from ndpsim.sweeps.scalars import scalars_of

_NAMES = {
    "experts": "experts",
    "from": "source",
    "to": "target",
    "from-dimms": "source_dimms",
    "to-dimms": "target_dimms",
    "other-dimms": "other_dimms",
}
_TOPOLOGY = "link.topology"


class Relayout(SweptCommand):
    """`simulate_relayout`."""

    name = "relayout"
    results = (RelayoutResult,)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        **EXPERT,
        "experts": whole("Experts that move", 1),
        "from": word("Where they lie: localized, striped or sharded:N", "localized"),
        "to": word("Where they go", "striped"),
        "from-dimms": several(whole("First DIMM of each expert", "spread evenly", 0)),
        "to-dimms": several(whole("The same for where they go", "spread evenly", 0)),
        "topology": word("Of the links: chain, ring, mesh, full, bus or groups", "the hardware's"),
        **WEIGHTS,
        "no-host": flag("Do not simulate the same move by the host"),
        "other-dimms": flag("Simulate the same with experts on neighbouring DIMMs, too"),
    }

    def _sets(self, given: Mapping[str, Any]) -> list[str]:
        if "topology" in given and _TOPOLOGY in given:
            raise InputError(f"{_TOPOLOGY} says it, too; give one of them", key="topology")
        topology = [f"{_TOPOLOGY}={given['topology']}"] if "topology" in given else []
        return [*hardware_sets(given, self.parameters), *topology]

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """See `SweptCommand`."""
        hardware = load_hardware(given.get("hw", "trimoe"), self._sets(given))
        weights, model = named_weights(expert_of(given), weight_format(given))
        config = {
            "hardware": hardware.to_dict(),
            "model": model,
            "weights": asdict(weights),
            "experts": given.get("experts", 1),
            "source": given.get("from", "localized"),
            "target": given.get("to", "striped"),
            **{name: given.get(key) for key, name in _NAMES.items() if key.endswith("-dimms")},
            "host": not given.get("no-host", False),
        }
        return Resolved(config, digest_of([self.name, config | {"model": None}]))

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `SweptCommand`."""
        options = options_of(given, _NAMES)
        for name in ("source_dimms", "target_dimms"):
            if isinstance(options.get(name), int):
                options[name] = [options[name]]
        return scalars_of(
            simulate_relayout(
                load_hardware(given.get("hw", "trimoe"), self._sets(given)),
                expert_of(given),
                bits=weight_format(given),
                host=not given.get("no-host", False),
                cache=True,
                **options,
            )
        )


COMMAND = Relayout()
