"""A host channel with its DIMMs, and the work on them: for Python alone, without a command."""

from __future__ import annotations

from typing import Any

from ndpsim.base.options.gemv import LAST_RELEASE_NS, MAX_TOKENS, RunSettings, StartSettings, WeightSettings
from ndpsim.base.options.host import RATE, RequestSettings, SharingSettings, TrafficSettings
from ndpsim.base.options.relayout import MoveSettings
from ndpsim.base.options.settings import Settings, argument
from ndpsim.base.options.table import TEXT, Flag, Real, Whole

_GBPS = "float | str"
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


class _OnDimm(Settings):
    dimm: int = argument(0, "Number of the DIMM on the channel.")


class _Later(Settings):
    start_ns: float = argument(
        0.0, "Its start; times in the past count as now.", kind=Real(0, LAST_RELEASE_NS)
    )


class QueuedSettings(_OnDimm, WeightSettings):
    """An expert in the queue of a DIMM."""

    first = "model tokens dimm release_ns bits"

    tokens: int = argument(1, "Tokens that go through it.", kind=Whole(1, MAX_TOKENS))
    release_ns: float = argument(
        0.0, "Its earliest start; times in the past count as now.", kind=Real(0, LAST_RELEASE_NS)
    )


class StreamSettings(_Later, _OnDimm, RequestSettings):
    """Endless requests of the host to a DIMM."""

    first = "pattern gbps read_share dimm start_ns"

    gbps: Any = argument(TrafficSettings.host_gbps, "As `host_gbps` of `simulate_contention`.", _GBPS, RATE)


class ReadSettings(_Later, WeightSettings):
    """Weights of an expert that the host reads once."""

    first = "model layout gbps start_ns bits dimm behind"

    layout: str = argument("localized", "As in `simulate_host_read`.", kind=TEXT)
    gbps: Any = argument(
        TrafficSettings.host_gbps,
        'The highest rate over this channel; "saturate": as fast as possible. If host reads together ask for '
        "more than the channel has, they share it equally, except those that ask for less. A read that was "
        "delayed catches up by at most 2048 clocks, as far as buffers allow.",
        _GBPS,
        RATE,
    )
    dimm: int = argument(0, "Number on the channel of the first DIMM, for weights that are not striped.")
    behind: bool = argument(
        False,
        "The weights are behind the data on their DIMMs, in rows of their own; otherwise they are the first "
        "data on their DIMMs.",
        kind=Flag(),
    )


class LaterMoveSettings(_Later, MoveSettings):
    """Experts that move while the session runs."""


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
