"""The kernel that adds the jobs of a layer, beside its twin; and the list that has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpsim.inference.events.layer import CostTables, PartCost, ReadCost, Rules, add_layer
from ndpsim.inference.events.rows import (
    FREE,
    HERE,
    MISSING,
    OF_COPIES,
    OF_CPU,
    OF_CPU_READS,
    OF_GPU,
    OF_NDP,
    RADIX,
    UNKNOWN,
    EngineParts,
    Engines,
    KnownRows,
    LayerExperts,
    Room,
    find_rows,
    first_entry,
)
from ndpsim.inference.events.state import WHAT
from ndpsim.inference.layers.jobs import JobList, Label
from oracles.layer import ReadableLayer

DIMMS, MIGRATIONS = 6, 3


def random_layer(random: np.random.Generator) -> tuple[Rules, list[list[dict[str, Any]]]]:
    """Rules, and the parts of GPU, CPU and NDP units."""
    listed, sequential = (bool(one) for one in random.integers(2, size=2))
    times = (random.integers(1, 9, 5) * random.integers(0, 2, 5)).astype(float).tolist()
    size = int(random.integers(0, 3)) * 256
    rules = Rules(
        listed or sequential, sequential, *random.integers(1, 4, 2).tolist(), *times[:4], size, 4.5, 0, 1
    )
    experts = random.permutation(24)
    parts: list[list[dict[str, Any]]] = []
    for of_engine in np.split(experts, np.sort(random.integers(0, 24, 2))):
        listed_parts = []
        for expert in of_engine.tolist():
            first, shards = int(random.integers(DIMMS)), int(random.integers(1, 4))
            numbers = random.uniform(1.0, 9.0, 12).tolist()
            part = {
                "expert": expert,
                "share": numbers[0] / 9,
                "tokens": int(random.integers(1, 50)),
                "bytes": int(random.integers(1, 5000)),
                "ns": numbers[1],
                "of_full": numbers[2],
                "pcie_ns": numbers[3],
                "kind": int(random.integers(2, 7)),
                "read_ns": 3 * numbers[4],
                "arrival": [None, "copied", int(random.integers(MIGRATIONS))][int(random.integers(3))],
                "units": range(first, min(first + shards, DIMMS)),
                "first": numbers[5:8],
                "behind": numbers[8:11],
                "between": numbers[11] / 9,
                "table": int(random.integers(5)),
            }
            listed_parts.append(part)
        parts.append(listed_parts)
    return rules, parts


def in_table(rows: list[dict[str, Any]], cost: np.dtype[np.void]) -> np.ndarray:
    """A table with the rows, the last one first; fields that a row lacks are 0."""
    return np.array([tuple(row.get(name, 0) for name in cost.names or ()) for row in rows[::-1]], cost)


def engine_parts(parts: list[dict[str, Any]]) -> EngineParts:
    rows = np.arange(len(parts) - 1, -1, -1)
    return EngineParts(
        np.array([part["expert"] for part in parts], np.int64),
        np.array([part["share"] for part in parts], np.float64),
        rows,
        rows.copy(),
    )


def ndp_cost(part: dict[str, Any]) -> dict[str, Any]:
    names = "ns", "bus_share", "pause_share"
    first = dict(zip(names, part["first"], strict=True))
    behind = dict(zip([f"{name}_behind" for name in names], part["behind"], strict=True))
    return {**part, **first, **behind, "dimms": len(part["units"])}


def by_expert(values: dict[int, int], usual: int, kind: type = np.int64) -> np.ndarray:
    found = np.array([values.get(expert, usual) for expert in range(24)], kind)
    found.flags.writeable = False  # as in a run, for which the same kernel is compiled
    return found


def added(rules: Rules, parts: list[list[dict[str, Any]]], jobs: JobList) -> None:
    """Add the layer by the kernel."""
    gpu, cpu, ndp = parts
    places = {None: HERE, "copied": MISSING}
    arrival = np.array([places.get(part["arrival"], part["arrival"]) for part in gpu], np.int64)
    costs = CostTables(
        in_table(gpu, PartCost),
        in_table(cpu, PartCost),
        in_table([*map(ndp_cost, ndp)], PartCost),
        *(in_table([{**part, "ns": part["read_ns"]} for part in of], ReadCost) for of in (gpu, cpu)),
    )
    dimm = by_expert({part["expert"]: part["units"].start for part in ndp}, -1, np.int16)
    none, flags = np.empty(0, np.int64), by_expert({}, 0, np.bool_)
    layer = LayerExperts(none, dimm, dimm, flags, none, np.empty((0, 2), np.int16))
    jobs.reserve(200)
    copies, computed = np.empty((2, 24), np.int64)
    room = Room(
        arrival, np.empty(24, np.bool_), copies, computed, np.zeros(2, np.int64), np.empty(DIMMS, np.int64)
    )
    engines = Engines(*map(engine_parts, parts))
    add_layer(jobs.arrays, jobs.added, rules, costs, layer, engines, room)


def rows(jobs: JobList, first: int) -> list[dict[str, Any]]:
    """Jobs from a number on, with the names of the twin."""
    arrays, resources = jobs.ready(), jobs.resources()
    after: dict[int, list[int]] = {job: [] for job in range(len(jobs))}
    for job in range(len(jobs)):
        place, before = int(arrays.first_after[job]), -1
        while place >= 0:
            successor = int(arrays.after[place])
            assert successor >= before, "they start in the order in which they were added"
            after[successor].append(job)
            place, before = int(arrays.next_after[place]), successor
    columns = ["work_ns", "per_ns", "kind", "dimm", "table", "between", "bus_share", "pause_share", "turn"]
    of_label = ["expert", "share", "tokens", "bytes", "alone_ns", "read_limit_gbps"]
    found = []
    for job in range(first, len(jobs)):
        row = {name: getattr(arrays, name)[job].item() for name in columns}
        row |= {name: getattr(jobs.added, name)[job].item() for name in of_label}
        row |= {"resource": resources[job], "what": WHAT[jobs.added.what[job]], "after": after[job]}
        servers = {"gpu": 0, "cpu": 1}
        server = 2 + row["dimm"] if row["dimm"] >= 0 else servers.get(row["resource"], -1)
        assert (arrays.server[job], arrays.left_ns[job]) == (server, row["work_ns"])
        assert arrays.waits[job] == len(after[job])
        found.append(row)
    return found


USUAL = {
    **dict.fromkeys(("per_ns", "between", "bus_share", "pause_share", "read_limit_gbps"), 0.0),
    **dict.fromkeys(("kind", "dimm", "turn", "expert"), -1),
    **{"table": 0, "tokens": 0, "bytes": 0, "share": 1.0},
}


def test_jobs_of_a_layer_are_those_of_the_twin():
    jobs = JobList()
    seen = set()
    for seed in range(200):
        rules, parts = random_layer(np.random.default_rng(seed))
        jobs.clear()
        for _ in range(MIGRATIONS):
            jobs.add(Label("pcie-down", "prefetch", alone_ns=5.0), 5.0, kind=3, per_ns=0.2)
        added(rules, parts, jobs)
        twin = ReadableLayer(rules, MIGRATIONS)
        twin.build(*parts)
        expected = [{**USUAL, **job} for job in twin.jobs]
        assert rows(jobs, MIGRATIONS) == expected, seed
        seen |= {(job["resource"].split()[0], job["what"]) for job in expected}
    assert len(seen) == 9


def known_rows(rows: dict[tuple[int, float], int]) -> KnownRows:
    """The rows by number and share, in twice as many entries as needed at least."""
    size = 1 << (2 * len(rows)).bit_length()
    known = KnownRows(np.full(size, FREE), np.zeros(size), np.zeros(size, np.int64))
    for (number, share), row in rows.items():
        entry = first_entry(number, share, size)
        while known.numbers[entry] != FREE:
            entry = (entry + 1) % size
        known.numbers[entry], known.shares[entry], known.rows[entry] = number, share, row
    return known


def test_rows_of_experts_are_found_by_their_numbers_and_shares():
    """Tables of random length, some rows unknown; locations of up to 3 DIMMs of 4, or striped."""
    random, outcomes = np.random.default_rng(7), set()
    for _ in range(100):
        experts, all_here = int(random.integers(1, 9)), random.random() < 0.5
        loads, dimm = random.integers(0, 5, experts), random.integers(-1, 4, experts).astype(np.int16)
        shards = np.where(dimm < 0, 1, random.integers(1, 4, experts)).astype(np.int16)
        resident = random.random(experts) < (1.0 if all_here else 0.5)
        coming = np.where(random.random(experts) < 0.3, random.integers(0, 9, experts), MISSING)
        ids = random.integers(0, experts, (int(random.integers(0, 6)), 2)).astype(np.int16)
        for array in (loads, dimm, shards, resident):
            array.flags.writeable = False
        numbers_of = [range(5)] * 2 + [
            [tokens * RADIX + count for tokens in range(6) for count in range(4)]
        ] * 3
        known = [
            {
                (number, share): int(random.integers(100))
                for number in numbers
                for share in (1.0, 0.5)
                if random.random() < (0.97 if share == 1.0 else 0.5)
            }
            for numbers in numbers_of
        ]
        some = [np.flatnonzero(random.random(experts) < 0.5) for _ in range(3)]
        shares = [np.where(random.random(len(of_engine)) < 0.05, 0.5, 1.0) for of_engine in some]
        rows, arrival = np.full((5, experts), -9), np.full(experts, -9)
        tables = (OF_GPU, OF_COPIES), (OF_CPU, OF_CPU_READS), (OF_NDP, OF_NDP)
        engines = Engines(
            *[
                EngineParts(some[number], shares[number], rows[costs], rows[reads])
                for number, (costs, reads) in enumerate(tables)
            ]
        )
        none = np.empty(0, np.int64)
        room = Room(arrival, np.empty(experts, np.bool_), none, none, none, none)
        layer = LayerExperts(loads, dimm, shards, resident, coming, ids)
        found = find_rows(tuple(map(known_rows, known)), layer, engines, room)

        def row(table: int, number: int, share: float = 1.0, known: list[Any] = known) -> int:
            return int(known[table].get((number, share), UNKNOWN))

        expected: list[list[int]] = [[], [], [], [], []]
        for table, numbers in enumerate((loads, loads, loads * RADIX + shards)):
            pairs = zip(some[table].tolist(), shares[table].tolist(), strict=True)
            expected[table] = [row(table, int(numbers[expert]), share) for expert, share in pairs]
        places = [(int(one) + 1) * RADIX + int(count) for one, count in zip(dimm, shards, strict=True)]
        arrives = [HERE if resident[expert] else int(coming[expert]) for expert in some[0]]
        copied = [part for part, by in enumerate(arrives) if by == MISSING]
        assert arrival[: len(arrives)].tolist() == arrives
        expected[3] = [row(3, places[some[0][part]]) for part in copied]
        expected[4] = [row(4, places[expert]) for expert in some[1]]
        for table, parts in enumerate((some[0], some[1], some[2], copied, some[1])):
            of_table = rows[table, copied] if table == 3 else rows[table, : len(parts)]
            assert of_table.tolist() == expected[table]
        elsewhere = {*some[1].tolist(), *some[2].tolist()}
        tokens = sum(not elsewhere.isdisjoint(of_token) for of_token in ids.tolist())
        all_known = all(UNKNOWN not in of_table for of_table in expected)
        most = 2 * len(some[0]) + len(some[1]) + int(shards[some[2]].sum())
        assert found == (all_known, most, tokens)
        outcomes.add(all_known)
    assert outcomes == {True, False}


def test_a_list_that_has_become_longer_keeps_its_jobs_and_a_cleared_one_has_none():
    jobs = JobList()
    for number in range(500):
        after = [number - 1, number - 2] if number > 1 else []
        label = Label("links", "relayout", number, 7, 2.0)
        given = {"left_ns": 1.0, "start_ns": 3.0, "background": True} if number % 2 else {}
        assert jobs.add(label, 5.0, after, kind=2, per_ns=0.25, **given) == number
    found = rows_of_relayouts(jobs)
    assert found == [
        (number, [one for one in (number - 2, number - 1) if number > 1], number % 2) for number in range(500)
    ]
    arrays = jobs.ready()
    assert arrays.left_ns[:4].tolist() == [5.0, 1.0, 5.0, 1.0]
    assert arrays.start_ns[:4].tolist() == [-1.0, 3.0, -1.0, 3.0]
    jobs.clear()
    jobs.add(Label("none", "idle"), 2.0)
    arrays = jobs.ready()
    assert (len(jobs), jobs.resources(), arrays.kind[0], arrays.background[0]) == (1, ["none"], -1, 0)
    assert (arrays.waits[0], arrays.first_after[0], arrays.left_ns[0]) == (0, -1, 2.0)


def rows_of_relayouts(jobs: JobList) -> list[tuple[int, list[int], int]]:
    arrays, after = jobs.ready(), [[] for _ in range(len(jobs))]
    for job in range(len(jobs)):
        place = int(arrays.first_after[job])
        while place >= 0:
            after[arrays.after[place]].append(job)
            place = int(arrays.next_after[place])
    numbers = jobs.added.expert[: len(jobs)].tolist()
    background = arrays.background[: len(jobs)].tolist()
    return [*zip(numbers, after, background, strict=True)]


def test_a_phase_that_is_run_again_begins_as_before():
    jobs = JobList()
    first = jobs.add(Label("none", "idle"), 2.0)
    jobs.add(Label("none", "idle"), 3.0, [first])
    before = [array.copy() for array in jobs.ready()]
    for name, value in dict(left_ns=0.0, start_ns=7.0, end_ns=9.0, waits=0, cause=1, allowed_ns=4.0).items():
        getattr(jobs.arrays, name)[:2] = value
    after = jobs.ready()
    assert all((one[:2] == other[:2]).all() for one, other in zip(before, after, strict=True))
