"""``relayout``: experts move from one layout to another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndpsim.base.options.gemv import OFFERED, SHAPE, CallSettings, WeightSettings
from ndpsim.base.options.hardware import WEIGHTS
from ndpsim.base.options.moe import SIMULATED
from ndpsim.base.options.settings import option, table_of
from ndpsim.base.options.table import Flag, Kind, Parameter, Several, Whole, joined, table

MAX_EXPERTS = 64  #: Maximum number of experts.
_DIMMS = Several(Whole(0, 99_999), always=True, form="D,D,...")


class MoveSettings(WeightSettings):
    """Experts that move from one layout to another."""

    first = "model experts source target source_dimms target_dimms"

    experts: int = option(1, Whole(1, MAX_EXPERTS), "Experts that move.", SIMULATED)
    source: str = option(
        "localized",
        Kind(form="NAME"),
        "Layout before the move: localized, striped or sharded:N.",
        SIMULATED,
        name="from",
        names=OFFERED,
    )
    target: str = option(
        "striped", Kind(form="NAME"), "Layout after the move.", SIMULATED, name="to", names=OFFERED
    )
    source_dimms: Any = option(
        None,
        _DIMMS,
        "First DIMM of each expert before the move.",
        SIMULATED,
        "Sequence[int] | None",
        name="from-dimms",
        otherwise="spread evenly",
    )
    target_dimms: Any = option(
        None,
        _DIMMS,
        "First DIMM of each expert after the move.",
        SIMULATED,
        "Sequence[int] | None",
        told="first DIMM of each expert after the move; if both layouts are the same, each expert moves to "
        "the next DIMM (or DIMMs)",
        name="to-dimms",
        otherwise="spread evenly",
    )


class RelayoutSettings(MoveSettings, CallSettings):
    """Experts that move on hardware of their own."""

    first = "hw model experts source target source_dimms target_dimms bits sets host other_dimms"

    host: bool = option(
        True,
        Flag(),
        "Do not simulate the same move by the host.",
        SIMULATED,
        told="also simulate the same move by the host",
        name="no-host",
        stated=None,
        negates=True,
    )
    other_dimms: bool = option(
        False,
        Flag(),
        "Also simulate the move with experts on neighbouring DIMMs.",
        SIMULATED,
        told="also simulate the move with experts on neighbouring DIMMs; experts that are spread evenly may "
        "be on few of the host's channels",
        stated=None,
    )


RELAYOUT = joined(
    table_of(RelayoutSettings),
    table(
        {
            SIMULATED: (
                replace(SHAPE, help="Experts of this shape, instead of experts of a model."),
                Parameter(
                    "topology",
                    "Topology of the links: chain, ring, mesh, full, bus or groups.",
                    Kind(form="NAME"),
                    otherwise="the hardware's",
                    names="link.topology",
                ),
            ),
            "Weights": WEIGHTS,
        }
    ),
)

#: The moving experts, and their source and target.
MOVED = ("experts", "from", "to", "from-dimms", "to-dimms")
