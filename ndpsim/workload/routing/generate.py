"""Generates routing from a SPEC; equal seeds give equal traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ndpsim.base import settings
from ndpsim.base.arguments import flag
from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.routing import BATCH, PROMPT, SEED, STEPS
from ndpsim.workload.models import MoeShape, load_moe_model
from ndpsim.workload.routing.drawing import draw, exchanged, like
from ndpsim.workload.routing.spec import (
    Randoms,
    RoutingShape,
    RoutingSpec,
    Shares,
    default_routing,
    generators,
    parse_spec,
)
from ndpsim.workload.routing.trace import MAX_EXPERTS, Ids, Routing, asked_layers, load_routing

# Independent sources of random numbers of a layer.
_POPULARITY, _PREFILL_POPULARITY, _STEP_DRIFT, _OFFLINE_DRIFT, _DECODE, _PREFILL = range(6)
_JUDGED, _OFFLINE = 6, 7


def randoms_of(layers: tuple[int, ...], *entropy: int) -> Randoms:
    """A source of random numbers for each layer, so that layers do not depend on each other."""
    return [np.random.Generator(np.random.PCG64(np.random.SeedSequence((*entropy, n)))) for n in layers]


def shape_of(spec: RoutingSpec, model: MoeShape | None) -> RoutingShape:
    """Layers and experts to route: those of the model, or of the counts that the SPEC names.

    Raises:
        InputError: neither is known.
    """
    if model is not None:
        layers = tuple(layer for layer in range(model.layers) if layer not in model.dense_layers)
        return RoutingShape(model.choices, model.experts_per_token, layers)
    shape = spec.generator.shape(spec.name)
    if shape is None:
        raise InputError(f"{spec} has no number of experts and layers; give a model", "missing", key="model")
    return shape


def generate_routing(
    routing: str | RoutingSpec = "skewed",
    model: str | PathLike[str] | MoeShape | None = None,
    batch: int = 512,
    steps: int = 16,
    prompt: int = 0,
    seed: int = 1,
    offline: bool = False,
) -> Routing:
    """Generate a routing trace.

    >>> import ndpsim
    >>> ndpsim.generate_routing("skewed:step_stickiness=0.2", "deepseek-v2", batch=64, steps=4).ids.shape
    (4, 59, 64, 6)

    Args:
        routing: a SPEC, see `ndpsim.workload.routing`.
        model: a bundled name or a config.json; None: the model of the counts of ``popularity``.
        batch: sequences that are decoded together.
        steps: decode steps, from 0.
        prompt: prompt tokens of each sequence; 0: no prefill.
        seed: a whole number from 0; the same seed gives the same trace, to the bit.
        offline: generate the offline trace: the same popularity except for the share `drift` of experts, and
            other choices.

    Raises:
        InputError: the SPEC or a number is impossible, or the trace would need too much memory.
    """
    spec = parse_spec(routing)
    shape = shape_of(spec, None if model is None else load_moe_model(model))
    batch, steps = BATCH.checked(batch), STEPS.checked(steps)
    prompt, seed = PROMPT.checked(prompt), SEED.checked(seed)
    offline = flag(offline, "offline")
    if steps == prompt == 0:
        raise InputError("there are neither decode steps nor prompt tokens", "missing", key="steps")
    if shape.experts > MAX_EXPERTS:
        raise InputError(f"{shape.experts} experts are more than {MAX_EXPERTS}", "too-large", key="model")
    tokens = batch * (steps + prompt)
    needed = 2 * shape.experts_per_token * tokens * len(shape.layers)
    needed += 32 * shape.experts_per_token * batch * max(steps, prompt)  # memory of a layer while it is drawn
    ensure_fits(needed, f"choices of {tokens} tokens in {len(shape.layers)} layers", key="batch")

    parameters = spec.settings
    popularity = shares_of(spec, shape, seed)
    if offline:
        drifting = randoms_of(shape.layers, seed, _OFFLINE_DRIFT)
        popularity = _each(exchanged, popularity, parameters["drift"], drifting)
    inputs = _Inputs(shape, batch, parameters, (seed, _OFFLINE if offline else _JUDGED))
    return Routing(
        shape.experts,
        shape.layers,
        _decode(popularity, inputs, steps),
        _prefill(prefill_shares(popularity, spec, shape, seed), inputs, prompt) if prompt else None,
        (prompt,) * batch if prompt else (),
        source={"generated": str(spec), "seed": seed, "offline": offline},
    )


def shares_of(spec: RoutingSpec, shape: RoutingShape, seed: int) -> Shares:
    """The popularity of experts in decode."""
    randoms = randoms_of(shape.layers, seed, _POPULARITY)
    return spec.generator.shares(shape, spec.name, spec.settings, frozenset(spec.stated), randoms)


def prefill_shares(popularity: Shares, spec: RoutingSpec, shape: RoutingShape, seed: int) -> Shares:
    """The popularity of experts in a prefill: that of decode, or one with the SPEC's cosine to it."""
    cosine = spec.settings["prefill_cosine"]
    if cosine >= 1:
        return popularity
    return _each(like, popularity, cosine, randoms_of(shape.layers, seed, _PREFILL_POPULARITY))


