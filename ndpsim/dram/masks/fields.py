"""Every field of the fast controller's state array, and what a state signature has of it.

Roles of the fields that a signature has, and how it has them:

- CLOCK: relative to the clock of the step;
- ROW: relative to the row of the request that the step takes;
- REQUEST: relative to the number of that request;
- NUMBER: as it is, a mask, a count or a place in a ring.

Roles of the others:

- ORIGIN: what clocks, rows and requests are relative to;
- DERIVED: follows from the fields above and is set from them by `signature.restore`, or by the next step;
- COUNTER: what transitions add to; refreshes that fall due belong to transitions, too;
- CONSTANT: stays as it is while the channel runs;
- FORWARDING: what fast-forward itself works with;
- UNUSED: keeps others apart.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.dram import state as channel
from ndpsim.dram.masks import state as masks

__all__ = ["FIELDS", "IN_SIGNATURE", "Field"]

CLOCK, ROW, REQUEST, NUMBER = "clock", "row", "request", "number"
ORIGIN, DERIVED, COUNTER, CONSTANT = "origin", "derived", "counter", "constant"
FORWARDING, UNUSED = "forwarding", "unused"

#: The roles of fields that a signature has.
IN_SIGNATURE = (CLOCK, ROW, REQUEST, NUMBER)


class Field(NamedTuple):
    """Neighbouring words of the state array with one meaning."""

    name: str
    first: int
    words: int
    role: str


_COUNTERS = {
    "CLOCK": ORIGIN,
    "PLACE": ORIGIN,
    "WRITE_MODE": NUMBER,
    "DATA_END": CLOCK,
    "REFRESH_FROM": CLOCK,
    "REFRESH_UNTIL": CLOCK,
    "NEXT_REFRESH": DERIVED,
    "COUNTED_UNTIL": DERIVED,
    "PAUSE": CONSTANT,
    "REFRESH_TURNS": CONSTANT,
    "REFRESH_PERIOD": CONSTANT,
}
_COUNTED = (
    *("TAKEN", "SERVED", "ROW_HITS", "ROW_MISSES", "ROW_CONFLICTS", "FORWARDED", "COALESCED"),
    *("READ_LATENCY", "READS_SERVED", "FIRST_COMMAND", "IDLE_REFRESH", "IDLE_CREDIT", "IDLE_ROW"),
    *("REFRESHES", "READ_QUEUE", "WRITE_QUEUE", "OPEN_CLOCKS"),
)

_WAITS = 2 * masks.RANKS * masks.WAITS
_ARRAYS = (
    ("TURNS", masks.MOST_TURNS * channel.TURN_FIELDS, CONSTANT),
    ("ISSUED", 2 * masks.KINDS, COUNTER),
    ("SAME_RANK", masks.DISTANCES, CONSTANT),
    ("OTHER_RANK", masks.DISTANCES, CONSTANT),
    ("SAME_GROUP", masks.DISTANCES, CONSTANT),
    ("SAME_BANK", masks.DISTANCES, CONSTANT),
    ("RANK_READY", masks.RANKS * masks.KINDS, CLOCK),
    ("RECENT_ACTS", masks.RANKS * 4, CLOCK),
    ("OLDEST_ACT", masks.RANKS, NUMBER),
    ("OPEN_BANKS", masks.RANKS, NUMBER),
    ("HELD_BANKS", masks.RANKS, DERIVED),
    ("HELD_BY_OTHER", masks.RANKS, CONSTANT),  # fast-forward is for channels of one controller
    ("SLOT_BANK", 2 * masks.SLOTS, NUMBER),
    ("SLOT_ROW", 2 * masks.SLOTS, ROW),
    ("SLOT_ARRIVED", 2 * masks.SLOTS, CLOCK),
    ("SLOT_REQUEST", 2 * masks.SLOTS, REQUEST),
    ("USED", 2, NUMBER),
    ("COUNTED", 2, NUMBER),
    ("TAIL", 2, NUMBER),
    ("SIZE", 2, NUMBER),
    ("WAITING", _WAITS, DERIVED),
    ("MAYBE_READY", masks.KINDS, DERIVED),
    ("BOUND", _WAITS, DERIVED),
    ("NOT_READY_HEAD", _WAITS, DERIVED),
    ("NOT_READY_SIZE", _WAITS, DERIVED),
    ("ACTIVE_HEAD", 2 * masks.RANKS, NUMBER),
    ("ACTIVE_SIZE", 2 * masks.RANKS, NUMBER),
    ("ACTIVE_BOUND", masks.RANKS * masks.WAITS, DERIVED),
    ("PENDING_SIZE", 1, NUMBER),
    ("WRITES_AT", masks.ADDRESSES, DERIVED),
    ("TOUCHED", masks.RANKS, CLOCK),
    ("FAST_FORWARDED", 1, COUNTER),
    ("NEXT_LOOKUP", 1, FORWARDING),
    ("RECORDING", 1, FORWARDING),
    ("LOSS", 1, FORWARDING),
    ("PAUSE_SPANS", 1, FORWARDING),
    ("CAPPED", masks.RANKS, CONSTANT),  # fast-forward is for open rows and queues of one segment
    ("CAPPED_BOUND", 1, CONSTANT),
    ("DOUBLY_HELD", masks.RANKS, CONSTANT),
    ("YOUNGER_SEGMENTS", 2, CONSTANT),
    ("SEGMENT_ORDER", 2 * masks.SEGMENTS, CONSTANT),
    ("GROUP_READY", masks.GROUPS * masks.KINDS, CLOCK),
    ("BANK_READY", masks.BANKS * masks.KINDS, CLOCK),
    ("OPEN_ROW", masks.BANKS, ROW),
    ("OF_BANK", 2 * masks.BANKS, DERIVED),
    ("SEGMENTS_OF", 2 * masks.BANKS, CONSTANT),
    ("CLOSED_AT", masks.BANKS, CONSTANT),
    ("NOT_READY", _WAITS * masks.SLOTS, DERIVED),
    ("ACTIVE", 2 * masks.RANKS * masks.SLOTS, NUMBER),
    ("ACTIVE_ARRIVED", masks.BANKS, CLOCK),
    ("ACTIVE_REQUEST", masks.BANKS, REQUEST),
    ("ACCESSES", masks.BANKS, CONSTANT),
    ("PENDING_KIND", masks.PENDING, NUMBER),
    ("PENDING_BANK", masks.PENDING, NUMBER),
    ("READ_LOG", masks.READS_LOGGED * masks.READ_LOG_FIELDS, FORWARDING),
    ("SNAPSHOT_CLOCK", 1, FORWARDING),
    ("SNAPSHOT_OPEN", 1, FORWARDING),
    ("SNAPSHOT", channel.COUNTERS + masks.KINDS, FORWARDING),
    ("TAKEN_TRANSITION", masks.LONGEST_PERIOD, FORWARDING),
    ("TAKEN_CLOCK", masks.LONGEST_PERIOD, FORWARDING),
)
# Fields that are followed by words that keep the next apart.
_APART = {
    "SEGMENT_ORDER": masks.GROUP_READY - masks.SEGMENT_ORDER - 2 * masks.SEGMENTS,
    **dict.fromkeys(("GROUP_READY", "BANK_READY", "OPEN_ROW", "CLOSED_AT"), masks.GAP),
    **dict.fromkeys(("NOT_READY", "ACTIVE", "ACTIVE_ARRIVED"), masks.GAP),
}


def _fields() -> tuple[Field, ...]:
    fields = [Field(name, getattr(channel, name), 1, role) for name, role in _COUNTERS.items()]
    fields += [Field(name, getattr(channel, name), 1, COUNTER) for name in _COUNTED]
    fields.append(Field("spare counters", len(fields), channel.COUNTERS - len(fields), UNUSED))
    for name, words, role in _ARRAYS:
        first = getattr(masks, name)
        fields.append(Field(name, first, words, role))
        if name in _APART:
            fields.append(Field(f"after {name}", first + words, _APART[name], UNUSED))
    return tuple(sorted(fields, key=lambda field: field.first))


#: All fields, in the order of their words.
FIELDS = _fields()
