"""``ndpsim predict``: how fast a machine that someone owns is with a model."""

from __future__ import annotations

import click

from ndpsim.cli.command import Command
from ndpsim.cli.completion import PROGRAMS
from ndpsim.cli.options import (
    check_outputs,
    json_option,
    named_as_options,
    progress_of,
    sets_option,
    write_json,
)
from ndpsim.cli.picture_options import picture_options, plot_of


@click.command(
    cls=Command,
    examples=(
        "ndpsim predict --cpu xeon-6454s --sockets 2 --memory ddr5-4800x16 --gpu rtx-4090 "
        "--model deepseek-v3 --weights q4_k_m --prompt 1000",
        "ndpsim predict --cpu ryzen-9-7950x --memory ddr5-5200x2 --gpu rtx-3090 --model qwen3-30b-a3b",
    ),
)
@click.option("--cpu", required=True, metavar="NAME|FILE", help="A part: ndpsim list parts.")
@click.option("--sockets", default=1, show_default=True, type=int, help="CPUs.")
@click.option("--memory", required=True, metavar="NAMExDIMMS", help="A part and how many, of all sockets.")
@click.option("--memory-gb", type=float, help="What they hold together.  [default: what the model needs]")
@click.option("--gpu", required=True, metavar="NAME|FILE", help="A part; none: the CPU computes everything.")
@click.option(
    "--link", default="pcie-4-x16", show_default=True, metavar="NAME|FILE", help="Between both: a part."
)
@click.option("--model", default="deepseek-v3", show_default=True, metavar="NAME|FILE")
@click.option("--weights", default="q4_k_m", show_default=True, metavar="NAME", help="ndpsim list weights.")
@click.option("--kv-bits", default=16, show_default=True, type=int, help="Bits of a value in the KV cache.")
@click.option("--prompt", default=512, show_default=True, type=int, help="Tokens of the prompt.")
@click.option("--generated", default=128, show_default=True, type=int, help="Tokens that follow it.")
@click.option(
    "--program",
    default="ik_llama.cpp",
    show_default=True,
    metavar="NAME",
    help=f"What runs the model: {', '.join(PROGRAMS)}.",
)
@click.option("--chunk", type=int, help="Prompt tokens computed at once.  [default: the program's]")
@click.option(
    "--n-cpu-moe",
    type=int,
    metavar="LAYERS",
    help="The first so many layers have their experts in the host's memory.  [default: as few as must]",
)
@click.option("--seed", default=1, show_default=True, type=int, help="Of the tokens' choice of experts.")
@click.option("--no-upgrades", is_flag=True, help="Do not simulate what better parts would give.")
@sets_option
@json_option
@picture_options("Draw where the time goes, and what upgrades would give.", "predict")
def command(
    cpu: str,
    sockets: int,
    memory: str,
    memory_gb: float | None,
    gpu: str,
    link: str,
    model: str,
    weights: str,
    kv_bits: int,
    prompt: int,
    generated: int,
    program: str,
    chunk: int | None,
    n_cpu_moe: int | None,
    seed: int,
    no_upgrades: bool,
    sets: tuple[str, ...],
    json_to: str | None,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
) -> None:
    """Predict tokens/s of one sequence on a machine put together from parts, and of better machines.

    The rates of every part come from data sheets and public measurements; ndpsim show part NAME names
    them. The band is where measured machines lie around their predictions (validation/machines.md).
    """
    check_outputs({"--plot": plot_to, "--json": json_to})
    plot = plot_of(plot_to, size, panels, "predict")
    from ndpsim.prediction import predict

    names = (
        "cpu", "sockets", "memory", "memory_gb", "gpu", "link", "model", "weights", "kv_bits", "prompt",
        "generated", "program", "chunk", "n_cpu_moe", "seed",
    )  # fmt: skip
    with progress_of("predicting") as progress, named_as_options(*names):
        result = predict(
            cpu, memory, gpu, model, weights, prompt, sockets, link, generated, program, chunk,
            n_cpu_moe, memory_gb, kv_bits, sets, not no_upgrades, seed, progress,
        )  # fmt: skip
    if plot is not None:
        from ndpsim.report.pictures.prediction import draw_prediction

        draw_prediction(plot.file, result, plot.size, plot.panels)
    if json_to is not None:
        write_json(result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report.prediction import print_prediction

        print_prediction(result)
