"""Machines, estimates and views of simple numbers, for policies solved by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ndpsim.policies import Assignment, OfflineView, Policy, choose_policy
from ndpsim.policies.answers import checked_assignment, checked_migrations, checked_placement
from ndpsim.policies.example import MODEL as EXAMPLE
from ndpsim.policies.views import BackgroundView, Estimates, LayerPlacement, LayerView, Machine, Placement
from ndpsim.workload.models import load_model
from ndpsim.workload.routing import Routing

TOKENS = np.arange(601)


def estimates(**changed: object) -> Estimates:
    """On the GPU 10 ns and 1 for each token, on the CPU 8 and 4, on NDP 20 for each token; a copy takes 100 ns."""
    plain = dict(
        gpu_ns=10.0 + TOKENS,
        cpu_ns=8.0 + 4 * TOKENS,
        ndp_ns=20.0 * TOKENS,
        ndp_error=0.0,
        pcie_ns=100.0,
        striped_read_ns=40.0,
        localized_read_ns=80.0,
        to_striped_ns=50.0,
        to_localized_ns=60.0,
        rebalance_ns=70.0,
        window_ns=200.0,
        shared_ns=0.0,
        token_ns=1.0,
    )
    return Estimates(**(plain | changed))  # type: ignore[arg-type]


def machine(
    experts: int = 8,
    layers: int = 1,
    gpu_experts: int = 0,
    dimms: int = 1,
    first: int = 0,
    channel: tuple[int, ...] | None = None,
    has_cpu: bool = True,
    bits: int = 16,
    **of_model: object,
) -> Machine:
    """A model of `layers` layers with experts behind `first` dense ones, of which a token takes two experts."""
    plain = dict(
        name="small",
        hidden=8,
        expert_intermediate=6,
        layers=layers + first,
        moe_layers=layers,
        dense_layers=tuple(range(first)),
        dense_intermediate=8,
        routed_experts=experts,
        experts_per_token=2,
        shared_experts=0,
        shared_intermediate=0,
    )
    model = replace(EXAMPLE, **(plain | of_model))  # type: ignore[arg-type]
    channel = tuple(range(dimms)) if channel is None else channel
    rows = tuple(range(first, first + layers))
    return Machine(model, rows, 288, dimms, channel, gpu_experts, 2, has_cpu=has_cpu, bits=bits)


def flags(count: int, of: Iterable[int]) -> np.ndarray:
    """[count], true at `of`."""
    array = np.zeros(count, np.bool_)
    array[list(of)] = True
    return array


def layer_view(
    ids: Sequence[Sequence[int]],
    resident: Iterable[int] = (),
    arriving: Iterable[int] = (),
    *,
    experts: int = 8,
    phase: str = "decode",
    step: int = 0,
    layer: int = 0,
    scores: Sequence[Sequence[float]] | None = None,
    dimm: Sequence[int] | None = None,
) -> LayerView:
    """The view of a policy after each token has chosen `ids`."""
    chosen = np.array(ids, np.int16)
    loads = np.bincount(chosen.ravel(), minlength=experts)
    lies = np.zeros(experts, np.int16) if dimm is None else np.array(dimm, np.int16)
    placement = LayerPlacement(lies, np.ones(experts, np.int16), flags(experts, resident))
    weights = None if scores is None else np.array(scores, np.float32)
    return LayerView(
        phase, step, layer, loads, len(chosen), placement, flags(experts, arriving), chosen, weights
    )


def background_view(
    view: LayerView,
    resident: np.ndarray,
    *,
    next_layer: int = 0,
    gpu_free: int = 0,
    moving: np.ndarray | None = None,
    copied: Iterable[int] = (),
    predicted: Sequence[int] = (),
    above: Sequence[float] = (),
    next_loads: Sequence[int] | None = None,
    moment: str = "end",
    in_use: Iterable[int] = (),
) -> BackgroundView:
    """The view of a policy at the gate of the layer of `view`, or after the layer; resident: [layer, expert]."""
    placement = Placement(np.zeros(resident.shape, np.int16), np.ones(resident.shape, np.int16), resident)
    return BackgroundView(
        view.phase,
        view.step,
        view.layer,
        next_layer,
        view.loads,
        placement,
        np.zeros_like(resident) if moving is None else moving,
        gpu_free,
        view.ids,
        view.scores,
        flags(resident.shape[1], copied),
        None if next_loads is None else np.array(next_loads),
        tuple(predicted),
        tuple(above),
        moment,
        flags(resident.shape[1], in_use),
    )


# A machine with plain numbers: 6 experts, layers 1 and 2, two DIMMs. An expert of t tokens takes t on the GPU,
# 4 t on the CPU, 10 + 5 t on a DIMM; 20 over PCIe, 8 read by the host; 50 between layers.

EXPERTS = 6
MODEL = replace(load_model("mixtral-8x7b"), routed_experts=EXPERTS)
MACHINE = Machine(MODEL, (1, 2), 1000, 2, (0, 1), 4, 2)
_TO_100 = np.arange(101.0)
ESTIMATES = estimates(
    gpu_ns=_TO_100,
    cpu_ns=4 * _TO_100,
    ndp_ns=np.where(_TO_100 > 0, 10 + 5 * _TO_100, 0.0),
    ndp_error=0.0,
    pcie_ns=20.0,
    striped_read_ns=8.0,
    localized_read_ns=30.0,
    to_striped_ns=40.0,
    to_localized_ns=40.0,
    rebalance_ns=40.0,
    window_ns=50.0,
    shared_ns=3.0,
    token_ns=0.1,
)


def started(
    asked: str, gpu_experts: int = 4, loads: Sequence[Sequence[int]] = ((9, 8, 3, 2, 1, 1), (2, 1, 9, 3, 8, 1)),
    **changes: object,
) -> tuple[Policy, Placement]:  # fmt: skip
    """A policy whose offline trace has these loads (all tokens choose one expert), and where it puts experts."""
    of = replace(MACHINE, gpu_experts=gpu_experts, **changes)  # type: ignore[arg-type]
    ids = np.array([np.repeat(np.arange(EXPERTS), layer) for layer in loads], np.int16)[None, :, :, None]
    policy = choose_policy(asked).start(of, ESTIMATES)
    view = OfflineView(of, ESTIMATES, Routing(EXPERTS, (1, 2)[: len(loads)], ids), ids.shape[2])
    return policy, checked_placement(policy.name, policy.place(view), of)


def assigned(
    policy: Policy, placement: Placement, loads: Sequence[int], row: int = 0, step: int = 0, phase: str = "decode",
    arriving: Iterable[int] = (),
) -> Assignment:  # fmt: skip
    """A policy's answer, which is legal."""
    tokens, there = np.array(loads, np.int64), placement.of_layer(row)
    view = LayerView(phase, step, (1, 2)[row], tokens, sum(loads), there, flags(EXPERTS, arriving))
    answer = policy.assign(view)
    checked_assignment(policy.name, view, answer, policy.machine)
    return answer


def migrated(
    policy: Policy, placement: Placement, loads: Sequence[int], layer: int = 1, free: int = 0, tokens: int = 1,
    copied: Iterable[int] = (), moving: Iterable[tuple[int, int]] = (), phase: str = "decode",
) -> list[tuple[str, int, int]]:  # fmt: skip
    """The kind, layer and expert of a policy's migrations, which are legal."""
    on_the_way = np.zeros((2, EXPERTS), np.bool_)
    for place in moving:
        on_the_way[place] = True
    view = BackgroundView(
        phase, 0, layer, 3 - layer, np.array(loads, np.int64), placement, on_the_way, free,
        ids=np.zeros((tokens, 1), np.int16), copied=flags(EXPERTS, copied),
    )  # fmt: skip
    legal = checked_migrations(policy.name, view, policy.background(view), policy.machine)
    return [(one.kind, one.layer, one.expert) for one in legal]


def residents(placement: Placement) -> list[tuple[int, int]]:
    """The row and expert of each resident."""
    return [(row, expert) for row, expert in np.argwhere(placement.resident).tolist()]
