"""``ndpsim show``: show one thing in full: hw, part, model, org, timing, schema, layout, policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ndpsim.base.arguments import choice
from ndpsim.base.errors import InputError
from ndpsim.base.options import refuse, table
from ndpsim.base.options.hardware import WEIGHTS
from ndpsim.base.options.show import PROCESSORS, SHOW
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, hardware_of, naming, picture, plot_of, write_json

if TYPE_CHECKING:
    from ndpsim.dram.spec import Standard

_OUTPUTS = table({"Results": (*picture("For a layout: draw where the weights are.", "layout"), JSON)})


def _write_or_print(
    options: Options, plain: Callable[[], Mapping[str, Any]], show: Callable[[], None]
) -> None:
    """Write JSON to a file, or print."""
    if "json" in options:
        write_json(plain(), options["json"])
    else:
        show()


def _show_missing(options: Options) -> None:
    """Print the values that a hardware file lacks for a command, or all its values if it lacks none."""
    from dataclasses import asdict

    from ndpsim.config.load import missing_of
    from ndpsim.report.printing import print_table

    command = options["for"]
    missing = missing_of(options["name"], options.get("set", ()), command)
    if not missing:
        _show_hw(options)
        return
    columns = ("key", "unit", "for instance", "look in", "needed by")
    rows = [(value.key, value.unit, value.example, value.look_up, value.needed_by) for value in missing]
    title = f"{options['name']} lacks for {command}"
    _write_or_print(
        options,
        lambda: {"missing": [asdict(value) for value in missing]},
        lambda: print_table(title, columns, rows, left=None, heading=3),
    )
    if any(value.needed_by in (command, "every command") for value in missing):
        raise click.exceptions.Exit(1)


def _show_hw(options: Options) -> None:
    from ndpsim.config import load_hardware
    from ndpsim.dram.energy import find_currents, power_rows
    from ndpsim.report.text import print_rows

    hardware = load_hardware(options["name"], options.get("set", ()))
    if "json" in options:
        dropped = {"dropped_overrides": dict(hardware.dropped)} if hardware.dropped else {}
        write_json(hardware.to_dict() | dropped, options["json"])
    else:
        currents = find_currents(hardware.lane_device(), hardware.power_changes)
        rows = hardware.rows() + ([] if currents is None else power_rows(currents))
        print_rows(f"{hardware.system.title or hardware.system.name} ({hardware.file})", rows)


def _show_part(options: Options) -> None:
    from ndpsim.config import load_part
    from ndpsim.report.bundled import print_part

    part = load_part(options["name"])
    _write_or_print(options, part.to_dict, lambda: print_part(part))


def _show_model(options: Options) -> None:
    from ndpsim.workload.models import load_model

    values = load_model(options["name"]).to_dict()
    _show_plain(options, values if "json" in options else _readable_attention(values))


def _readable_attention(values: dict[str, Any]) -> dict[str, Any]:
    """A model's values with a row for each kind of attention: its layers, what they cache, its sizes."""
    held = values["attention_layers"]
    sizes = values["attention"]["kinds"] if len(held) > 1 else [values["attention"]]
    rows = {}
    for number, (kind, sizes_of_kind) in enumerate(zip(held, sizes, strict=False), 1):
        most = "" if kind["kv_tokens"] is None else f", {kind['kv_tokens']} tokens at most"
        cached = f"{kind['kv_bytes_per_token']} B a token{most}"
        if kind["state_bytes"]:
            cached = f"{kind['state_bytes']} B a sequence"
        nonzero = ", ".join(f"{name} {size}" for name, size in sizes_of_kind.items() if size)
        name = "attention" if len(held) == 1 else f"attention {number}"
        rows[name] = f"{kind['layers']} layers of {kind['kind']}, each caches {cached} ({nonzero})"
    shown: dict[str, Any] = {}
    for key, value in values.items():
        if key == "attention" and rows:
            shown |= rows
        elif key == "dense_layers":
            shown[key] = f"{len(value)} (layer {', '.join(map(str, value))})" if value else "none"
        elif key != "attention_layers" and value != "":
            shown[key] = value
    return shown


