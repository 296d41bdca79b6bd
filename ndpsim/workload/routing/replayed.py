"""Routing of sequences that arrive and end, from a trace: each sequence has the choices of a recorded one.

The seed chooses a recorded sequence for each sequence. The first decoded token has the choices of the first
recorded step in all layers, the next one those of the next step, and so on to the last step, then back to the
first one, and forward again. Neighbours are thus neighbours in the trace: tokens repeat the choices of the
previous one as often as there, and the layers of a token stay together. The tokens of a prompt follow a
recorded prompt in the same way. If the trace has no prefill, each of them has the choices of a randomly drawn
recorded token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.workload.routing.trace import Ids, Routing

Ints = NDArray[np.int64]
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
