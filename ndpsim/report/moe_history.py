"""Data for pictures that the result of a run does not have, collected while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.layers.record import LayerRecord, RunRecord

#: Groups of resources whose times are summed; for NDP units, that of the busiest in each layer.
GROUPS = ("gpu", "cpu", "ndp", "pcie-down")


@dataclass(eq=False)
class RunHistory:
    """Sums by layer over the decode steps of one policy's run, or over the prefill of a run without steps.

    Attributes:
        run, phase: of the summed layers.
        shown: the layer whose jobs are drawn; None if it did not run.
        layers: numbers of the layers in the model.
        times: how often each layer ran.
        ns: times of each layer: of its experts from the gate to the last result ("layer"), and in which each
            of `GROUPS` was busy during these.
    """

    run: RunRecord
    phase: str
    shown: LayerRecord | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.layers = self.run.machine.layers
        self.times = np.zeros(len(self.layers), np.int64)
        self.ns = {name: np.zeros(len(self.layers)) for name in ("layer", *GROUPS)}

    def means_ns(self) -> dict[str, NDArray[np.float64]]:
        """The means of `ns` over the times that a layer ran."""
        return {name: ns / np.maximum(self.times, 1) for name, ns in self.ns.items()}


class MoeHistory:
    """An observer that collects data for pictures.

    Args:
        layer: step and layer whose jobs are drawn; None: the middle layer of the last step.
    """

    def __init__(self, layer: tuple[int, int] | None = None) -> None:
        self.runs: list[RunHistory] = []
        self._layer = layer

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if not self.runs or self.runs[-1].run is not run:
            self.runs.append(RunHistory(run, layer.phase))
        elif self.runs[-1].phase != layer.phase:  # The prefill comes first; the first step replaces it.
            self.runs[-1] = RunHistory(run, layer.phase)
        history = self.runs[-1]
        row = history.layers.index(layer.layer)
        history.times[row] += 1
        for name, ns in {"layer": layer.end_ns - layer.start_ns, **_busy(layer)}.items():
            history.ns[name][row] += ns
        middle = history.layers[len(history.layers) // 2]
        if (layer.step, layer.layer) == (self._layer or (layer.step, middle)):
            history.shown = layer


def _busy(layer: LayerRecord) -> dict[str, float]:
    """The busy time of each group of resources during a layer's experts; of several NDP units, the longest.

    PCIe includes migrations to the GPU.
    """
    intervals: dict[str, list[tuple[float, float]]] = {}
    for job in layer.jobs:
        if job.kind != "attention":
            intervals.setdefault(job.resource, []).append((job.start_ns, job.end_ns))
    to_gpu = [(move.start_ns, move.end_ns) for move in layer.moving if move.target == "gpu"]
    intervals.setdefault("pcie-down", []).extend(to_gpu)
    found = dict.fromkeys(GROUPS, 0.0)
    for resource, spans in intervals.items():
        group = resource.partition(" ")[0]
        if group in found:
            found[group] = max(found[group], _covered(spans))
    return found


def _covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of the intervals."""
    together, until = 0.0, -np.inf
    for start, end in sorted(intervals):
        together += max(0.0, end - max(start, until))
        until = max(until, end)
    return float(together)
