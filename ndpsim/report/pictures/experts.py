"""The picture of an expert: of `simulate_expert`, `simulate_contention` or `simulate_host_read`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from ndpsim.report.pictures.contention import contention_figure
from ndpsim.report.pictures.expert import expert_figure
from ndpsim.report.pictures.host_read import host_read_figure
from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult

_FIGURES: Mapping[type, Callable[..., Figure]] = {
    ExpertResult: expert_figure,
    ContentionResult: contention_figure,
    HostReadResult: host_read_figure,
}


def figure_for(result: Any) -> Callable[..., Figure]:
    """The function that draws such a result."""
    return _FIGURES[type(result)]
