"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.errors import InputError
from ndpsim.moe import Expert, parse_shape
from ndpsim.results import ContentionResult, ExpertResult, HostReadResult
from ndpsim.results.form import digest_of
from ndpsim.simulate import simulate_contention, simulate_expert, simulate_host_read
from ndpsim.simulate.weights import named_weights
from ndpsim.sweeps.command import Parameter, Resolved, SweptCommand
from ndpsim.sweeps.parameters import (
    WEIGHTS,
    choice,
    file_digests,
    hardware_sets,
    options_of,
    real,
    several,
    weight_format,
    whole,
    word,
)
from ndpsim.sweeps.scalars import scalars_of

#: The options that say whose expert it is, and on which hardware.
EXPERT: Mapping[str, Parameter] = {
    "hw": word("The hardware: a name or a file", "trimoe", is_file=True),
    "model": word("A bundled model or a config.json", "qwen3-235b-a22b", is_file=True),
    "shape": word("HIDDEN,INTERMEDIATE: an expert of this shape, instead of a model's", ""),
}

_HOST = {
    "host-traffic": "host_gbps",
    "host-reads": "read_share",
    "host-pattern": "pattern",
    "arbitration": "arbitration",
    "slice-clocks": "slice_clocks",
}
_ALONE = {"start-clock": "start_clock", "refresh-phases": "refresh_phases"}
_EXPERT = {"tokens": "tokens", "release-ns": "release_ns", "layout": "layout", **_ALONE}


def expert_of(given: Mapping[str, Any]) -> str | Expert:
    """The model or the shape that is given.

    Raises:
        InputError: both are.
    """
    if "shape" in given and "model" in given:
        raise InputError("give a model or a shape, not both", key="shape")
    return parse_shape(given["shape"]) if "shape" in given else given.get("model", "qwen3-235b-a22b")


def _rate(value: Any) -> float | str:
    """A rate in GB/s, or "saturate"."""
    return "saturate" if value == "saturate" else float(real("", "").take(value))


class Gemv(SweptCommand):
    """One expert: `simulate_expert`, `simulate_contention` or `simulate_host_read`."""

    name = "gemv"
    results = (ExpertResult, ContentionResult, HostReadResult)
    own_metrics = ("area_mm2",)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        **EXPERT,
        "tokens": several(whole("Tokens that go through the expert", 1)),
        "release-ns": several(real("Nothing is done for the expert before", 0)),
        "start-clock": whole("The DRAM clock at which it begins", 1),
        "refresh-phases": whole("Clocks over a period of refreshes from which it also runs", "none"),
        "engine": choice("Who reads the weights", "ndp", ("ndp", "host-read"), "engine"),
        "layout": word("localized, sharded:N or striped", "localized; host-read: striped"),
        **WEIGHTS,
        "host-traffic": Parameter("GB/s of the host beside the expert, or saturate", "no traffic", _rate),
        "host-reads": real("The share of reads in the host's traffic", 0.67, 0, 1),
        "host-pattern": word("sequential, random, or a request trace", "sequential", is_file=True),
        "arbitration": Parameter("Whose command comes first", "host-first", checked_arbitration),
        "slice-clocks": whole("DRAM clocks of each turn under slice", 1000),
    }

    def _check(self, given: Mapping[str, Any]) -> None:
        """Make sure that no option is given that would mean nothing."""
        if given.get("engine") == "host-read":
            for key in ("tokens", "release-ns", *_ALONE, *_HOST):
                if key in given:
                    raise InputError("belongs to engine ndp: the host only reads", key=key)
        for key in _ALONE:
            if key in given and "host-traffic" in given:
                raise InputError("is not supported with host-traffic", key=key)
        for key in list(_HOST)[1:]:
            if key in given and "host-traffic" not in given:
                raise InputError("is of host-traffic, which is not given", key=key)
        if "slice-clocks" in given and given.get("arbitration") != "slice":
            raise InputError("is of arbitration slice, which is not given", key="slice-clocks")

    def _hardware(self, given: Mapping[str, Any]) -> Hardware:
        return load_hardware(given.get("hw", "trimoe"), hardware_sets(given, self.parameters))

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """See `SweptCommand`."""
        self._check(given)
        hardware = self._hardware(given)
        weights, model = named_weights(expert_of(given), weight_format(given))
        engine = given.get("engine", "ndp")
        config = {
            "hardware": hardware.to_dict(),
            "model": model,
            "weights": asdict(weights),
            "engine": engine,
            "layout": given.get("layout", "striped" if engine == "host-read" else "localized"),
            "tokens": given.get("tokens", 1),
            "release_ns": given.get("release-ns", 0),
            **{name: given.get(key) for key, name in _HOST.items()},
            **{name: given[key] for key, name in _ALONE.items() if key in given},
        }
        traffic = file_digests(given["host-pattern"]) if "host-pattern" in given else None
        return Resolved(config, digest_of([self.name, config | {"model": None}, traffic]))

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `SweptCommand`."""
        self._check(given)
        hardware, expert, bits = self._hardware(given), expert_of(given), weight_format(given)
        options = options_of(given, _EXPERT)
        if given.get("engine") == "host-read":
            return scalars_of(simulate_host_read(hardware, expert, bits=bits, cache=True, **options))
        if "host-traffic" in given:
            options |= options_of(given, _HOST)
            beside = simulate_contention(hardware, expert, bits=bits, cache=True, **options)
            alike = {"time_ns": beside.ndp_time_ns, "bandwidth_gbps": beside.ndp_gbps}  # as without a host
            return alike | scalars_of(beside) | {"area_mm2": hardware.ndp_area_mm2}
        alone = simulate_expert(hardware, expert, bits=bits, cache=True, **options)
        return scalars_of(alone) | {"area_mm2": hardware.ndp_area_mm2}


COMMAND = Gemv()
