"""Statistics of routing: shares by class and rank, active experts, reuse, likeness, predictability."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import flag, instance
from ndpsim.base.reported import Reported, quantity
from ndpsim.workload.routing.activity import (
    ActiveExperts,
    CoActivation,
    Estimate,
    LoadPrediction,
    active_by_batch,
    co_activation,
    estimate,
    groups_of,
    left_out,
    predicted,
)
from ndpsim.workload.routing.drawing import class_counts
from ndpsim.workload.routing.trace import Routing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Experts by rank: the classes of the TriMoE paper, and common ones of published measurements.
_CLASSES = {"hot warm cold": (0.05, 0.25), "top_10 next_30 rest_60": (0.10, 0.30)}
_CLASS_NAMES = " ".join(_CLASSES).split()
_TOP = 0.10
_FRACTIONS = (0.0, 0.05, *(tenth / 10 for tenth in range(1, 11)))


@dataclass(frozen=True)
class RankPoint:
    """The share of selections that the most popular `experts` get together."""

    experts: int
    rank_fraction: float
    cumulative_share: float


@dataclass(frozen=True)
class LayerShares:
    """Shares of the selections of a layer that its hot, warm and cold experts get."""

    layer: int
    hot: float
    warm: float
    cold: float


@dataclass(frozen=True)
class PhaseStatistics:
    """Statistics of decode or of prefill.

    Attributes:
        tokens: tokens of a layer.
        shares: shares of the selections by class: the 5% of experts with most selections are hot, the next
            25% warm, the rest cold; likewise for 10, 30 and 60%. Experts are ranked by all steps together.
        step_shares: the same with experts ranked separately in each step; empty for prefill.
        rank_curve: shares of the selections by rank.
        layers: shares of the selections by layer.
        largest_over_mean: selections of the most popular expert over the mean.
        unused: pairs of layer and expert that no token chose.
    """

    tokens: int
    shares: Mapping[str, Estimate] = field(metadata=quantity("share of selections", "%"))
    step_shares: Mapping[str, Estimate]
    rank_curve: tuple[RankPoint, ...]
    layers: tuple[LayerShares, ...]
    largest_over_mean: Estimate = field(metadata=quantity("largest load over the mean"))
    unused: int = field(metadata=quantity("pairs of layer and expert never chosen"))


@dataclass(frozen=True)
class Reuse:
    """Common experts of a token and an earlier one.

    Attributes:
        reuse: share of a token's experts that the earlier token had chosen.
        independent: the same share for independent tokens.
        stickiness: the chance to repeat all choices of the earlier token that would explain the reuse.
    """

    reuse: Estimate = field(metadata=quantity("experts that the token before had, too", "%"))
    independent: Estimate = field(metadata=quantity("if tokens were independent", "%"))
    stickiness: Estimate = field(metadata=quantity("stickiness"))


@dataclass(frozen=True, repr=False, eq=False)
class RoutingStatistics(Reported):
    """Statistics of a routing trace: means over layers, with their sampling error.

    Attributes:
        trace: its description by `Routing.to_dict`.
        decode, prefill: shares of selections; None without such tokens.
        token_reuse: reuse between neighbours of a batch in a step; None without neighbours.
        step_reuse: reuse between consecutive steps of a sequence; None with fewer than two steps.
        prefill_reuse: reuse between consecutive tokens of a prompt.
        step_drift: share of experts that exchange their popularity between consecutive steps.
        prefill_cosine: cosine of the loads by expert in prefill and in decode.
        prefill_overlap: share of decode's 10% most popular experts that are among prefill's.
        active_experts: number of experts that a batch of tokens of one step chooses, by its size.
        prediction: accuracy of predicting the loads of the next step by a moving average.
        co_activation: experts that tokens choose together; None without pairs, or if they were not asked for.
    """

    trace: Mapping[str, Any]
    decode: PhaseStatistics | None
    prefill: PhaseStatistics | None
    token_reuse: Reuse | None = field(metadata=quantity("reuse, token to token"))
    step_reuse: Reuse | None = field(metadata=quantity("reuse, step to step"))
    prefill_reuse: Reuse | None = field(metadata=quantity("reuse in prompts"))
    step_drift: Estimate | None = field(
        metadata=quantity("experts that exchange their popularity, step to step", "%")
    )
    prefill_cosine: Estimate | None = field(metadata=quantity("cosine of loads in prefill and decode"))
    prefill_overlap: Estimate | None = field(
        metadata=quantity("decode's most popular experts that are prefill's, too", "%")
    )
    active_experts: tuple[ActiveExperts, ...] = field(metadata=quantity("active experts"))
    prediction: LoadPrediction | None = field(metadata=quantity("prediction by a moving average"))
    co_activation: CoActivation | None = field(default=None, metadata=quantity("pairs of experts"))


def describe_routing(routing: Routing, pairs: bool = True) -> RoutingStatistics:
    """Describe a routing trace by its statistics.

    >>> routing = ndpsim.generate_routing("skewed", "mixtral-8x7b", batch=2, steps=1)
    >>> ndpsim.describe_routing(routing).trace["experts"]
    8

    Args:
        pairs: whether to count pairs of experts, too, which takes the longest.

    Raises:
        InputError: `routing` is not a trace.
    """
    routing, pairs = instance(routing, "routing", Routing), flag(pairs, "pairs")
    layers = [_Layer(routing, row) for row in range(len(routing.layers))]
    decode = [layer.loads for layer in layers if layer.loads is not None]
    in_steps = [layer.step_shares for layer in layers if layer.step_shares is not None]
    prefill = [layer.prefill_loads for layer in layers if layer.prefill_loads is not None]
    both = [(layer.loads, layer.prefill_loads) for layer in layers]
    active = active_by_batch(routing)
    return RoutingStatistics(
        trace=routing.to_dict(),
        decode=_phase(routing, decode, in_steps, routing.steps * routing.batch) if decode else None,
        prefill=_phase(routing, prefill, [], routing.prefill_tokens) if prefill else None,
        token_reuse=_reuse([layer.token_matches for layer in layers]),
        step_reuse=_reuse([layer.step_matches for layer in layers]),
        prefill_reuse=_reuse([layer.prefill_matches for layer in layers]),
        step_drift=_estimate_of([layer.drift for layer in layers]),
        prefill_cosine=_estimate_of([_cosine(*pair) for pair in both]),
        prefill_overlap=_estimate_of([_overlap(*pair) for pair in both]),
        active_experts=active,
        prediction=predicted(routing),
        co_activation=co_activation(routing) if pairs else None,
    )


class DescribedLater(Mapping[str, Any]):
    """`describe_routing` as plain data, without pairs; found when anything but `trace` is asked for."""

    def __init__(self, routing: Routing) -> None:
        self._routing, self._trace = routing, routing.to_dict()

    @functools.cached_property
    def _described(self) -> dict[str, Any]:
        return describe_routing(self._routing, pairs=False).to_dict()

    def __getitem__(self, name: str) -> Any:
        return self._trace if name == "trace" else self._described[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(fields(RoutingStatistics))

    def __repr__(self) -> str:
        return repr(self._described)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._described,)


def _estimate_of(by_layer: list[Floats | None]) -> Estimate | None:
    known = [values for values in by_layer if values is not None]
    return estimate(np.array(known)) if known else None


# One layer. The first axis is as from `left_out`: all sequences, then all without each group.


class _Layer:
    """Counters of a layer."""

    loads: Ints | None = None  # [., expert], over all steps
    step_shares: Floats | None = None  # [., class], the mean over steps
    prefill_loads: Ints | None = None
    token_matches: Floats | None = None  # [., (reuse, independent)]
    step_matches: Floats | None = None
    prefill_matches: Floats | None = None
    drift: Floats | None = None  # [.]

    def __init__(self, routing: Routing, row: int) -> None:
        if routing.ids.size:
            self._count_decode(routing.ids[:, row], routing.experts)
        if routing.prefill_ids is not None:
            self._count_prefill(routing.prefill_ids[row], routing.experts, routing.prompt_lengths)

    def _count_decode(self, ids: NDArray[np.int16], experts: int) -> None:
        steps, batch, k = ids.shape
        by_sequence = batch >= steps or batch >= 8
        groups = groups_of(batch if by_sequence else steps)
        group = np.broadcast_to(groups[None] if by_sequence else groups[:, None], (steps, batch))
        by_step = _grouped_loads(ids, group, experts)  # [group, step, expert]
        loads = left_out(by_step)
        self.loads = loads.sum(axis=1)
        self.step_shares = _class_shares(loads).mean(axis=1)
        tokens = left_out(_grouped_sums(np.ones((steps, batch), np.int64), group))  # [., step]
        separate = batch >= 4  # otherwise a step has too few tokens to compare
        cell_loads = loads if separate else loads.sum(axis=1)[:, None]
        cell_tokens = tokens if separate else tokens.sum(axis=1)[:, None]
        independent = _within(cell_loads, cell_tokens, k)
        if batch > 1:
            shared = _shared(ids[:, 1:], ids[:, :-1])
            self.token_matches = _matches(shared, group[:, 1:], independent, k)
        if steps > 1:
            shared = _shared(ids[1:], ids[:-1])
            if separate:
                same = left_out(_grouped_sums(shared, group[1:]))
                independent = _between(loads[:, :-1], loads[:, 1:], tokens[:, :-1], tokens[:, 1:], same, k)
            self.step_matches = _matches(shared, group[1:], independent, k)
        if steps > 1 and by_sequence and len(by_step) >= 4:
            self.drift = _drift(by_step)

    def _count_prefill(self, ids: NDArray[np.int16], experts: int, lengths: tuple[int, ...]) -> None:
        tokens, k = ids.shape
        prompt = np.repeat(np.arange(len(lengths)), lengths)
        groups = groups_of(len(lengths))[prompt] if len(lengths) >= 4 else groups_of(tokens)
        by_group = _grouped_loads(ids[None], groups[None], experts)
        self.prefill_loads = left_out(by_group).sum(axis=1)
        follows = prompt[1:] == prompt[:-1]
        if follows.any():
            shared = _shared(ids[1:], ids[:-1])[follows]
            count = left_out(_grouped_sums(np.ones((1, tokens), np.int64), groups[None]))
            independent = _within(left_out(by_group), count, k)
            self.prefill_matches = _matches(shared[None], groups[1:][follows][None], independent, k)


def _grouped_loads(ids: NDArray[np.int16], group: Ints, experts: int) -> Ints:
    """Loads by group and step of ids [step, token, k] whose tokens have groups [step, token]."""
    steps, groups = len(ids), int(group.max()) + 1
    cell = group * steps + np.arange(steps)[:, None]
    index = cell[..., None] * experts + ids
    return np.bincount(index.ravel(), minlength=groups * steps * experts).reshape(groups, steps, experts)


def _grouped_sums(values: Ints, group: Ints) -> Ints:
    """Sums of values [step, token] by group and step."""
    steps, groups = len(values), int(group.max()) + 1
    index = group * steps + np.arange(steps)[:, None]
    sums = np.bincount(index.ravel(), values.ravel(), minlength=groups * steps)
    return sums.astype(np.int64).reshape(groups, steps)


def _shared(later: NDArray[np.int16], earlier: NDArray[np.int16]) -> Ints:
    """The number of experts of each token [..., k] that the other has, too."""
    shared = np.zeros(later.shape[:-1], np.int64)
    chosen_before = np.ascontiguousarray(np.moveaxis(earlier, -1, 0))
    for chosen in np.ascontiguousarray(np.moveaxis(later, -1, 0)):
        for earlier_chosen in chosen_before:
            shared += chosen == earlier_chosen
    return shared


def _within(loads: Ints, tokens: Ints, k: int) -> Floats:
    """The share of its experts that a token has in common with another of its cell, from loads by cell."""
    pairs = (tokens * (tokens - 1)).sum(axis=1)
    same = (loads * loads).sum(axis=(1, 2)) - k * tokens.sum(axis=1)
    shares: Floats = same / np.maximum(pairs * k, 1)
    return shares


def _between(loads: Ints, later_loads: Ints, tokens: Ints, later_tokens: Ints, same: Ints, k: int) -> Floats:
    """The share for a token and the others of the next step; with itself it has `same` in common."""
    pairs = (tokens * (later_tokens - 1)).sum(axis=1)
    shares: Floats = ((loads * later_loads).sum(axis=(1, 2)) - same.sum(axis=1)) / np.maximum(pairs * k, 1)
    return shares


def _matches(shared: Ints, group: Ints, independent: Floats, k: int) -> Floats:
    """Reuse, and reuse of independent tokens: [., 2]."""
    groups = len(independent) - 1 or 1
    sums = np.bincount(group.ravel(), shared.ravel(), minlength=groups).astype(np.int64)
    counts = np.bincount(group.ravel(), minlength=groups)
    reuse = left_out(sums) / np.maximum(left_out(counts) * k, 1)
    return np.stack([reuse, independent], axis=-1)


def _reuse(by_layer: list[Floats | None]) -> Reuse | None:
    known = np.array([values for values in by_layer if values is not None])
    if not len(known):
        return None
    reuse, independent = known[..., 0], known[..., 1]
    stickiness = (reuse - independent) / np.maximum(1 - independent, 1e-12)
    return Reuse(estimate(reuse), estimate(independent), estimate(stickiness))


def _drift(by_step: Ints) -> Floats:
    """The share of experts that exchanged their popularity, from loads [group, step, expert].

    Two halves of the sequences, which choose independently, are compared: in the same step their similarity
    is due to popularity alone, and in the next step it is lower. Similarity by chance is taken into account.
    """
    groups, experts = len(by_step), by_step.shape[2]
    is_even = np.arange(groups)[:, None, None] % 2 == 0
    values = []
    for even, odd in zip(left_out(by_step * is_even), left_out(by_step * ~is_even), strict=True):
        now = (even * odd).sum(axis=1, dtype=np.float64)
        same = (now[:-1] + now[1:]).sum()
        later = ((even[:-1] * odd[1:]).sum() + (even[1:] * odd[:-1]).sum()) / max(same, 1)
        concentration = same / 2 / (even[0].sum() * odd[0].sum() * (len(now) - 1))  # sum of squared shares
        by_chance = (1 / max(concentration, 1 / experts) - 1) / max(experts - 1, 1)
        values.append((1 - later) / (1 - by_chance) if by_chance < 1 - 1e-9 else 0.0)
    return np.array(values)


def _cosine(decode: Ints | None, prefill: Ints | None) -> Floats | None:
    if decode is None or prefill is None:
        return None
    first, second = _paired(decode, prefill)
    norms = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    cosines: Floats = (first * second).sum(axis=1) / norms
    return cosines


def _overlap(decode: Ints | None, prefill: Ints | None) -> Floats | None:
    if decode is None or prefill is None:
        return None
    first, second = _paired(decode, prefill)
    top = class_counts(first.shape[1], _TOP)[0]
    best, also = (np.argsort(-loads, axis=1, kind="stable")[:, :top] for loads in (first, second))
    overlaps: Floats = (best[:, :, None] == also[:, None, :]).any(axis=2).mean(axis=1)
    return overlaps


def _paired(decode: Ints, prefill: Ints) -> tuple[Floats, Floats]:
    """Loads with equal numbers of omitted groups; if these differ, only the loads of all groups."""
    rows = len(decode) if len(decode) == len(prefill) else 1
    return decode[:rows].astype(np.float64), prefill[:rows].astype(np.float64)


def _cumulative(loads: NDArray[Any]) -> Floats:
    """Shares of the selections of the most popular experts, from none to all of them: [..., 1 + expert]."""
    ordered = -np.sort(-loads, axis=-1) / np.maximum(loads.sum(axis=-1, keepdims=True), 1)
    return np.concatenate([np.zeros((*ordered.shape[:-1], 1)), ordered.cumsum(axis=-1)], axis=-1)


def _class_shares(loads: NDArray[Any]) -> Floats:
    """Shares of the selections by class, [..., class], in the order of `_CLASS_NAMES`."""
    cumulative = _cumulative(loads)
    shares = []
    for fractions in _CLASSES.values():
        ends = np.cumsum((0, *class_counts(loads.shape[-1], *fractions)))
        shares.append(np.diff(cumulative[..., ends], axis=-1))
    return np.concatenate(shares, axis=-1)


def _by_name(shares: Floats) -> dict[str, Estimate]:
    """Estimates of shares [layer, ., class]."""
    return {name: estimate(shares[..., index]) for index, name in enumerate(_CLASS_NAMES)}


def _phase(routing: Routing, by_layer: list[Ints], in_steps: list[Floats], tokens: int) -> PhaseStatistics:
    loads = np.array(by_layer)  # [layer, ., expert]
    experts = loads.shape[2]
    cumulative = _cumulative(loads)
    shares = _class_shares(loads)
    ranks = sorted({max(1, round(fraction * experts)) for fraction in _FRACTIONS})
    curve = cumulative[:, 0].mean(axis=0)
    return PhaseStatistics(
        tokens=tokens,
        shares=_by_name(shares),
        step_shares=_by_name(np.array(in_steps)) if in_steps else {},
        rank_curve=tuple(RankPoint(rank, rank / experts, float(curve[rank])) for rank in ranks),
        layers=tuple(
            LayerShares(layer, *map(float, row[:3]))
            for layer, row in zip(routing.layers, shares[:, 0], strict=True)
        ),
        largest_over_mean=estimate(cumulative[..., 1] * experts),
        unused=int((loads[:, 0] == 0).sum()),
    )
