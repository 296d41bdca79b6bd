"""The handshake between a unit as hardware and its lanes; docs/rtl.md describes each port.

Ports of several lanes are joined: lane n has the bits from n times the width of a lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: Edges of the unit's clock in reset, before edge 0.
RESET_EDGES = 4
#: Edges without a step of the unit, while it has work, after which it is stuck.
STUCK_EDGES = 20_000


@dataclass(frozen=True)
class Sizes:
    """Sizes of the ports.

    Attributes:
        lanes: number of lanes.
        burst_bytes: bytes of a burst.
        vector_bytes: bytes of the activations for a burst.
        tokens: most tokens of a tile.
    """

    lanes: int
    burst_bytes: int
    vector_bytes: int
    tokens: int


class Port(NamedTuple):
    """A port: whether the unit drives it, and its width; 0: any width."""

    is_output: bool
    bits: int


#: Ports of a unit with a FIFO of its own; a unit has all of them or none.
OWN_FIFO = ("in_credit", "in_phase", "phase")


def ports(sizes: Sizes) -> dict[str, Port]:
    """All ports by name."""
    lanes, bits = sizes.lanes, sizes.burst_bytes * 8
    inputs = {
        "clk": 1,
        "rst": 1,
        "in_valid": lanes,
        "in_data": lanes * bits,
        "in_row": lanes * 16,
        "in_vector": lanes * 16,
        "in_phase": lanes,
        "act_valid": lanes,
        "act_vector": 16,
        "act_data": sizes.vector_bytes * 8,
        "go": 1,
        "phase": 1,
        "tokens": 0,
        "row_bursts": 16,
        "out_ready": 1,
    }
    outputs = {
        "in_ready": lanes,
        "in_credit": lanes * 8,
        "out_valid": 1,
        "out_row": 16,
        "out_token": 0,
        "out_sum": 0,
    }
    return {
        **{name: Port(False, width) for name, width in inputs.items()},
        **{name: Port(True, width) for name, width in outputs.items()},
    }


def check_ports(found: Mapping[str, Port], sizes: Sizes, file: str) -> bool:
    """Check the ports of a unit; returns whether it has a FIFO of its own.

    Raises:
        InputError: a port is missing, unknown or of another direction or width.
    """
    own_fifo = any(name in found for name in OWN_FIFO)
    wanted = {name: port for name, port in ports(sizes).items() if own_fifo or name not in OWN_FIFO}
    for name, port in wanted.items():
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise InputError(f"the unit has no port {name}; it has {known}", "missing", file=file, key=name)
        if found[name].is_output != port.is_output:
            direction = "an output" if port.is_output else "an input"
            raise InputError(f"must be {direction} of the unit", "form", file=file, key=name)
        if port.bits and found[name].bits != port.bits:
            problem = f"has {found[name].bits} bits; this machine needs {port.bits}"
            raise InputError(problem, "range", file=file, key=name)
    for name in found:
        if name not in wanted:
            raise InputError("the handshake has no such port", "unknown-name", file=file, key=name)
    return own_fifo


class Phase(NamedTuple):
    """A phase: the rows of a region, for the tokens of a tile.

    `number`: 0 and 1 in turn. `go_from`: the first edge at which bursts may start. `wanted`: results.
    """

    number: int
    go_from: int
    tokens: int
    row_bursts: int
    wanted: int


class Advanced(NamedTuple):
    """What happened in some edges.

    `results`: int64[n, 4], edge, row, token and sum; the edge is that after which the result was there.
    `credits`: int64[n, 3], lane, edge, and bursts that left the FIFO. `lost`: lane and edge of a burst for
    which the unit's FIFO had no room.
    """

    results: Ints
    credits: Ints
    lost: tuple[int, int] | None


class RunningUnit(Protocol):
    """A unit that is simulated edge by edge.

    Attributes:
        edge: the next edge.
        own_fifo: whether the FIFO of the lanes is in the unit.
    """

    own_fifo: bool

    @property
    def edge(self) -> int: ...

    def set_weights(self, phase: int, weights: Bytes) -> None:
        """The weights of a phase, uint8[burst, byte]."""

    def add_activations(self, lanes: Ints, places: Ints, vectors: Bytes) -> None:
        """Write activations, uint8[vector, byte], one an edge: each to a place in the buffer of some lanes.

        `lanes`: int64[vector], the lanes as bits.
        """

    def add_bursts(self, lane: int, fields: Ints) -> None:
        """Bursts that arrive on a lane: int64[n, 5], edge, row, vector, phase, and number in the weights.

        The unit copies them.
        """

    def advance(self, until: int, phase: Phase) -> Advanced:
        """Run up to, not including, an edge, or to the last result that the phase wants."""

    def close(self) -> None:
        """End the simulation, and complete the waveforms."""
