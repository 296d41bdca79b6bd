"""An expert's weights from a model or a shape, and bits."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from typing import Any

from ndpsim.dimm.layout import MATRICES, ExpertFormat, ExpertWeights, expert_format
from ndpsim.workload.models import Expert, MoeShape, load_model


def named_weights(
    model: str | PathLike[str] | MoeShape | Expert, bits: int | ExpertFormat
) -> tuple[ExpertWeights, str | None]:
    """Weights, and the name of their model, or None for a shape.

    Raises:
        InputError: there is no such model, or the bits are invalid.
    """
    form = expert_format(bits)
    if isinstance(model, Expert):
        return ExpertWeights(model.hidden, model.intermediate, form), None
    shape = load_model(model)
    return ExpertWeights(shape.expert.hidden, shape.expert.intermediate, form), shape.name


def describe_weights(weights: ExpertWeights, model: str | None) -> dict[str, Any]:
    """Model, shape and bits as plain data for results."""
    described: dict[str, Any] = {
        "model": model,
        "hidden": weights.hidden,
        "intermediate": weights.intermediate,
        "bits": weights.format.bits(),
    }
    if any(of_matrix.group_size for of_matrix in weights.format.matrices):
        described["formats"] = dict(zip(MATRICES, map(asdict, weights.format.matrices), strict=True))
    return described
