"""Experts and attention on devices with units in their banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from ndpsim.base import plugins
from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.gemv import MAX_TOKENS
from ndpsim.base.options.pim import ATTENTION
from ndpsim.config.banks import BankHardware
from ndpsim.dimm import banks
from ndpsim.dimm.banks.shapes import Attention, Gemv, Units
from ndpsim.dram.banks.programs import Line
from ndpsim.simulate.pim import bank_hardware_of, run_lines
from ndpsim.simulate.results.pim import PimResult
from ndpsim.workload.models import Expert, MoeShape, load_model
from ndpsim.workload.models.attention import Attention as LayerAttention


def layouts_of(hardware: BankHardware) -> Any:
    """The module of `ndpsim.dimm.banks` with the layouts of a device."""
    extension, modules = hardware.device.extension, plugins.modules_by_name(banks)
    name = next((key for key in (extension.name, extension.name.partition("-")[0]) if key in modules), "")
    if not name:
        known = ", ".join(key for key in modules if key != "shapes")
        problem = f"no layout of operands is known for {hardware.name} (known: {known})"
        raise InputError(problem, "unsupported", key="hw")
    return modules[name]


def units_of(hardware: BankHardware, channels: int | None = None) -> Units:
    """What layouts need of a device.

    Raises:
        InputError: it has no units at the place that was asked for.
    """
    device, unit, places = hardware.device, hardware.unit, layouts_of(hardware).PLACES
    level = unit.get("level", "bank")
    if level not in places:
        problem = f"{hardware.name} has no units at a {level} (it has: {', '.join(places)})"
        raise InputError(problem, "unsupported", key="engine")
    return Units(
        level,
        hardware.burst_bytes // unit.get("element_bytes", 2),
        unit.get("accumulators", 1),
        device.sizes["columns"],
        device.sizes["rows"],
        channels or device.sizes["channels"],
        device.ideal,
    )


def joined(parts: Sequence[Sequence[Line]], hardware: BankHardware) -> list[Line]:
    """Programs one after the other: one end, and a barrier between two."""
    words = hardware.device.extension.requests
    barrier = next((name for name, word in words.items() if word.barrier), None)
    lines: list[Line] = []
    for part in parts:
        if lines and barrier is not None:
            lines.append(Line(barrier, tuple(range(hardware.device.sizes["channels"])), row=0, column=0))
        lines += [line for line in part if not words[line.word].ends]
    return [*lines, *(line for line in parts[-1][-1:] if words[line.word].ends)]


def _with_workload(result: PimResult, **workload: Any) -> PimResult:
    return replace(result, config={**result.config, "workload": workload})


def simulate_bank_expert(
    hw: str | PathLike[str] | BankHardware,
    model: str | PathLike[str] | MoeShape | Expert,
    tokens: int = 1,
    sets: Sequence[str] = (),
    rules: str = "standard",
    record_commands: bool = False,
) -> PimResult:
    """Simulate one expert: gate and up as one matrix, then down; the activation function is outside.

    Weights are read again for each token. Weights have the element of the units.

    Args:
        hw: a device with units in its banks, see `run_pim`.
        model: a model, or an expert's shape.
        tokens: tokens of the expert.
        sets, rules: see `load_bank_hardware`.
        record_commands: keep every command.

    Raises:
        InputError: an argument is wrong, or the expert does not fit.
    """
    hardware = bank_hardware_of(hw, sets, rules)
    expert = model if isinstance(model, Expert) else load_model(model).expert
    whole_number(tokens, "tokens", 1, MAX_TOKENS)
    result = run_lines(expert_lines(hardware, expert, tokens), hardware, record_commands)
    return _with_workload(
        result, kind="expert", hidden=expert.hidden, intermediate=expert.intermediate, tokens=tokens
    )


def expert_lines(hardware: BankHardware, expert: Expert, tokens: int) -> list[Line]:
    """The program of an expert: see `simulate_bank_expert`."""
    layouts, units = layouts_of(hardware), units_of(hardware)
    first = Gemv(expert.hidden, 2 * expert.intermediate)
    second = Gemv(expert.intermediate, expert.hidden)
    row = layouts.rows_of(first, units)
    return joined([layouts.gemv(first, units), layouts.gemv(second, units, row)] * tokens, hardware)


def simulate_bank_attention(
    hw: str | PathLike[str] | BankHardware,
    model: str | PathLike[str] | MoeShape,
    context: int,
    batch: int = 1,
    sets: Sequence[str] = (),
    rules: str = "standard",
    record_commands: bool = False,
) -> PimResult:
    """Simulate scores and context of one step of a layer, for sequences of one length.

    AttAcc has a head a channel, with one query each; AiM has a head of keys and values a channel, and as many
    sequences beside each other as its channels have room for. Keys are read again for each query.

    Args:
        hw: a device with units in its banks, see `run_pim`.
        model: a model whose attention has keys and values.
        context: tokens in the cache of a sequence.
        batch: sequences.
        sets, rules: see `load_bank_hardware`.
        record_commands: keep every command.

    Raises:
        InputError: an argument is wrong, or the cache does not fit.
    """
    hardware, shape = bank_hardware_of(hw, sets, rules), load_model(model)
    ATTENTION["context"].checked(context)
    ATTENTION["batch"].checked(batch)
    attention, missing = shape.attention, shape.attention_problem
    if attention is None:
        problem = (
            missing or f"{shape.name} says nothing of attention: num_attention_heads and the keys beside it"
        )
        raise InputError(problem, "missing", key="model")
    layouts, operands = layouts_of(hardware), attention_operands(hardware, attention, shape.name, context)
    heads = operands.heads
    if hardware.device.extension.controller == "look-ahead":
        lines = layouts.attention(operands._replace(heads=heads * batch), units_of(hardware))
    else:
        lines = _beside(layouts.attention(operands, units_of(hardware, heads)), heads, batch, hardware)
    result = run_lines(lines, hardware, record_commands)
    return _with_workload(result, kind="attention", model=shape.name, context=context, batch=batch)


def attention_operands(hardware: BankHardware, attention: object, model: str, context: int) -> Attention:
    """The attention of a sequence on a device.

    Raises:
        InputError: no layout is known for this attention, or on this device.
    """
    if (
        not isinstance(attention, LayerAttention)
        or attention.kind == "mla"
        or attention.head_size != attention.value_size
    ):
        problem = f"the attention of {model} has no layout on units in banks"
        raise InputError(problem, "unsupported", key="model")
    if not hasattr(layouts_of(hardware), "attention"):
        raise InputError(f"no layout of attention is known for {hardware.name}", "unsupported", key="hw")
    queries = attention.heads // attention.kv_heads
    return Attention(attention.kv_heads, queries, attention.head_size, context, max(4096, context))


def _beside(lines: Sequence[Line], heads: int, batch: int, hardware: BankHardware) -> list[Line]:
    """The program of one sequence, for as many sequences beside each other as there are channels for."""
    most = hardware.device.sizes["channels"] // heads
    if most == 0:
        problem = f"{heads} heads of keys and values need as many channels"
        raise InputError(problem, "unsupported", key="model")
    parts = []
    for first in range(0, batch, most):
        count = min(most, batch - first)
        parts.append(
            [
                line._replace(channels=tuple(c + n * heads for n in range(count) for c in line.channels))
                for line in lines
            ]
        )
    return joined(parts, hardware)
