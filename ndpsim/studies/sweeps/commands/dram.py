"""``dram``: a request trace through a memory controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options import refuse
from ndpsim.base.options.dram import CHANNEL, CONTROLLER, DRAM, ControllerOptions
from ndpsim.dram.traces import read_requests
from ndpsim.simulate import Memory, run_requests
from ndpsim.simulate.results import TraceResult
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, file_digests, hardware_of, scalars_of


class SweptDram(SweptCommand):
    """`run_requests` with the requests of a file."""

    name = "dram"
    results = (TraceResult,)
    parameters = DRAM

    def _memory(self, settings: Mapping[str, Any]) -> Memory:
        if "hw" in settings:
            refuse(settings, "cannot be used with hw, which describes the memory", *CHANNEL, *CONTROLLER)
            return Memory.of_hardware(hardware_of(settings, DRAM))
        DRAM.check_needs(settings)
        overrides = {key: value for key, value in settings.items() if key not in DRAM}
        for key, value in overrides.items():
            if not isinstance(value, int | str) or isinstance(value, bool):
                raise InputError(f"{value!r} is not a whole number of clocks", "type", key=key)
        options = ControllerOptions(**CONTROLLER.arguments(settings))
        return Memory.named(**CHANNEL.arguments(settings), overrides=overrides, options=options)

    def _trace(self, settings: Mapping[str, Any]) -> str:
        if "trace" not in settings:
            raise InputError("is missing: a request trace", "missing", key="trace")
        return str(settings["trace"])

    def resolve(self, settings: Mapping[str, Any]) -> Resolved:
        trace, memory = self._trace(settings), self._memory(settings)
        config = {
            "memory": memory.to_dict(),
            "trace": trace,
            "format": settings.get("format"),
            "wrap": settings.get("wrap", False),
        }
        contents = file_digests(trace)
        if contents == [None]:
            raise InputError("no such file", "unreadable", file=trace)
        return self.resolved(config, contents, apart=["trace"])

    def measure(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        requests = read_requests(self._trace(settings), settings.get("format"))
        wrap = settings.get("wrap", False)
        return scalars_of(run_requests(requests, self._memory(settings), wrap, cache=True, jobs=1))


COMMAND = SweptDram()
