"""Rules for figures of a layer other than jobs: its window, its bound, the policy's estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndpsim.audit.schedule_rules import Fault, Machine, close, microseconds

Line = Mapping[str, Any]

_GAP = 0.01  # relative error of a bound


def estimate_faults(machine: Machine, line: Line) -> Iterator[Fault]:
    """The estimate of an engine without experts is 0; with experts it is no less than links and DIMMs allow.

    An expert counts with all its bytes, because a policy's profile has no replicas.
    """
    copied = sum(job["share"] for job in line["jobs"] if job["kind"] == "copy")
    least_ns = {"gpu": 0.0, "cpu": 0.0, "ndp": 0.0}
    if copied:
        least_ns["gpu"] = copied * machine.expert_bytes / machine.gbps["pcie"]
    if on_dimms := sum(share for _, share in line["assign"].get("ndp", ())):
        least_ns["ndp"] = on_dimms * machine.expert_bytes / machine.gbps["dimm"]
    if line["estimates"].keys() != least_ns.keys():
        yield "estimates", f"they are of {', '.join(line['estimates'])}"
        return
    for engine, least in least_ns.items():
        estimate, assigned = line["estimates"][engine], bool(line["assign"].get(engine))
        if (estimate > 0) != assigned:
            words = "experts" if assigned else "no expert"
            yield "estimates", f"{microseconds(estimate)} for {engine}, which has {words}"
        elif estimate < least and not close(estimate, least):
            yield (
                "estimates",
                f"{microseconds(estimate)} for {engine}, which takes {microseconds(least)} at least",
            )
    if line["estimated_ns"] is not None and line["estimated_ns"] < 0:
        yield "estimates", f"the layer is estimated at {microseconds(line['estimated_ns'])}"


class Figures:
    """Windows and bounds of a run so far."""

    def __init__(self) -> None:
        self._end_ns = 0.0
        self._bounds: dict[tuple[str, tuple[int, ...]], float] = {}

    def faults(self, line: Line, first: bool) -> Iterator[Fault]:
        """Faults of a line; `first`: the line is the first layer of a step, but not of the first step."""
        start, end, window = line["start_ns"], line["end_ns"], line["window_ns"]
        if end < start or window < 0:
            yield "time", f"it goes from {microseconds(start)} to {microseconds(end)}, after {window} ns"
        before, began = self._end_ns, start - window
        # Between two steps the head of the vocabulary is computed.
        if not close(began, before) and (began < before or not first):
            yield (
                "time",
                f"its window begins at {microseconds(began)}, and what is before it ends at "
                f"{microseconds(before)}",
            )
        yield from self._bound_faults(line)
        self._end_ns = end

    def _bound_faults(self, line: Line) -> Iterator[Fault]:
        """No layer is faster than its bound or its shared experts; equal loads have equal bounds."""
        bound, took = line["bound_ns"], line["end_ns"] - line["start_ns"]
        if bound > took and not close(bound, took):
            yield "bound", f"it takes {microseconds(took)}, less than its bound {bound} ns"
        shared = max((job["alone_ns"] for job in line["jobs"] if job["kind"] == "shared"), default=0.0)
        if bound < shared * (1 - _GAP):
            yield "bound", f"{bound} ns, and shared experts take {microseconds(shared)}"
        key = line["phase"], tuple(sorted(line["loads"]))
        known = self._bounds.setdefault(key, bound)
        if not close(bound, known):
            yield "bound", f"{bound} ns, and {known} ns of the same loads before"
