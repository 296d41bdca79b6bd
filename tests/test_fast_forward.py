"""Fast-forward through streams: the same as stepping through every read, in everything that is counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.base.jit import kernel
from ndpsim.base.options.dram import WCK, ControllerOptions
from ndpsim.dram import sink, state
from ndpsim.dram.engines import FastController, ScanController
from ndpsim.dram.fast import transition_table
from ndpsim.dram.fast.fields import COUNTER_ROLES, FIELDS, IN_SIGNATURE, record_type, shape_of
from ndpsim.dram.fast.signature import restore, write_signature
from ndpsim.dram.fast.state import chunks_needed, make_shape, step_on
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.simulate.lane import no_commands, run_channel
from ndpsim.simulate.memory import policy_of
from pairs import all_pairs

DEVICES = [
    ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_2400R"),
    ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_8Gb_x8", "DDR5_6400AN"),
]
# Whose controllers have two buses, or activate in two halves.
OTHERS = [
    ("HBM3", "HBM3_16Gb_8hi", "HBM3_6400Mbps"),
    ("HBM4", "HBM4_32Gb_8Hi", "HBM4_8000Mbps"),
    ("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400"),
    ("LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24"),
]
COUNT = 3000


def stream(device: Device, count: int, first: int, run: int) -> list[np.ndarray]:
    """Reads that rotate over the bank groups, `run` columns of a row, then the next bank, rank and row."""
    number = first + np.arange(count, dtype=np.int64)
    rest, bankgroup = np.divmod(number, device.bankgroups)
    rest, column = np.divmod(rest, run)
    rest, bank = np.divmod(rest, device.banks_per_group)
    row, rank = np.divmod(rest, device.ranks)
    return [rank, bankgroup, bank, row, column, np.zeros_like(number), number]


def disturb(device: Device, places: list[np.ndarray], numbers: list[int], what: str) -> None:
    """Send a few requests elsewhere, or make writes of them."""
    rank, _, bank, row, _, write, _ = places
    if what == "row":
        row[numbers] += 1
    elif what == "bank":
        bank[numbers] = (bank[numbers] + 1) % device.banks_per_group
    elif what == "rank":
        rank[numbers] = (rank[numbers] + 1) % device.ranks
    else:
        write[numbers] = 1


def make_data_sink(servers, count: int) -> sink.Sink:
    """A FIFO and its servers, for rows of equal length, of which a burst belongs to several; or nobody."""
    if servers is None:
        return sink.null_sink()
    depth, number, ticks, row_bursts, rows_more = servers
    row = np.arange(count, dtype=np.int32) // row_bursts
    ends = np.searchsorted(row, np.arange(row[-1] + 1 + rows_more), "right").astype(np.int32) - 1
    return sink.make_sink(depth, number, *ticks, sink.Groups(row, row + np.int32(rows_more), ends))


def outcome(make, tables, policy, places, period, servers, regions):
    """Everything that is counted when the regions are read one after the other."""
    source = state.make_source(places, period=period)
    data_sink, channel = make_data_sink(servers, len(places[0])), make(tables, policy)
    source.admitted[0], counted = 0, []
    for reads, release, service, pause in regions:
        source.admitted[0] += reads
        until = int(source.admitted[0])
        if servers is not None:
            data_sink.value[sink.RELEASE], data_sink.value[sink.SERVICE] = release, service * servers[2][1]
        for until_served in (until - reads + pause, until):
            run_channel(channel, source, data_sink, no_commands(), until_served)
            counted.append(channel.value.tolist())
    busy = data_sink.value[sink.COMPARED].tolist()
    counted += [channel.issued.tolist(), channel.latencies.tolist(), channel.open_clocks(1 << 40)]
    return channel.skipped, (counted, data_sink.done.tolist(), busy)


@st.composite
def channels(draw: st.DrawFn, ranks: list[int]):
    """A device and how it is controlled."""
    changes = [{}, {}, {"nREFI": 3800}, {"nCCDL": 45}, {"nCCDS": 12, "nCCDL": 40, "nREFI": 3600}]
    device = resolve(
        *draw(st.sampled_from(DEVICES)), draw(st.sampled_from(ranks)), draw(st.sampled_from(changes))
    )
    refreshes = ["none", "all-bank", "all-bank", "staggered"]
    options = ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        refresh=draw(st.sampled_from(refreshes + ["same-bank"] * ("nRFCsb" in device.timings))),
        read_buffer=draw(st.sampled_from([1, 7, 16, 32])),
    )
    return device, options


@st.composite
def other_channels(draw: st.DrawFn):
    """A device with another controller, and how it is controlled."""
    device = resolve(
        *draw(st.sampled_from(OTHERS)), 1, rules=draw(st.sampled_from(["standard", "reference"]))
    )
    has_bank_refresh = any(
        command.name == "REFpb" and command.interval for command in device.standard.commands
    )
    options = ControllerOptions(
        refresh=draw(st.sampled_from(["none", "all-bank"] + ["per-bank"] * has_bank_refresh)),
        read_buffer=draw(st.sampled_from([7, 32])),
        wck=draw(st.sampled_from(WCK)),
    )
    return device, options


sinks = st.tuples(
    st.integers(1, 40),
    st.integers(1, 9),
    st.sampled_from([(5, 12), (1, 1), (5, 4), (5, 8)]),
    st.sampled_from([1, 6, 16, 17, 200]),
    st.sampled_from([0, 0, 3]),
)


@st.composite
def works(draw: st.DrawFn, device: Device):
    """What is read: a stream, sometimes disturbed, in regions; and its period."""
    first = draw(st.sampled_from([0, 0, 16, 1234]))
    places = stream(device, COUNT, first, draw(st.sampled_from([16, 64, 128])))
    whats = ["row", "bank", "rank", "write"] if device.ranks > 1 else ["row", "bank"]
    numbers = draw(st.lists(st.integers(0, COUNT - 1), max_size=6))
    disturb(device, places, numbers, draw(st.sampled_from(whats)))
    regions, left = [], COUNT
    while left:
        reads = min(left, draw(st.sampled_from([40, 512, 777, 1600])))
        release, service = draw(st.sampled_from([0, 0, 150_000])), draw(st.sampled_from([1, 8, 8, 33]))
        regions.append((reads, release, service, draw(st.integers(1, reads))))
        left -= reads
    if draw(st.booleans()):
        regions.append((COUNT, 0, 8, 1))  # from the first again
    return places, draw(st.sampled_from([1, 2])) * device.bankgroups, regions


def assert_fast_forwarded_stepped_and_scanned_agree(tables, policy, work, servers) -> None:
    """Make sure that all three agree, and that a run does not depend on the one before."""
    places, period, regions = work
    first = outcome(FastController, tables, policy, places, period, servers, regions)
    again = outcome(FastController, tables, policy, places, period, servers, regions)
    none, stepping = outcome(FastController, tables, policy, places, 0, servers, regions)
    _, scanning = outcome(ScanController, tables, policy, places, 0, servers, regions)
    assert none == 0
    assert first == again
    assert first[1] == stepping == scanning


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fast_forward_changes_nothing(data):
    device, options = data.draw(channels([1, 1, 2, 4, 8]))
    tables, policy = lower(device), state.make_policy(options)
    for _ in range(2):
        assert_fast_forwarded_stepped_and_scanned_agree(tables, policy, data.draw(works(device)), None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fast_forward_changes_nothing_under_other_controllers(data):
    device, options = data.draw(other_channels())
    policy = policy_of(options, device)
    servers = data.draw(st.none() | sinks) if chunks_needed(lower(device), policy, True) == 1 else None
    assert_fast_forwarded_stepped_and_scanned_agree(lower(device), policy, data.draw(works(device)), servers)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_fast_forward_changes_nothing_for_a_sink(data):
    device, options = data.draw(channels([1]))
    servers, (places, period, _) = data.draw(sinks), data.draw(works(device))
    tables, policy = lower(device), state.make_policy(options)
    for _ in range(2):  # the same reads, at another pace
        services = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=5))
        releases = data.draw(st.lists(st.integers(0, 60), min_size=5, max_size=5))
        regions, at = [], 0
        for service, release in zip(services, releases, strict=False):
            at += release * 1000
            reads = data.draw(st.sampled_from([300, 512, 700]))
            regions.append((reads, at, service, reads))
        assert_fast_forwarded_stepped_and_scanned_agree(tables, policy, (places, period, regions), servers)


def reads_fast_forwarded(device, options, places) -> int:
    """How many reads of a stream are fast_forwarded, when it agrees with stepping."""
    tables, policy, regions = lower(device), state.make_policy(options), [(len(places[0]), 0, 0, 1)]
    policy = policy._replace(any_order=0)  # as units have it: banks are refreshed in turn
    _, stepping = outcome(FastController, tables, policy, places, 0, None, regions)
    for _ in range(2):
        fast_forwarded, counted = outcome(FastController, tables, policy, places, 8, None, regions)
        assert counted == stepping
    return fast_forwarded


@pytest.mark.parametrize(
    *all_pairs(
        {
            "refresh": ["staggered", "same-bank"],
            "ranks": [2, 4, 8],
            "nREFI": [3840, 4096, 8192],
        }
    )
)
def test_refreshes_in_turn_are_told_apart(refresh, ranks, nREFI):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks, {"nREFI": nREFI})
    options = ControllerOptions(refresh=refresh)
    fast_forwarded = reads_fast_forwarded(device, options, stream(device, 40_000, 0, 64))
    assert fast_forwarded > 0 or nREFI < 8192  # else there is hardly a span without a refresh


def test_refreshes_in_another_order_are_stepped_through():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2)
    policy = state.make_policy(ControllerOptions(refresh="same-bank"))
    places = stream(device, 40_000, 0, 64)
    count, _ = outcome(FastController, lower(device), policy, places, 8, None, [(len(places[0]), 0, 0, 1)])
    assert count == 0


@pytest.mark.parametrize("apart", [16, 128, 256, 4000])
def test_writes_among_the_reads_are_stepped_through(apart):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1, {"nREFI": 8192})
    places = stream(device, 40_000, 0, 64)
    for number in range(100, 104):  # as many as start write mode, within a span
        places[5][number::apart] = 1
    places[6][105::apart] = places[6][100::apart][: len(places[6][105::apart])]  # read what is being written
    reads_fast_forwarded(device, ControllerOptions(write_buffer=4), places)


def test_reads_alike_but_released_at_other_times_are_told_apart():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    tables, policy = lower(device), state.make_policy(ControllerOptions(refresh="none"))
    releases = np.cumsum([(12_000, 14_000, 13_000)[number % 3] for number in range(32)])
    regions = [
        (512, int(release), 20, 512) for release in releases
    ]  # a region is in other banks than the last
    work = stream(device, 32 * 512, 0, 64), 8, regions
    assert_fast_forwarded_stepped_and_scanned_agree(tables, policy, work, (8, 2, (1, 1), 16, 0))


@pytest.mark.parametrize("ranks", [1, 4])
def test_most_of_a_long_stream_is_fast_forwarded(ranks):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks)
    tables, policy = lower(device), state.make_policy(ControllerOptions())
    places = stream(device, 50_000, 0, 64)
    regions = [(50_000, 0, 0, 1)]
    fast_forwarded, counted = outcome(FastController, tables, policy, places, 8, None, regions)
    assert fast_forwarded > 40_000
    # A later run begins with an empty table.
    assert outcome(FastController, tables, policy, places, 8, None, regions) == (fast_forwarded, counted)


def alike_without_refresh(table) -> list[tuple[int, ...]]:
    """What decides each transition without a refresh: its signature, its requests and what they find."""
    head, last = transition_table.FIRST_BUCKET, transition_table.PLACES + transition_table.SPAN
    alike = []
    for bucket in range(head, head + transition_table.BUCKETS):
        signature = table[bucket]
        while signature != 0:
            transition = table[signature + transition_table.WITHOUT_REFRESH]
            while transition != 0:
                fields = table[transition : transition + last]
                following, found = fields[transition_table.FOLLOWING], fields[transition_table.FOUND]
                places = fields[transition_table.PLACES :].tolist()
                alike.append((int(signature), int(following), int(found), *places))
                transition = fields[transition_table.NEXT_TRANSITION]
            signature = table[signature + transition_table.NEXT_IN_BUCKET]
    return alike


def test_a_transition_is_recorded_once():
    """A second record would show that the first was not found where it holds."""
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    places, data_sink = stream(device, 150_000, 0, 64), sink.null_sink()
    channel = FastController(lower(device), state.make_policy(ControllerOptions()))
    source = state.make_source(places, period=8)
    run_channel(channel, source, data_sink, no_commands(), len(places[0]))
    (table,) = channel._transition_tables.values()
    alike = alike_without_refresh(table)
    assert len(alike) > 10
    assert len(alike) == len(set(alike))


@pytest.mark.parametrize("count", [17, 40, 96, 1000])
def test_a_stream_may_begin_again_while_reads_are_under_way(count):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    tables, policy = lower(device), state.make_policy(ControllerOptions())
    counted = []
    for period in (0, 8, 8):
        source = state.make_source(stream(device, count, 0, 64), period=period)
        source.admitted[0] = 20_000
        data_sink, channel = make_data_sink((8, 2, (1, 1), 5, 0), count), FastController(tables, policy)
        data_sink.value[sink.SERVICE] = 8
        run_channel(channel, source, data_sink, no_commands(), 20_000)
        counted.append((channel.value.tolist(), channel.latencies.tolist(), data_sink.done.tolist()))
    assert counted[1] == counted[2] == counted[0]


@kernel
def write_signature_here(shape, words, source, data_sink, table, clock):
    return write_signature(shape, words, source, data_sink, table, clock)


@kernel
def restore_there(shape, words, source, data_sink, table, signature, clock):
    restore(shape, words, source, data_sink, table, signature, clock)


@settings(max_examples=60, deadline=None)
@given(channels([1, 2, 4]), st.none() | sinks, st.integers(60, 900), st.integers(0, 50), st.integers(0, 7))
def test_a_signature_restored_later_and_rows_further_on_is_equal(channel, servers, taken, later, rows):
    device, options = channel
    tables, policy = lower(device), state.make_policy(options)
    shape = make_shape(tables)

    def after(until_taken: int, row: int):
        places = stream(device, 1000, 0, 16)
        places[3] += row
        source = state.make_source(places, period=8)
        data_sink, one = make_data_sink(servers, 1000), FastController(tables, policy)
        data_sink.value[sink.SERVICE] = 5
        run_channel(one, source, data_sink, no_commands(), 1000, until_taken)
        source.admitted[0] = until_taken
        return source, data_sink, one._state

    def described(source, data_sink, words, clock):
        memory = transition_table.make_table(tables, policy, data_sink.depth + data_sink.servers)
        end = write_signature_here(shape, words, source, data_sink, memory, clock)
        assert (
            transition_table.FIRST_RECORD
            < end
            <= memory[transition_table.USED] + memory[transition_table.ROOM]
        )
        return memory, memory[memory[transition_table.USED] + transition_table.WORDS : end]

    source, data_sink, words = after(taken, 0)
    clock = int(words.value[state.CLOCK])
    memory, first = described(source, data_sink, words, clock)
    # A channel in another state, at the same request, its rows further on, at the same edge of the unit.
    source, data_sink, _ = after(taken, rows)
    _, _, other = after(taken // 2, 3)
    shift = later * data_sink.unit_ticks
    data_sink.value[sink.RELEASE] += shift * data_sink.dram_ticks
    other.value[state.PLACE] = words.value[state.PLACE]
    for place in (state.REFRESH_FROM, state.REFRESH_UNTIL):
        other.value[place] = words.value[place] + shift
    restore_there(shape, other, source, data_sink, memory, int(memory[transition_table.USED]), clock + shift)
    assert described(source, data_sink, other, clock + shift)[1].tolist() == first.tolist()


def test_a_full_table_records_no_more_but_is_still_used(monkeypatch):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    policy = state.make_policy(ControllerOptions())
    places = stream(device, 20_000, 0, 64)
    work = policy, places, 8, None, [(20_000, 0, 0, 1)]
    most, expected = outcome(FastController, lower(device), *work)
    monkeypatch.setattr(transition_table, "_WORDS", transition_table.FIRST_RECORD + 5_000)
    tables = lower(device)
    for _ in range(3):
        some, counted = outcome(FastController, tables, *work)
        assert counted == expected
        assert 0 < some < most


def test_a_full_table_begins_anew_for_work_unlike_that_before(monkeypatch):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    policy, tables = state.make_policy(ControllerOptions()), lower(device)
    regions = [(20_000, 0, 8 + unlike, 1) for unlike in range(12)]
    work = policy, stream(device, 240_000, 0, 64), 8, (32, 8, (5, 12), 16, 0), regions
    monkeypatch.setattr(transition_table, "_WORDS", transition_table.FIRST_RECORD + 60_000)
    skipped, counted = outcome(FastController, tables, *work)
    assert skipped > 0.5 * 240_000
    assert counted == outcome(FastController, tables, work[0], work[1], 0, *work[3:])[1]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30), st.integers(1, 90))
def test_groups_of_the_same_bursts_are_merged_and_no_others(steps, groups):
    first = np.minimum(np.cumsum([more for more, _ in steps]), groups).astype(np.int32)
    last = np.minimum(np.maximum.accumulate(first + [wide - 1 for _, wide in steps]), groups - 1)
    ends = (np.searchsorted(first, np.arange(groups), "right") - 1).astype(np.int32)
    merged, number = sink.merge_groups(sink.Groups(first, last.astype(np.int32), ends))
    of_group = [{n for n in range(len(first)) if first[n] <= group <= last[n]} for group in range(groups)]
    of_merged = [
        {n for n in range(len(first)) if merged.first_group[n] <= group <= merged.last_group[n]}
        for group in range(len(merged.group_end))
    ]
    assert [of_merged[number[group]] for group in range(groups)] == of_group
    assert all(
        max(bursts, default=-1) in (end, -1) for bursts, end in zip(of_merged, merged.group_end, strict=True)
    )


def test_runs_at_once_do_not_share_transitions():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2)
    tables, policy = lower(device), state.make_policy(ControllerOptions())
    works = [(stream(device, 20_000, first, 64), 8, None, [(20_000, 0, 0, 1)]) for first in range(8)]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(lambda work: outcome(FastController, tables, policy, *work), works * 3))
    alone = [outcome(FastController, tables, policy, *work) for work in works]
    assert at_once == alone * 3


def test_arrays_of_the_state_begin_with_a_cache_line_and_do_not_overlap():
    for chunks in (1, 64):
        kind = record_type(chunks)
        spans = sorted((offset, offset + of_field.itemsize) for of_field, offset in kind.fields.values())
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert spans[-1][1] <= kind.itemsize
        assert all(offset % 64 == 0 for of_field, offset in kind.fields.values() if of_field.shape)


#: Where the state has what, [(field, its first place or None, its places, role)]; counters each by themselves.
PLACES = [(field.name, 0, int(np.prod(shape_of(field, 1, 1))), field.role) for field in FIELDS if field.shape]
PLACES += [(field.name, None, 1, field.role) for field in FIELDS if not field.shape]
PLACES = [place for place in PLACES if place[0] != "value"]
PLACES += [("value", getattr(state, name), 1, role) for name, role in COUNTER_ROLES.items()]


def test_every_counter_has_a_role():
    assert len(COUNTER_ROLES) == 30
    assert {getattr(state, name) for name in COUNTER_ROLES} == set(range(30))


def signature_changes(here, first: list[int], field: str, place: int | None, change: int) -> bool:
    """Whether the signature is another when a word of the state is changed."""
    shape, words, source, data_sink, memory, clock = here
    array = words[field].reshape(-1) if place is not None else None
    before = words[field] if array is None else array[place]
    if array is None:
        words[field] = before + change
    else:
        array[place] = before + change
    end = write_signature_here(shape, words, source, data_sink, memory, clock)
    if array is None:
        words[field] = before
    else:
        array[place] = before
    return memory[memory[transition_table.USED] + transition_table.WORDS : end].tolist() != first


@pytest.fixture(scope="module", params=["all-bank", "same-bank"])
def refreshing(request):
    """A channel of two ranks with a refresh pending and with reads after their ACT; its signature."""
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2)
    tables = lower(device)
    policy = state.make_policy(ControllerOptions(refresh=request.param))
    source, channel = state.make_source(stream(device, 2000, 0, 4)), FastController(tables, policy)
    words, taken = channel._state, 0
    while not words.active_size[:4].any() or taken < 100:
        taken += 1
        run_channel(channel, source, sink.null_sink(), no_commands(), state.FAR, taken)
    words.pending_size = 1
    memory, clock = transition_table.make_table(tables, policy, 1), int(words.value[state.CLOCK])
    here = make_shape(tables), words, source, sink.null_sink(), memory, clock
    end = write_signature_here(*here)
    return here, memory[memory[transition_table.USED] + transition_table.WORDS : end].tolist()


@pytest.mark.parametrize(
    "where",
    [where for where in PLACES if where[3] in IN_SIGNATURE and where[0] != "stack_ready"],  # DDR5 has none
    ids=lambda where: f"{where[0]}-{where[1]}",
)
def test_a_signature_changes_with_each_of_its_fields(refreshing, where):
    here, first = refreshing
    field, begin, places, role = where
    # Later than anything; another number or place in a ring; the bits of the queued reads.
    changes = [5_000] if role == "clock" else [1, 48]
    if field == "counted":
        changes.append(int(here[1].used[0, 0]))
    tried = [None] if begin is None else range(begin, begin + min(places, 200))
    assert any(signature_changes(here, first, field, place, change) for place in tried for change in changes)


@pytest.mark.parametrize("role", ["derived", "counter", "constant", "forwarding"])
def test_a_signature_does_not_change_with_other_fields(refreshing, role):
    here, first = refreshing
    for field, begin, places, of_place in PLACES:
        if of_place == role:
            tried = [None] if begin is None else range(begin, begin + places, max(places // 50, 1))
            for place in tried:
                assert not signature_changes(here, first, field, place, 1), field


@pytest.mark.parametrize(
    ("device", "state_of_controller"),
    [
        (OTHERS[0], {"turn": (None, None, -1, 0, 3, 2, None), "stack_ready": (50,)}),
        (OTHERS[2], {"opening": (1, 3, 7, 5, -9, None, 7, 2), "announced": (1, 0), "prepared_until": (4,)}),
    ],
)
def test_a_signature_changes_with_the_state_of_its_controller(device, state_of_controller):
    device = resolve(*device)
    tables, policy = lower(device), policy_of(ControllerOptions(wck="need-sync"), device)
    source, channel = state.make_source(stream(device, 2000, 0, 4)), FastController(tables, policy)
    run_channel(channel, source, sink.null_sink(), no_commands(), state.FAR, 200)
    words = channel._state
    memory, clock = transition_table.make_table(tables, policy, 1), int(words.value[state.CLOCK])
    shape = make_shape(tables, policy.rows, 1, step_on(policy, tables))
    here = shape, words, source, sink.null_sink(), memory, clock
    clocks = {
        ("turn", 2),
        ("opening", 4),
        ("opening", 6),
        ("opening", 7),
        ("prepared_until", 0),
        ("stack_ready", 0),
    }
    for field, numbers in state_of_controller.items():
        for place, number in enumerate(numbers):
            if number is not None:
                words[field].reshape(-1)[place] = number + clock * ((field, place) in clocks)
    end = write_signature_here(*here)
    first = memory[memory[transition_table.USED] + transition_table.WORDS : end].tolist()
    for field, numbers in state_of_controller.items():
        for place, number in enumerate(numbers):
            assert number is None or signature_changes(here, first, field, place, 1), (field, place)


@pytest.mark.parametrize("seed", range(8))
def test_controllers_stand_at_the_same_clock_wherever_they_stop(seed):
    draw = np.random.default_rng(seed)
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2)
    tables, policy = lower(device), state.make_policy(ControllerOptions())
    places = stream(device, 200, 0, 16)
    places[5][:] = draw.random(200) < 0.3
    places[6][:] = draw.integers(0, 40, 200)  # some reads are forwarded, some writes coalesced
    cycle = np.cumsum(draw.choice([0, 1, 9, 400], 200)) if seed % 2 else None
    sources = [state.make_source(places, cycle) for _ in range(2)]
    both = [FastController(tables, policy), ScanController(tables, policy)]
    for served in (*np.cumsum(draw.integers(1, 20, 9)).tolist(), 200):
        for source, channel in zip(sources, both, strict=True):
            source.admitted[0] = min(200, served + 60)
            run_channel(channel, source, sink.null_sink(), no_commands(), served)
        assert both[0].value.tolist() == both[1].value.tolist()
