"""The place of an expert's weights, as numbers and in the words of records."""

from __future__ import annotations

from ndpsim.policies.views import STRIPED

#: The first DIMM that has an expert's weights, or `STRIPED`, and how many DIMMs have them.
Lies = tuple[int, int]


def name_of(lies: Lies) -> str:
    """The words for a place: "striped", "localized 3", "sharded:4 8"."""
    dimm, shards = lies
    if dimm == STRIPED:
        return "striped"
    return f"localized {dimm}" if shards == 1 else f"sharded:{shards} {dimm}"


def lies_of(name: str) -> Lies:
    """The place that such words name."""
    layout, _, dimm = name.partition(" ")
    return (STRIPED, 1) if layout == "striped" else (int(dimm), int(layout.partition(":")[2] or 1))


def read_shards(lies: Lies) -> int | None:
    """`shards` of `Costs.host_read`: None for a striped expert."""
    dimm, shards = lies
    return None if dimm == STRIPED else shards
