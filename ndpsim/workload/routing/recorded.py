"""Recorded routing of other programs, an intermediate form between their files and a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.workload.models import MoeShape


@dataclass(frozen=True)
class Stated:
    """The user's values for properties that files lack, and the wanted number of steps."""

    model: MoeShape | None = None
    experts_per_token: int | None = None
    steps: int | None = None

    @property
    def k(self) -> int | None:
        """Experts for each token, if known."""
        if self.experts_per_token is not None or self.model is None:
            return self.experts_per_token
        return self.model.experts_per_token


@dataclass(frozen=True)
class Recorded:
    """The content of files.

    Attributes:
        layers: numbers of the layers in the arrays.
        ids: [step, layer, token, k].
        prefill_ids: [layer, token, k].
        prompt_lengths: tokens of each prompt, or of each part of the prefill.
        scores: as `ids`.
        experts: experts of a layer, if the files have their number.
        notes: notes for users of the files.
        numbers_in_model: whether `layers` are numbers in the model, from 0; else they count layers with
            experts, or all layers.
    """

    layers: tuple[int, ...]
    ids: NDArray[Any]
    prefill_ids: NDArray[Any] | None = None
    prompt_lengths: tuple[int, ...] = ()
    scores: NDArray[Any] | None = None
    prefill_scores: NDArray[Any] | None = None
    experts: int | None = None
    notes: tuple[str, ...] = ()
    numbers_in_model: bool = True


@dataclass(frozen=True)
class RoutingFormat:
    """A format of recorded routing.

    Attributes:
        example: a line of such a file.
        meaning: a phrase with the program and its file.
        recognises: detects whether a file has this format, from its path and first bytes.
        read: reads the content of several files.
    """

    example: str
    meaning: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Sequence[Path], Stated], Recorded]


@dataclass
class Pass:
    """One pass of a model: for each layer, the choices of the same tokens.

    Attributes:
        place: its place in a file, for messages.
        prefill: whether its tokens are of prompts; None: the numbers of tokens decide.
        rows: the experts of each token, by layer.
        scores: the scores of the choices, likewise.
        lengths: tokens of each prompt in the pass; empty for a single prompt.
    """

    place: str
    prefill: bool | None = None
    rows: dict[int, list[Any]] = field(default_factory=dict)
    scores: dict[int, list[Any]] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Number of tokens in its first layer."""
        return len(next(iter(self.rows.values())))


class Passes:
    """Assembles passes from rows. A layer that is repeated after others begins the next pass."""

    def __init__(self) -> None:
        self.found: list[Pass] = []
        self._layer = -1

    def add(self, layer: int, chosen: Any, place: str, scores: Any = None, again: bool = False) -> None:
        """Add the choices of a token; `again`: it was in the previous pass."""
        if not self.found or again or (layer != self._layer and layer in self.found[-1].rows):
            self.found.append(Pass(place))
        self.found[-1].rows.setdefault(layer, []).append(chosen)
        if scores is not None:
            self.found[-1].scores.setdefault(layer, []).append(scores)
        self._layer = layer


def assembled(passes: Sequence[Pass], file: Path, experts: int | None = None) -> Recorded:
    """Decode steps and prefill from passes.

    If the kind of passes is unknown, those before the first one with the same number of tokens as the last
    one are prefill.

    Raises:
        InputError: passes differ in layers, or decode steps in tokens.
    """
    if not passes or not all(pass_.rows for pass_ in passes):
        raise InputError("has no choices of experts", "form", file=file)
    batch = next((pass_.tokens for pass_ in reversed(passes) if pass_.prefill is not True), 0)
    decode: list[Pass] = []
    prefill: list[Pass] = []
    for pass_ in passes:
        is_prefill = pass_.prefill if pass_.prefill is not None else not decode and pass_.tokens != batch
        (prefill if is_prefill else decode).append(pass_)
    layers = tuple(sorted(passes[0].rows))
    for pass_ in passes:
        _check_pass(pass_, layers, file)
    for pass_ in decode:
        if pass_.tokens != batch:
            problem = (
                f"has {pass_.tokens} tokens, and the last decode step {batch}; a batch keeps its sequences"
            )
            raise InputError(
                f"{pass_.place} {problem}: cut the file where one begins or ends", "conflict", file=file
            )
    width = {len(chosen) for pass_ in passes for rows in pass_.rows.values() for chosen in rows}
    if len(width) > 1:
        raise InputError(f"has tokens with {min(width)} and with {max(width)} experts", "conflict", file=file)
    k = width.pop()

    def arrays(name: str, dtype: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The choices or scores of steps, and of the prefill."""
        steps, parts = (
            [np.array([getattr(pass_, name)[layer] for layer in layers], dtype) for pass_ in phase]
            for phase in (decode, prefill)
        )
        stacked = np.array(steps, dtype).reshape(len(decode), len(layers), batch, k)
        return stacked, np.concatenate(parts, axis=1) if parts else None

    ids, prefill_ids = arrays("rows", np.int64)
    scored = all(pass_.scores for pass_ in passes)
    scores, prefill_scores = arrays("scores", np.float64) if scored else (None, None)
    lengths = tuple(length for pass_ in prefill for length in (pass_.lengths or (pass_.tokens,)))
    return Recorded(layers, ids, prefill_ids, lengths, scores, prefill_scores, experts)


