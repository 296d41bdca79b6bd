"""Experts and attention on devices with units in their banks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

from ndpsim.base import plugins
from ndpsim.base.arguments import Sets, flag, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.gemv import MAX_TOKENS
from ndpsim.base.options.pim import ATTENTION
from ndpsim.config.banks import BankHardware
from ndpsim.dimm import banks
from ndpsim.dimm.banks.shapes import Attention, Gemv, Units, refuse_rows, up
from ndpsim.dram.banks.programs import Line, Piece, Program, as_program
from ndpsim.simulate.pim import bank_hardware_of, run_lines
from ndpsim.simulate.results.pim import PimResult
from ndpsim.workload.models import Expert, MoeShape, load_model
from ndpsim.workload.models.attention import Attention as LayerAttention


def layouts_of(hardware: BankHardware, *needed: str) -> Any:
    """The module of `ndpsim.dimm.banks` with the layouts of a device, which has the functions `needed`.

    Raises:
        InputError: there is none, or a function is missing.
    """
    extension, modules = hardware.device.extension, plugins.modules_by_name(banks)
    name = next((key for key in (extension.name, extension.name.partition("-")[0]) if key in modules), "")
    if not name:
        known = ", ".join(key for key, module in modules.items() if hasattr(module, "PLACES"))
        problem = f"no layout of operands is known for {hardware.name} (known: {known})"
        raise InputError(problem, "unsupported", key="hw")
    for function in needed:
        if not hasattr(modules[name], function):
            problem = f"the layouts of {hardware.name} have no {function}"
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
        unit.get("vectors", 1),
    )


def joined(parts: Sequence[Program | Sequence[Line]], hardware: BankHardware) -> Program:
    """Programs one after the other: one end, and a barrier between two."""
    # A program that comes several times is made once.
    held = {id(part): as_program(part).held() for part in parts}
    programs, words = [held[id(part)] for part in parts], hardware.device.extension.requests
    barriers = {name for name, word in words.items() if word.barrier}
    known = barriers.union(*(words if part.words is None else part.words for part in programs))
    return Program(lambda: _one_after_the_other(programs, hardware), known)


def _one_after_the_other(parts: Sequence[Program], hardware: BankHardware) -> Iterator[Line | Piece]:
    words = hardware.device.extension.requests
    barrier = next((name for name, word in words.items() if word.barrier), None)
    for number, part in enumerate(parts, start=1):
        for piece in part.pieces():
            ends = words[piece.words[piece.word[-1]]].ends and number < len(parts)
            kept = piece.until(-1) if ends else piece
            if len(kept.word):
                yield kept
        if barrier is not None and number < len(parts):
            yield Line(barrier, tuple(range(hardware.device.sizes["channels"])), column=0)


def _with_workload(result: PimResult, **workload: Any) -> PimResult:
    return replace(result, config={**result.config, "workload": workload})


def simulate_bank_expert(
    hw: str | PathLike[str] | BankHardware,
    model: str | PathLike[str] | MoeShape | Expert,
    tokens: int = 1,
    sets: Sets = (),
    rules: str = "standard",
    record_commands: bool = False,
) -> PimResult:
    """Simulate one expert: gate, if there is one, and up as one matrix, then down.

    The activation function is outside.

    Weights are read again for each token. Weights have the element of the units.

    >>> ndpsim.simulate_bank_expert("aim", ndpsim.Expert(256, 128)).cycles > 0
    True

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
    result = run_lines([expert_program(hardware, expert, tokens)[0]], hardware, record_commands)
    return _with_workload(
        result, kind="expert", hidden=expert.hidden, intermediate=expert.intermediate, tokens=tokens
    )