def _each(change: Callable[..., Any], popularity: Shares, amount: float, randoms: Randoms) -> Shares:
    """The popularity of all layers, changed layer by layer."""
    return np.array([change(row, amount, random) for row, random in zip(popularity, randoms, strict=True)])


class _Inputs(NamedTuple):
    """Inputs of every phase; `drawn`: the seed and the number of the trace."""

    shape: RoutingShape
    batch: int
    parameters: Mapping[str, Any]
    drawn: tuple[int, int]

    def randoms(self, use: int) -> Randoms:
        """Random numbers of each layer."""
        return randoms_of(self.shape.layers, *self.drawn, use)


def _decode(popularity: Shares, inputs: _Inputs, steps: int) -> Ids:
    shape, parameters = inputs.shape, inputs.parameters
    ids = np.empty((steps, len(shape.layers), inputs.batch, shape.experts_per_token), np.int16)
    randoms = zip(inputs.randoms(_DECODE), inputs.randoms(_STEP_DRIFT), strict=True)
    for row, (random, drifting) in enumerate(randoms):
        shares = [popularity[row]]
        while len(shares) < steps:
            drift = parameters["step_drift"]
            shares.append(exchanged(shares[-1], drift, drifting) if drift else shares[-1])
        if steps:
            sticky = parameters["token_stickiness"], parameters["step_stickiness"]
            ids[:, row] = draw(shares, inputs.batch, shape.experts_per_token, *sticky, random)
    return ids


def _prefill(popularity: Shares, inputs: _Inputs, prompt: int) -> Ids:
    """The choices of prompts, a block for each prompt."""
    shape, batch, sticky = inputs.shape, inputs.batch, inputs.parameters["token_stickiness"]
    ids = np.empty((len(shape.layers), batch * prompt, shape.experts_per_token), np.int16)
    for row, random in enumerate(inputs.randoms(_PREFILL)):
        chosen = draw([popularity[row]] * batch, prompt, shape.experts_per_token, sticky, 0.0, random)
        ids[row] = chosen.reshape(batch * prompt, -1)
    return ids


def find_routing(
    routing: str | PathLike[str] | RoutingSpec | Routing | None,
    model: str | PathLike[str] | MoeShape,
    batch: int | None = None,
    steps: int | None = None,
    prompt: int = 0,
    seed: int = 1,
    layers: Sequence[int] | None = None,
) -> Routing:
    """The routing of a run: a trace, or one that is read from a file or generated.

    >>> ndpsim.find_routing("skewed", "mixtral-8x7b", batch=2, steps=1).steps
    1

    Args:
        routing: a trace, its file, or a SPEC; None: `default_routing` of the model. A SPEC comes first; write
            ``./skewed`` for a file of that name.
        model, prompt, seed: see `generate_routing`.
        batch, steps: a trace is cut to them; None: what the trace has, or 512 and 16 are generated.
        layers: the model's layers that are needed; None: those of the trace, or all. Dense ones are
            ignored.

    Raises:
        InputError: the file or generator does not exist, or the trace does not fit the model or is too
            small.
    """
    return asked_routing(routing, load_moe_model(model), batch, steps, prompt, seed, layers).draw()


@dataclass(frozen=True, eq=False)
class AskedRouting:
    """The routing of a run whose sizes are known before it is generated.

    Attributes:
        batch, steps, prefill_tokens, layers: as in `Routing`.
        draw: reads or generates it.
    """

    batch: int
    steps: int
    prefill_tokens: int
    layers: tuple[int, ...]
    draw: Callable[[], Routing]


def asked_routing(
    routing: str | PathLike[str] | RoutingSpec | Routing | None,
    model: MoeShape,
    batch: int | None,
    steps: int | None,
    prompt: int,
    seed: int,
    layers: Sequence[int] | None,
) -> AskedRouting:
    """The routing of a run, which is not generated yet; see `find_routing`."""
    if routing is None:
        routing = default_routing(model)
    if isinstance(routing, RoutingSpec) or (isinstance(routing, str) and is_spec(routing)):
        batch = BATCH.default if batch is None else BATCH.checked(batch)
        steps = STEPS.default if steps is None else STEPS.checked(steps)
        spec, prompt = parse_spec(routing), PROMPT.checked(prompt)
        of_spec = shape_of(spec, model).layers
        wanted = tuple(layer for layer in asked_layers(model, layers) if layer in of_spec)

        def draw() -> Routing:
            return generate_routing(spec, model, batch, steps, prompt, seed).for_model(model, layers=layers)

        return AskedRouting(batch, steps, batch * prompt, wanted, draw)
    trace = routing if isinstance(routing, Routing) else load_routing(existing_file(routing), model)
    if prompt and set(trace.prompt_lengths[:batch]) != {prompt}:
        raise InputError(f"the trace has no prompts of {prompt} tokens", "missing", key="prompt")
    trace = trace.for_model(model, batch, steps, trace.layers if layers is None else layers)
    return AskedRouting(trace.batch, trace.steps, trace.prefill_tokens, trace.layers, lambda: trace)


def is_spec(text: str) -> bool:
    """Whether a text begins as a SPEC does."""
    return settings.begins_as_spec(text, generators())


def existing_file(routing: str | PathLike[str]) -> Path:
    """The file of a trace.

    Raises:
        InputError: there is no such file; for a mistyped SPEC, the message names the nearest generator.
    """
    return settings.existing_file(routing, generators(), "routing")
