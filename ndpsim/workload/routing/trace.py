"""The experts that each token chooses, layer by layer and step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, path_of, plain_mapping, several, whole_number
from ndpsim.base.arrays import as_array
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Shown
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing.file import plain_arrays, read, write

Ids = NDArray[np.int16]
Scores = NDArray[np.float32]
Counts = NDArray[np.int64]

#: Expert ids are 16 bits wide.
MAX_EXPERTS = 1 << 15

_MAX_LAYERS = 1 << 16
_COUNTED = 1 << 20  # choices that are counted, or checked, at once: they take up to four times their memory
_DECODE = ("step", "layer", "token")
_PREFILL = ("layer", "token")


def loads_of(ids: NDArray[Any], experts: int) -> Counts:
    """The number of choices [..., token, k] of each of the first `experts` experts: [..., expert].

    Choices of later ones, which have no weights (`MoeShape.choices`), are not counted.
    """
    groups = ids.reshape(math.prod(ids.shape[:-2]), ids.shape[-2] * ids.shape[-1])
    loads = np.empty((len(groups), experts), np.int64)
    choices = max(experts, int(ids.max(initial=0)) + 1)
    at_once = max(_COUNTED // max(groups.shape[1], 1), 1)
    for first in range(0, len(groups), at_once):
        some = groups[first : first + at_once]
        numbers = some + choices * np.arange(len(some))[:, None]
        counts = np.bincount(numbers.ravel(), minlength=len(some) * choices)
        loads[first : first + at_once] = counts.reshape(-1, choices)[:, :experts]
    return loads.reshape(*ids.shape[:-2], experts)


def asked_layers(model: MoeShape, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Those of the asked layers of a model that have experts; None: all.

    Raises:
        InputError: the model has no such layer.
    """
    requested = range(model.layers) if layers is None else layers
    wanted = several(requested, "layers", lambda n, name: whole_number(n, name, 0, model.layers - 1))
    return tuple(layer for layer in wanted if layer not in model.dense_layers)


def row_of(layers: tuple[int, ...], layer: int) -> int:
    """The index of the model's layer `layer` among the layers of a trace.

    Raises:
        InputError: the layer is dense or not in the trace.
    """
    if type(layer) is not int or layer not in layers:
        layer = whole_number(layer, "layer", 0)
    if layer not in layers:
        listed = f"{len(layers)} layers from {layers[0]} to {layers[-1]}"
        raise InputError(f"{shown(layer)} is not among the {listed} of the trace", "range", key="layer")
    return layers.index(layer)