def expert_program(
    hardware: BankHardware, expert: Expert, tokens: int, first_row: int = 0
) -> tuple[Program, dict[str, range]]:
    """The program of an expert, and the rows of its matrices in each bank; the cache has those before.

    Raises:
        InputError: the matrices do not fit, or no layout is known.
    """
    layouts, units = layouts_of(hardware), units_of(hardware)
    *inward, _ = (matrix.name for matrix in expert.matrices())
    first = Gemv(expert.hidden, len(inward) * expert.intermediate)
    second = Gemv(expert.intermediate, expert.hidden)
    row = first_row + layouts.rows_of(first, units)
    end = row + layouts.rows_of(second, units)
    if first_row:
        refuse_rows(end, units, "keys, values and weights")
    parts = [layouts.gemv(first, units, first_row), layouts.gemv(second, units, row)] * tokens
    rows = {" and ".join(inward): range(first_row, row), "down": range(row, end)}
    return joined(parts, hardware), rows


def simulate_bank_attention(
    hw: str | PathLike[str] | BankHardware,
    model: str | PathLike[str] | MoeShape,
    context: int,
    batch: int = 1,
    sets: Sets = (),
    rules: str = "standard",
    record_commands: bool = False,
    append: bool = False,
    append_tokens: int = 1,
    expert_tokens: int = 0,
) -> PimResult:
    """Simulate scores and context of one step of a layer, for sequences of one length.

    AttAcc has a query of a head a channel, or as many as its units multiply with a column at once
    (`unit.vectors`), each with keys and values of its own. AiM has a head of keys and values a channel, and
    as many sequences beside each other as its channels have room for. Latent vectors (MLA) are a head whose
    values are the first elements of its keys; the products that expand them are outside.

    >>> ndpsim.simulate_bank_attention("attacc", "mixtral-8x7b", context=64).cycles > 0
    True

    Args:
        hw: a device with units in its banks, see `run_pim`.
        model: a model whose attention has keys and values.
        context: tokens in the cache of a sequence.
        batch: sequences.
        sets, rules: see `load_bank_hardware`.
        record_commands: keep every command.
        append: simulate the writes of each sequence's last tokens instead, keys and values in their place.
        append_tokens: so many of them; as many as the context has: the writes of a prompt.
        expert_tokens: tokens of an expert of the model afterwards, whose weights lie in the rows behind the
            cache in the same banks.

    Raises:
        InputError: an argument is wrong, or the cache and the weights do not fit.
    """
    hardware, shape = bank_hardware_of(hw, sets, rules), load_model(model)
    program, rows = attention_program(hardware, shape, context, batch)
    workload = {"kind": "attention", "model": shape.name, "context": context, "batch": batch}
    whole_number(append_tokens, "append_tokens", 1, context)
    if flag(append, "append"):
        program = _appending_program(hardware, shape, context, batch, append_tokens)
        workload |= {"kind": "new tokens"} | ({"tokens": append_tokens} if append_tokens > 1 else {})
    if whole_number(expert_tokens, "expert_tokens", 0, MAX_TOKENS):
        first_row = _rounds(hardware, shape, batch) * max(region.stop for region in rows.values())
        after, _ = expert_program(hardware, shape.expert, expert_tokens, first_row)
        program, workload = joined([program, after], hardware), {**workload, "expert_tokens": expert_tokens}
    return _with_workload(run_lines([program], hardware, record_commands), **workload)


