"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.options.gemv import ALONE, GEMV, HOST, check_gemv
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_host_read
from ndpsim.simulate.machine import named_weights
from ndpsim.simulate.results import ContentionResult, ExpertResult, HostReadResult
from ndpsim.studies.sweeps.command import (
    Resolved,
    SweptCommand,
    expert_of,
    file_digests,
    hardware_of,
    scalars_of,
    weight_format,
)


class SweptGemv(SweptCommand):
    """One expert: `simulate_expert`, `simulate_contention` or `simulate_host_read`."""

    name = "gemv"
    results = (ExpertResult, ContentionResult, HostReadResult)
    own_metrics = ("area_mm2",)
    parameters = GEMV

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
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
        return self.resolved(config, traffic, apart=["model"])

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        check_gemv(settings)
        hardware, expert, bits = hardware_of(settings, GEMV), expert_of(settings), weight_format(settings)
        options = GEMV.arguments(settings, "tokens", "release-ns", "layout", *ALONE)
        if settings.get("engine") == "host-read":
            return scalars_of(simulate_host_read(hardware, expert, bits=bits, cache=True, **options))
        if "host-traffic" in settings:
            options |= GEMV.arguments(settings, *HOST)
            beside = simulate_contention(hardware, expert, bits=bits, cache=True, **options)
            alike = {"time_ns": beside.ndp_time_ns, "bandwidth_gbps": beside.ndp_gbps}  # as without a host
            return alike | scalars_of(beside) | {"area_mm2": hardware.ndp_area_mm2}
        alone = simulate_expert(hardware, expert, bits=bits, cache=True, **options)
        return scalars_of(alone) | {"area_mm2": hardware.ndp_area_mm2}


COMMAND = SweptGemv()
