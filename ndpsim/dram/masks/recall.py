"""Exact fast-forward: what goes on as it went before is not stepped through again.

At every step that takes the first request of a span, `describe` writes down the channel's situation. When
the same was known, and the requests to come and the next refresh stand as they stood when a passage from
it was seen, then all goes as it went, shifted: `follow` adds what that passage added, and stands before
the next. Only where no passage is known does the channel step, and `learn` adds the one that it finds.
Whatever a controller decides is in the words of a situation, so nothing else has to be proved.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.known import (
    BUCKETS,
    CLOCKS,
    FIRST_BUCKET,
    LENGTH,
    NEXT_IN_BUCKET,
    QUIET,
    READS,
    REFRESHED,
    REFRESHING,
    ROOM,
    SPAN,
    STEP,
    STEPS,
    SUM,
    TO,
    USED,
    WORDS,
)
from ndpsim.dram.masks.passages import begin, find, learn, next_line, take
from ndpsim.dram.masks.rounds import clock_at, go_round, note_step, rounds_ahead
from ndpsim.dram.masks.situations import can_describe, describe, resume
from ndpsim.dram.masks.state import (
    IN_VAIN,
    LAST_REST,
    LEARNING,
    LONGEST_ROUND,
    MARK,
)
from ndpsim.dram.masks.words import natural
from ndpsim.dram.state import (
    COUNTED_UNTIL,
    PAUSE,
    PLACE,
    SERVED,
    TAKEN,
)

__all__ = ["next_mark", "recall"]

# In spans: how long learning goes on in vain, and how long it rests then.
_PATIENCE = 256
_SHORTEST_REST, _LONGEST_REST = 64, 4096


@inlined
def next_mark(state):
    """The number of the next request that begins a span."""
    return state[TAKEN] + SPAN - state[PLACE] % SPAN


# ---- Situations


@inlined
def write_sum(known, situation):
    """A number by which situations are told apart before their words are compared."""
    total, situation = 0, natural(situation)
    for place in range(known[situation + LENGTH]):
        total += known[situation + WORDS + place] << (place & 31)
    known[situation + SUM] = total


@inlined
def bucket_of(known, situation):
    """Where situations with such a sum are looked for."""
    total = known[situation + SUM]
    return FIRST_BUCKET + ((total ^ total >> 17) * 0x9E3779B1 >> 20 & BUCKETS - 1)


@inlined
def same_words(known, one, other):
    """Whether two situations are the same: also in LENGTH and SUM, which stand before the words."""
    differs, one, other = 0, natural(one), natural(other)
    for place in range(LENGTH, WORDS + known[one + LENGTH]):
        differs |= known[one + place] ^ known[other + place]
    return differs == 0


@outlined
def situation_now(policy, shape, state, source, sink, known, clock):
    """The channel's situation, perhaps a new one; 0 when there is none or no room for it."""
    if known[USED] + known[ROOM] > known.shape[0] or not can_describe(shape, state):
        return 0
    new = natural(known[USED])
    end = describe(policy, shape, state, source, sink, known, clock)
    write_sum(known, new)
    bucket = bucket_of(known, new)
    situation = known[bucket]
    while situation != 0:
        if known[situation + SUM] == known[new + SUM] and same_words(known, situation, new):
            return situation
        situation = natural(known[situation + NEXT_IN_BUCKET])
    known[new + NEXT_IN_BUCKET] = known[bucket]
    known[new + QUIET] = known[new + REFRESHING] = known[new + STEP] = 0
    known[bucket] = new
    known[USED] = next_line(end)
    return new


# ---- Recall


@outlined
def follow(policy, shape, state, source, sink, known, situation, clock, until_served, until_taken):
    """Take passages as long as they are known: (the situation after the last, its clock)."""
    step, quiet = known[STEPS] + 1, 0  # one that no other situation has; passages since a refresh
    known[situation + STEP] = step
    while state[PLACE] + SPAN < source.place.shape[0]:
        passage = natural(find(policy, shape, state, source, known, situation, clock))
        # At its end another request must be there, and one to be served.
        most_taken = min(until_taken, source.admitted[0]) - 1 - state[TAKEN] - SPAN
        most_served = until_served - 1 - state[SERVED] - known[passage + READS]
        if passage == 0 or min(most_taken, most_served) < 0:
            break
        if clock + known[passage + CLOCKS] >= state[PAUSE]:
            break
        take(policy, shape, state, sink, known, passage, clock)
        note_step(state, step, passage, clock)
        clock, situation, step = clock + known[passage + CLOCKS], known[passage + TO], step + 1
        quiet = 0 if known[passage + REFRESHED] > 0 else quiet + 1
        length = step - known[situation + STEP]
        known[situation + STEP] = step
        if length <= min(quiet, LONGEST_ROUND):
            first, clocks = step - length, clock - clock_at(state, step - length)
            rounds = rounds_ahead(state, source, length * SPAN, clocks, clock, min(most_taken, most_served))
            if rounds > 0:
                go_round(state, sink, known, first, length, rounds, clocks)
                clock += rounds * clocks
            quiet = 0
    known[STEPS] = step
    return situation, clock


@inlined
def set_mark(state, spans):
    """Say when to ask again, after so many spans were recalled: later and later where learning is in vain."""
    state[MARK] = next_mark(state)
    state[IN_VAIN] = max(state[IN_VAIN] + 1 - spans, 0)
    if state[IN_VAIN] == 0:
        state[LAST_REST] = 0
    elif state[IN_VAIN] > _PATIENCE:
        rest = min(max(2 * state[LAST_REST], _SHORTEST_REST), _LONGEST_REST)
        state[MARK] += rest * SPAN
        state[LEARNING], state[IN_VAIN], state[LAST_REST] = 0, _PATIENCE // 2, rest


@outlined
def recall(policy, shape, state, source, sink, known, clock, until_served, until_taken):
    """At the step that takes a request of a new span: go on as before; returns the clock of the next step."""
    situation, taken = situation_now(policy, shape, state, source, sink, known, clock), state[TAKEN]
    if situation == 0:
        state[LEARNING] = 0
        set_mark(state, 0)
        return clock
    if state[LEARNING] != 0:
        learn(policy, shape, state, source, sink, known, situation, clock)
    reached, at = follow(
        policy, shape, state, source, sink, known, situation, clock, until_served, until_taken
    )
    if at > clock:
        state[COUNTED_UNTIL] = at - 1
        resume(policy, shape, state, source, sink, known, reached, at)
    begin(shape, state, reached, at)
    set_mark(state, (state[TAKEN] - taken) // SPAN)
    return at
