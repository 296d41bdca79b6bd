"""``ndpsim show``: one bundled thing in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import check_outputs, json_option, named_as_options, sets_option, write_json
from ndpsim.cli.picture_options import picture_options, plot_of
from ndpsim.cli.weights import expert_format, weight_options
from ndpsim.errors import InputError, one_of, unknown


def _show_missing(name: str, sets: Sequence[str], json_to: str | None, command: str) -> None:
    """What a hardware file lacks for a command, and all that it has where it lacks nothing."""
    from dataclasses import asdict

    from ndpsim.config.load import missing_of
    from ndpsim.config.needs import SECTIONS
    from ndpsim.report.printing import print_table

    if command not in SECTIONS:
        raise unknown(command, SECTIONS, "command that needs hardware", key="--for")
    with named_as_options(hw="show hw"):
        missing = missing_of(name, sets, command)
    if missing and json_to is not None:
        write_json({"missing": [asdict(one) for one in missing]}, json_to)
    elif missing:
        rows = [(one.key, one.unit, one.example, one.look_up, one.needed_by) for one in missing]
        columns = ("key", "unit", "for instance", "look in", "needed by")
        print_table(f"{name} lacks for {command}", columns, rows, left=None, heading=3)
    else:
        _show_hw(name, sets, json_to)
    if any(one.needed_by in (command, "every command") for one in missing):
        raise click.exceptions.Exit(1)


def _show_hw(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.config import load_hardware
    from ndpsim.energy import find_currents, power_rows
    from ndpsim.report.text import print_rows

    with named_as_options(hw="show hw"):
        hardware = load_hardware(name, sets)
    if json_to is not None:
        dropped = {"dropped_overrides": dict(hardware.dropped)} if hardware.dropped else {}
        write_json(hardware.to_dict() | dropped, json_to)
    else:
        currents = find_currents(hardware.lane_device(), hardware.power_changes)
        rows = hardware.rows() + ([] if currents is None else power_rows(currents))
        print_rows(f"{hardware.system.title or hardware.system.name} ({hardware.file})", rows)


def _show_part(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.config import load_part
    from ndpsim.report.parts import print_part

    with named_as_options(part="show part"):
        part = load_part(name)
    if json_to is not None:
        write_json(part.to_dict(), json_to)
    else:
        print_part(part)


def _show_model(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.moe import load_model

    with named_as_options(model="show model"):
        shape = load_model(name)
    values = shape.to_dict()
    if json_to is None:
        values = _readable_attention(values)
    _show_plain(values, json_to)


def _readable_attention(values: dict[str, Any]) -> dict[str, Any]:
    """A model's values with a row for each kind of attention: its layers, what they cache, its sizes."""
    held = values["attention_layers"]
    sizes = values["attention"]["kinds"] if len(held) > 1 else [values["attention"]]
    rows = {}
    for number, (kind, of_kind) in enumerate(zip(held, sizes, strict=False), 1):
        most = "" if kind["kv_tokens"] is None else f", {kind['kv_tokens']} tokens at most"
        cached = f"{kind['kv_bytes_per_token']} B a token{most}"
        if kind["state_bytes"]:
            cached = f"{kind['state_bytes']} B a sequence"
        nonzero = ", ".join(f"{name} {size}" for name, size in of_kind.items() if size)
        name = "attention" if len(held) == 1 else f"attention {number}"
        rows[name] = f"{kind['layers']} layers of {kind['kind']}, each caches {cached} ({nonzero})"
    shown: dict[str, Any] = {}
    for key, value in values.items():
        if key == "attention" and rows:
            shown |= rows
        elif key != "attention_layers" and value != "":
            shown[key] = value
    return shown


