"""Data for pictures that the result of a run does not have, collected while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.orchestrator.record import LayerRecord, RunRecord

#: Groups of resources whose times are summed; for DIMMs and NDP units, those of the busiest in each layer.
_GROUPS = ("gpu", "cpu", "ndp", "pcie-down", "pcie-up")


@dataclass(eq=False)
class RunHistory:
    """Sums by layer over the decode steps of one policy's run, or over the prefill of a run without steps.

    Attributes:
        layers: numbers of the layers in the model.
        times: how often each layer ran.
        layer_ns: times of the experts, from the gate to the last result.
        window_ns: times of the windows before the experts.
        busy_ns: busy times of each group of resources; for "ndp", those of the busiest unit.
        shown: the layer whose jobs are drawn; None if it did not run.
    """

    run: RunRecord
    layers: tuple[int, ...]
    times: NDArray[np.int64]
    layer_ns: NDArray[np.float64]
    window_ns: NDArray[np.float64]
    busy_ns: dict[str, NDArray[np.float64]]
    phase: str = ""
    shown: LayerRecord | None = field(default=None, repr=False)


class History:
    """An observer that collects data for pictures.

    Args:
        layer: step and layer whose jobs are drawn; None: the middle layer of the last step.
    """

    def __init__(self, layer: tuple[int, int] | None = None) -> None:
        self.runs: list[RunHistory] = []
        self._layer = layer

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if not self.runs or self.runs[-1].run is not run:
            self.runs.append(_empty(run))
        of_run = self.runs[-1]
        if of_run.phase != layer.phase:  # The prefill comes first; the first step replaces it.
            of_run.__dict__.update(vars(_empty(run)), phase=layer.phase)
        row = of_run.layers.index(layer.layer)
        of_run.times[row] += 1
        of_run.layer_ns[row] += layer.end_ns - layer.start_ns
        of_run.window_ns[row] += layer.window_ns
        for group, ns in _busy(layer).items():
            of_run.busy_ns[group][row] += ns
        middle = of_run.layers[len(of_run.layers) // 2]
        if (layer.step, layer.layer) == (self._layer or (layer.step, middle)):
            of_run.shown = layer


def _empty(run: RunRecord) -> RunHistory:
    layers = run.machine.layers
    zeros = [np.zeros(len(layers)) for _ in range(2 + len(_GROUPS))]
    busy = dict(zip(_GROUPS, zeros[2:], strict=True))
    return RunHistory(run, layers, np.zeros(len(layers), np.int64), zeros[0], zeros[1], busy)


def _busy(layer: LayerRecord) -> dict[str, float]:
    """The busy time of each group of resources during a layer's experts; of several DIMMs, the longest.

    PCIe includes migrations to the GPU.
    """
    intervals: dict[str, list[tuple[float, float]]] = {}
    for job in layer.jobs:
        if job.kind != "attention":
            intervals.setdefault(job.resource, []).append((job.start_ns, job.end_ns))
    to_gpu = [(move.start_ns, move.end_ns) for move in layer.moving if move.target == "gpu"]
    intervals.setdefault("pcie-down", []).extend(to_gpu)
    found = dict.fromkeys(_GROUPS, 0.0)
    for resource, of_it in intervals.items():
        group = resource.partition(" ")[0]
        if group in found:
            found[group] = max(found[group], _covered(of_it))
    return found


def _covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of the intervals."""
    together, until = 0.0, -np.inf
    for start, end in sorted(intervals):
        together += max(0.0, end - max(start, until))
        until = max(until, end)
    return float(together)
