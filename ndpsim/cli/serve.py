"""``ndpsim serve``: serve requests with a machine: latencies, throughput and energy under load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ndpsim.base.options import Kind, Output, Parameter, Table, joined, refuse, table
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.serve import FIND, SERVE, ServeSettings
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, REPORT, answer, hardware_of, picture, plot_of, progress_of, timeline

if TYPE_CHECKING:
    from ndpsim.inference.serving.log import ServingObserver

_RATES = replace(
    SERVE["rate"],
    help="Mean rate in requests a second; times between arrivals are scaled. Several, as 1,2,4 or 1..16: "
    "a run for each.",
    kind=Kind(form="R"),
)
_RUN = joined(SERVE, Table({"rate": _RATES}), table({"What is simulated": (SET,)}))
_OUTPUTS = table(
    {
        "Results": (
            JSON,
            *picture("Draw the run over time and the spread of latencies, or rates.", "serve", "rates"),
            REPORT,
            timeline("steps, jobs and requests with their times"),
            Parameter(
                "log",
                "Write each request and each step as a JSON line, for check (.gz compresses).",
                Output(),
            ),
        )
    }
)


@taking(
    joined(_RUN, FIND),
    _OUTPUTS,
    examples=(
        "ndpsim serve --requests poisson:rate=2,requests=100,input_sigma=1 --policy trimoe",
        "ndpsim serve --requests poisson:requests=600 --slo ttft=1s,tpot=50ms --find-rate --json -",
    ),
)
def command(options: Options) -> None:
    """Serve requests: a scheduler forms steps, and a policy decides where experts run.

    A step may have tokens of prompts and decoded tokens. The KV cache grows with each sequence. The times of
    layers are computed as in ndpsim moe. ndpsim list policies names the policies; ndpsim requests generates
    and imports requests.
    """
    arguments, rates = _RUN.arguments(options), _rates(options)
    arguments.pop("rate", None)  # a text, of one rate or several
    if "find-rate" in options:
        refuse(options, "draws one run; with --find-rate use --report", "plot")
        refuse(options, "needs one run; --find-rate makes several", "log", "timeline", "rate")
        _find(options, arguments)
    elif len(rates) > 1:
        refuse(options, "needs one run; several rates make several", "log", "timeline")
        _run_rates(options, arguments, rates)
    else:
        _run(options, arguments | ({"rate": rates[0]} if rates else {}))


def _rates(options: Options) -> Sequence[float]:
    """The values of ``--rate``, in the forms of a sweep."""
    if "rate" not in options:
        return ()
    from ndpsim.studies.sweeps.run import defined

    rates: Sequence[float] = defined("serve", {"rate": options["rate"]}).varied["rate"]
    return rates


def _find(options: Options, arguments: dict[str, Any]) -> None:
    """`--find-rate`."""
    from ndpsim.inference.serving.server import find_rate
    from ndpsim.report.serving import print_found_rate

    with progress_of("finding the rate") as progress:
        found = find_rate(progress=progress, **arguments, **FIND.arguments(options, "attainment"))
    if "report" in options:
        from ndpsim.report.html.runs import write_found_rate_report

        write_found_rate_report(options["report"], found, hardware_of(options, SERVE))
    answer(options, found.to_dict, lambda: print_found_rate(found))


def _run_rates(options: Options, arguments: dict[str, Any], rates: Sequence[float]) -> None:
    """A run for each of several rates."""
    from ndpsim.inference.serving.server import Server, set_up
    from ndpsim.report.serving import print_rates

    def part(index: int) -> Callable[[float], None]:
        return lambda share: progress((index + share) / len(rates))

    plot = plot_of(options, "rates")
    with progress_of("serving") as progress:
        settings = ServeSettings(**arguments)
        server = Server(settings, set_up(settings))
        results = [server.serve(rate, progress=part(index)) for index, rate in enumerate(rates)]
    if plot is not None:
        from ndpsim.report.pictures.serving import rates_figure

        plot.draw(rates_figure, results)
    if "report" in options:
        from ndpsim.report.html.runs import write_rates_report

        write_rates_report(options["report"], results, hardware_of(options, SERVE))
    answer(options, lambda: [result.to_dict() for result in results], lambda: print_rates(results))


def _timeline(options: Options) -> AbstractContextManager[ServingObserver | None]:
    """The writer of ``--timeline``; None: there is none."""
    if "timeline" not in options:
        return nullcontext()
    from ndpsim.report.timelines import writing_serving_timeline

    return writing_serving_timeline(options["timeline"])


def _run(options: Options, arguments: dict[str, Any]) -> None:
    """One run."""
    from ndpsim.inference.serving.log import writing_serving_log
    from ndpsim.inference.serving.server import run_serving
    from ndpsim.report.serving import print_serving

    plot = plot_of(options, "serve")
    logging = writing_serving_log(options["log"]) if "log" in options else nullcontext()
    with logging as log, _timeline(options) as observer, progress_of("serving") as progress:
        result = run_serving(log=log, observer=observer, progress=progress, **arguments)
    if plot is not None:
        from ndpsim.report.pictures.serving import serving_figure

        plot.draw(serving_figure, result)
    if "report" in options:
        from ndpsim.report.html.runs import write_serving_report

        write_serving_report(options["report"], result, hardware_of(options, SERVE))
    answer(options, result.to_dict, lambda: print_serving(result))
