"""``ndpsim predict``: predict tokens/s on a machine that you own, and what would raise it."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options import table
from ndpsim.base.options.predict import PREDICT
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, picture, plot_of, progress_of
from ndpsim.inference.prediction.programs import PROGRAMS

_PROGRAM = replace(
    PREDICT["program"], help=f"Program that runs the model: {', '.join(PROGRAMS)}.", names=tuple(PROGRAMS)
)
_PICTURE = picture("Draw the components of the time, and the gains from upgrades.", "predict")


@taking(
    PREDICT.but(program=_PROGRAM),
    table({"Results": (JSON, *_PICTURE)}),
    examples=(
        "ndpsim predict --cpu xeon-6454s --sockets 2 --memory ddr5-4800x16 --gpu rtx-4090 "
        "--model deepseek-v3 --weights q4_k_m --prompt 1000",
        "ndpsim predict --cpu ryzen-9-7950x --memory ddr5-5200x2 --gpu rtx-3090 --model qwen3-30b-a3b",
    ),
)
def command(options: Options) -> None:
    """Predict tokens/s of one sequence on a machine built from parts, and on upgraded machines.

    Rates of parts come from data sheets and public measurements; ndpsim show part NAME shows them. The
    numbers in brackets are a range around the prediction, from its errors on measured machines
    (validation/machines.md).
    """
    plot = plot_of(options, "predict")
    from ndpsim.inference.prediction import predict
    from ndpsim.report.prediction import print_prediction

    with progress_of("predicting") as progress:
        result = predict(progress=progress, **PREDICT.arguments(options))
    if plot is not None:
        from ndpsim.report.pictures.moe import prediction_figure

        plot.draw(prediction_figure, result)
    answer(options, result.to_dict, lambda: print_prediction(result))
