"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ndpsim.base.options.gemv import ALONE, GEMV, HOST, check_gemv
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_host_read
from ndpsim.simulate.results import ContentionResult, ExpertResult, HostReadResult
from ndpsim.simulate.weights import named_weights
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, scalars_of
from ndpsim.studies.sweeps.parameters import expert_of, file_digests, hardware_of, weight_format


class Gemv(SweptCommand):
    """One expert: `simulate_expert`, `simulate_contention` or `simulate_host_read`."""

    name = "gemv"
    results = (ExpertResult, ContentionResult, HostReadResult)
    own_metrics = ("area_mm2",)
    parameters = GEMV

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        check_gemv(given)
        hardware = hardware_of(given, GEMV)
        weights, model = named_weights(expert_of(given), weight_format(given))
        engine = GEMV.value(given, "engine")
        config = {
            "hardware": hardware,
            "model": model,
            "weights": asdict(weights),
            "engine": engine,
            "layout": given.get("layout", "striped" if engine == "host-read" else "localized"),
            "tokens": given.get("tokens", 1),
            "release_ns": given.get("release-ns", 0),
            **{GEMV[name].argument: given.get(name) for name in HOST},
            **GEMV.arguments(given, *ALONE),
        }
        traffic = file_digests(given["host-pattern"]) if "host-pattern" in given else None
        return self.resolved(config, traffic, apart=["model"])

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        check_gemv(given)
        hardware, expert, bits = hardware_of(given, GEMV), expert_of(given), weight_format(given)
        options = GEMV.arguments(given, "tokens", "release-ns", "layout", *ALONE)
        if given.get("engine") == "host-read":
            return scalars_of(simulate_host_read(hardware, expert, bits=bits, cache=True, **options))
        if "host-traffic" in given:
            options |= GEMV.arguments(given, *HOST)
            beside = simulate_contention(hardware, expert, bits=bits, cache=True, **options)
            alike = {"time_ns": beside.ndp_time_ns, "bandwidth_gbps": beside.ndp_gbps}  # as without a host
            return alike | scalars_of(beside) | {"area_mm2": hardware.ndp_area_mm2}
        alone = simulate_expert(hardware, expert, bits=bits, cache=True, **options)
        return scalars_of(alone) | {"area_mm2": hardware.ndp_area_mm2}


COMMAND = Gemv()
