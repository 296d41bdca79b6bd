"""The machine as a log describes it, and how numbers of the log are compared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndpsim.base.errors import shown

Fault = tuple[str, str]  # the name of a rule, and a message

_SLACK_NS = 1e-3  # times have the precision of a double
_RELATIVE = 1e-9
_SHARDED = re.compile(r"sharded:([0-9]{1,6}) ([0-9]{1,6})")
_LOCALIZED = re.compile(r"localized ([0-9]{1,6})")


def close(first: float, second: float) -> bool:
    """Whether two times are the same except for rounding."""
    return abs(first - second) <= _SLACK_NS + _RELATIVE * max(abs(first), abs(second))


def is_later(time: float, reference: float) -> bool:
    """Whether a time is after another by more than rounding."""
    return time > reference and not close(time, reference)


def fits(size: float, gbps: float, time_ns: float) -> bool:
    """Whether this many bytes can be carried in a time."""
    return size <= gbps * (time_ns + _SLACK_NS) * (1 + 1e-6) + 1


def microseconds(ns: float) -> str:
    """A time with its unit."""
    return f"{ns / 1000:.4f} us"


def unknown_keys(content: Mapping[str, Any], known: Collection[str], what: str) -> Iterator[Fault]:
    """A fault for keys that no log has, because the check does not know what they mean."""
    for key in content.keys() - known:
        yield "keys", f"{what} has an unknown key {key!r}"


def dimms_of(location: str) -> range | None:
    """The DIMMs that hold an expert; None: it is striped over all.

    Raises:
        ValueError: this is no location.
    """
    if location == "striped":
        return None
    localized, sharded = _LOCALIZED.fullmatch(location), _SHARDED.fullmatch(location)
    if localized:
        return range(int(localized[1]), int(localized[1]) + 1)
    if sharded:
        return range(int(sharded[2]), int(sharded[2]) + int(sharded[1]))
    raise ValueError(f"{shown(location)} is no location of an expert")


@dataclass(frozen=True)
class Header:
    """The first line of a run: its machine, model and policy; see `ndpsim/inference/layers/log.py`."""

    policy: str
    experts: int
    experts_per_token: int
    layers: Sequence[int]
    batch: int
    prompt_tokens: int
    dimms: int
    channels: int
    channel_of_dimm: Sequence[int]
    expert_bytes: int
    token_bytes: int
    expert_buffers: int
    copy_engines: int
    bits: int
    replicas: Mapping[str, int]
    gbps: Mapping[str, float]
    gpu_order: str
    zero_experts: int

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Header:
        """The header in the first line of a run, which has `zero_experts` if there are some."""
        line = {"zero_experts": 0, **line}
        header = cls(**{name: line[name] for name in cls.__dataclass_fields__})
        counts = (header.experts, header.experts_per_token, header.expert_bytes, header.channels)
        if not header.layers or min(counts) < 1:
            raise ValueError("a run without layers, experts or channels")
        return header

    @property
    def stored_bytes(self) -> int:
        """Bytes of an expert with its replicas."""
        return self.expert_bytes + sum(self.replicas.values())

    def bytes_of(self, bits: int) -> int | None:
        """Bytes of an expert in this many bits; None: there is no such replica."""
        return self.expert_bytes if bits == self.bits else self.replicas.get(str(bits))

    def channels_of(self, location: str) -> dict[int, float]:
        """The host's channels over which it reads an expert from its location, and the share of each."""
        dimms = dimms_of(location)
        if dimms is None:
            return dict.fromkeys(range(self.channels), 1 / self.channels)
        shares: dict[int, float] = {}
        for dimm in range(dimms.start, min(dimms.stop, len(self.channel_of_dimm))):
            channel = self.channel_of_dimm[dimm]
            shares[channel] = shares.get(channel, 0.0) + 1 / len(dimms)
        return shares

    def read_gbps(self, location: str) -> float:
        """The fastest that the host reads an expert from its location."""
        return self.gbps["channel"] / max(self.channels_of(location).values(), default=1.0)


# ---- Rules for figures of a layer other than jobs: its window, its bound, the policy's estimates


Line = Mapping[str, Any]

_GAP = 0.01  # relative error of a bound


def estimate_faults(machine: Header, line: Line) -> Iterator[Fault]:
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
        """No layer is faster than its bound or its shared experts; equal loads have equal bounds.

        A run without bounds has none (null).
        """
        bound, took = line["bound_ns"], line["end_ns"] - line["start_ns"]
        if bound is None:
            return
        if bound > took and not close(bound, took):
            yield "bound", f"it takes {microseconds(took)}, less than its bound {bound} ns"
        shared = max((job["alone_ns"] for job in line["jobs"] if job["kind"] == "shared"), default=0.0)
        if bound < shared * (1 - _GAP):
            yield "bound", f"{bound} ns, and shared experts take {microseconds(shared)}"
        key = line["phase"], tuple(sorted(line["loads"]))
        known = self._bounds.setdefault(key, bound)
        if not close(bound, known):
            yield "bound", f"{bound} ns, and {known} ns of the same loads before"
