"""Attention of sequences of different contexts on devices with units in their banks.

A device computes in turns: each turn has as many items as its units take at once (AttAcc: two rounds of a
head and query a channel; AiM: a sequence on each group of channels). Items of long contexts are first, and a
turn has the context of its longest item. The time of a turn is that of its program: the mean over equal turns
one after the other, so many that they last `_PERIODS` refresh periods, since a turn may begin at any phase of
refresh. The times of turns are summed. Against one program of all turns, in which a turn begins while the
last results of the one before move, the sum differs by the little that `tests/test_attention_device.py`
measures. The tokens of an expert are turns, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.config.banks import BankHardware
from ndpsim.dimm.banks.shapes import Attention, Turns, up
from ndpsim.dram.banks.programs import Line, Program, as_program
from ndpsim.dram.banks.run import run_program
from ndpsim.simulate.bank_operands import attention_operands, expert_program, joined, layouts_of, units_of
from ndpsim.simulate.results.bank_turn import BankTurn
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import Expert
from ndpsim.workload.models.attention import Attention as LayerAttention

_PERIODS = 20
_PERIODS_WRITTEN = 2  # new tokens take a hundredth of the time of attention
_MOST_TURNS = 1024
_PROMPT = 256  # tokens of a prompt whose writes are simulated


class AttentionTurns:
    """The turns of a kind of attention on a device.

    Args:
        hardware: the device.
        attention: the attention of a layer.
        model: the name of its model, for errors.
        cache: as in `simulate_expert`.

    Attributes:
        attention: the attention of a layer.
        sizes: items of a turn, and so on.

    Raises:
        InputError: the device has no layout for this attention.
    """

    def __init__(
        self, hardware: BankHardware, attention: LayerAttention, model: str, cache: bool | ResultCache = True
    ) -> None:
        self._hardware, self._cache, self.attention = hardware, cache, attention
        self._layouts = layouts_of(hardware, "turns", "turn", "appended")
        self._units = units_of(hardware)
        self._sequence = attention_operands(hardware, attention, model, 1)
        self.sizes: Turns = self._layouts.turns(self._sequence, self._units)
        self._times_ns: dict[tuple[int, int], float] = {}
        self._written_ns: dict[tuple[int, int, int], float] = {}

    def time_ns(self, contexts: list[int]) -> float:
        """The time of parts of sequences with these contexts, the longest first, and of their softmax."""
        sizes, total = self.sizes, 0.0
        items = len(contexts) * sizes.items
        for first in range(0, items, sizes.slots):
            count = min(sizes.slots, items - first)
            tokens = up(contexts[first // sizes.items], sizes.tokens) * sizes.tokens
            found = self._times_ns.get((tokens, count))
            if found is None:
                found = self._times_ns[tokens, count] = self.turn(tokens, count).time_ns
            total += found
        return total + self._softmax_ns(contexts)

    def _softmax_ns(self, contexts: list[int]) -> float:
        """Softmax of units beside the channels, which take the queries one after the other."""
        law, sequence = self._hardware.softmax, self._sequence
        each, score = law.get("ns_per_head", 0.0), law.get("ns_per_score", 0.0)
        queries = sequence.queries * sequence.heads // self.sizes.parts
        return queries * (len(contexts) * each + sum(contexts) * score)

    def prompts_ns(self, tokens: list[int]) -> float:
        """The time in which parts of prompts with so many new tokens, the most first, are written.

        A turn takes that of the last tokens of its longest prompt, at the next power of two, for all of them.
        """
        return self._turns_ns(tokens, _PROMPT)

    def written_ns(self, contexts: list[int]) -> float:
        """The time in which the new tokens of parts with these contexts, the longest first, are written.

        A turn writes at the next power of two of its longest context, all its tokens in one bank group.
        """
        return self._turns_ns(contexts, 0)

    def _turns_ns(self, contexts: list[int], most: int) -> float:
        """The time of the writes of a token of each context, or, with `most`, of all of its tokens."""
        slots, total = self.sizes.slots, 0.0
        items = len(contexts) * self.sizes.items
        for first in range(0, items, slots):
            count, context = min(slots, items - first), contexts[first // self.sizes.items]
            power = 1 << (context - 1).bit_length()
            tokens = min(power, most) if most else 1
            found = self._written_ns.get((power, count, tokens))
            if found is None:
                found = self.written(power, count, tokens).time_ns
                self._written_ns[power, count, tokens] = found
            total += found * context / tokens if most else found
        return total

    def written(self, context: int, items: int, tokens: int = 1) -> BankTurn:
        """The writes of the last tokens of so many items of this context."""
        operands = self._operands(context)
        what = {"kind": "new tokens", "items": items, **operands._asdict()}
        if tokens > 1:
            what["tokens"] = tokens
        program = self._layouts.appended(operands, self._units, items, tokens)
        return _mean_turn(
            self._hardware,
            what,
            lambda turns: joined([program] * turns, self._hardware),
            self._cache,
            _PERIODS_WRITTEN,
        )

    def check_length(self, context: int) -> None:
        """Check that a sequence of this context has a layout.

        Raises:
            InputError: it does not fit the banks.
        """
        self._layouts.turn(self._operands(context), self._units, 1)

    def _operands(self, context: int) -> Attention:
        return self._sequence._replace(context=context, longest=max(4096, context))

    def turn(self, context: int, items: int) -> BankTurn:
        """A turn of so many items of this context.

        Raises:
            InputError: the context is longer than the device has room for.
        """
        operands = self._operands(context)
        what = {"kind": "attention", "items": items, **operands._asdict()}
        lines_of: Callable[[int], Program | Sequence[Line]] = partial(
            self._layouts.turn, operands, self._units
        )
        alone = as_program(lines_of(items)).held()

        def repeated(turns: int) -> Program | Sequence[Line]:
            if self.sizes.overlap and items == self.sizes.slots:
                return lines_of(items * turns)
            return joined([alone] * turns, self._hardware)

        return _mean_turn(self._hardware, what, repeated, self._cache)


def bank_expert_token(hardware: BankHardware, expert: Expert, cache: bool | ResultCache = True) -> BankTurn:
    """A token of an expert, whose weights are read again for each token.

    Raises:
        InputError: the expert does not fit the banks.
    """
    what = {"kind": "expert", "hidden": expert.hidden, "intermediate": expert.intermediate}
    return _mean_turn(hardware, what, lambda tokens: expert_program(hardware, expert, tokens)[0], cache)


def _mean_turn(
    hardware: BankHardware,
    what: Mapping[str, Any],
    lines_of: Callable[[int], Program | Sequence[Line]],
    cache: bool | ResultCache,
    periods: int = _PERIODS,
) -> BankTurn:
    """The mean of a program over equal ones, one after the other.

    what: everything on which the program depends, besides the device. lines_of: of a number of turns.
    """
    watch, config = Stopwatch(), {"hardware": hardware.to_dict(), **what}
    lookup = Lookup(BankTurn, cache, False, (config, hardware.burst_bytes, periods), {})
    found = lookup.find(watch, lambda share: None)
    if found is not None:
        return found
    device, turns = hardware.device, 1
    run = run_program(lines_of(turns), device)
    if device.refreshes:
        turns = min(up(periods * device.timings["nREFI"], run.cycles), _MOST_TURNS)
        run = run if turns == 1 else run_program(lines_of(turns), device, earlier=run)
    time_ns = float(run.cycles * device.clock_ps / 1000) / turns
    return lookup.store(BankTurn(time_ns, turns, run.cycles, run.counts, config, **watch.times()))


def check_fits(needed: int, capacity: int, what: str) -> None:
    """Refuse keys and values that a device has no room for.

    Raises:
        InputError: it has not.
    """
    if needed > capacity:
        problem = f"{what} need {needed:,} B of each device with units in its banks, which has {capacity:,} B"
        raise InputError(problem, "too-large", key="context")