def _rules_with(options: Options, standard: Standard, field: str) -> list[str]:
    """The sets of rules that have the preset; that of ``--rules``, if it is given."""
    from ndpsim.base.choices import RULES

    name = options["name"]
    having = [rules for rules in RULES if name in getattr(standard.under(rules), field)]
    chosen = options.get("rules")
    if chosen is not None and chosen not in having:
        problem = f"{name} is a preset of --rules {having[0]}, not of --rules {chosen}"
        raise InputError(problem, "unsupported", key="--rules")
    return having if chosen is None else [chosen]


def _show_org(options: Options) -> None:
    from dataclasses import asdict

    from ndpsim.dram.spec.timing_rows import standard_of

    name = options["name"]
    standard = standard_of(name, "organisations", "show org", "organisation")
    having = _rules_with(options, standard, "organisations")
    usual = {"stacks": 1, "ranks": 0}  # most kinds have no further values
    values, *others = (asdict(standard.under(rules).organisations[name]) for rules in having)
    shown = {key: value for key, value in values.items() if usual.get(key) != value}
    for key, value in (others[0] if others else values).items():
        if value != values[key]:
            shown[f"{key}_of_{having[1]}"] = value
    under = "" if len(having) > 1 else f", under --rules {having[0]}"
    _show_plain(options, shown, f"{name}: what a chip has, density_mb in Mbit{under}")


def _show_timing(options: Options) -> None:
    from ndpsim.dram.spec.timing_rows import standard_of, timing_rows
    from ndpsim.report.timings import print_timings, timings_dict

    name, org = options["name"], options.get("org")
    standard = standard_of(name, "speeds", "show timing", "timing preset")
    having = _rules_with(options, standard, "speeds")
    with naming(org="--org"):
        rows = timing_rows(standard, name, org, having)
    _write_or_print(
        options,
        lambda: timings_dict(standard, name, org, having, rows),
        lambda: print_timings(standard, name, org, having, rows),
    )


def _show_plain(options: Options, values: dict[str, Any], title: str = "") -> None:
    from ndpsim.report.text import print_pairs

    _write_or_print(options, lambda: values, lambda: print_pairs(values, title))


def _show_schema(options: Options) -> None:
    from ndpsim.config import json_schema

    choice(options["name"], "show schema", ["hw"], "schema")
    write_json(json_schema(), options.get("json", "-"))


def _show_layout(options: Options) -> None:
    from ndpsim.config.banks import is_bank_hardware

    if "hw" in options and is_bank_hardware(options["hw"]):
        _show_bank_layout(options)
        return
    from ndpsim.report.bundled import print_layout
    from ndpsim.simulate import place_expert
    from ndpsim.studies.sweeps.command import weight_format

    plot = plot_of(options, "layout")
    hardware = hardware_of(options, SHOW)
    with naming(layout="show layout"):
        placed = place_expert(hardware, SHOW.value(options, "model"), options["name"], weight_format(options))
    if plot is not None:
        from ndpsim.report.pictures.layout import layout_figure

        plot.draw(layout_figure, placed)
    answer(options, placed.to_dict, lambda: print_layout(placed))


def _show_bank_layout(options: Options) -> None:
    """The operands of a device with units in its banks."""
    from ndpsim.report.bundled import print_bank_layout
    from ndpsim.simulate.bank_layout import place_bank_operands

    refuse(options, "cannot be used with units in banks", "panels", *_OF_WEIGHTS)
    plot = plot_of(options, "bank-layout")
    placed = place_bank_operands(
        options["hw"], SHOW.value(options, "model"), options["name"], options.get("set", ())
    )
    if plot is not None:
        from ndpsim.report.pictures.layout import bank_layout_figure

        plot.draw(bank_layout_figure, placed)
    answer(options, placed.to_dict, lambda: print_bank_layout(placed))


def _show_processor(options: Options) -> None:
    from ndpsim.inference.processors import load_processors
    from ndpsim.report.bundled import print_expert_times
    from ndpsim.studies.sweeps.command import weight_format
    from ndpsim.workload.models import load_model

    name, form = choice(options["name"], "show processor", PROCESSORS, "processor"), weight_format(options)
    processors = load_processors(SHOW.value(options, "hw"), options.get("set", ()))
    processor = processors.gpu if name == "gpu" else processors.cpu
    shape = load_model(SHOW.value(options, "model"))
    times = [processor.expert_time(shape.expert, count, form) for count in SHOW.value(options, "tokens")]
    _write_or_print(
        options,
        lambda: {"model": shape.name, "expert_times": [time.to_dict() for time in times]},
        lambda: print_expert_times(shape.name, processors.hardware.system.name, times),
    )


