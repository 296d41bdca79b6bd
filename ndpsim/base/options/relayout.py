"""``relayout``: experts move from one layout to another."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.gemv import MODEL, OFFERED, SHAPE
from ndpsim.base.options.hardware import HW
from ndpsim.base.options.kinds import Flag, Kind, Several, Whole
from ndpsim.base.options.table import Parameter, table
from ndpsim.base.options.weights import WEIGHTS

MAX_EXPERTS = 64  #: Maximum number of experts.
_DIMMS = Several(Whole(0, 99_999), always=True, form="D,D,...")

RELAYOUT = table(
    {
        "What is simulated": (
            HW,
            MODEL,
            replace(SHAPE, help="Experts of this shape, instead of experts of a model."),
            Parameter("experts", "Experts that move.", Whole(1, MAX_EXPERTS), 1),
            Parameter(
                "from",
                "Layout before the move: localized, striped or sharded:N.",
                Kind(form="NAME"),
                "localized",
                argument="source",
                names=OFFERED,
            ),
            Parameter(
                "to", "Layout after the move.", Kind(form="NAME"), "striped", argument="target", names=OFFERED
            ),
            Parameter(
                "from-dimms",
                "First DIMM of each expert before the move.",
                _DIMMS,
                otherwise="spread evenly",
                argument="source_dimms",
            ),
            Parameter(
                "to-dimms",
                "First DIMM of each expert after the move.",
                _DIMMS,
                otherwise="spread evenly",
                argument="target_dimms",
            ),
            Parameter(
                "topology",
                "Topology of the links: chain, ring, mesh, full, bus or groups.",
                Kind(form="NAME"),
                otherwise="the hardware's",
                names="link.topology",
            ),
            Parameter("no-host", "Do not simulate the same move by the host.", Flag()),
            Parameter("other-dimms", "Also simulate the move with experts on neighbouring DIMMs.", Flag()),
        ),
        "Weights": WEIGHTS,
    }
)

#: The moving experts, and their source and target.
MOVED = ("experts", "from", "to", "from-dimms", "to-dimms")
