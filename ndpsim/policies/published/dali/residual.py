"""Residual-based prediction of the next layer's experts, from recorded hidden states of a real model.

DALI, equations 10 and 11: the input of a layer's gate, plus the mean change by residual connections over a
calibration set, is the input of the next layer's gate. A file has the arrays; its rows are the run's layers
with experts, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arrays import read_npz
from ndpsim.base.errors import InputError
from ndpsim.policies.views import Ints, Machine

Numbers = NDArray[np.floating[Any]]

_KEY = "policy dali:residual"

_AXES = {
    "hidden": ("step", "layer", "token", "dim"),
    "gates": ("layer", "experts", "dim"),
    "residuals": ("layer", "dim"),
    "calibration": ("layer", "token", "dim"),
}


@dataclass(frozen=True, eq=False)
class ResidualPredictor:
    """Predicts the experts that tokens choose in the next layer.

    Attributes:
        hidden: inputs of the gates in decode steps, [step, layer, token, dim].
        gates: weights of the gates, [layer, experts, dim].
        residuals: values added to a layer's inputs, [layer, dim] (equation 11); the last row is not used.
        chosen: number of experts that a token chooses.
    """

    hidden: Numbers
    gates: Numbers
    residuals: Numbers
    chosen: int

    def loads(self, step: int, row: int) -> Ints:
        """Expected tokens by expert in the layer after `row` (equation 10).

        It reads only the hidden states of `row`.

        Raises:
            InputError: the file has no such step.
        """
        if step >= len(self.hidden):
            raise InputError(
                f"hidden has {len(self.hidden)} steps, the run has more", "conflict", key="policy dali"
            )
        inputs = self.hidden[step, row].astype(np.float64) + self.residuals[row]
        logits = inputs @ self.gates[row + 1].astype(np.float64).T
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : self.chosen]
        return np.bincount(ids.ravel(), minlength=logits.shape[1])


def load_residual(file: str, machine: Machine) -> ResidualPredictor:
    """Read a file of hidden states, gates, and residuals or calibration states.

    Args:
        file: .npz with `hidden` [step, layer, token, dim], `gates` [layer, experts, dim], and either
            `residuals` [layer, dim] or `calibration` [layer, token, dim], hidden states of a calibration set.

    Raises:
        InputError: the file cannot be read, an array is missing, or its shape is not that of the run.
    """
    path = Path(file)
    try:
        content = read_npz(path, lambda name: True)
    except InputError as error:
        raise InputError(error.problem, "unreadable", file=path, key=_KEY) from None
    correction = "residuals" if "residuals" in content else "calibration"
    model = machine.model
    sizes = {"layer": len(machine.layers), "experts": model.routed_experts, "dim": model.hidden}
    arrays = {name: _checked(content, name, sizes, path) for name in ("hidden", "gates", correction)}
    residuals = arrays[correction].astype(np.float64)
    if correction == "calibration":
        residuals = np.vstack([np.diff(residuals, axis=0).mean(axis=1), np.zeros((1, model.hidden))])
    return ResidualPredictor(arrays["hidden"], arrays["gates"], residuals, model.experts_per_token)


def _checked(content: dict[str, NDArray[Any]], name: str, sizes: dict[str, int], path: Path) -> NDArray[Any]:
    """An array of numbers of the right shape."""
    key, axes = f"{_KEY}: {name}", _AXES[name]
    if name not in content:
        missing = "residuals or calibration" if name == "calibration" else name
        listed = ", ".join(sorted(content)) or "nothing"
        raise InputError(f"has no array {missing}, only {listed}", "missing", file=path, key=_KEY)
    array = content[name]
    expected = tuple(sizes.get(axis, size) for axis, size in zip(axes, array.shape, strict=False))
    if array.shape != expected or len(axes) != array.ndim or not array.size:
        words = ", ".join(f"{axis} {sizes[axis]}" if axis in sizes else axis for axis in axes)
        raise InputError(f"has the shape {array.shape}; the run needs ({words})", "form", file=path, key=key)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        problem = f"is of {array.dtype}, or not all finite; give finite floats"
        raise InputError(problem, "type", file=path, key=key)
    return array
