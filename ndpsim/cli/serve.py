"""``ndpsim serve``: serve requests with a machine: latencies, throughput and energy under load."""

from __future__ import annotations

from contextlib import nullcontext

from ndpsim.cli.command import Given, taking
from ndpsim.cli.options import JSON, answer, progress_of
from ndpsim.cli.picture_options import picture, plot_of
from ndpsim.parameters import Output, Parameter, joined, refuse, table
from ndpsim.parameters.hardware import SET
from ndpsim.parameters.serve import FIND, SERVE

_RUN = joined(SERVE, table({"What is simulated": (SET,)}))
_OUTPUTS = table(
    {
        "Results": (
            JSON,
            *picture("Draw the run over time, and the spread of latencies.", "serve"),
            Parameter(
                "log",
                "Write each request and each step as a JSON line, for check (.gz compresses).",
                Output(),
                files=("",),
            ),
        )
    }
)


@taking(
    joined(_RUN, FIND),
    _OUTPUTS,
    examples=(
        "ndpsim serve --requests poisson:rate=2,requests=100,input_sigma=1 --policy trimoe",
        "ndpsim serve --requests examples/requests.csv --slo ttft=1s,tpot=50ms --find-rate --json -",
    ),
)
def command(given: Given) -> None:
    """Serve requests: they arrive, a scheduler forms steps of them, and a policy decides where experts run.

    Steps mix prompts and decoded tokens; the KV cache grows with each sequence. The times of layers are those
    of ndpsim moe. ndpsim list policies names the policies; ndpsim requests generates and imports requests.
    """
    from ndpsim.report.serving import print_found_rate, print_serving
    from ndpsim.serving.find_rate import find_rate
    from ndpsim.serving.log import writing_serving_log
    from ndpsim.serving.run import run_serving

    asked, plot = _RUN.arguments(given), plot_of(given, "serve")
    asked["prefix_cache"] = not asked.pop("no_prefix_cache", False)
    if "find-rate" in given:
        refuse(given, "is of one run, and --find-rate makes several", "log", "rate", "plot")
        with progress_of("finding the rate") as progress:
            found = find_rate(progress=progress, **asked, **FIND.arguments(given, "attainment"))
        answer(given, found.to_dict, lambda: print_found_rate(found))
        return
    logging = writing_serving_log(given["log"]) if "log" in given else nullcontext()
    with logging as log, progress_of("serving") as progress:
        result = run_serving(log=log, progress=progress, **asked)
    if plot is not None:
        from ndpsim.report.pictures.serving import serving_figure

        plot.draw(serving_figure, result)
    answer(given, result.to_dict, lambda: print_serving(result))
