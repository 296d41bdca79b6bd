"""The moving average of TriMoE's equation 8, and how often something was right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LoadPredictor", "Tally"]


class LoadPredictor:
    """An exponential moving average of each expert's load: EMA(t) = alpha F(t) + (1 - alpha) EMA(t - 1).

    `loads`: float32 [layer, expert], all that it remembers: 38.4 kB for the 60 layers of 160 experts that the
    paper's 38 KB count.
    """

    def __init__(self, layers: int, experts: int, alpha: float) -> None:
        self.alpha = alpha
        self.loads = np.zeros((layers, experts), np.float32)

    def begin(self, loads: NDArray[np.float64]) -> None:
        """EMA(0) of all layers."""
        self.loads[:] = loads

    def update(self, row: int, loads: NDArray[np.int64]) -> None:
        """A step's loads of a layer."""
        self.loads[row] += self.alpha * (loads - self.loads[row])


@dataclass
class Tally:
    """How many were counted, and how many of them were right."""

    right: int = 0
    counted: int = 0

    def add(self, right: int, counted: int) -> None:
        """Count more."""
        self.right += right
        self.counted += counted

    @property
    def share(self) -> float | None:
        """The share that was right; None: none was counted."""
        return self.right / self.counted if self.counted else None