@dataclass(frozen=True, eq=False, repr=False)
class Routing(Shown):
    """A routing trace: k distinct experts for each token of each layer with experts.

    Attributes:
        experts: experts of a layer, with those without weights; ids are from 0 to experts - 1.
        layers: numbers in the model, from 0, of the layers in the arrays, all of which have experts.
        ids: experts of decode tokens, int16 [step, layer, token, k]. A token is the same sequence in all
            steps.
        prefill_ids: experts of prompt tokens, int16 [layer, token, k], prompt after prompt; None: no prefill.
        prompt_lengths: tokens of each prompt, whose sum is that of `prefill_ids`. If their number is that of
            sequences, each is a sequence's prompt; otherwise they are the parts in which the prefill was
            recorded.
        scores, prefill_scores: weights of the choices, float32 of the same shapes as the ids; None: not
            known.
        source: the origin of the trace, as plain data.

    Raises:
        InputError: shapes differ, ids are out of range or chosen twice by a token, or scores are not finite
            numbers.
    """

    experts: int
    layers: tuple[int, ...]
    ids: Ids
    prefill_ids: Ids | None = None
    prompt_lengths: tuple[int, ...] = ()
    scores: Scores | None = None
    prefill_scores: Scores | None = None
    source: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "source", plain_mapping(self.source, "source"))
        set_(self, "experts", whole_number(self.experts, "experts", 1, MAX_EXPERTS))
        layers = several(self.layers, "layers", lambda layer, name: whole_number(layer, name, 0, _MAX_LAYERS))
        if not layers or any(later <= layer for layer, later in itertools.pairwise(layers)):
            raise InputError(
                f"{shown(layers)} are not layers of a model in ascending order", "form", key="layers"
            )
        set_(self, "layers", layers)
        lengths = several(self.prompt_lengths, "prompt_lengths", lambda n, name: whole_number(n, name, 1))
        set_(self, "prompt_lengths", lengths)
        set_(self, "ids", _checked_ids(self.ids, "ids", _DECODE, layers, self.experts))
        set_(self, "scores", _checked_scores(self.scores, "scores", _DECODE, layers, self.ids))
        if self.prefill_ids is None:
            if self.prefill_scores is not None or len(self.prompt_lengths):
                raise InputError(
                    "are given without prefill_ids", "conflict", key="prefill_scores or prompt_lengths"
                )
        else:
            prefill = _checked_ids(self.prefill_ids, "prefill_ids", _PREFILL, layers, self.experts)
            set_(self, "prefill_ids", prefill)
            scores = _checked_scores(self.prefill_scores, "prefill_scores", _PREFILL, layers, prefill)
            set_(self, "prefill_scores", scores)
            self._check_prefill(prefill)
        if not self.ids.size and (self.prefill_ids is None or not self.prefill_ids.size):
            raise InputError("there is neither a decode token nor a prompt token", "missing", key="ids")

    def _check_prefill(self, prefill: Ids) -> None:
        lengths = self.prompt_lengths
        if sum(lengths) != prefill.shape[1]:
            problem = (
                f"{sum(lengths)} tokens in {len(lengths)} prompts, but prefill_ids has {prefill.shape[1]}"
            )
            raise InputError(problem, "conflict", key="prompt_lengths")
        if self.ids.size and prefill.shape[2] != self.experts_per_token:
            problem = f"{prefill.shape[2]} experts a token, and in ids {self.experts_per_token}"
            raise InputError(problem, "conflict", key="prefill_ids")

    @property
    def steps(self) -> int:
        """Decode steps."""
        return len(self.ids)

    @property
    def batch(self) -> int:
        """Sequences that are decoded together."""
        return int(self.ids.shape[2])

    @property
    def experts_per_token(self) -> int:
        """Experts that a token chooses in a layer."""
        ids = self.ids if self.ids.size or self.prefill_ids is None else self.prefill_ids
        return int(ids.shape[-1])

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens of all sequences."""
        return 0 if self.prefill_ids is None else int(self.prefill_ids.shape[1])

    def row(self, layer: int) -> int:
        """The index in the arrays of the model's layer `layer`.

        Raises:
            InputError: the layer is dense or not in the trace.
        """
        return row_of(self.layers, layer)

    def loads(self, step: int, layer: int) -> Counts:
        """Tokens by expert of the model's layer `layer` in decode step `step`: int64 [expert].

        Raises:
            InputError: the trace does not have them.
        """
        step = whole_number(step, "step", 0, self.steps - 1)
        return loads_of(self.ids[step, self.row(layer)], self.experts)

    def prefill_loads(self, layer: int) -> Counts:
        """Tokens by expert of the model's layer `layer` in the prefill: int64 [expert].

        Raises:
            InputError: the trace has no prefill or not this layer.
        """
        if self.prefill_ids is None:
            raise InputError("the trace has no prefill", "missing", key="prefill_ids")
        return loads_of(self.prefill_ids[self.row(layer)], self.experts)

    def for_model(
        self,
        model: MoeShape,
        batch: int | None = None,
        steps: int | None = None,
        layers: Sequence[int] | None = None,
    ) -> Routing:
        """The part of the trace that a run needs.

        Args:
            model: the model to run; the trace must have its experts, experts for each token and layers with
                experts.
            batch: number of sequences to take, from the first; None: all.
            steps: number of decode steps to take, from the first; None: all.
            layers: layers of the model; dense ones are ignored; None: all.

        Raises:
            InputError: the trace is of another model, or has too few sequences, steps or layers.
        """
        instance(model, "model", MoeShape)
        for what, ours, theirs in (
            ("experts", self.experts, model.choices),
            ("experts a token", self.experts_per_token, model.experts_per_token),
        ):
            if ours != theirs:
                problem = f"the trace has {ours} {what}, {model.name} has {theirs}"
                raise InputError(problem, "conflict", key="routing")
        has = f"it has {len(self.layers)}, the model {model.moe_layers} layers with experts"
        foreign = [layer for layer in self.layers if layer >= model.layers or layer in model.dense_layers]
        if foreign:
            problem = f"the trace has layer {foreign[0]}, which has no experts in {model.name}; {has}"
            raise InputError(problem, "conflict", key="routing")
        wanted = asked_layers(model, layers)
        missing = sorted(set(wanted) - set(self.layers))
        if missing:
            problem = f"the trace does not have layer {missing[0]} of {model.name}; {has}"
            raise InputError(problem, "conflict", key="routing")
        rows = [self.layers.index(layer) for layer in wanted]
        return self._cut(rows, self._at_most(batch, "batch"), self._at_most(steps, "steps"))

    def _at_most(self, wanted: int | None, name: str) -> int:
        has = int(getattr(self, name))
        if wanted is None:
            return has
        wanted = whole_number(wanted, name, 1)
        if wanted > has:
            raise InputError(f"{shown(wanted)} is more than the {has} of the trace", "range", key=name)
        return wanted

    def _cut(self, rows: list[int], batch: int, steps: int) -> Routing:
        if (rows, batch, steps) == ([*range(len(self.layers))], self.batch, self.steps):
            return self
        if batch < self.batch and len(self.prompt_lengths) not in (0, self.batch):
            problem = f"the prefill has {len(self.prompt_lengths)} parts, and not {self.batch}"
            raise InputError(f"{batch} sequences cannot be cut out: {problem}", "missing", key="batch")
        prompts = self.prompt_lengths if batch == self.batch else self.prompt_lengths[:batch]
        tokens = sum(prompts)

        def decode(array: Any) -> Any:
            return None if array is None else array[:steps, rows, :batch]

        def prefill(array: Any) -> Any:
            return None if array is None else array[rows, :tokens]

        return Routing(
            self.experts,
            tuple(self.layers[row] for row in rows),
            decode(self.ids),
            prefill(self.prefill_ids),
            prompts,
            decode(self.scores),
            prefill(self.prefill_scores),
            self.source,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trace to a file, completely or not at all; equal traces give equal bytes.

        Raises:
            InputError: it cannot be written.
        """
        write({field.name: getattr(self, field.name) for field in fields(self)}, path_of(path, "path"))

    def to_dict(self) -> dict[str, Any]:
        """A description of the trace for JSON, without its arrays."""
        return {
            "experts": self.experts,
            "experts_per_token": self.experts_per_token,
            "layers": list(self.layers),
            "steps": self.steps,
            "batch": self.batch,
            "prefill_tokens": self.prefill_tokens,
            "scores": self.scores is not None or self.prefill_scores is not None,
            "source": plain_mapping(self.source, "source"),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Routing):
            return NotImplemented
        plain = ("experts", "layers", "prompt_lengths")
        arrays = ("ids", "prefill_ids", "scores", "prefill_scores")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            _same(getattr(self, name), getattr(other, name)) for name in arrays
        )

    def _rows(self) -> list[tuple[str, str]]:
        return [
            ("experts", f"{self.experts}, {self.experts_per_token} a token"),
            ("layers", f"{len(self.layers)}, from {self.layers[0]} to {self.layers[-1]}"),
            ("decode", f"{self.steps} steps of {self.batch} sequences"),
            ("prefill", f"{self.prefill_tokens} tokens in {len(self.prompt_lengths)} prompts"),
            *((name, str(value)) for name, value in (self.source or {}).items()),
        ]


