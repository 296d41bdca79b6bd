"""``ndpsim moe``: run a model's layers, with experts on GPU, CPU and DIMMs under one or several policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ndpsim.base.options import Output, Parameter, Table, joined, table
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.moe import CHECKS, MOE
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, REPORT, answer, picture, plot_of, progress_of, timeline

if TYPE_CHECKING:
    from ndpsim.inference.layers.record import LayerRecord, Observer, RunRecord
    from ndpsim.report.moe import MoeHistory

_POLICIES = replace(
    MOE["policy"],
    help="A policy, FILE.py:CLASS, or all. Repeatable: policies run on one trace; the first is the baseline.",
    argument="policies",
    names="policies all",
    repeatable=True,
)
_RUN = joined(MOE, Table({"policy": _POLICIES}), table({"What is simulated": (SET,)}), CHECKS)
_OUTPUTS = table(
    {
        "Results": (
            JSON,
            *picture("Draw speed-ups, time by layer, engines, migrations and one layer's jobs.", "moe"),
            REPORT,
            timeline("all jobs with their times"),
            Parameter("log", "Write each layer as a JSON line, for check (.gz compresses).", Output()),
        )
    }
)


@contextmanager
def _observed(options: Options, history: MoeHistory | None) -> Iterator[Observer | None]:
    """An observer that writes files of each layer, complete when the block ends without an error; or None."""
    with ExitStack() as files:
        observers: list[Observer] = []
        if "log" in options:
            from ndpsim.inference.layers.log import writing_log

            observers.append(files.enter_context(writing_log(options["log"])))
        if "timeline" in options:
            from ndpsim.report.timelines import writing_timeline

            observers.append(files.enter_context(writing_timeline(options["timeline"])))
        if history is not None:
            observers.append(history)

        def observe(run: RunRecord, layer: LayerRecord) -> None:
            for observer in observers:
                observer(run, layer)

        yield observe if observers else None


def _history(options: Options) -> MoeHistory | None:
    if "plot" not in options and "report" not in options:
        return None
    from ndpsim.report.moe import MoeHistory

    return MoeHistory(options.get("check-layer"))


@taking(
    _RUN,
    _OUTPUTS,
    examples=(
        "ndpsim moe --model deepseek-v2 --policy trimoe --policy monde --batch 512 --steps 16",
        "ndpsim moe --hw dali-7532-3090 --model mixtral-8x7b --policy dali --policy all --batch 8",
    ),
)
def command(options: Options) -> None:
    """Run the layers of a model. A policy decides which experts GPU, CPU and DIMMs compute.

    The times of experts on DIMMs, host reads and relayouts, and their effects on each other, come from the
    cycle-level model. All policies of a call run on the same trace. ndpsim list policies lists policies;
    ndpsim show policy NAME lists the parameters of a policy.

    --check-layer simulates one layer again in the cycle-level session. The exit status is 1 if the end time
    of an expert, a read or the layer differs by more than --check-limit. --plot and --report draw the jobs of
    this layer.
    """
    plot, history = plot_of(options, "moe"), _history(options)

    from ndpsim.inference.layers.run import run_moe
    from ndpsim.report.moe import print_moe

    with _observed(options, history) as observer, progress_of("running layers") as progress:
        result = run_moe(observer=observer, progress=progress, **_RUN.arguments(options))
    if plot is not None and history is not None:
        from ndpsim.report.pictures.moe import moe_figure

        plot.draw(moe_figure, result, history)
    if "report" in options and history is not None:
        from ndpsim.report.html.runs import write_moe_report

        write_moe_report(options["report"], result, history, history.runs[0].run.hardware)
    answer(options, result.to_dict, lambda: print_moe(result))
    if not all(run.check is None or run.check.ok for run in result.runs):
        raise click.exceptions.Exit(1)
