"""A result as the metrics of a point."""

from __future__ import annotations

from typing import Any

from ndpsim.reported import OF_THE_RUN, Reported

_IN_WORDS = ("config", "energy_note")


def scalars_of(result: Reported, *others: str) -> dict[str, Any]:
    """The scalars of a result by dotted name, without configuration, times of the run and `others`."""
    return {
        name: value
        for name, value in result.to_dict(flat=True).items()
        if name.partition(".")[0] not in (*_IN_WORDS, *others) and name.rpartition(".")[2] not in OF_THE_RUN
    }