def load_routing(path: str | PathLike[str], model: MoeShape | None = None) -> Routing:
    """Read a trace that `Routing.save` wrote, or ``ndpsim routing``; or plain arrays of NumPy.

    >>> ndpsim.generate_routing("skewed", "mixtral-8x7b", batch=2, steps=1).save("routing.npz")
    >>> ndpsim.load_routing("routing.npz").batch
    2

    Args:
        path: a trace; an .npy file of expert ids [step, layer, token, k]; or an .npz file with such an array
            `ids` and perhaps `prefill_ids` [layer, token, k] and `prompt_lengths`.
        model: gives plain arrays the number of experts and the layers; None: as many experts as the highest
            id asks for, and layers from 0 on.

    Raises:
        InputError: the file cannot be read, is not a trace, has another version, or has impossible content.
    """
    file = path_of(path, "path")
    if model is not None:
        instance(model, "model", MoeShape)
    arrays = plain_arrays(file)
    parts = read(file) if arrays is None else _parts_of(arrays, model, file)
    try:
        return Routing(**parts)
    except InputError as error:
        raise error.at(file) from None


def _parts_of(arrays: Mapping[str, NDArray[Any]], model: MoeShape | None, file: Path) -> dict[str, Any]:
    """The fields of a trace from plain arrays."""
    ids = arrays["ids"]
    if ids.ndim != len(_DECODE) + 1 or not ids.size or ids.dtype.kind not in "iu":
        problem = f"is {ids.dtype} of shape {ids.shape}, not expert ids [{', '.join((*_DECODE, 'k'))}]"
        raise InputError(problem, "type", file=file, key="ids")
    count, prefill = ids.shape[1], arrays.get("prefill_ids")
    one_prompt = () if prefill is None else (prefill.shape[-2],)
    with_experts = () if model is None else tuple(sorted(set(range(model.layers)) - set(model.dense_layers)))
    return {
        **arrays,
        "experts": int(ids.max()) + 1 if model is None else model.choices,
        "layers": with_experts if len(with_experts) == count else tuple(range(count)),
        "prompt_lengths": tuple(np.ravel(arrays.get("prompt_lengths", one_prompt)).tolist()),
        "source": {"files": [file.name], "imported": "numpy"},
    }


