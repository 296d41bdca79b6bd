"""A host channel with its DIMMs: for Python alone, without a command."""

from __future__ import annotations

from typing import Any

from ndpsim.base.options.gemv import RunSettings, StartSettings
from ndpsim.base.options.host import SharingSettings
from ndpsim.base.options.settings import argument

_MAPPINGS = "Sequence[Mapping[str, Any]]"


class SessionSettings(RunSettings, StartSettings, SharingSettings):
    """A host channel with all its DIMMs."""

    first = "hw dimms arbitration slice_clocks start_clock open_rows sets"

    dimms: int | None = argument(
        None,
        "The number of DIMMs, from the first of the channel, that may run experts; None: all. The others "
        "have only host traffic.",
    )
    open_rows: Any = argument(
        (),
        "Rows that are open at the start: (rank on the channel, bank group, bank, row), on every "
        "sub-channel.",
        "Iterable[OpenRow]",
    )


class DimmSettings(SessionSettings):
    """Experts, host traffic and a relayout on the DIMMs of a channel."""

    first = (
        "hw experts host host_reads relayout until_ns dimms arbitration slice_clocks start_clock open_rows"
    )

    experts: Any = argument(
        (),
        'Arguments of `Session.expert` for each, in the order of the queues: ``{"tokens": 3}``.',
        _MAPPINGS,
    )
    host: Any = argument(
        (), 'Arguments of `Session.host` for each stream: ``{"gbps": 4, "start_ns": 1000}``.', _MAPPINGS
    )
    host_reads: Any = argument((), "Arguments of `Session.host_read` for each.", _MAPPINGS)
    relayout: Any = argument(
        None, "Arguments of `Session.relayout`; None: nothing moves.", "Mapping[str, Any] | None"
    )
    until_ns: float | None = argument(None, "As in `Session.run`.")
