"""``ndpsim routing``: generate, import and describe which experts the tokens of a model choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ndpsim.base.options import refuse, table
from ndpsim.base.options.hardware import DEFAULT_MODEL
from ndpsim.base.options.routing import DESCRIBE, GENERATE, GENERATED, IMPORT
from ndpsim.cli.command import Options, group, taking
from ndpsim.cli.options import JSON, answer, naming, picture, plot_of

if TYPE_CHECKING:
    from ndpsim.workload.routing import Routing


@group(
    "ndpsim routing describe skewed --model deepseek-v2",
    "ndpsim routing import routed_experts.npy --model qwen3-30b-a3b -o mine.npz",
)
def command() -> None:
    """Generate, import and describe which experts the tokens of a model choose.

    A trace is an NPZ file with int16 `ids` [step, layer, token, k]; `ndpsim/workload/routing/file.py`
    documents it.
    """


def _save(trace: Routing, out: str) -> None:
    """Write a trace, and print a line about it."""
    from ndpsim.report.workload import trace_title

    trace.save(out)
    click.echo(f"wrote {out} from {trace_title(trace.to_dict())}")


def _generated(spec: str, options: Options) -> Routing:
    from ndpsim.workload.routing import generate_routing
    from ndpsim.workload.routing.spec import parse_spec

    with naming(routing="SPEC"):
        parsed = parse_spec(spec)
        arguments = GENERATE.arguments(options, *GENERATED, "offline")
        if "model" not in options and parsed.generator.shape(parsed.name) is None:
            arguments["model"] = DEFAULT_MODEL
        return generate_routing(parsed, **arguments)


@taking(
    GENERATE,
    examples=(
        "ndpsim routing generate skewed:step_stickiness=0.2 --model deepseek-v2 --batch 256 -o F.npz",
        "ndpsim routing generate popularity:olmoe-1b-7b:data=book --prompt 128 --seed 7 -o F.npz",
    ),
)
def generate(options: Options) -> None:
    """Generate a routing trace: k distinct experts for each token.

    SPEC is skewed[:KEY=VALUE,...], popularity:NAME[:KEY=VALUE,...] or ranks:NAME[:KEY=VALUE,...]. skewed has
    hot, warm and cold experts: hot_experts=0.05, warm_experts=0.25, hot_share=0.22, warm_share=0.7.
    popularity uses bundled counts or a JSON file of counts. ranks uses published shares by rank. data=NAME
    selects one of several sets of data.

    Every SPEC has five more keys. token_stickiness is the probability that a token repeats the choices of the
    previous token. step_stickiness is the probability that a token repeats the choices of its sequence in the
    previous step. step_drift is the share of experts that exchange their popularity from step to step.
    drift=0.08 is this share between the offline trace and the trace. prefill_cosine is the cosine similarity
    of popularity in prefill and decode.
    """
    _save(_generated(GENERATE.value(options, "spec"), options), options["out"])


@taking(
    IMPORT,
    examples=(
        "ndpsim routing import expert_ids.csv --model glm-4.5-air -o F.npz",
        "ndpsim routing import request0.npz request1.npz --format vllm --steps 64 -o F.npz",
    ),
)
def import_(options: Options) -> None:
    """Convert a recording of another program into a routing trace.

    The formats are counts (JSON, CSV, Parquet), dynande (CSV), llama-cpp (CSV), megatron (JSON lines),
    passes-json (JSON), sglang (.pt) and vllm (NPY, NPZ, JSON). Several files may be one recording: requests,
    ranks, layers or parts. The files in `ndpsim/workload/routing/formats` describe the formats.
    """
    from ndpsim.workload.routing import import_routing

    trace = import_routing(**IMPORT.arguments(options, *(name for name in IMPORT if name != "out")))
    for note in (trace.source or {}).get("notes", ()):
        click.echo(f"ndpsim: note: {note}", err=True)
    _save(trace, options["out"])


@taking(
    DESCRIBE,
    table(
        {"Results": (JSON, *picture("Draw shares by rank and layer, active experts and reuse.", "routing"))}
    ),
    examples=(
        "ndpsim routing describe F.npz --plot routing.pdf",
        "ndpsim routing describe ranks:deepseek-v3:data=decode --model deepseek-v2 --json -",
    ),
)
def describe(options: Options) -> None:
    """Print the statistics of a trace that papers report, with sampling errors.

    The statistics are the shares of selections by class and rank, active experts by batch, reuse from token
    to token and from step to step, drift, similarity of prefill and decode, and the accuracy of a moving
    average as a predictor of loads. A SPEC stands for a generated trace.
    """
    plot = plot_of(options, "routing")
    from ndpsim.report.workload import print_routing
    from ndpsim.workload.routing import describe_routing, load_routing
    from ndpsim.workload.routing.generate import existing_file, is_spec

    if is_spec(options["routing"]):
        trace = _generated(options["routing"], options)
    else:
        refuse(options, "applies only to a SPEC; a file already fixes it", *GENERATED)
        trace = load_routing(existing_file(options["routing"]))
    statistics = describe_routing(trace)
    if plot is not None:
        from ndpsim.report.pictures.moe import routing_figure

        plot.draw(routing_figure, statistics)
    answer(options, statistics.to_dict, lambda: print_routing(statistics))


for _command in (generate, import_, describe):
    command.add_command(_command)