def _same(first: NDArray[Any] | None, second: NDArray[Any] | None) -> bool:
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)


def _checked_ids(ids: object, name: str, axes: tuple[str, ...], layers: tuple[int, ...], experts: int) -> Ids:
    """`ids` as a read-only int16 array of the `axes` and k, checked.

    Raises:
        InputError: see `Routing`.
    """
    array = as_array(ids)
    form = f"[{', '.join((*axes, 'k'))}]"
    if array.dtype.kind not in "iu" or array.ndim != len(axes) + 1:
        problem = f"is {array.dtype} of {array.ndim} axes, not whole numbers {form}"
        raise InputError(problem, "type", key=name)
    if array.shape[-3] != len(layers):
        raise InputError(
            f"has {array.shape[-3]} layers, and there are {len(layers)}: {form}", "conflict", key=name
        )
    if array.size and not 1 <= array.shape[-1] <= experts:
        raise InputError(f"has {array.shape[-1]} experts a token of {experts}", "range", key=name)
    together = max(1, _COUNTED // max(1, array.shape[-2] * array.shape[-1]))
    for index in np.ndindex(array.shape[:-3]):
        for first in range(0, len(layers), together):
            chosen = array[index][first : first + together]
            if not _are_distinct(chosen, experts):
                for layer, of_layer in enumerate(chosen, first):
                    _check_layer(of_layer, (*index, layer), name, axes, layers, experts)
    narrow = np.ascontiguousarray(array, np.int16).view()
    narrow.flags.writeable = False
    return narrow


def _are_distinct(chosen: NDArray[Any], experts: int) -> bool:
    """Whether no token of [layer, token, k] chooses an expert twice, nor one that there is not."""
    if chosen.size and (chosen.min() < 0 or chosen.max() >= experts):
        return False
    choices = np.ascontiguousarray(np.moveaxis(chosen, -1, 0))
    return not any((choices[after:] == choices[:-after]).any() for after in range(1, len(choices)))


def _check_layer(
    chosen: NDArray[Any],
    index: tuple[int, ...],
    name: str,
    axes: tuple[str, ...],
    layers: tuple[int, ...],
    experts: int,
) -> None:
    if not chosen.size:
        return
    if chosen.min() < 0 or chosen.max() >= experts:
        token, k = map(int, np.argwhere((chosen < 0) | (chosen >= experts))[0])
        problem = f"expert {chosen[token, k]} is not from 0 to {experts - 1}"
        raise InputError(problem, "range", key=_element(name, axes, (*index, token), layers))
    ordered = np.sort(chosen, axis=-1)
    twice = ordered[:, 1:] == ordered[:, :-1]
    if twice.any():
        token, k = map(int, np.argwhere(twice)[0])
        problem = f"expert {ordered[token, k]} is chosen twice"
        raise InputError(problem, "twice", key=_element(name, axes, (*index, token), layers))


def _element(name: str, axes: tuple[str, ...], index: tuple[int, ...], layers: tuple[int, ...]) -> str:
    """An element in words: ``ids[step 0, layer 3, token 7]``."""
    numbers = [layers[n] if axis == "layer" else n for axis, n in zip(axes, index, strict=False)]
    return f"{name}[{', '.join(f'{axis} {n}' for axis, n in zip(axes, numbers, strict=True))}]"


def _checked_scores(
    scores: object, name: str, axes: tuple[str, ...], layers: tuple[int, ...], ids: Ids
) -> Scores | None:
    if scores is None:
        return None
    array = as_array(scores)
    if array.dtype.kind != "f" or array.shape != ids.shape:
        problem = f"is {array.dtype} of shape {array.shape}, not floating point numbers of {ids.shape}"
        raise InputError(problem, "type", key=name)
    if not np.isfinite(array).all():
        position = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise InputError(
            f"{array[position]} is no finite number", "range", key=_element(name, axes, position, layers)
        )
    narrow = np.ascontiguousarray(array, np.float32).view()
    narrow.flags.writeable = False
    return narrow
