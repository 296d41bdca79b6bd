"""``ndpsim routing``: which experts the tokens of a model choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ndpsim.cli.command import Command, CommandGroup
from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import check_outputs, json_option, named_as_options, write_json
from ndpsim.cli.picture_options import picture_options, plot_of

if TYPE_CHECKING:
    from ndpsim.routing import Routing

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT_MODEL = "qwen3-235b-a22b"


def _generation_options(function: F) -> F:
    """What is generated beside the SPEC."""
    for option in (
        click.option("--seed", default=1, show_default=True, type=int, help="The same seed, the same trace."),
        click.option(
            "--prompt",
            default=0,
            show_default=True,
            type=int,
            help="Prompt tokens of each sequence; 0: none.",
        ),
        click.option("--steps", default=16, show_default=True, type=int, help="Decode steps."),
        click.option("--batch", default=512, show_default=True, type=int, help="Sequences decoded together."),
        click.option(
            "--model",
            metavar="NAME|FILE",
            help=f"A bundled model or a config.json.  [default: that of the counts, else {_DEFAULT_MODEL}]",
        ),
    ):
        function = option(function)
    return function


@click.group(
    cls=CommandGroup,
    examples=(
        "ndpsim routing describe skewed --model deepseek-v2",
        "ndpsim routing import routed_experts.npy --model qwen3-30b-a3b -o mine.npz",
    ),
)
def command() -> None:
    """Generate, import and describe which experts the tokens of a model choose.

    A trace is an NPZ file with int16 `ids` [step, layer, token, k]; `ndpsim/routing/file.py` documents it.
    """


def _save(trace: Routing, out: str) -> None:
    """Write a trace, and say what it is."""
    from ndpsim.report.routing import trace_title

    trace.save(out)
    click.echo(f"wrote {out} from {trace_title(trace.to_dict())}")


def _generated(
    spec: str, model: str | None, batch: int, steps: int, prompt: int, seed: int, offline: bool = False
) -> Routing:
    from ndpsim.routing import generate_routing
    from ndpsim.routing.spec import parse_spec

    with named_as_options("batch", "steps", "prompt", "seed", "model", routing="SPEC"):
        parsed = parse_spec(spec)
        if model is None and parsed.generator.shape(parsed.name) is None:
            model = _DEFAULT_MODEL
        return generate_routing(parsed, model, batch, steps, prompt, seed, offline)


@command.command(
    cls=Command,
    examples=(
        "ndpsim routing generate skewed:step_stickiness=0.2 --model deepseek-v2 --batch 256 -o F.npz",
        "ndpsim routing generate popularity:olmoe-1b-7b:data=book --prompt 128 --seed 7 -o F.npz",
    ),
)
@click.argument("spec", default="skewed")
@_generation_options
@click.option(
    "--offline", is_flag=True, help="The trace that a policy may learn from: other choices, `drift` applied."
)
@click.option("-o", "--out", metavar="FILE", required=True, help="Write the trace here.")
def generate(spec: str, out: str, **options: Any) -> None:
    """Generate a trace, k distinct experts for each token.

    SPEC is skewed[:KEY=VALUE,...], popularity:NAME[:KEY=VALUE,...] or ranks:NAME[:KEY=VALUE,...]. skewed has
    hot,
    warm and cold experts: hot_experts=0.05, warm_experts=0.25, hot_share=0.22, warm_share=0.7. popularity has
    bundled counts, or those of a JSON file, and ranks published shares by rank; data=NAME chooses among
    several.

    All take token_stickiness and step_stickiness, the chance that a token repeats the choices of the one
    before it in the batch or prompt, or of its sequence's step before; step_drift, the share of experts that
    exchange their popularity from step to step; drift=0.08, the same between the offline trace and this one;
    and prefill_cosine, the likeness of popularity in prefill and decode.
    """
    check_outputs({"--out": out})
    _save(_generated(spec, **options), out)


@command.command(
    "import",
    cls=Command,
    examples=(
        "ndpsim routing import expert_ids.csv --model glm-4.5-air -o F.npz",
        "ndpsim routing import request0.npz request1.npz --format vllm --steps 64 -o F.npz",
    ),
)
@click.argument("file", nargs=-1, required=True)
@click.option("-o", "--out", metavar="FILE", required=True, help="Write the trace here.")
@click.option("--format", "routing_format", metavar="NAME", help="Of the files.  [default: detected]")
@click.option("--model", metavar="NAME|FILE", help="Whose routing it is; gives layers their numbers.")
@click.option("--experts", type=int, help="Experts of a layer.  [default: as the files say]")
@click.option("--experts-per-token", type=int, help="What a token chooses, where the files do not say it.")
@click.option("--steps", type=int, help="Only the first decode steps.  [default: all]")
def import_(file: tuple[str, ...], out: str, routing_format: str | None, **options: Any) -> None:
    """Turn what other programs recorded into a trace.

    Known are counts (JSON, CSV), dynande (CSV), llama-cpp (CSV), megatron (JSON lines), sglang (.pt) and vllm
    (NPY, NPZ, JSON). Several files are one recording: requests, ranks, layers or parts, as
    `ndpsim/routing/formats` says.
    """
    check_outputs({"--out": out})
    from ndpsim.routing import import_routing

    with named_as_options("model", "experts", "experts_per_token", "steps", "format", files="FILE"):
        trace = import_routing(file, routing_format, **options)
    for note in (trace.source or {}).get("notes", ()):
        click.echo(f"ndpsim: note: {note}", err=True)
    _save(trace, out)


@command.command(
    cls=Command,
    examples=(
        "ndpsim routing describe F.npz --plot routing.pdf",
        "ndpsim routing describe ranks:deepseek-v3:data=decode --model deepseek-v2 --json -",
    ),
)
@click.argument("routing", metavar="FILE|SPEC")
@_generation_options
@json_option
@picture_options("Draw shares by rank and layer, active experts and reuse.", "routing")
def describe(
    routing: str,
    json_to: str | None,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    **options: Any,
) -> None:
    """Say what a trace is like, or one that is generated: what papers quote, with sampling errors.

    Shares of selections by class and rank, active experts by batch, reuse from token to token and step to
    step, drift, likeness of prefill and decode, and how well a moving average foretells loads.
    """
    check_outputs({"--json": json_to, "--plot": plot_to})
    plot = plot_of(plot_to, size, panels, "routing")
    from ndpsim.report.routing import print_routing
    from ndpsim.routing import describe_routing, load_routing
    from ndpsim.routing.generate import existing_file, is_spec

    if is_spec(routing):
        trace = _generated(routing, **options)
    else:
        refuse_given("is of a SPEC; a file has what it has", *options)
        with named_as_options(routing="FILE|SPEC"):
            trace = load_routing(existing_file(routing))
    statistics = describe_routing(trace)
    if plot is not None:
        from ndpsim.report.pictures.routing import draw_routing

        draw_routing(plot.file, statistics, plot.size, plot.panels)
    if json_to is not None:
        write_json(statistics.to_dict(), json_to)
    if json_to != "-":
        print_routing(statistics)
