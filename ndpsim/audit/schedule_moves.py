"""Locations of experts, from the first line of a run on, and the migrations that change them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ndpsim.audit.schedule_rules import Fault, Header, close, dimms_of, fits, is_later, microseconds

_TO_GPU = ("prefetch", "fetch")
_AT_ONCE = ("keep", "evict")
_KINDS = (*_TO_GPU, *_AT_ONCE, "relayout", "rebalance")

_REMEMBERED = 1000  # number of transfers to compare a new migration with

Migration = Mapping[str, Any]


class ExpertLocations:
    """The current location of every expert of a run, and the experts in the GPU's memory."""

    def __init__(self, first: Mapping[str, Any]) -> None:
        self._machine = Header.of(first)
        self._ports, self._dimm_bytes = first["link_ports"], first["dimm_bytes"]
        self._gpu_experts = first["gpu_experts"]
        self._locations: dict[tuple[int, int], str] = {}
        self._resident: set[tuple[int, int]] = set()
        self._replica: dict[tuple[int, int], int] = {}  # bytes of replicas in the GPU's memory
        placement = first["placement"]
        rows = zip(placement["dimm"], placement["shards"], placement["resident"], strict=True)
        for layer, (dimms, shards, resident) in zip(self._machine.layers, rows, strict=True):
            for expert, (dimm, count) in enumerate(zip(dimms, shards, strict=True)):
                self._locations[layer, expert] = _location_name(dimm, count)
            self._resident |= {(layer, expert) for expert in resident}
        self._used = [0.0] * self._machine.dimms  # bytes of experts on each DIMM
        for location in self._locations.values():
            self._occupy(location, 1)
        self._layers: list[tuple[float, float]] = []  # start and end of the experts' time of each layer
        self._later: list[Migration] = []
        # Start, end and bytes of the last transfers to the GPU.
        self._down: list[tuple[float, float, int]] = []
        self._copied: set[tuple[int, int]] = set()  # whole experts copied by the last layer

    def capacity_faults(self) -> Iterator[Fault]:
        """Faults of capacity, on the GPU and on each DIMM."""
        if len(self._resident) > self._gpu_experts:
            yield "GPU memory", f"{len(self._resident)} experts are resident, and {self._gpu_experts} fit"
        for dimm, size in enumerate(self._used):
            if size > self._dimm_bytes + 1:
                yield "DIMM memory", f"{size:.0f} bytes are on DIMM {dimm}, which has {self._dimm_bytes}"

    def _occupy(self, location: str, times: int) -> None:
        dimms = dimms_of(location) or range(self._machine.dimms)
        for dimm in range(dimms.start, min(dimms.stop, len(self._used))):
            self._used[dimm] += times * self._machine.stored_bytes / len(dimms)

    # ---- a line ----

    def before(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        """Checks a line's migrations, applies those that ended before the layer was routed, and compares."""
        for migration in line["migrations"]:
            yield from self._faults_of(migration, line)
        in_order = sorted(line["migrations"], key=lambda migration: migration["end_ns"])
        self._later = []
        for migration in in_order:
            if is_later(migration["end_ns"], line["start_ns"]) or self._is_beside(migration, line):
                self._later.append(migration)
            else:
                yield from self._moved(migration)
        layer = line["layer"]
        for name, placed in line["placement"].items():
            key = layer, int(name)
            if placed["lies"] != self._locations.get(key):
                yield "placement", f"expert {name} is {placed['lies']}, and was {self._locations.get(key)}"
            if placed["gpu"] != (key in self._resident):
                words = ("is", "was not") if placed["gpu"] else ("is not", "was")
                yield "placement", f"expert {name} {words[0]} in the GPU's memory, and {words[1]}"
        for expert, load in enumerate(line["loads"]):
            if load and str(expert) not in line["placement"]:
                yield "placement", f"expert {expert} has {load} tokens and no location"

    def _is_beside(self, migration: Migration, line: Mapping[str, Any]) -> bool:
        """Whether an instant migration was decided at this layer's gate, and not at another layer's end."""
        began, ended = line["start_ns"], self._layers[-1][1] if self._layers else -1.0
        decided = migration["decided_ns"]
        return migration["kind"] in _AT_ONCE and close(decided, began) and not close(decided, ended)

    def arrivals(self, line: Mapping[str, Any]) -> dict[int, float]:
        """Times at which experts of this layer arrive in the GPU's memory while the layer runs."""
        return {migration["expert"]: migration["end_ns"] for migration in self._coming(line)}

    def _coming(self, line: Mapping[str, Any]) -> Iterator[Migration]:
        """The copies of this layer's experts that arrive while the layer runs."""
        to_gpu = (migration for migration in self._later if migration["kind"] in _TO_GPU)
        return (migration for migration in to_gpu if migration["layer"] == line["layer"])

    def replicas(self, line: Mapping[str, Any]) -> dict[int, int]:
        """Bytes of the replicas of this layer's experts that are in the GPU's memory."""
        held = {expert: size for (layer, expert), size in self._replica.items() if layer == line["layer"]}
        coming = filter(self._is_replica, self._coming(line))
        return held | {migration["expert"]: migration["bytes"] for migration in coming}

    def _is_replica(self, migration: Migration) -> bool:
        return bool(migration["bytes"] != self._machine.expert_bytes)

    def after(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        """Applies the migrations that ended while the layer ran."""
        for migration in self._later:
            yield from self._moved(migration)
        self._layers.append((line["start_ns"], line["end_ns"]))
        if line["residents"] != len(self._resident):
            now = f"{line['residents']} experts are in the GPU's memory"
            yield "residents", f"{now}, and {len(self._resident)} by what has moved"
        yield from self._pcie_faults(line)
        self._copied = {
            (line["layer"], job["expert"])
            for job in line["jobs"]
            if job["kind"] == "copy" and job["share"] == 1 and str(job["expert"]) not in line["bits"]
        }

    def _pcie_faults(self, line: Mapping[str, Any]) -> Iterator[Fault]:
        """Migrations to the GPU and copies of layers beside them fit over PCIe together."""
        ended = [_times_of(migration) for migration in line["migrations"] if migration["kind"] in _TO_GPU]
        self._down += [_times_of(job) for job in line["jobs"] if job["resource"] == "pcie-down"] + ended
        for start, end, _ in ended:
            sent = sum(size for first, last, size in self._down if start <= first and last <= end)
            if not fits(sent, self._machine.gbps["pcie"], end - start):
                during = f"{microseconds(start)} to {microseconds(end)}"
                yield "rate", f"from {during} migrations and copies move {sent} bytes to the GPU together"
        del self._down[:-_REMEMBERED]

    def _moved(self, migration: Migration) -> Iterator[Fault]:
        key = migration["layer"], migration["expert"]
        kind = migration["kind"]
        begins = "gpu" if kind == "evict" else self._locations.get(key)
        if migration["from"] != begins:
            yield "migration", f"{_name(migration)} from {migration['from']}, and the expert is {begins}"
        if kind == "evict" and key not in self._resident:
            yield "migration", f"{_name(migration)}: the expert is not in the GPU's memory"
        if kind == "keep" and key not in self._copied:
            yield "migration", f"{_name(migration)}: the layer before has not copied the expert in full"
        if kind in (*_TO_GPU, "keep"):
            if key in self._resident:
                yield "migration", f"{_name(migration)}: the expert is in the GPU's memory already"
            self._resident.add(key)
            if kind != "keep" and self._is_replica(migration):
                self._replica[key] = migration["bytes"]
            if len(self._resident) > self._gpu_experts:
                problem = f"{_name(migration)} makes {len(self._resident)} experts resident"
                yield "GPU memory", f"{problem}, and {self._gpu_experts} fit"
        elif kind == "evict":
            due = self._replica.pop(key, self._machine.expert_bytes)
            if migration["bytes"] != due:
                yield "bytes", f"{_name(migration)} gives up {migration['bytes']} bytes, and not {due}"
            self._resident.discard(key)
        elif kind in _KINDS and key in self._locations:
            self._occupy(self._locations[key], -1)
            self._locations[key] = migration["to"]
            self._occupy(self._locations[key], 1)
            yield from self.capacity_faults()

    # ---- single migrations ----

    def _faults_of(self, migration: Migration, line: Mapping[str, Any]) -> Iterator[Fault]:
        kind, name = migration["kind"], _name(migration)
        if kind not in _KINDS:
            yield "migration", f"{name}: there is no such kind"
            return
        if (migration["layer"], migration["expert"]) not in self._locations:
            yield "migration", f"{name}: there is no such expert"
            return
        yield from self._route_faults(migration)
        decided, start, end = (migration[key] for key in ("decided_ns", "start_ns", "end_ns"))
        layers = itertools.chain([(line["start_ns"],)], reversed(self._layers))
        if not any(close(decided, moment) for moments in layers for moment in moments):
            when = microseconds(decided)
            yield "migration", f"{name} is decided at {when}, when no layer is routed and none ends"
        at_gate = migration["layer"] == line["layer"] and self._is_beside(migration, line)
        if at_gate and any(migration["expert"] == expert for expert, _ in line["assign"]["gpu"]):
            yield "migration", f"{name} while the GPU computes the expert"
        if is_later(decided, start) or is_later(start, end):
            times = ", ".join(microseconds(time) for time in (decided, start, end))
            yield "migration", f"{name} is decided, begins and ends at {times}"
        last = self._layers[-1][1] if self._layers else 0.0
        if is_later(end, line["end_ns"]) or is_later(last, end):
            yield "migration", f"{name} ends at {microseconds(end)}, in another line's time"
        yield from self._hidden_faults(migration, line)

    def _route_faults(self, migration: Migration) -> Iterator[Fault]:
        """A migration's source and target, its bytes and its rate."""
        kind, source, target = (migration[key] for key in ("kind", "from", "to"))
        name, size = _name(migration), migration["bytes"]
        legal = {"evict": source == "gpu" and target == "none", "keep": target == "gpu"}
        if kind in _TO_GPU:
            legal[kind] = target == "gpu"
        elif kind not in _AT_ONCE:
            ends = dimms_of(source), dimms_of(target)
            legal = {
                "relayout": (ends[0] is None) != (ends[1] is None),
                "rebalance": ends[0] is not None and ends[1] is not None and ends[0] != ends[1],
            }
            if any(end is not None and end.stop > self._machine.dimms for end in ends):
                yield "migration", f"{name}: the machine has {self._machine.dimms} DIMMs"
        if not legal[kind]:
            yield "migration", f"{name} goes from {source} to {target}"
        due = 0 if kind == "keep" else self._machine.expert_bytes
        copies_replica = kind in _TO_GPU and size in self._machine.replicas.values()
        if size != due and kind != "evict" and not copies_replica:
            yield "bytes", f"{name} moves {size} bytes, and not {due}"
        took = migration["end_ns"] - migration["start_ns"]
        for what, sent, gbps in self._links(kind, source, target, size):
            if not fits(sent, gbps, took):
                problem = f"{name} moves {sent:.0f} bytes in {microseconds(took)}"
                yield "rate", f"{problem}; {what} carries {gbps:g} GB/s"

    def _links(self, kind: str, source: str, target: str, size: int) -> Iterator[tuple[str, float, float]]:
        """The links of a migration, with its bytes on each and the rate of each."""
        gbps = self._machine.gbps
        if kind in _TO_GPU:
            yield "PCIe", size, gbps["pcie"]
            yield f"the host's channels ({source})", size, self._machine.read_gbps(source)
        elif kind not in _AT_ONCE:
            for location, other in ((source, target), (target, source)):
                dimms, others = dimms_of(location), dimms_of(other)
                if dimms is not None:
                    stays = len(dimms) / self._machine.dimms if others is None else 0.0
                    both = len(set(dimms) & set(others)) / len(dimms) if others is not None else 0.0
                    sent = size * (1 - max(stays, both))
                    yield f"links of {location}", sent, len(dimms) * self._ports * gbps["link"]

    def _hidden_faults(self, migration: Migration, line: Mapping[str, Any]) -> Iterator[Fault]:
        """The hidden time of a migration is the time in which no layer's experts were under way."""
        start, end = migration["start_ns"], migration["end_ns"]
        beside = 0.0
        for first, last in ((line["start_ns"], line["end_ns"]), *reversed(self._layers)):
            if last <= start:
                break
            beside += max(0.0, min(end, last) - max(start, first))
        hidden = migration["hidden_ns"]
        if not close(hidden, end - start - beside):
            words = f"{_name(migration)} has {microseconds(hidden)} hidden"
            yield (
                "hidden",
                f"{words}; of its {microseconds(end - start)} {microseconds(beside)} is beside experts",
            )


def _times_of(transfer: Mapping[str, Any]) -> tuple[float, float, int]:
    return transfer["start_ns"], transfer["end_ns"], transfer["bytes"]


def _name(migration: Migration) -> str:
    return f"{migration['kind']} of expert {migration['expert']} of layer {migration['layer']}"


def _location_name(dimm: int, shards: int) -> str:
    if dimm < 0:
        return "striped"
    return f"localized {dimm}" if shards == 1 else f"sharded:{shards} {dimm}"
