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
from ndpsim.studies.sweeps.command import Resolved, SweptCommand, scalars_of
from ndpsim.studies.sweeps.parameters import file_digests, hardware_of


class Dram(SweptCommand):
    """`run_requests` with the requests of a file."""

    name = "dram"
    results = (TraceResult,)
    parameters = DRAM

    def _memory(self, given: Mapping[str, Any]) -> Memory:
        if "hw" in given:
            refuse(given, "describes a memory, as hw does; give one of them", *CHANNEL, *CONTROLLER)
            return Memory.of_hardware(hardware_of(given, DRAM))
        DRAM.check_needs(given)
        overrides = {key: value for key, value in given.items() if key not in DRAM}
        for key, value in overrides.items():
            if not isinstance(value, int | str) or isinstance(value, bool):
                raise InputError(f"{value!r} is not a whole number of clocks", "type", key=key)
        options = ControllerOptions(**CONTROLLER.arguments(given))
        return Memory.named(**CHANNEL.arguments(given), overrides=overrides, options=options)

    def _trace(self, given: Mapping[str, Any]) -> str:
        if "trace" not in given:
            raise InputError("is missing: a request trace", "missing", key="trace")
        return str(given["trace"])

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        trace, memory = self._trace(given), self._memory(given)
        config = {
            "memory": memory.to_dict(),
            "trace": trace,
            "format": given.get("format"),
            "wrap": given.get("wrap", False),
        }
        contents = file_digests(trace)
        if contents == [None]:
            raise InputError("no such file", "unreadable", file=trace)
        return self.resolved(config, contents, apart=["trace"])

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        requests = read_requests(self._trace(given), given.get("format"))
        wrap = given.get("wrap", False)
        return scalars_of(run_requests(requests, self._memory(given), wrap, cache=True, jobs=1))


COMMAND = Dram()
