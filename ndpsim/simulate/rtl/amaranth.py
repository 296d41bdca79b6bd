"""A unit in Amaranth's simulator: slower than `compiled`, and needs no C++ compiler."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Any

import numpy as np

from ndpsim.simulate.rtl.build import need
from ndpsim.simulate.rtl.handshake import Advanced, Bytes, Ints, Phase, Sizes

_HALF_NS = 5e-10  # half a clock of the waveforms; the loop has the true period


class AmaranthUnit:
    """An Amaranth component that is simulated; see `handshake.RunningUnit`. It is the twin of `driver.cc`."""

    def __init__(self, component: Any, sizes: Sizes, own_fifo: bool, waves: str = "") -> None:
        need("amaranth")
        from amaranth import ClockDomain, Module  # noqa: PLC0415 (an extra)
        from amaranth.sim import Simulator  # noqa: PLC0415

        self.edge, self.own_fifo, self._sizes, self._unit = 0, own_fifo, sizes, component
        top = Module()
        top.domains.sync = self._domain = ClockDomain("sync")
        top.submodules.unit = component
        self._bursts: list[deque[list[int]]] = [deque() for _ in range(sizes.lanes)]
        self._activations: deque[tuple[int, int, int]] = deque()
        self._weights: list[Bytes | None] = [None, None]
        self._asked: tuple[int, Phase] | None = None
        self._advanced: tuple[list[list[int]], list[list[int]], tuple[int, int] | None] = [], [], None
        self._simulator = Simulator(top)
        self._simulator.add_testbench(self._bench)
        self._open = ExitStack()
        if waves:
            self._open.enter_context(self._simulator.write_vcd(waves))

    def set_weights(self, phase: int, weights: Bytes) -> None:
        self._weights[phase] = weights

    def add_activations(self, lanes: Ints, places: Ints, vectors: Bytes) -> None:
        words = (int.from_bytes(vector.tobytes(), "little") for vector in vectors)
        self._activations.extend(zip(lanes.tolist(), places.tolist(), words, strict=True))

    def add_bursts(self, lane: int, fields: Ints) -> None:
        self._bursts[lane].extend(fields.tolist())

    def advance(self, until: int, phase: Phase) -> Advanced:
        self._asked, self._advanced = (until, phase), ([], [], None)
        while self._asked is not None:
            self._simulator.advance()
        results, credits, lost = self._advanced
        shaped = (
            np.array(each, dtype=np.int64).reshape(-1, size) for each, size in ((results, 4), (credits, 3))
        )
        return Advanced(*shaped, lost)

    def close(self) -> None:
        self._open.close()

    async def _bench(self, context: Any) -> None:
        context.set(self._unit.out_ready, 1)
        while True:
            if self._asked is None or self._is_reached(*self._asked):
                self._asked = None
                await context.delay(_HALF_NS)
                continue
            valid = self._set_inputs(context, self._asked[1])
            await context.delay(_HALF_NS)
            if not self._take_outputs(context, valid):
                self._asked = None
                continue
            context.set(self._domain.clk, 1)
            await context.delay(_HALF_NS)
            context.set(self._domain.clk, 0)
            self.edge += 1

    def _is_reached(self, until: int, phase: Phase) -> bool:
        return self.edge >= until or len(self._advanced[0]) >= phase.wanted

    def _set_inputs(self, context: Any, phase: Phase) -> list[bool]:
        """Drive the inputs before an edge; returns which lanes have a burst."""
        unit, go = self._unit, self.edge >= phase.go_from
        values = {"go": int(go), "tokens": phase.tokens, "row_bursts": phase.row_bursts, "act_valid": 0}
        if self.own_fifo:
            values["phase"] = phase.number
        if self._activations:
            values["act_valid"], values["act_vector"], values["act_data"] = self._activations.popleft()
        valid, joined = [], dict.fromkeys(("in_data", "in_row", "in_vector", "in_phase"), 0)
        for lane, waiting in enumerate(self._bursts):
            here = bool(waiting) and waiting[0][0] <= self.edge
            if not self.own_fifo:
                here = here and go and waiting[0][3] == phase.number
            valid.append(here)
            if here:
                self._join(joined, lane, waiting[0])
        values["in_valid"] = sum(here << lane for lane, here in enumerate(valid))
        if not self.own_fifo:
            del joined["in_phase"]
        for name, value in {**values, **joined}.items():
            context.set(getattr(unit, name), value)
        return valid

    def _join(self, joined: dict[str, int], lane: int, burst: list[int]) -> None:
        _, row, vector, phase, number = burst
        weights = self._weights[phase]
        assert weights is not None
        word = int.from_bytes(weights[number].tobytes(), "little")
        widths = {"in_data": self._sizes.burst_bytes * 8, "in_row": 16, "in_vector": 16, "in_phase": 1}
        for (name, width), value in zip(widths.items(), (word, row, vector, phase), strict=True):
            joined[name] |= value << lane * width

    def _take_outputs(self, context: Any, valid: list[bool]) -> bool:
        """Read the outputs before an edge; False if a burst is lost."""
        unit, (results, credits, _) = self._unit, self._advanced
        ready = context.get(unit.in_ready)
        freed = context.get(unit.in_credit) if self.own_fifo else 0
        for lane, here in enumerate(valid):
            is_ready = bool(ready >> lane & 1)
            if here and not is_ready and self.own_fifo:
                self._advanced = results, credits, (lane, self.edge)
                return False
            credit = freed >> lane * 8 & 255 if self.own_fifo else int(here and is_ready)
            if credit:
                credits.append([lane, self.edge, credit])
            if here and is_ready:
                self._bursts[lane].popleft()
        if context.get(unit.out_valid):
            of_port = (context.get(getattr(unit, f"out_{name}")) for name in ("row", "token", "sum"))
            results.append([self.edge - 1, *of_port])
        return True
