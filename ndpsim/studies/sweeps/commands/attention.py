"""``attention``: the attention of a layer on units in banks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.pim import ATTENTION
from ndpsim.config.banks import BankHardware, is_bank_hardware
from ndpsim.inference.processors.layer_attention import LayerAttention, simulate_layer_attention
from ndpsim.simulate.bank_operands import simulate_bank_attention
from ndpsim.simulate.results.pim import PimResult
from ndpsim.studies.sweeps.command import (
    BANK_KEYS,
    Resolved,
    SweptCommand,
    bank_hardware_of,
    hardware_of,
    hardware_sets,
    scalars_of,
)

_OPERANDS = ("model", "context", "batch")


def _is_device(settings: Mapping[str, Any]) -> bool:
    return is_bank_hardware(ATTENTION.value(settings, "hw"))


class SweptAttention(SweptCommand):
    """`simulate_bank_attention`, or `simulate_layer_attention` on a machine."""

    name = "attention"
    results = (PimResult, LayerAttention)
    parameters = ATTENTION
    device_keys = BANK_KEYS

    def _hardware(self, settings: Mapping[str, Any]) -> BankHardware:
        if settings.get("engine") == "gpu":
            raise InputError(
                "gpu needs a machine with a GPU; this is a device with units in its banks",
                "unsupported",
                key="engine",
            )
        level = {"unit.level": settings["engine"]} if "engine" in settings else {}
        return bank_hardware_of({**settings, **level}, ATTENTION, ATTENTION.value(settings, "rules"))

    def _operands(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: ATTENTION.value(settings, name) for name in _OPERANDS}

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        config = {**self._operands(settings), "engine": settings.get("engine")}
        if _is_device(settings):
            return self.resolved({"hardware": self._hardware(settings).to_dict(), **config})
        return self.resolved({"hardware": hardware_of(settings, ATTENTION), **config})

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        operands = self._operands(settings)
        if _is_device(settings):
            return scalars_of(simulate_bank_attention(self._hardware(settings), **operands))
        hw, sets = ATTENTION.value(settings, "hw"), hardware_sets(settings, ATTENTION)
        return scalars_of(simulate_layer_attention(hw, **operands, engine=settings.get("engine"), sets=sets))


COMMAND = SweptAttention()
