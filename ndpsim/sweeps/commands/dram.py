"""``dram``: a request trace through a memory controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ndpsim.config import load_hardware
from ndpsim.dram.state import ControllerOptions
from ndpsim.errors import InputError
from ndpsim.plugins import option_names
from ndpsim.results import TraceResult
from ndpsim.results.form import digest_of
from ndpsim.simulate import Memory, run_requests
from ndpsim.sweeps.command import Parameter, Resolved, SweptCommand
from ndpsim.sweeps.parameters import choice, file_digests, flag, hardware_sets, options_of, whole, word
from ndpsim.sweeps.scalars import scalars_of
from ndpsim.traces import read_requests

_CHANNEL = {name: name for name in ("standard", "org", "timing", "ranks", "rules", "channels", "mapper")}
_CONTROLLER = {
    "scheduler": "scheduler",
    "row-policy": "row_policy",
    "row-cap": "row_cap",
    "refresh": "refresh",
    "read-buffer": "read_buffer",
    "write-buffer": "write_buffer",
    "wck": "wck",
}


class Dram(SweptCommand):
    """`run_requests` with the requests of a file."""

    name = "dram"
    results = (TraceResult,)
    default_metric = "bandwidth_gbps"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "trace": word("The request trace", "", is_file=True),
        "hw": word("Take the memory from this hardware", "", is_file=True),
        "standard": word("DRAM standard", "DDR5"),
        "org": word("Organisation preset", "DDR5_16Gb_x8"),
        "timing": word("Timing preset", "DDR5_4800AN"),
        "ranks": whole("Ranks on a channel", 1),
        "rules": word("standard, or reference: Ramulator's", "standard"),
        "channels": whole("Channels, interleaved by burst", 1),
        "mapper": word("RoBaRaCoCh, ChRaBaRoCo, MOP4CLXOR or RoBaCoRaCoBgCh", "RoBaRaCoCh"),
        "scheduler": word("FRFCFS or FRFCFS-RowHit", "FRFCFS"),
        "row-policy": choice("Row policy", "open", option_names("dram/row_policies", "open"), "row policy"),
        "row-cap": whole("Column accesses after which closed-cap closes a row", 4),
        "refresh": word("Refresh policy", "all-bank"),
        "read-buffer": whole("Slots of the read queue", 32),
        "write-buffer": whole("Slots of the write queue", 32),
        "wck": word("Data clock of LPDDR5: need-sync or always-on", "need-sync"),
        "format": word("The trace's format", "detected"),
        "wrap": flag("Fold addresses beyond the memory back into it"),
    }

    def _memory(self, given: Mapping[str, Any]) -> Memory:
        if "hw" in given:
            for key in (*_CHANNEL, *_CONTROLLER):
                if key in given:
                    raise InputError("describes a memory, as hw does; give one of them", key=key)
            return Memory.of_hardware(load_hardware(given["hw"], hardware_sets(given, self.parameters)))
        overrides = {key: value for key, value in given.items() if key not in self.parameters}
        for key, value in overrides.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"{value!r} is not a whole number of clocks", key=key)
        return Memory.named(
            **options_of(given, _CHANNEL),
            overrides=overrides,
            options=ControllerOptions(**options_of(given, _CONTROLLER)),
        )

    def _trace(self, given: Mapping[str, Any]) -> str:
        if "trace" not in given:
            raise InputError("is missing: a request trace", key="trace")
        return str(given["trace"])

    def resolve(self, given: Mapping[str, Any]) -> Resolved:
        """See `SweptCommand`."""
        trace, memory = self._trace(given), self._memory(given)
        config = {
            "memory": memory.to_dict(),
            "trace": trace,
            "format": given.get("format"),
            "wrap": given.get("wrap", False),
        }
        contents = file_digests(trace)
        if contents == [None]:
            raise InputError("no such file", file=trace)
        return Resolved(config, digest_of([self.name, config | {"trace": None}, contents]))

    def measure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `SweptCommand`."""
        requests = read_requests(self._trace(given), given.get("format"))
        return scalars_of(run_requests(requests, self._memory(given), given.get("wrap", False), cache=True))


COMMAND = Dram()
