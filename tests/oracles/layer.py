"""The jobs of a layer's experts once more, in plain Python, as lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ndpsim.inference.events.layer import Rules

Part = Mapping[str, Any]


@dataclass
class ReadableLayer:
    """Jobs, each with what it is and the jobs that it waits for.

    A part of an expert has `expert`, `share`, `tokens` and `bytes`. On GPU and CPU it has `ns` (computing it),
    `of_full` (its share of the full weights' bytes), `kind` and `read_ns` (of the transfer); on the GPU also
    `pcie_ns` and `arrival` (None: in memory; "copied"; or the job that brings it). On NDP units it has `units`,
    and `first` and `behind`: work, bus share and pause share of a job that is first on its unit, or behind
    another.
    """

    rules: Rules
    before: int
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, resource: str, what: str, work_ns: float, after: Iterable[int], **others: Any) -> int:
        """Add a job; returns its number."""
        job = {"resource": resource, "what": what, "work_ns": work_ns, "after": sorted(after)}
        self.jobs.append({**job, "alone_ns": work_ns, **others})
        return self.before + len(self.jobs) - 1

    def build(self, gpu: Sequence[Part], cpu: Sequence[Part], ndp: Sequence[Part]) -> None:
        """All jobs of a layer."""
        rules = self.rules
        begun = [self.add("cpu", "planning", rules.planning_ns, [])] if rules.planning_ns else []
        sent, vectors = begun, {"bytes": rules.vector_bytes, "per_ns": 1.0}
        if rules.vector_bytes:
            sent = [
                self.add("pcie-up", "activations", rules.vectors_ns, begun, kind=rules.kind_up, **vectors)
            ]
        in_turn = self.gpu(gpu, begun)
        if rules.sequential:
            sent = [*sent, *in_turn]
        off_gpu = self.cpu(cpu, sent)
        if rules.sequential:
            sent = [*sent, *off_gpu]
        off_gpu += self.ndp(ndp, sent)
        if rules.vector_bytes:
            self.add("pcie-down", "results", rules.vectors_ns, off_gpu, kind=rules.kind_down, **vectors)

    def gpu(self, parts: Sequence[Part], begun: Sequence[int]) -> Sequence[int]:
        """Jobs of the GPU; returns what is behind them where they are in order."""
        rules, last = self.rules, begun
        if rules.shared_ns:
            turn = -1 if rules.listed else 0
            job = self.add("gpu", "shared", rules.shared_ns, begun, turn=turn)
            last = [job] if rules.listed else begun
        copies: list[int] = []
        computed: list[int] = []
        called = False
        for number, part in enumerate(parts):
            arrival, calls, turn = [], 1 if rules.listed else 2, number + 1
            if part["arrival"] is None:
                calls, called, turn = 0 if called else 1, True, turn + len(parts)
            elif part["arrival"] == "copied":
                limits = (copies, rules.copy_engines), (computed, rules.expert_buffers)
                full = [jobs[-most] for jobs, most in limits if len(jobs) >= most]
                after = last if rules.sequential else [*begun, *full]
                arrival = [self.part("pcie-down", "copy", part, part["pcie_ns"], after, transfers=True)]
                copies += arrival
            else:
                arrival = [part["arrival"]]
            ns = part["ns"] + (calls * rules.call_ns if calls else 0.0)
            turn = -1 if rules.listed else turn
            job = self.part("gpu", "expert", part, ns, [*last, *arrival], turn=turn)
            if part["arrival"] == "copied":
                computed.append(job)
            last = [job] if rules.listed else last
        return last

    def cpu(self, parts: Sequence[Part], sent: Sequence[int]) -> list[int]:
        """Jobs of the CPU; returns the last."""
        last = list(sent)
        if parts and self.rules.hand_over_ns:
            last = [self.add("cpu", "hand-over", self.rules.hand_over_ns, sent)]
        for part in parts:
            last = [self.part("cpu", "expert", part, part["ns"], last, transfers=True)]
        return last if parts else []

    def ndp(self, parts: Sequence[Part], sent: Sequence[int]) -> list[int]:
        """Jobs of NDP units; returns the last of each."""
        last: dict[int, int] = {}
        for part, unit in itertools.chain.from_iterable(((one, u) for u in one["units"]) for one in parts):
            ns, bus_share, pause_share = part["behind" if unit in last else "first"]
            shares = {"bus_share": bus_share, "pause_share": pause_share}
            others = {"dimm": unit, "between": part["between"], "table": part["table"], **shares}
            after = [last[unit]] if unit in last else sent
            last[unit] = self.part(f"ndp {unit}", "expert", part, ns, after, **others)
        return list(last.values())

    def part(
        self,
        resource: str,
        what: str,
        part: Part,
        ns: float,
        after: Sequence[int],
        transfers: bool = False,
        **others: Any,
    ) -> int:
        """Add a job of a part of an expert."""
        tokens = part["tokens"] if what == "expert" else 0
        named = {name: part[name] for name in ("expert", "share", "bytes")}
        if transfers:
            others |= {
                "kind": part["kind"],
                "per_ns": part["of_full"] / ns,
                "alone_ns": max(ns, part["of_full"] * part["read_ns"]),
                "read_limit_gbps": part["bytes"] / ns,
            }
        return self.add(resource, what, ns, after, tokens=tokens, **named, **others)
