"""Routing of sequences that arrive and end: a token's experts depend on its sequence and its position there.

A token's choices depend only on the seed, its sequence, its position and the layer, so that the routing of a
sequence does not depend on the batches of a schedule. Choices are drawn as by `generate_routing`: equal seeds
give equal popularity, and prompt tokens have that of a prefill. A prompt token repeats the previous one with
`token_stickiness`, a decoded token with `step_stickiness`; sequences do not repeat each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing.drawing import Lines, in_units, shuffled
from ndpsim.workload.routing.generate import generate_routing, prefill_shares, randoms_of, shape_of, shares_of
from ndpsim.workload.routing.spec import RoutingSpec, Shares, parse_spec
from ndpsim.workload.routing.trace import Ids, Routing

Ints = NDArray[np.int64]

_ORDERS = 16  # number of lines of a layer, each with another order of its experts
_SEQUENCES, _TOKENS = 64, 256  # of a trace whose popularity drifts; prompts and outputs have 256
_LINES = 8  # a source of random numbers besides those of `ndpsim.workload.routing.generate`
_STEP = np.uint64(0x9E3779B97F4A7C15)


class TokenRouting(Protocol):
    """Routes the tokens of sequences, independently of other sequences."""

    def ids(self, sequences: Ints, positions: Ints) -> Ids:
        """The experts of tokens, int16 [layer, token, k].

        Args:
            sequences: the sequence of each token.
            positions: the position of each token in its sequence, from 0.
        """


def routing_of_sequences(
    routing: str | RoutingSpec | Routing, model: MoeShape, seed: int
) -> Callable[[Ints], TokenRouting]:
    """The routing of the tokens of sequences, from the prompt tokens of each.

    Args:
        routing: a SPEC, or a trace of all layers with experts. A SPEC whose popularity drifts from step to
            step is generated as a trace.

    Raises:
        InputError: the SPEC is impossible; or, from the returned function, the trace has no decode steps.
    """
    if not isinstance(routing, Routing):
        spec = parse_spec(routing)
        if not spec.settings["step_drift"]:
            return lambda prompt_tokens: SequenceRouting(spec, model, prompt_tokens, seed)
        routing = generate_routing(spec, model, _SEQUENCES, _TOKENS, _TOKENS, seed)
    trace = routing
    return lambda prompt_tokens: ReplayedRouting(trace, prompt_tokens, seed)


class SequenceRouting:
    """Routes the tokens of sequences of one model.

    Args:
        spec: a SPEC whose popularity does not drift from step to step.
        prompt_tokens: the number of prompt tokens of each sequence.

    Raises:
        InputError: the SPEC is impossible.
    """

    def __init__(self, spec: str | RoutingSpec, model: MoeShape, prompt_tokens: Ints, seed: int) -> None:
        spec = parse_spec(spec)
        parameters, shape = spec.settings, shape_of(spec, model)
        self._prompt_tokens, self._k = prompt_tokens, shape.experts_per_token
        self._sticks = parameters["token_stickiness"], parameters["step_stickiness"]
        decode = shares_of(spec, shape, seed)
        prefill = prefill_shares(decode, spec, shape, seed)

        def lines(shares: Shares) -> Lines:
            drawn = Lines(len(shares), _ORDERS, shares.shape[1], self._k)
            for layer, random in enumerate(randoms_of(shape.layers, seed, _LINES)):
                chances = in_units(shares[layer], self._k)
                for line in range(_ORDERS):
                    drawn.set(layer, line, shuffled(len(chances), random), chances)
            return drawn

        self._decode = lines(decode)
        self._prefill = self._decode if prefill is decode else lines(prefill)
        with np.errstate(over="ignore"):
            self._layers = mixed(np.array(shape.layers, np.uint64) + np.uint64(1) + _STEP * np.uint64(seed))

    def ids(self, sequences: Ints, positions: Ints) -> Ids:
        prompts = self._prompt_tokens[sequences]
        decoded = positions >= prompts
        cells = self._cells(sequences, self._origins(sequences, positions, np.where(decoded, prompts, 0)))
        if self._prefill is self._decode or decoded.all():
            return self._decode.chosen_by_numbers(cells, _STEP)
        ids = np.empty((*cells.shape, self._k), np.int16)
        for lines, mask in ((self._decode, decoded), (self._prefill, ~decoded)):
            ids[:, mask] = lines.chosen_by_numbers(np.ascontiguousarray(cells[:, mask]), _STEP)
        return ids

    def _cells(self, sequences: Ints, positions: Ints) -> Numbers:
        """A random number for each token in each layer; `positions`: [token] or [layer, token]."""
        tokens = mixed(mixed(sequences.astype(np.uint64) * _STEP) + positions.astype(np.uint64))
        return mixed(np.atleast_2d(tokens) + self._layers[:, None])

    def _origins(self, sequences: Ints, positions: Ints, first: Ints) -> Ints:
        """The position whose choices each token has, mostly its own: [token] or [layer, token]."""
        if not any(self._sticks):
            return positions
        chance = np.where(first > 0, self._sticks[1], self._sticks[0])
        origins = np.tile(positions, (len(self._layers), 1))
        repeats = np.ones(origins.shape, np.bool_)
        while repeats.any():
            drawn = mixed(self._cells(sequences, origins) ^ _STEP) >> np.uint64(11)
            repeats &= (drawn * 2.0**-53 < chance) & (origins > first)
            origins -= repeats
        return origins


# ---- Routing of sequences that arrive and end, from a trace: each sequence has the choices of a recorded one
#
# The seed chooses a recorded sequence for each sequence. The first decoded token has the choices of the first
# recorded step in all layers, the next one those of the next step, and so on to the last step, then back to
# the first one, and forward again. Neighbours are thus neighbours in the trace: tokens repeat the choices of
# the previous one as often as there, and the layers of a token stay together. The tokens of a prompt follow a
# recorded prompt in the same way. If the trace has no prefill, each of them has the choices of a randomly
# drawn recorded token.


Numbers = NDArray[np.uint64]

_DECODED, _PROMPT = range(2)  # separate uses of random numbers of a sequence


class ReplayedRouting:
    """Routes the tokens of sequences by a trace.

    Args:
        trace: a trace of all layers with experts.
        prompt_tokens: the number of prompt tokens of each sequence.

    Raises:
        InputError: the trace has no decode steps.
    """

    def __init__(self, trace: Routing, prompt_tokens: Ints, seed: int) -> None:
        if not trace.steps:
            raise InputError("the trace has no decode steps", "missing", key="routing")
        self._prompt_tokens, self._prefill = prompt_tokens, trace.prefill_ids
        layers, tokens = len(trace.layers), trace.steps * trace.batch
        # All recorded tokens by layer, step after step.
        self._decode = np.ascontiguousarray(trace.ids.swapaxes(0, 1)).reshape(layers, tokens, -1)
        self._steps, self._batch = trace.steps, trace.batch
        self._lengths = np.array(trace.prompt_lengths, np.int64)
        self._first = np.cumsum(self._lengths) - self._lengths
        self._seed = mixed(np.array([seed], np.uint64))

    def ids(self, sequences: Ints, positions: Ints) -> Ids:
        prompts = self._prompt_tokens[sequences]
        decoded = positions >= prompts
        step = _there_and_back(np.maximum(positions - prompts, 0), self._steps)
        index = step * self._batch + self._chosen(_DECODED, self._batch, sequences)
        if decoded.all():
            return self._decode[:, index]
        if self._prefill is None:
            anywhere = self._chosen(_PROMPT, self._steps * self._batch, sequences, positions)
            return self._decode[:, np.where(decoded, index, anywhere)]
        ids = np.empty((len(self._decode), len(sequences), self._decode.shape[-1]), np.int16)
        ids[:, decoded] = self._decode[:, index[decoded]]
        ids[:, ~decoded] = self._prefill[:, self._prompt_indices(sequences[~decoded], positions[~decoded])]
        return ids

    def _prompt_indices(self, sequences: Ints, positions: Ints) -> Ints:
        """Indices of prompt tokens in the prefill; a sequence follows its own recorded prompt."""
        if len(self._lengths) == self._batch:
            prompt = self._chosen(_DECODED, self._batch, sequences)
        else:
            prompt = self._chosen(_PROMPT, len(self._lengths), sequences)
        index: Ints = self._first[prompt] + _there_and_back(positions, self._lengths[prompt])
        return index

    def _chosen(self, use: int, count: int, *numbers: Ints) -> Ints:
        """A number below `count`, equal for equal arguments."""
        drawn = self._seed + np.uint64(use)
        for number in numbers:
            drawn = mixed(mixed(drawn) + number.astype(np.uint64))
        return (drawn % np.uint64(count)).astype(np.int64)


def _there_and_back(positions: Ints, count: Ints | int) -> Ints:
    """Positions 0, 1, ... to the last one, then back to the first, and so on."""
    period = np.maximum(2 * count - 2, 1)
    within = positions % period
    return np.minimum(within, period - within)


def mixed(numbers: Numbers) -> Numbers:
    """Pseudorandom numbers, equal for equal arguments (Steele et al., SplitMix64, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
