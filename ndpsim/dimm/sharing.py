"""Whether lanes share anything with a host or each other: of each case there is one step of a bus."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import by_type


class Shared(NamedTuple):
    """Lanes may share their ranks with a host, and command buses with each other."""

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return "ndpsim.dimm.concurrent"


class Alone(NamedTuple):
    """Every lane is a bus of its own around a relayout engine, without a host and without weights."""

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return "ndpsim.dimm.alone"


@by_type
def step_bus(sharing, setup, agents, lanes, hosts, wakeups, bus, clock):
    """A step of a bus and of the lanes behind it. False when refresh can never catch up."""