def _show_policy(options: Options) -> None:
    from dataclasses import asdict

    from ndpsim.policies.choose import parameters_of, policy_class
    from ndpsim.report.bundled import print_policy

    policy = policy_class(options["name"])
    parameters = parameters_of(policy)
    about: dict[str, Any] = {"name": policy.name, "title": policy.title, "paper": policy.paper}
    about |= {"engines": list(policy.engines), "needs": list(policy.needs)}
    about |= {"mixed_steps": policy.mixed_steps}
    about |= {"parameters": [asdict(parameter) for parameter in parameters]}
    _write_or_print(options, lambda: about, lambda: print_policy(policy, parameters))


def _show_weights(options: Options) -> None:
    from ndpsim.report.bundled import print_weight_file, weight_file_dict
    from ndpsim.workload.models import load_model
    from ndpsim.workload.models.weights import weight_file

    with naming(weights="show weights"):
        file = weight_file(options["name"], load_model(SHOW.value(options, "model")))
    _write_or_print(options, lambda: weight_file_dict(file), lambda: print_weight_file(file))


def _show_claim(options: Options) -> None:
    from ndpsim.studies.claims.claim import read_tolerances
    from ndpsim.studies.claims.evaluate import chosen_claims
    from ndpsim.studies.claims.words import claim_dict, print_claim

    claims, tolerances = chosen_claims([options["name"]]), read_tolerances()

    def show() -> None:
        for paper, claim in claims:
            print_claim(paper, claim, tolerances)

    _write_or_print(options, lambda: {"claims": [claim_dict(*pair) for pair in claims]}, show)


_SHOWN = {
    "hw": _show_hw,
    "part": _show_part,
    "model": _show_model,
    "org": _show_org,
    "timing": _show_timing,
    "schema": _show_schema,
    "layout": _show_layout,
    "processor": _show_processor,
    "policy": _show_policy,
    "weights": _show_weights,
    "claim": _show_claim,
}
_OF_WEIGHTS = tuple(parameter.name for parameter in WEIGHTS)
#: Options that only some kinds of object use.
_USED = {
    "hw": ("set", "for"),
    "org": ("rules",),
    "timing": ("org", "rules"),
    "layout": ("hw", "model", "set", "plot", "size", "title", "panels", *_OF_WEIGHTS),
    "processor": ("hw", "model", "set", "tokens", *_OF_WEIGHTS),
    "weights": ("model",),
}


@taking(
    SHOW,
    _OUTPUTS,
    examples=(
        "ndpsim show hw trimoe --set dimm.ranks=2",
        "ndpsim show layout attention --hw attacc --model mixtral-8x7b",
    ),
)
def command(options: Options) -> None:
    """Show one object: hw, part, model, org, timing, schema hw, layout, processor, policy, weights or claim.

    `show hw` prints every value of a system with its unit and source, after the changes of --set. With --for,
    it lists all values that the file lacks for a command, with an example and a place to find each; the exit
    status is 1 if the command cannot run. `show part` prints every value of a CPU, memory, GPU or link. `show
    layout` prints the bytes of each matrix of an expert on each DIMM; with units in banks, `show layout gemv`
    and `show layout attention` (of a sequence of 4,096 tokens) print the rows of operands in a bank. `show
    timing` prints every timing of a speed preset in clocks and ns, under both sets of rules where they
    differ, with its source. `show policy` prints the parameters of a policy of ndpsim moe, or of your own
    FILE.py:CLASS. `show processor gpu` (or cpu) prints the time of an expert for several numbers of tokens.
    `show weights` prints the bits of each part of a model in a weight file, and its size. `show claim` prints
    a published figure: quote, reading, tolerance, verdict, and the commands that make the simulated one."""
    what = options["what"]
    for name in options.keys() - {"what", "name", "json", *_USED.get(what, ())}:
        users = [kind for kind, used in _USED.items() if name in used]
        refuse(options, f"applies to show {', '.join(users)}; show {what} does not use it", name)
    with naming(**{kind: f"show {what}" for kind in (what,) if kind not in ("layout", "processor")}):
        (_show_missing if "for" in options else _SHOWN[what])(options)
