"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.options import refuse
from ndpsim.base.options.gemv import ALONE, GEMV, HOST, check_gemv
from ndpsim.config.banks import BankHardware, is_bank_hardware
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_host_read
from ndpsim.simulate.bank_operands import simulate_bank_expert
from ndpsim.simulate.machine import named_weights
from ndpsim.simulate.results import ContentionResult, ExpertResult, HostReadResult
from ndpsim.simulate.results.pim import PimResult
from ndpsim.studies.rtl import METRICS, data_digest, unit_size
from ndpsim.studies.sweeps.command import (
    BANK_KEYS,
    Resolved,
    SweptCommand,
    bank_hardware_of,
    expert_of,
    file_digests,
    hardware_of,
    scalars_of,
    weight_format,
)

_IN_BANKS = ("hw", "model", "shape", "tokens")  # options of units in banks


class SweptGemv(SweptCommand):
    """One expert: `simulate_expert`, `simulate_contention` or `simulate_host_read`."""

    name = "gemv"
    results = (ExpertResult, ContentionResult, HostReadResult, PimResult)
    own_metrics = ("area_mm2", *METRICS)
    parameters = GEMV
    device_keys = BANK_KEYS

    def _device(self, settings: Mapping[str, Any]) -> BankHardware | None:
        """The device with units in its banks; None: DIMMs compute."""
        if not is_bank_hardware(GEMV.value(settings, "hw")):
            return None
        options = (name for name in settings if name in GEMV and name not in _IN_BANKS)
        refuse(settings, "cannot be used with units in banks", *options)
        return bank_hardware_of(settings, GEMV)

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        device = self._device(settings)
        if device is not None:
            expert, model = named_weights(expert_of(settings), weight_format(settings))
            shape = {"hidden": expert.hidden, "intermediate": expert.intermediate}
            tokens = GEMV.value(settings, "tokens")
            config = {"hardware": device.to_dict(), "model": model, **shape, "tokens": tokens}
            return self.resolved(config, apart=["model"])
        check_gemv(settings)
        hardware = hardware_of(settings, GEMV)
        weights, model = named_weights(expert_of(settings), weight_format(settings))
        engine = GEMV.value(settings, "engine")
        config = {
            "hardware": hardware,
            "model": model,
            "weights": asdict(weights),
            "engine": engine,
            "layout": settings.get("layout", "striped" if engine == "host-read" else "localized"),
            "tokens": settings.get("tokens", 1),
            "release_ns": settings.get("release-ns", 0),
            **{GEMV[name].argument: settings.get(name) for name in HOST},
            **GEMV.arguments(settings, *ALONE),
        }
        traffic = file_digests(settings["host-pattern"]) if "host-pattern" in settings else None
        return self.resolved(config, traffic, data_digest(), apart=["model"])

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        device = self._device(settings)
        if device is not None:
            tokens = GEMV.value(settings, "tokens")
            return scalars_of(simulate_bank_expert(device, expert_of(settings), tokens))
        check_gemv(settings)
        hardware, expert, bits = hardware_of(settings, GEMV), expert_of(settings), weight_format(settings)
        options = GEMV.arguments(settings, "tokens", "release-ns", "layout", *ALONE)
        if settings.get("engine") == "host-read":
            return scalars_of(simulate_host_read(hardware, expert, bits=bits, cache=True, **options))
        placed = GEMV.arguments(settings, "layout", "tokens")
        areas = {"area_mm2": hardware.ndp_area_mm2} | unit_size(hardware, expert, bits, **placed)
        if "host-traffic" in settings:
            options |= GEMV.arguments(settings, *HOST)
            beside = simulate_contention(hardware, expert, bits=bits, cache=True, **options)
            alike = {"time_ns": beside.ndp_time_ns, "bandwidth_gbps": beside.ndp_gbps}  # as without a host
            return alike | scalars_of(beside) | areas
        alone = simulate_expert(hardware, expert, bits=bits, cache=True, **options)
        return scalars_of(alone) | areas


COMMAND = SweptGemv()
