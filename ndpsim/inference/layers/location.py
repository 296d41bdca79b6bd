"""The location of an expert's weights, as numbers and as a name for records and results."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.policies.views import STRIPED


class Location(NamedTuple):
    """The first DIMM with an expert's weights, or `STRIPED`, and the number of DIMMs with them."""

    dimm: int
    shards: int = 1

    @classmethod
    def from_name(cls, name: str) -> Location:
        """Read "striped", "localized 3" (DIMM 3) or "sharded:4 8" (DIMMs 8 to 11)."""
        layout, _, dimm = name.partition(" ")
        return cls(STRIPED) if layout == "striped" else cls(int(dimm), int(layout.partition(":")[2] or 1))

    @property
    def striped(self) -> bool:
        """Over all DIMMs."""
        return self.dimm == STRIPED

    @property
    def layout(self) -> str:
        """The name of its layout for `make_layout`: "striped", "localized" or "sharded:4"."""
        return "striped" if self.striped else "localized" if self.shards == 1 else f"sharded:{self.shards}"

    @property
    def first_dimm(self) -> int:
        """The first DIMM of its layout; 0 of a striped one."""
        return max(self.dimm, 0)

    @property
    def name(self) -> str:
        """Its name, in the form that `from_name` reads."""
        return self.layout if self.striped else f"{self.layout} {self.dimm}"

    @property
    def read_shards(self) -> int | None:
        """`shards` of `Costs.host_read`: None for a striped expert."""
        return None if self.striped else self.shards
