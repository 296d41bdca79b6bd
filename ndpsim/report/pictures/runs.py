"""The picture of a run of an expert, a relayout or a request trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from ndpsim.report.pictures.contention import contention_figure
from ndpsim.report.pictures.expert import expert_figure, host_read_figure
from ndpsim.report.pictures.latencies import latencies_figure
from ndpsim.report.pictures.relayout import relayout_figure
from ndpsim.report.text import Timed
from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult, RelayoutResult, TraceResult

_FIGURES: Mapping[type, Callable[..., Figure]] = {
    ExpertResult: expert_figure,
    ContentionResult: contention_figure,
    HostReadResult: host_read_figure,
    RelayoutResult: relayout_figure,
    TraceResult: latencies_figure,
}


def figure_for(result: Timed) -> Callable[..., Figure]:
    """The function that draws such a result."""
    return _FIGURES[type(result)]