def _check_pass(pass_: Pass, layers: tuple[int, ...], file: Path) -> None:
    if tuple(sorted(pass_.rows)) != layers:
        problem = f"has {len(pass_.rows)} layers, and the first pass {len(layers)}"
        odd = sorted(set(pass_.rows) ^ set(layers))
        raise InputError(f"{pass_.place} {problem}; they differ in layer {odd[0]}", "conflict", file=file)
    for layer, rows in pass_.rows.items():
        if len(rows) != pass_.tokens:
            first = next(iter(pass_.rows))
            problem = f"has {len(rows)} tokens in layer {layer}, and {pass_.tokens} in layer {first}"
            raise InputError(f"{pass_.place} {problem}", "conflict", file=file)


#: A sequence of a batch: its file, and the experts of its prompt and its generated tokens [token, layer, k].
RecordedSequence = tuple[Path, NDArray[Any] | None, NDArray[Any] | None]


def of_sequences(
    sequences: Sequence[RecordedSequence],
    stated: Stated,
    prompt: str,
    generated: str,
    layers: tuple[int, ...] | None = None,
) -> Recorded:
    """A batch of sequences that were recorded one by one, as long as the shortest, or the stated steps.

    prompt, generated: what files call these parts. layers: their numbers in the model; None: not known.

    Raises:
        InputError: sequences differ in layers or experts, some lack a part, or lengths differ and no number
            of steps is stated.
    """
    shapes = {array.shape[1:]: path for path, *arrays in sequences for array in arrays if array is not None}
    if not shapes:
        raise InputError(f"has neither {generated} nor {prompt}", "missing", file=sequences[0][0])
    if len(shapes) > 1:
        (count, k), (others, other_k) = list(shapes)[:2]
        problem = f"has {others} layers and {other_k} experts a token, and a file before {count} and {k}"
        raise InputError(problem, "conflict", file=list(shapes.values())[1])
    count, k = next(iter(shapes))
    for index, what in ((1, prompt), (2, generated)):
        lacking = [sequence[0] for sequence in sequences if sequence[index] is None]
        if lacking and len(lacking) < len(sequences):
            raise InputError(f"has no {what}, and other sequences have", "missing", file=lacking[0])
    decoded = [(path, array) for path, _, array in sequences if array is not None]
    prompts = [array for _, array, _ in sequences if array is not None]
    return Recorded(
        tuple(range(count)) if layers is None else layers,
        _steps_of(decoded, stated.steps) if decoded else np.zeros((0, count, 0, k), np.int16),
        np.concatenate(prompts).swapaxes(0, 1) if prompts else None,
        tuple(len(tokens) for tokens in prompts),
        numbers_in_model=layers is not None,
    )


def _steps_of(generated: list[tuple[Path, NDArray[Any]]], steps: int | None) -> NDArray[Any]:
    """The generated tokens of all sequences: [step, layer, token, k]."""
    path, shortest = min(generated, key=lambda sequence: len(sequence[1]))
    if steps is None and any(len(array) != len(shortest) for _, array in generated):
        problem = (
            f"generated {len(shortest)} tokens, and others more; say how many steps, up to {len(shortest)}"
        )
        raise InputError(problem, "missing", file=path)
    if steps is not None and steps > len(shortest):
        raise InputError(f"generated {len(shortest)} tokens, fewer than {steps} steps", "range", file=path)
    return np.stack([array[: steps or len(shortest)] for _, array in generated], axis=2)
