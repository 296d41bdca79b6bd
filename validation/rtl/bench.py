"""Drives hardware with a valid/ready handshake, clock by clock, in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Fragment
from amaranth.sim import Simulator


class StuckError(Exception):
    """The hardware has work, and does nothing."""


def run_clocks(component: Any, step: Callable[[int, Any, Any], bool], most: int = 100_000) -> int:
    """Simulate clock by clock; returns the number of edges.

    Args:
        component: an Amaranth component.
        step: called before each edge with its number, and functions that read and write a port by its name.
            What it reads has settled. The run ends when it returns True.
        most: edges, at most.

    Raises:
        StuckError: `step` was never True.
    """
    simulator = Simulator(Fragment.get(component, None))
    simulator.add_clock(1e-9)
    ended: list[int] = []

    async def bench(context: Any) -> None:
        def get(name: str) -> int:
            return int(context.get(getattr(component, name)))

        def put(name: str, value: int) -> None:
            context.set(getattr(component, name), value)

        for edge in range(most):
            if step(edge, get, put):
                ended.append(edge)
                return
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()
    if not ended:
        raise StuckError(f"no end after {most} clocks")
    return ended[0]


def joined(numbers: list[int], bits: int) -> int:
    """Numbers of some bits each, signed or not, as one word, the first in its lowest bits."""
    word = 0
    for place, number in enumerate(numbers):
        word |= (number & ((1 << bits) - 1)) << place * bits
    return word


def parted(word: int, bits: int, count: int) -> list[int]:
    """The signed numbers of a word."""
    parts = [word >> place * bits & ((1 << bits) - 1) for place in range(count)]
    return [part - (1 << bits) if part >> (bits - 1) else part for part in parts]
