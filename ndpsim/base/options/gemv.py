"""``gemv``: one expert on DIMMs, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ndpsim.base.options.hardware import HW, model_of
from ndpsim.base.options.host import ARBITRATION, PATTERN, PATTERNS, READS, SLICE_CLOCKS, TRAFFIC
from ndpsim.base.options.kinds import Choice, Kind, Real, Several, Whole
from ndpsim.base.options.table import Parameter, refuse, table
from ndpsim.base.options.weights import WEIGHTS

LAYOUTS = ("localized", "sharded:N", "striped")  #: Layouts of an expert's weights.
OFFERED = tuple(name.removesuffix("N") for name in LAYOUTS)  #: For completion of the part before N.
DEFAULT_MODEL = "qwen3-235b-a22b"
MAX_TOKENS = 16384  #: Maximum number of tokens of an expert.
LAST_RELEASE_NS = 1e9
LAST_START = 1 << 48  #: The last DRAM clock at which a run may begin.
MOST_PHASES = 1024

MODEL = model_of(DEFAULT_MODEL)
SHAPE = Parameter(
    "shape", "An expert of this shape, instead of an expert of a model.", Kind(form="HIDDEN,INTERMEDIATE")
)

GEMV = table(
    {
        "What is simulated": (
            HW,
            MODEL,
            SHAPE,
            Parameter(
                "tokens",
                "Number of tokens of the expert; 3,1,2: tokens of three experts in turn.",
                Several(Whole(1, MAX_TOKENS)),
                1,
            ),
            Parameter(
                "release-ns",
                "Earliest start of the expert; 0,100,200: starts of three experts.",
                Several(Real(0, LAST_RELEASE_NS), form="NS,..."),
                0,
            ),
            Parameter(
                "start-clock",
                "DRAM clock at which the run begins; refreshes are due at multiples of their interval.",
                Whole(1, LAST_START),
                1,
            ),
            Parameter(
                "refresh-phases",
                "Run from N start clocks in one refresh period; print mean, minimum and maximum time.",
                Whole(1, MOST_PHASES),
            ),
            Parameter(
                "engine",
                "ndp, or host-read: the host reads the weights.",
                Choice(("ndp", "host-read"), "engine"),
                "ndp",
            ),
            Parameter(
                "layout",
                "localized, sharded:N or striped.",
                Kind(form="NAME"),
                otherwise="localized; host-read: striped",
                names=OFFERED,
            ),
        ),
        "Weights": WEIGHTS,
        "Host traffic": (TRAFFIC, READS, PATTERN, replace(ARBITRATION, needs=TRAFFIC.name), SLICE_CLOCKS),
    }
)

ALONE = ("start-clock", "refresh-phases")  #: Parameters that apply only without host traffic.
HOST = tuple(name for name, one in GEMV.items() if one.section == "Host traffic")


def check_gemv(given: Mapping[str, Any], dashes: str = "") -> None:
    """Refuse options that have no effect together with other given options.

    Args:
        dashes: as in `Table.check_needs`.

    Raises:
        InputError: such an option is given.
    """
    GEMV.check_needs(given, dashes)
    if given.get("engine") == "host-read":
        refuse(given, f"needs {dashes}engine ndp: the host only reads", "tokens", "release-ns", *ALONE, *HOST)
    if "host-traffic" in given:
        refuse(given, f"is not supported with {dashes}host-traffic", *ALONE)
    if "host-pattern" in given and given["host-pattern"] not in PATTERNS:
        refuse(given, "is of sequential and random; a trace says itself what it reads", "host-reads")
