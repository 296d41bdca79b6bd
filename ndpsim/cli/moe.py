"""``ndpsim moe``: the layers of a model, their experts on GPU, CPU and DIMMs under policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import (
    check_outputs,
    json_option,
    named_as_options,
    progress_of,
    report_option,
    sets_option,
    write_json,
)
from ndpsim.cli.picture_options import picture_options, plot_of
from ndpsim.errors import InputError
from ndpsim.plugins import options_in_words

if TYPE_CHECKING:
    from ndpsim.orchestrator.record import LayerRecord, Observer, RunRecord
    from ndpsim.report.moe_history import History
    from ndpsim.results import MoeResult

_NUMBER = "[0-9]{1,6}"


def _layers(text: str | None) -> tuple[int, ...] | None:
    """``0-7,20`` as numbers.

    Raises:
        InputError: it is not of this form.
    """
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(rf"\s*({_NUMBER})\s*(?:-\s*({_NUMBER})\s*)?", part, re.ASCII)
        if found is None or (found[2] is not None and int(found[2]) < int(found[1])):
            raise InputError(f"'{text[:40]}' is not of the form 0-7 or 3,5,8-11", key="--layers")
        numbers += range(int(found[1]), int(found[2] or found[1]) + 1)
    return tuple(numbers)


def _step_and_layer(text: str | None) -> tuple[int, int] | None:
    """``3,12`` as numbers.

    Raises:
        InputError: it is not of this form.
    """
    if text is None:
        return None
    found = re.fullmatch(rf"\s*({_NUMBER})\s*,\s*({_NUMBER})\s*", text, re.ASCII)
    if found is None:
        raise InputError(
            f"'{text[:40]}' is not of the form STEP,LAYER, for instance 3,12", key="--check-layer"
        )
    return int(found[1]), int(found[2])


@contextmanager
def _observed(
    log_to: str | None, timeline_to: str | None, history: History | None
) -> Iterator[Observer | None]:
    """What looks at each layer of a run; files are there when the block ends well. None: nothing does."""
    with ExitStack() as files:
        observers: list[Observer] = []
        if log_to is not None:
            from ndpsim.orchestrator.log import writing_log

            observers.append(files.enter_context(writing_log(log_to)))
        if timeline_to is not None:
            from ndpsim.report.moe_timeline import writing_timeline

            observers.append(files.enter_context(writing_timeline(timeline_to)))
        if history is not None:
            observers.append(history)

        def observe(run: RunRecord, layer: LayerRecord) -> None:
            for observer in observers:
                observer(run, layer)

        yield observe if observers else None


def _history(draws: bool, layer: tuple[int, int] | None) -> History | None:
    if not draws:
        return None
    from ndpsim.report.moe_history import History

    return History(layer)


@click.command(
    cls=Command,
    examples=(
        "ndpsim moe --model deepseek-v2 --policy trimoe --policy monde --batch 512 --steps 16",
        "ndpsim moe --hw dali-7532-3090 --model mixtral-8x7b --policy dali --policy all --batch 8",
    ),
)
@click.option("--hw", default="trimoe", show_default=True, metavar="NAME|FILE", help="The hardware.")
@click.option(
    "--model",
    default="deepseek-v2",
    show_default=True,
    metavar="NAME|FILE",
    help="A bundled model or a config.json.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("trimoe",),
    metavar="NAME[:KEY=VALUE,...]",
    help="A policy, FILE.py:CLASS, or all. Repeatable: all on one trace, speed-ups against the first.  "
    "[default: trimoe]",
)
@click.option(
    "--batch", type=int, help="Sequences decoded together.  [default: those of the trace, else 512]"
)
@click.option("--steps", type=int, help="Decode steps.  [default: those of the trace, else 16]")
@click.option(
    "--routing",
    metavar="SPEC|FILE",
    help="What tokens choose: a trace, or what ndpsim routing generate takes.  [default: the model's bundled "
    "counts, else its load curve, else skewed]",
)
@click.option("--seed", default=1, show_default=True, type=int, help="The same seed, the same result.")
@click.option("--prompt", type=int, help="Prompt tokens of each sequence.  [default: no prefill]")
@click.option(
    "--prefix",
    default=0,
    show_default=True,
    type=int,
    help="Tokens of each sequence that the KV cache already has before the prompt.",
)
@click.option(
    "--layers",
    metavar="N-N,...",
    help="Only these layers of the model, from 0.  [default: those of the trace, else all]",
)
@click.option("--bits", type=int, help="Bits of a weight of a routed expert.  [default: 16]")
@click.option("--dense-bits", type=int, help="Bits of any other weight.  [default: 16]")
@click.option(
    "--weights",
    metavar="NAME",
    help="A weight file, which says the bits of all weights: q4_k_m; see list weights.",
)
@click.option("--kv", default="auto", show_default=True, help="Where the KV cache lies: auto, gpu or host.")
@click.option("--kv-bits", default=16, show_default=True, type=int, help="Bits of a value in the KV cache.")
@click.option(
    "--context", default=512, show_default=True, type=int, help="Tokens that a decoded token attends to."
)
@click.option(
    "--gpu-experts", type=int, help="Experts of a layer that the GPU has room for.  [default: what fits]"
)
@click.option(
    "--arbitration",
    default="host-first",
    show_default=True,
    metavar="NAME",
    help=f"Of a DIMM between host and NDP unit: {options_in_words('dimm/arbitrations', 'host-first')}.",
)
@sets_option
@json_option
@report_option
@click.option("--timeline", "timeline_to", metavar="FILE", help="Write what ran when, for Perfetto.")
@click.option(
    "--log", "log_to", metavar="FILE", help="Write each layer as a JSON line, for check (.gz compresses)."
)
@click.option(
    "--check-layer",
    metavar="STEP,LAYER",
    help="Run this layer again in the cycle-level session, and compare.",
)
@click.option(
    "--check-limit",
    default=0.05,
    show_default=True,
    type=float,
    metavar="SHARE",
    help="Of --check-layer: the error allowed of an end, in parts of the layer's time.",
)
@picture_options("Draw speed-ups, time by layer, engines, migrations and one layer's jobs.", "moe")
def command(
    policies: tuple[str, ...],
    layers: str | None,
    check_layer: str | None,
    json_to: str | None,
    report_to: str | None,
    timeline_to: str | None,
    log_to: str | None,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    **options: Any,
) -> None:
    """Run a model's layers with their experts on GPU, CPU and DIMMs, each expert where a policy says.

    Time of experts on DIMMs, host reads, relayouts and what they cost each other comes from the cycle-level
    model. Several policies run on the same trace; ndpsim list policies names them, ndpsim show policy NAME
    says what can be set.

    --check-layer ends with exit status 1 where an expert, a read or the layer ends further from the
    cycle-level session than --check-limit allows. With --plot and --report, its layer is the one whose jobs
    are drawn.
    """
    outputs = {"--log": log_to, "--timeline": timeline_to, "--plot": plot_to, "--report": report_to}
    check_outputs({**outputs, "--json": json_to})
    plot = plot_of(plot_to, size, panels, "moe")
    chosen, checked = _layers(layers), _step_and_layer(check_layer)
    if checked is None:
        refuse_given("is of --check-layer, which is not given", "check_limit")
    draws = plot is not None or report_to is not None
    result, history = _run(policies, chosen, checked, log_to, timeline_to, draws, options)
    if plot is not None and history is not None:
        from ndpsim.report.pictures.moe import draw_moe

        draw_moe(plot.file, result, history, plot.size, plot.panels)
    if report_to is not None and history is not None:
        from ndpsim.report.html.moe import write_moe_report

        write_moe_report(report_to, result, history, history.runs[0].run.hardware)
    if json_to is not None:
        write_json(result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report.moe import print_moe

        print_moe(result)
    if not all(run.check is None or run.check.ok for run in result.runs):
        raise click.exceptions.Exit(1)


def _run(
    policies: Sequence[str],
    layers: tuple[int, ...] | None,
    check_layer: tuple[int, int] | None,
    log_to: str | None,
    timeline_to: str | None,
    draws: bool,
    options: dict[str, Any],
) -> tuple[MoeResult, History | None]:
    from ndpsim.orchestrator.run import run_moe

    history = _history(draws, check_layer)
    sets = options.pop("sets")
    with (
        _observed(log_to, timeline_to, history) as observer,
        progress_of("running layers") as progress,
        named_as_options(*options, "layers", "check_layer", policies="--policy", policy="--policy"),
    ):
        result = run_moe(
            policies=policies,
            layers=layers,
            sets=sets,
            observer=observer,
            check_layer=check_layer,
            progress=progress,
            **options,
        )
    return result, history
