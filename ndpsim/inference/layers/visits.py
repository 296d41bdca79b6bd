"""The layers of a run in order, with the windows before their gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.processors import DenseTime
from ndpsim.inference.processors.banks import BankAttention
from ndpsim.policies.script import Visit
from ndpsim.workload.routing import Routing
from ndpsim.workload.routing.trace import loads_of


class InBanks(NamedTuple):
    """A layer's attention on devices, and the GPU's time before it, since the attention before it."""

    gpu_ns: float
    attention: BankAttention


class Window(NamedTuple):
    """Attention and dense parts between two layers with experts.

    Attributes:
        phase: "prefill" or "decode".
        gpu_ns: time of attention and dense parts on the GPU.
        host_read_bytes, host_write_bytes: bytes of the KV cache that move to and from the host meanwhile.
        in_banks: the attention of layers on devices with units in their banks, in order.
    """

    phase: str
    gpu_ns: float
    host_read_bytes: int
    host_write_bytes: int
    in_banks: tuple[InBanks, ...] = ()


class GatedVisit(NamedTuple):
    """A layer with experts in a step.

    Attributes:
        row: index of the layer among those with experts.
        loads: tokens by expert, which cannot be written.
        ids, scores: the choices of its tokens, as in `LayerView`.
        windows: the windows before it; the last one is its own, others belong to the end of the previous
            step.
        shared_ns: the time of the shared experts.
        last: whether it is the last visit of the run.
        following: the next visit; None: it is not known, or there is none.
        prompt_tokens: number of prompt tokens, which are its last tokens.
    """

    visit: Visit
    row: int
    loads: NDArray[np.int64]
    ids: NDArray[np.int16]
    scores: NDArray[np.float32] | None
    windows: tuple[Window, ...]
    shared_ns: float
    last: bool
    following: GatedVisit | None = None
    prompt_tokens: int = 0


def itinerary(
    trace: Routing, experts: int, layers: tuple[int, ...], decode: DenseTime, prefill: DenseTime | None
) -> tuple[list[GatedVisit], tuple[Window, ...]]:
    """All visits of a run, and the windows after the last one.

    experts: those with weights.
    layers: those that are run, dense ones among them.
    """
    phases = [] if prefill is None else [("prefill", 0, prefill)]
    phases += [("decode", step, decode) for step in range(trace.steps)]
    found: list[GatedVisit] = []
    before: tuple[Window, ...] = ()
    for phase, step, dense in phases:
        last = (phase, step) == phases[-1][:2]
        ids, scores = _chosen(trace, phase, step)
        loads = frozen_loads(ids, experts)
        gates, tail = windows_of_step(trace.layers, layers, phase, dense)
        for row, window in gates:
            found.append(
                GatedVisit(
                    Visit(phase, step, trace.layers[row]),
                    row,
                    loads[row],
                    ids[row],
                    None if scores is None else scores[row],
                    (*before, window),
                    dense.shared_ns,
                    last and row == len(trace.layers) - 1,
                    prompt_tokens=len(ids[row]) if phase == "prefill" else 0,
                )
            )
            before = ()
        before = (*before, tail)
    return _linked(found), before


def frozen_loads(ids: NDArray[np.int16], experts: int) -> NDArray[np.int64]:
    """Tokens by expert of the layers of a step, [layer, expert]; they cannot be written."""
    loads = loads_of(ids, experts)
    loads.flags.writeable = False
    return loads


def _linked(visits: list[GatedVisit]) -> list[GatedVisit]:
    """The visits, each linked to the next one."""
    following: GatedVisit | None = None
    for number in reversed(range(len(visits))):
        following = visits[number] = visits[number]._replace(following=following)
    return visits


def windows_of_step(
    moe_layers: Sequence[int], layers: Sequence[int], phase: str, dense: DenseTime
) -> tuple[list[tuple[int, Window]], Window]:
    """The row of each layer with experts and its window, and the last window, which has the head.

    layers: those that are run, `moe_layers` among them.
    """
    rows = {layer: row for row, layer in enumerate(moe_layers)}
    gpu_ns, done_ns, read, written = 0.0, 0.0, 0, 0
    in_banks: list[InBanks] = []
    gates: list[tuple[int, Window]] = []
    for layer in layers:
        attention = dense.of_layer(layer)
        if attention.in_banks is not None:
            before_ns = gpu_ns + attention.in_banks.before_ns
            in_banks.append(InBanks(before_ns - done_ns, attention.in_banks))
            done_ns = before_ns + attention.in_banks.beside_ns
        gpu_ns += attention.time_ns
        read, written = read + attention.host_read_bytes, written + attention.host_write_bytes
        if layer not in rows:
            gpu_ns += dense.dense_layer_ns
            continue
        window = Window(phase, gpu_ns + dense.router_ns, read, written, tuple(in_banks))
        gates.append((rows[layer], window))
        gpu_ns, done_ns, read, written, in_banks = 0.0, 0.0, 0, 0, []
    return gates, Window(phase, gpu_ns + dense.head_ns, read, written, tuple(in_banks))


def _chosen(trace: Routing, phase: str, step: int) -> tuple[NDArray[np.int16], NDArray[np.float32] | None]:
    """The experts that tokens chose in a step, and the router's weights: arrays [row, token, k]."""
    if phase == "decode":
        return trace.ids[step], None if trace.scores is None else trace.scores[step]
    assert trace.prefill_ids is not None
    return trace.prefill_ids, trace.prefill_scores
