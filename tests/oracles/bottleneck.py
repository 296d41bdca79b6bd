"""Schedules of `ndpsim.policies.assignment.bottleneck` once more, in plain Python: devices are summed anew each time."""

from __future__ import annotations

import math
from dataclasses import dataclass

GPU, CPU, DIMM = 0, 1, 2


@dataclass
class Layer:
    """Experts: times on GPU, CPU and NDP, contention by GPU and CPU, the DIMM or None, and tokens."""

    time: list[list[float]]
    read: list[list[float]]
    dimm: list[int | None]
    loads: list[int]
    dimms: int
    shared: float = 0.0

    def devices(self, expert: int) -> dict[int, float]:
        """Devices that can compute an expert, and its time there."""
        at = self.dimm[expert]
        engines = {GPU: GPU, CPU: CPU} | ({} if at is None else {DIMM + at: DIMM})
        times = {device: self.time[engine][expert] for device, engine in engines.items()}
        return {device: time for device, time in times.items() if time < math.inf}

    def busy(self, on: dict[int, int]) -> list[float]:
        """How long each device is busy."""
        busy = [self.shared, 0.0, *[0.0] * self.dimms]
        for expert, device in on.items():
            busy[device] += self.devices(expert)[device]
            if device < DIMM:
                at = self.dimm[expert]
                for dimm in range(self.dimms) if at is None else [at]:
                    busy[DIMM + dimm] += self.read[device][expert]
        return busy


def schedule(layer: Layer, limit: int) -> tuple[dict[int, int], int]:
    """The device of each expert with tokens, and the moves."""
    on = {}
    for expert, load in enumerate(layer.loads):
        if load:
            times = layer.devices(expert)
            on[expert] = min(times, key=lambda device: (times[device], -device))
    for moves in range(limit):
        busy = layer.busy(on)
        full = busy.index(max(busy))
        costs = {expert: layer.devices(expert)[device] for expert, device in on.items() if device == full}
        if not costs:
            return on, moves
        expert = max(costs, key=lambda one: (costs[one], -one))
        choices = []
        for device in layer.devices(expert).keys() - {full}:
            then = layer.busy(on | {expert: device})
            choices.append((max(then), then[device] - busy[device], device))
        if not choices or min(choices)[0] >= max(busy):
            return on, moves
        on[expert] = min(choices)[2]
    return on, limit
