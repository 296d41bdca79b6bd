"""The state of one channel on the fast controller: one record, all of whose fields are listed here.

The code that makes and copies a record, and the state signature of fast-forward, use the list `FIELDS`: to
add a field, add its line. The line has the meaning of the field. If the field can be computed from others,
the line has its invariant: code that changes the others must keep it.

Indices. Ranks, bank groups and banks are numbered with fixed strides, rank << 6 | bank group << 2 | bank, so
that a rank, a bank group and a bank's bit in a mask of its rank are shifts. A group of more
than four banks without rules of its own has the numbers of several groups; a group of eight in a stack has
those of two, which have the same times. A *mask* has 64 bits, one for
each slot of a queue chunk or each bank of a rank. A *wait row* and an *active list* are rank * 2 + queue. A
queue has room for 1 or 64 chunks: most need one, and small records fit a cache. A channel has room for
16 ranks. A stack is four groups of a rank.

The role of a field in a signature:

- CLOCK: relative to the clock of the step;
- ROW: relative to the row of the request that the step takes;
- REQUEST: relative to the number of that request;
- NUMBER: as it is, a mask, a count or a place in a ring;
- ORIGIN: what clocks, rows and requests are relative to;
- CONTROLLER: of the controller of a standard, whose `carry_controller` (`points`) knows it;
- DERIVED: follows from the fields above, and `signature.restore`, or the next step, sets it from them;
- COUNTER: transitions add to it;
- CONSTANT: stays as it is while a channel runs that can be fast-forwarded;
- FORWARDING: fast-forward itself works with it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram import state as channel
from ndpsim.dram.state import COUNTERS, FAR, TURN_FIELDS

# Command classes. The first four are those that a request may need next; RD + queue and RDA + queue are the
# column commands of a queue.
ACT, PRE, RD, WR, PREAB, REFAB, PRESB, REFSB, RDA, WRA = range(10)
REQUEST_CLASSES = 4
# Commands of some controllers only: the second half of an activation, the command before RD or WR.
OTHER_HALF, BEFORE_RD, BEFORE_WR = 10, 11, 12
# RFM commands, whose times are those of the refresh of the same banks, REFAB or REFSB.
RFMAB, RFMSB = 13, 14
COMMANDS = 16  # of these classes; they are counted
TIMED_CLASSES = 8  # with times of their own: RDA may issue when RD may, WRA when WR may
CLASSES = 10

# The queues.
READS, WRITES = range(2)
QUEUES = 2

# Maximum numbers.
RANKS = 16
BANKS_PER_RANK = 64
BANKS_PER_GROUP, GROUPS_PER_RANK = 4, 16
GROUPS_PER_STACK = STACKS_PER_RANK = 4
BANKS_PER_STACK = GROUPS_PER_STACK * BANKS_PER_GROUP
BANKS = RANKS * BANKS_PER_RANK
SLOTS = 64  # of a chunk
MOST_CHUNKS = 64
MOST_TURNS = 128
REFRESHES_PENDING = 16 * RANKS
PENDING = 4 * BANKS_PER_RANK  # of each rank, including one or two PRE for every bank
ADDRESSES = 1 << 10
READS_LOGGED = 64
LONGEST_PERIOD = 8  # transitions

CLOCK, ROW, REQUEST, NUMBER = "clock", "row", "request", "number"
ORIGIN, DERIVED, COUNTER, CONSTANT, FORWARDING = "origin", "derived", "counter", "constant", "forwarding"
CONTROLLER = "controller"

#: The roles of fields that a signature has.
IN_SIGNATURE = (CLOCK, ROW, REQUEST, NUMBER)


class PerRank(NamedTuple):
    """A length in a shape: so many for every rank that a channel may have."""

    each: int = 1


class PerChunk(NamedTuple):
    """Fields of every chunk that a queue may have."""

    each: int = 1


class PerStack(NamedTuple):
    """Fields of every stack; 1 where the standard has none."""

    each: int = 1


# Lengths in shapes.
EACH_RANK, EACH_GROUP, EACH_BANK = PerRank(), PerRank(GROUPS_PER_RANK), PerRank(BANKS_PER_RANK)
EACH_QUEUE, EACH_PENDING = PerRank(QUEUES), PerRank(PENDING)  # of a rank
EACH_CHUNK, EACH_SLOT, EACH_STACK = PerChunk(), PerChunk(SLOTS), PerStack()


class Field(NamedTuple):
    """A field of the record: an integer, or an array of them; `at_rest` is its value before clock 1."""

    name: str
    shape: tuple[int | PerRank | PerChunk | PerStack, ...]
    role: str
    meaning: str
    at_rest: int = 0


FIELDS = (
    Field("value", (COUNTERS + MOST_TURNS * TURN_FIELDS,), ORIGIN, "counters, refresh turns: `dram.state`"),
    Field("issued", (COMMANDS,), COUNTER, "[class]: commands issued"),
    # ---- Distances in clocks, [previous class, next class]
    Field(
        "of_ranks",
        (2 * CLASSES, TIMED_CLASSES),
        CONSTANT,
        "to the same rank, rules of channel and rank; from CLASSES on to others, of channel and siblings",
    ),
    Field("same_group", (CLASSES, TIMED_CLASSES), CONSTANT, "to the same bank group"),
    Field("same_bank", (CLASSES, TIMED_CLASSES), CONSTANT, "to the same bank"),
    Field("of_window", (1, TIMED_CLASSES), CONSTANT, "from the first of four commands of the window (tFAW)"),
    Field("of_bus", (1, TIMED_CLASSES), CONSTANT, "from half of an activation, of the command bus"),
    Field("of_stacks", (2 * CLASSES, TIMED_CLASSES), CONSTANT, "as `of_ranks`, of the stacks of a rank"),
    # ---- Times: the first clock at which a class may issue, according to this node. Commands raise them
    # (`timing`); nothing lowers them.
    Field("rank_ready", (EACH_RANK, TIMED_CLASSES), CLOCK, "as far as channel and rank go"),
    Field("group_ready", (EACH_GROUP, TIMED_CLASSES), CLOCK, "as far as the bank group goes"),
    Field("bank_ready", (EACH_BANK, TIMED_CLASSES), CLOCK, "as far as the bank goes"),
    Field("recent_acts", (EACH_RANK, 4), CLOCK, "the clocks of the window's last four, as of ACTs", -FAR),
    Field("oldest_act", (EACH_RANK,), NUMBER, "which of `recent_acts` is the oldest"),
    Field("last_command", (EACH_RANK,), DERIVED, "no command to banks of a rank was later"),
    # ---- Rows
    Field("open_row", (EACH_BANK,), ROW, "the open row of a bank, -1: closed", -1),
    Field("open_banks", (EACH_RANK,), NUMBER, "mask of the banks whose `open_row` is not -1"),
    Field("closed_at", (EACH_BANK,), CONSTANT, "the clock at which an auto-precharge closes it, or will"),
    Field("accesses", (EACH_BANK,), CONSTANT, "column accesses since the row was opened"),
    Field("pinned_banks", (EACH_RANK,), DERIVED, "mask of the banks that some active request keeps open"),
    Field("pinned_by_other", (EACH_RANK,), CONSTANT, "those whose active request another controller has"),
    Field("reactivated", (EACH_RANK,), CONSTANT, "mask of the banks activated again under an active request"),
    Field("capped", (EACH_RANK,), CONSTANT, "mask of the open banks that the row policy is to close"),
    Field(
        "capped_next_ready",
        (),
        CONSTANT,
        "no bank of `capped` is ready for PRE before this clock. Whoever adds a bank must lower it",
        FAR,
    ),
    # ---- Slots: the requests of a queue in a ring by arrival, [queue, chunk * SLOTS + place]
    Field("slot_bank", (QUEUES, EACH_SLOT), NUMBER, "bank"),
    Field("slot_row", (QUEUES, EACH_SLOT), ROW, "row"),
    Field("slot_arrived", (QUEUES, EACH_SLOT), CLOCK, "the clock before the step that took it"),
    Field("slot_request", (QUEUES, EACH_SLOT), REQUEST, "its number in the source"),
    Field("used", (EACH_CHUNK, QUEUES), NUMBER, "mask of the slots that hold a request"),
    Field("counted", (EACH_CHUNK, QUEUES), NUMBER, "mask of those counted as hit, miss or conflict"),
    Field("tail", (EACH_CHUNK, QUEUES), NUMBER, "the slot for the next request, modulo SLOTS"),
    Field("queued", (QUEUES,), NUMBER, "requests in a queue: the bits of `used` over all chunks"),
    Field("chunk_order", (QUEUES, MOST_CHUNKS), CONSTANT, "the chunks of a queue by age, then the free ones"),
    Field("younger_chunks", (QUEUES,), CONSTANT, "chunks in use but the oldest"),
    Field("chunks_of_bank", (QUEUES, EACH_BANK), CONSTANT, "mask of the chunks with requests for a bank"),
    Field("of_bank", (EACH_CHUNK, QUEUES, EACH_BANK), DERIVED, "mask of the requests for a bank"),
    Field("writes_at", (ADDRESSES,), DERIVED, "queued writes, by bits of the address: `slots.filter_place`"),
    # ---- What requests wait for
    Field(
        "waiting",
        (EACH_CHUNK, EACH_QUEUE, REQUEST_CLASSES),
        DERIVED,
        "mask of the requests whose next command is of this class: always exact. A request whose bank is "
        "pinned for another row waits for nothing. Whoever opens, closes, pins or releases a bank must move "
        "its requests",
    ),
    Field(
        "maybe_ready",
        (EACH_CHUNK, QUEUES),
        DERIVED,
        "every request whose bank is ready for its class has its bit set; others may. A request without the "
        "bit has its bank in `not_ready`. Who finds a bank not ready clears it; time, a new row, or a new "
        "request sets it again",
    ),
    Field("not_ready", (EACH_QUEUE, REQUEST_CLASSES, SLOTS), DERIVED, "ring of clock * BANKS + bank, sorted"),
    Field("not_ready_head", (EACH_QUEUE, REQUEST_CLASSES), DERIVED, "the place of the first, modulo SLOTS"),
    Field("not_ready_size", (EACH_QUEUE, REQUEST_CLASSES), DERIVED, "entries in the ring"),
    Field(
        "not_ready_until",
        (EACH_QUEUE, REQUEST_CLASSES),
        DERIVED,
        "the clock of the first entry of the ring, FAR: it is empty. Who adds an entry must lower it",
        FAR,
    ),
    # ---- Active requests: between ACT and their column command
    Field("active", (EACH_QUEUE, SLOTS), NUMBER, "ring of their banks, in order of arrival"),
    Field("active_head", (EACH_QUEUE,), NUMBER, "the place of the oldest, modulo SLOTS"),
    Field("active_size", (EACH_QUEUE,), NUMBER, "requests in a list"),
    Field("active_arrived", (EACH_BANK,), CLOCK, "as `slot_arrived`, of the bank's active request"),
    Field("active_request", (EACH_BANK,), REQUEST, "its number in the source"),
    Field(
        "active_not_ready_until",
        (EACH_RANK, REQUEST_CLASSES),
        DERIVED,
        "no bank of an active request of the rank is ready for RD, or WR, before this clock, as far as "
        "groups and banks go. Who activates must lower it; who looks at all of a list, or takes one out, "
        "may raise it",
        FAR,
    ),
    # ---- Times of stacks, and the state of some standards' controllers, see `dram.controllers`
    Field("stack_ready", (EACH_STACK, TIMED_CLASSES), CLOCK, "as `rank_ready`, as far as the stack goes"),
    Field("turn", (7,), CONTROLLER, "the bus and the edge whose turn it is, and the last command to rows"),
    Field("opening", (8,), CONTROLLER, "the request whose activation has begun"),
    Field("announced", (2,), CONTROLLER, "the request whose RD or WR comes next"),
    Field("prepared_until", (1 + RANKS,), CONTROLLER, "the clock until which RD and WR need no announcing"),
    # ---- Waiting maintenance, in order
    Field("pending_size", (), NUMBER, "commands that wait"),
    Field("pending_class", (EACH_PENDING,), NUMBER, "class"),
    Field(
        "pending_bank",
        (EACH_PENDING,),
        NUMBER,
        "bank, or the first of a rank or same-bank refresh; plus BANKS: RFM instead of the refresh",
    ),
    Field(
        "awaits_refresh",
        (EACH_RANK,),
        DERIVED,
        "mask of the banks whose waiting refresh, a REFSB, holds back only their requests; 0 under the "
        "refresh control of the reference. Whoever adds or removes a REFSB must update it",
    ),
    # ---- Refresh management; without fast-forward
    Field("rfm", (7,), CONSTANT, "as `dram.state.Rfm`; its command is the class REFAB or REFSB"),
    Field("raa", (EACH_BANK,), CONSTANT, "a bank's counter of activations, see `dram.management`"),
    # ---- Fast-forward
    Field("fast_forwarded", (), COUNTER, "reads that went as others of the run had gone"),
    Field("next_lookup", (), FORWARDING, "the number of the request at which the table is asked next"),
    Field("recording", (), FORWARDING, "the signature from which it steps to the next, 0: none"),
    Field("due_since", (), FORWARDING, "the first clock at which the last refresh might have fallen due"),
    Field("loss", (), FORWARDING, "what lookups have cost beyond what they saved, 0 at least"),
    Field("pause_spans", (), FORWARDING, "spans without lookup after the last large loss, 0: none"),
    Field("read_log", (READS_LOGGED, 3), FORWARDING, "the last reads: request, latency, tick served"),
    Field("snapshot_clock", (), FORWARDING, "the clock at which recording began,"),
    Field("snapshot_open", (), FORWARDING, "the banks then open,"),
    Field("snapshot_pending", (), FORWARDING, "the maintenance then waiting,"),
    Field("snapshot_found", (), FORWARDING, "what the next reads then found: `found_rows`,"),
    Field("snapshot_rows", (EACH_BANK,), FORWARDING, "the open rows,"),
    Field("snapshot_banks", (EACH_RANK,), FORWARDING, "the open banks,"),
    Field("snapshot", (COUNTERS + COMMANDS,), FORWARDING, "the counters, and the commands by class"),
    Field("busy_banks", (EACH_RANK,), FORWARDING, "mask of the banks with a read, of the last signature"),
    Field("taken_transition", (LONGEST_PERIOD,), FORWARDING, "the transitions taken last, [step modulo]"),
    Field("taken_clock", (LONGEST_PERIOD,), FORWARDING, "and their clocks"),
)  # fmt: skip

#: The roles of the counters, which are first in `value`; the values after them are constant.
COUNTER_ROLES = {
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
    "REFRESH_SHIFT": CONSTANT,
    "PAUSED_UNTIL": CONSTANT,
    **dict.fromkeys(
        (
            *("TAKEN", "SERVED", "ROW_HITS", "ROW_MISSES", "ROW_CONFLICTS", "FORWARDED", "COALESCED"),
            *("READ_LATENCY", "READS_SERVED", "FIRST_COMMAND", "IDLE_REFRESH", "IDLE_CREDIT", "IDLE_ROW"),
            *("REFRESHES", "READ_QUEUE", "WRITE_QUEUE", "OPEN_CLOCKS"),
        ),
        COUNTER,
    ),
}

_LINE = 64  # bytes of a cache line
_AT_REST = [(field.name, field.at_rest) for field in FIELDS if field.at_rest]


def shape_of(field: Field, ranks: int, chunks: int, stacks: int = 1) -> tuple[int, ...]:
    """The shape of a field in a record of so many ranks, chunks of a queue, and stacks."""
    counts = {PerRank: ranks, PerChunk: chunks, PerStack: stacks}
    return tuple(size if isinstance(size, int) else size.each * counts[type(size)] for size in field.shape)


@cache
def record_type(chunks: int, stacks: int = 1) -> np.dtype[Any]:
    """The type of a record of such a shape (`shape_of`): every array begins with a cache line.

    Large arrays are followed by five empty lines. Caches select a set by the low bits of an address, and a
    bank must not fall into the same set in all arrays.
    """
    formats, offsets, offset = [], [], 0
    for field in FIELDS:
        shape = shape_of(field, RANKS, chunks, stacks)
        formats.append((np.int64, shape) if shape else np.int64)
        if shape:
            offset = -(-offset // _LINE) * _LINE
        offsets.append(offset)
        size = 8 * int(np.prod(shape, dtype=np.int64))
        offset += size
        if size >= 64 * _LINE:
            offset += 5 * _LINE
    names = [field.name for field in FIELDS]
    size = -(-offset // _LINE) * _LINE
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    return np.dtype((np.record, layout))


def make_records(count: int, chunks: int, stacks: int = 1) -> NDArray[Any]:
    """This many channels at rest, without distances or refreshes; none shares a cache line with another."""
    kind = record_type(chunks, stacks)
    room = np.zeros(count * kind.itemsize + _LINE, dtype=np.uint8)  # unwritten pages use no memory
    first = -room.ctypes.data % _LINE
    records = room[first : first + count * kind.itemsize].view(kind)
    for name, value in _AT_REST:
        records[name] = value
    counters = records["value"]
    counters[:, channel.CLOCK], counters[:, channel.PAUSE] = 1, FAR
    counters[:, channel.FIRST_COMMAND] = counters[:, channel.DATA_END] = -1
    return records