def _show_org(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from dataclasses import asdict

    from ndpsim.spec import standards

    known = {
        org: values for standard in standards().values() for org, values in standard.organisations.items()
    }
    if name not in known:
        raise InputError(one_of(name, known, "organisation"), key="show org")
    usual = {"stacks": 1, "ranks": 0}  # of most there is no more to say
    values = {key: value for key, value in asdict(known[name]).items() if usual.get(key) != value}
    _show_plain(values, json_to, f"{name}: what a chip has, density_mb in Mbit")


def _show_timing(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.spec import standards
    from ndpsim.units import dram_period_ps, in_decimals, plain_number

    known = {timing: standard for standard in standards().values() for timing in standard.speeds}
    if name not in known:
        raise InputError(one_of(name, known, "timing preset"), key="show timing")
    values = dict(known[name].speeds[name])
    period = dram_period_ps(values["rate"], known[name].transfers_per_clock)
    clock = in_decimals(period) if json_to is None else plain_number(period)
    units = "in DRAM clocks, but rate in MT/s and tCK_ps in ps"
    _show_plain(values | {"tCK_ps": clock}, json_to, f"{name}: {units}")


def _show_plain(values: dict[str, Any], json_to: str | None, title: str = "") -> None:
    if json_to is not None:
        write_json(values, json_to)
    else:
        from ndpsim.report.text import print_pairs

        print_pairs(values, title)


def _show_schema(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.config import json_schema

    if name != "hw":
        raise InputError(one_of(name, ["hw"], "schema"), key="show schema")
    write_json(json_schema(), json_to or "-")


def _show_layout(
    name: str,
    hw: str | None,
    model: str | None,
    sets: Sequence[str],
    json_to: str | None,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    **weights: Any,
) -> None:
    from ndpsim.config import load_hardware
    from ndpsim.simulate import place_expert

    check_outputs({"--plot": plot_to, "--json": json_to})
    plot = plot_of(plot_to, size, panels, "layout")
    formats = expert_format(**weights, model=model)
    with named_as_options("hw", "model", layout="show layout"):
        hardware = load_hardware("trimoe" if hw is None else hw, sets)
        placed = place_expert(hardware, "qwen3-235b-a22b" if model is None else model, name, formats)
    if plot is not None:
        from ndpsim.report.pictures.layout import draw_layout

        draw_layout(plot.file, placed, plot.size, plot.panels)
    if json_to is not None:
        write_json(placed.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report.layouts import print_layout

        print_layout(placed)


def _show_processor(
    name: str,
    hw: str | None,
    model: str | None,
    tokens: str,
    sets: Sequence[str],
    json_to: str | None,
    **weights: Any,
) -> None:
    from ndpsim.moe import load_model
    from ndpsim.processors import load_processors

    if name not in _PROCESSORS:
        raise InputError(one_of(name, _PROCESSORS, "processor"), key="show processor")
    form, counts = expert_format(**weights, model=model), _counts(tokens)
    with named_as_options("hw", "model", "tokens"):
        processors = load_processors("trimoe" if hw is None else hw, sets)
        processor = processors.gpu if name == "gpu" else processors.cpu
        shape = load_model("qwen3-235b-a22b" if model is None else model)
        times = [processor.expert_time(shape.expert, count, form) for count in counts]
    if json_to is not None:
        write_json({"model": shape.name, "expert_times": [one.to_dict() for one in times]}, json_to)
    else:
        from ndpsim.report.processors import print_expert_times

        print_expert_times(shape.name, processors.hardware.system.name, times)


def _show_policy(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from dataclasses import asdict

    from ndpsim.policies.choose import parameters_of, policy_class

    with named_as_options(policy="show policy"):
        policy = policy_class(name)
    parameters = parameters_of(policy)
    if json_to is not None:
        about: dict[str, Any] = {"name": policy.name, "title": policy.title, "paper": policy.paper}
        about |= {"engines": list(policy.engines), "needs": list(policy.needs)}
        write_json({**about, "parameters": [asdict(one) for one in parameters]}, json_to)
    else:
        from ndpsim.report.policies import print_policy

        print_policy(policy, parameters)


def _show_weights(name: str, model: str | None, json_to: str | None) -> None:
    from ndpsim.moe import load_model
    from ndpsim.moe.weights import weight_file
    from ndpsim.report.weights import print_weight_file, weight_file_dict

    with named_as_options("model", weights="show weights"):
        file = weight_file(name, load_model("qwen3-235b-a22b" if model is None else model))
    if json_to is not None:
        write_json(weight_file_dict(file), json_to)
    else:
        print_weight_file(file)


def _counts(text: str) -> list[int]:
    """``1,8,64`` as numbers.

    Raises:
        InputError: it is no list of whole numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"'{text[:40]}' is not of the form 1,8,64", key="--tokens")
    return [int(part) for part in parts]


_PROCESSORS = ("gpu", "cpu")
_KINDS = {
    "hw": _show_hw,
    "model": _show_model,
    "part": _show_part,
    "org": _show_org,
    "timing": _show_timing,
    "schema": _show_schema,
    "policy": _show_policy,
}


@click.command(
    cls=Command,
    examples=(
        "ndpsim show hw trimoe --set dimm.ranks=2",
        "ndpsim show layout striped --model mixtral-8x7b --plot layout.png",
    ),
)
@click.argument("what")
@click.argument("name")
@click.option("--hw", metavar="NAME|FILE", help="Of a layout or processor: the hardware.  [default: trimoe]")
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="Of a layout, processor or weight file: the model.  [default: qwen3-235b-a22b]",
)
@click.option(
    "--tokens",
    default="1,4,16,64,256,1024",
    show_default=True,
    metavar="N,N,...",
    help="Of a processor: for how many tokens.",
)
@weight_options
@picture_options("Of a layout: draw where the weights lie.", "layout")
@click.option(
    "--for",
    "for_command",
    metavar="COMMAND",
    help="Of hw: what the file lacks for moe, gemv, relayout or dram.",
)
@sets_option
@json_option
def command(
    what: str,
    name: str,
    sets: tuple[str, ...],
    json_to: str | None,
    tokens: str,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    for_command: str | None,
    **of_expert: Any,
) -> None:
    """Show one thing: hw, part, model, org, timing, schema hw, layout, processor, policy or weights.

    `show hw` prints every value of a system with its unit and where it comes from; --set changes it first.
    With --for, it lists all values that the file lacks for a command, each with an example and where to look
    it up, and ends with exit status 1 where the command cannot run.
    `show part` prints every value of a CPU, memory, GPU or link that hardware files can name.
    `show layout` says where the weights of an expert lie: how many bytes of which matrix on which DIMM.
    `show policy` says what can be set of a policy of ndpsim moe, or of a FILE.py:CLASS of your own.
    `show processor gpu` (or cpu) says how long an expert takes there, by tokens.
    `show weights` says in how many bits a weight file has each part of a model, and how large it is.
    """
    check_outputs({"--json": json_to})
    kinds = [*_KINDS, "layout", "processor", "weights"]
    if what not in kinds:
        raise InputError(one_of(what, kinds, "kind of thing"), key="show")
    if what != "layout":
        refuse_given(f"belongs to show layout; a {what} has no use for it", "plot_to", "size", "panels")
    if what != "processor":
        refuse_given(f"belongs to show processor; a {what} has no use for it", "tokens")
    if what != "hw":
        refuse_given(f"belongs to show hw; a {what} has no use for it", "for_command")
    if what == "layout":
        _show_layout(name, sets=sets, json_to=json_to, plot_to=plot_to, size=size, panels=panels, **of_expert)
        return
    if what == "processor":
        _show_processor(name, tokens=tokens, sets=sets, json_to=json_to, **of_expert)
        return
    others = [key for key in of_expert if (what, key) != ("weights", "model")]
    refuse_given(f"belongs to show layout; a {what} has no use for it", *others)
    if sets and what != "hw":
        raise InputError(f"changes hardware; a {what} has nothing to change", key="--set")
    if what == "weights":
        _show_weights(name, of_expert["model"], json_to)
        return
    if for_command is not None:
        _show_missing(name, sets, json_to, for_command)
        return
    _KINDS[what](name, sets, json_to)