def _rounds(hardware: BankHardware, shape: MoeShape, batch: int) -> int:
    """Rounds of sequences beside each other, which have rows of their own; other layouts know all rows."""
    if not _is_side_by_side(hardware):
        return 1
    operands = attention_operands(hardware, shape.attention, shape.name, 1)
    return up(batch, hardware.device.sizes["channels"] // operands.heads)


def _is_side_by_side(hardware: BankHardware) -> bool:
    """Whether the layout is that of a sequence on as many channels as it has heads of keys and values."""
    return getattr(layouts_of(hardware), "SIDE_BY_SIDE", False)


def _appending_program(
    hardware: BankHardware, shape: MoeShape, context: int, batch: int, tokens: int
) -> Program:
    """The program that writes the last tokens of each sequence; its attention has a program."""
    operands = attention_operands(hardware, shape.attention, shape.name, context)
    layouts, units = layouts_of(hardware, "turns", "appended"), units_of(hardware)
    turns = layouts.turns(operands, units)
    items = batch * turns.parts * turns.items
    most = items if turns.overlap else turns.slots
    counts = [min(most, items - first) for first in range(0, items, most)]
    return joined([layouts.appended(operands, units, count, tokens) for count in counts], hardware)


def attention_program(
    hardware: BankHardware, shape: MoeShape, context: int, batch: int
) -> tuple[Program, dict[str, range]]:
    """The program of a layer's attention, and the rows of keys and values in each bank.

    Raises:
        InputError: an argument is wrong, the cache does not fit, or no layout is known.
    """
    ATTENTION["context"].checked(context)
    ATTENTION["batch"].checked(batch)
    attention, missing = shape.attention, shape.attention_problem
    if attention is None:
        problem = (
            missing or f"{shape.name} has no sizes of attention: num_attention_heads and the keys beside it"
        )
        raise InputError(problem, "missing", key="model")
    operands, layouts = attention_operands(hardware, attention, shape.name, context), layouts_of(hardware)
    if not _is_side_by_side(hardware):
        operands = operands._replace(heads=operands.heads * batch)
        units = units_of(hardware)
        return layouts.attention(operands, units), layouts.cache_rows(operands, units)
    units = units_of(hardware, operands.heads)
    program = _beside(layouts.attention(operands, units), operands.heads, batch, hardware)
    return program, layouts.cache_rows(operands, units)


def refuse_index(attention: LayerAttention, model: str, key: str) -> None:
    """Refuse attention whose index chooses the tokens; `key`: what asks for units in banks.

    Raises:
        InputError: it has an index.
    """
    if attention.index:
        problem = f"units in banks do not choose tokens, as the index of {model} does"
        raise InputError(problem, "unsupported", key=key)


def _operands(attention: LayerAttention, context: int, model: str) -> Attention:
    """The operands of a step of a sequence; tokens that its last one does not attend to are left out.

    Raises:
        InputError: an index chooses the tokens.
    """
    refuse_index(attention, model, "model")
    tokens, longest = context - attention.first_key(context - 1), max(4096, context)
    if attention.latent_rank:
        size = attention.latent_rank + attention.rope_size
        return Attention(1, attention.heads, size, tokens, longest, attention.latent_rank, True)
    queries = attention.heads // attention.kv_heads
    return Attention(attention.kv_heads, queries, attention.head_size, tokens, longest, attention.value_size)


def attention_operands(hardware: BankHardware, attention: object, model: str, context: int) -> Attention:
    """The attention of a sequence on a device, which has keys and values of one size for each head.

    Raises:
        InputError: no layout is known for this attention, or on this device.
    """
    if not isinstance(attention, LayerAttention) or (
        attention.head_size != attention.value_size and not attention.latent_rank
    ):
        problem = f"the attention of {model} has no layout on units in banks"
        raise InputError(problem, "unsupported", key="model")
    layouts_of(hardware, "attention", "cache_rows")
    return _operands(attention, context, model)


def _beside(program: Program, heads: int, batch: int, hardware: BankHardware) -> Program:
    """The program of one sequence, for as many sequences beside each other as there are channels for."""
    most = hardware.device.sizes["channels"] // heads
    if most == 0:
        problem = f"{heads} heads of keys and values need as many channels"
        raise InputError(problem, "unsupported", key="model")

    def copied(count: int) -> Iterator[Piece]:
        for piece in program.pieces():
            lists = (tuple(c + n * heads for n in range(count) for c in listed) for listed in piece.lists)
            yield piece._replace(lists=tuple(lists))

    counts = [min(most, batch - first) for first in range(0, batch, most)]
    return joined([Program(partial(copied, count), program.words) for count in counts], hardware)
