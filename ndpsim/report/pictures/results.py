"""The picture of a result in Python, by the kind of result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike

from matplotlib.figure import Figure

from ndpsim.base.errors import InputError
from ndpsim.base.reported import Reported
from ndpsim.report.moe import MoeHistory
from ndpsim.report.pictures.canvas import save
from ndpsim.report.pictures.expert import FIGURES
from ndpsim.report.pictures.latencies import latencies_figure
from ndpsim.report.pictures.moe import moe_figure, prediction_figure
from ndpsim.report.pictures.relayout import relayout_figure
from ndpsim.report.pictures.serving import serving_figure
from ndpsim.simulate import RelayoutResult, TraceResult
from ndpsim.simulate.results import MoeResult
from ndpsim.simulate.results.prediction import Prediction
from ndpsim.simulate.results.serving import FoundRate, ServingResult

_FIGURES: dict[type, Callable[..., Figure]] = {
    **FIGURES,
    RelayoutResult: relayout_figure,
    TraceResult: latencies_figure,
    MoeResult: lambda result, size, panels: moe_figure(result, MoeHistory(), size, panels),
    ServingResult: serving_figure,
    FoundRate: lambda found, size, panels: serving_figure(found.run, size, panels),
    Prediction: prediction_figure,
}


def drawn(
    result: Reported, file: str | PathLike[str] | None, size: str, panels: Sequence[str] | None
) -> Figure:
    """The picture of a result; see `Reported.plot`.

    Raises:
        InputError: there is no such picture, or the file cannot be written.
    """
    figure_of = _FIGURES.get(type(result))
    if figure_of is None:
        problem = f"there is no picture of a {type(result).__name__}"
        raise InputError(problem, "unsupported", key="result")
    if type(result) in FIGURES and not getattr(result, "command_traces", True):
        problem = "has no commands to draw; simulate it with record_commands=True"
        raise InputError(problem, "missing", key="result")
    figure: Figure = figure_of(result, size, panels)
    if file is not None:
        save(figure, str(file), size)
    return figure
