"""Units as hardware against their models, outside the closed loop: clocks of each job, and numbers.

Whatever the model takes in, and the clock of it, is given to the hardware; the clocks at which it takes and
gives are compared. What a unit does reaches the DRAM only through these clocks. Equal ones for the same input
therefore make the closed loop equal, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.units import ActivationUnit
from ndpsim.dram import sink
from ndpsim.dram.traces.unit_commands import UnitCommands
from ndpsim.simulate.alone import LanesAlone, plain
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms, every_lane
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.rtl.build import load_module

Ints = NDArray[np.int64]

_BENCH: Any = load_module(Path(__file__).with_name("bench.py"))


def first_difference(what: str, model: Ints, hardware: Ints) -> list[str]:
    """The first clock in which both differ, in words; none if they are equal."""
    if len(model) != len(hardware):
        return [f"{what}: {len(model)} in the model, {len(hardware)} in hardware"]
    differs = np.flatnonzero(model != hardware)
    if not len(differs):
        return []
    first = int(differs[0])
    return [f"{what} {first}: clock {model[first]} in the model, {hardware[first]} in hardware"]


# ---- The activation unit


@dataclass(frozen=True, eq=False)
class Activated:
    """Rows that an activation unit as hardware has activated.

    `starts`, `ends`: int64[row], the edge before the first beat of a row is taken, and the edge after which
    its last result is there. `results`: int64[row, token].
    """

    starts: Ints
    ends: Ints
    results: Ints


def activate(
    module: Any, unit: Any, ready: Ints, gates: Ints, ups: Ints, stalled: frozenset[int] = frozenset()
) -> Activated:
    """Run rows through an activation unit as hardware.

    Args:
        module: `activation.py`, and `unit` of it.
        ready: int64[row], the edge after which gate and up of a row are there.
        gates, ups: int64[row, token].
        stalled: edges at which no result can leave.
    """
    rows, tokens = gates.shape
    units = unit.parameters.units
    beats = -(-tokens // units)
    padded = [np.pad(each, ((0, 0), (0, beats * units - tokens))).reshape(-1, units) for each in (gates, ups)]
    taken, ends, results = list[int](), list[int](), list[list[int]]()

    def step(edge: int, get: Any, put: Any) -> bool:
        beat = len(taken)
        valid = beat < rows * beats and edge > ready[beat // beats]
        put("out_ready", int(edge not in stalled))
        put("in_valid", int(valid))
        if valid:
            put("in_gate", _BENCH.joined(padded[0][beat].tolist(), module.BITS))
            put("in_up", _BENCH.joined(padded[1][beat].tolist(), module.BITS))
            put("in_tag", beat)
            if get("in_ready"):
                taken.append(edge)
        if get("out_valid") and edge not in stalled:
            if get("out_tag") != len(results):
                raise AssertionError(f"beat {get('out_tag')} comes out for {len(results)}, at clock {edge}")
            results.append(_BENCH.parted(get("out_value"), module.RESULT_BITS, units))
            ends.append(edge - 1)
        return len(results) == rows * beats

    _BENCH.run_clocks(unit, step)
    return Activated(
        np.array(taken[::beats]) - 1,
        np.array(ends[beats - 1 :: beats]),
        np.array(results).reshape(rows, -1)[:, :tokens],
    )


def compare_activation(model: ActivationUnit, hardware: Activated, ready: Ints, tokens: int) -> list[str]:
    """Differences between the clocks of rows in the model and in hardware; `ready` as in `activate`."""
    ends = np.array([model.done(ready[: row + 1], tokens, 1) for row in range(len(ready))])
    service = -(-tokens // model.units) * model.cycles_per_value
    return [
        *first_difference("start of row", ends - service - model.latency_cycles, hardware.starts),
        *first_difference("end of row", ends, hardware.ends),
    ]


# ---- The systolic arrays of a lane


class ObservedReads(LanesAlone):
    """Lanes with the model of the unit, which keep when each burst came and left the FIFO.

    Attributes:
        bursts: by region, int64[n, 3], the number of a burst in the stream of the lane, and the ticks of its
            arrival and of its start, in the order of reads.
        known: by region, the tick at which each row of weights is summed.
        releases: by region, the tick from which multipliers may start.
    """

    def __init__(self, machine: NdpMachine, expert: PlacedOnDimms) -> None:
        super().__init__(machine, every_lane(machine, expert), True, FIRST_CLOCK, plain)
        self.bursts: list[Ints] = []
        self.known: list[Ints] = []
        self.releases: list[int] = []
        (lane,) = self.lanes
        groups = sink.a_group_each(len(lane.source.place))
        ticks = machine.dram_ticks, machine.unit_ticks
        lane.sink = sink.make_sink(machine.unit.fifo_bursts, 1, *ticks, groups)

    def _multiplied(self, region: int, tokens: int, placed: Any, lanes: Any, release: int) -> Any:
        machine, (lane,) = self.machine, self.lanes
        self._read(region, tokens, placed, lanes, release)
        share = lane.stream.share.bursts
        first = sum(share[:region])
        finish = lane.sink.done[first : first + share[region]]
        order = np.argsort(finish, kind="stable")
        (run,) = {
            run.parts for run in machine.unit.runs(placed.interleaving, region, 0, lane.stream.share, tokens)
        }
        starts = finish[order] - run * machine.part_ticks
        entry = lane.commands.entry[: lane.commands.length[0]]
        names = machine.device.standard.names
        reads = entry[np.isin(entry[:, 1], [n for n, name in enumerate(names) if name in ("RD", "RDA")]), 0]
        there = (reads[first : first + share[region]] + machine.tables.read_latency) * machine.dram_ticks
        self.bursts.append(np.stack((order + first, there, starts), axis=1))
        tile = placed.interleaving.tiles.tiles_for_bursts(0)[first : first + share[region]]
        done = np.zeros(len(np.unique(tile)), dtype=np.int64)
        np.maximum.at(done, tile - tile[0], finish)
        self.known.append(machine.unit.summed(placed.interleaving, region, tokens, done, machine.unit_ticks))
        self.releases.append(release)
        return self.known[-1]


@dataclass(frozen=True, eq=False)
class Multiplied:
    """What arrays as hardware did, by region.

    `starts`: int64[burst], the edge at which each left the FIFO. `known`: int64[tile], the edge after which
    its last sum is there. `sums`: int64[output, token].
    """

    starts: list[Ints]
    known: list[Ints]
    sums: list[Ints]


def words_of(p: Any, weights: Ints) -> Ints:
    """int64[output, word]: the weights of each output, one behind the other."""
    fields = weights[..., None] >> np.arange(p.bits) & 1
    bits = fields.reshape(len(weights), -1)
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % p.word_bits)))
    return bits.reshape(len(weights), -1, p.word_bits) @ (1 << np.arange(p.word_bits))


class _Feed:
    """The words and activations of a region for the arrays of a lane."""

    def __init__(self, p: Any, weights: Ints, activations: Ints, first: int) -> None:
        self.parameters, self.first = p, first
        words = words_of(p, weights)
        self.steps = words.shape[1]
        self.tokens = len(activations)
        tiles = words.reshape(-1, p.outputs, self.steps).transpose(0, 2, 1)  # [tile, step, output]
        self.bursts = tiles.reshape(-1, p.burst_steps * p.outputs)
        self.burst_tiles = np.repeat(np.arange(len(tiles)), self.steps // p.burst_steps)
        self.vectors = list(self._vectors(activations))

    def data(self, burst: int) -> int:
        """The bits of a burst."""
        word: int = _BENCH.joined(self.bursts[burst].tolist(), self.parameters.word_bits)
        return word

    def place(self, burst: int) -> int:
        """The place of the activations for a burst."""
        step = burst * self.parameters.burst_steps % self.steps
        if self.parameters.weight_stationary:
            return self.first + step // self.parameters.rows * self.tokens
        return self.first + step

    def _vectors(self, activations: Ints) -> Any:
        """(row, place, word) of each vector of activations."""
        p = self.parameters
        for token, inputs in enumerate(activations):
            for step in range(self.steps):
                begin, end = p.ends(step)
                word = _BENCH.joined(inputs[begin:end].tolist(), p.activation_bits)
                if p.weight_stationary:
                    block, row = divmod(step, p.rows)
                    yield row, self.first + block * self.tokens + token, word
                else:
                    yield token, self.first + step, word


def multiply(
    unit: Any, numbers: list[tuple[Ints, Ints]], bursts: list[Ints], releases: list[int]
) -> Multiplied:
    """Run the regions of a lane through its arrays as hardware.

    Args:
        numbers: weights int64[output, input] and activations int64[token, input] of each region.
        bursts: for each region int64[n, 2], the number of a burst within it and the edge at which it arrives.
        releases: for each region the edge from which bursts may start.
    """
    p = unit.parameters
    feeds, first = list[_Feed](), 0
    for weights, activations in numbers:
        feeds.append(_Feed(p, weights, activations, first))
        first = max(place for _, place, _ in feeds[-1].vectors) + 1
    if first > p.depth:
        raise ValueError(f"activations need {first} places of {p.depth}")
    vectors = [vector for feed in feeds for vector in feed.vectors]
    coming = [(int(edge), region, int(burst)) for region, each in enumerate(bursts) for burst, edge in each]
    starts: list[list[int]] = [[] for _ in feeds]
    sums: list[list[tuple[int, int, int]]] = [[] for _ in feeds]  # edge, output, sum
    before = len(vectors)  # edges before edge 0, in which activations are written
    phase = 0

    def step(number: int, get: Any, put: Any) -> bool:
        nonlocal phase
        edge = number - before
        if number < before:
            row, place, word = vectors[number]
            put("act_valid", 1 << row), put("act_place", place), put("act_data", word)
        else:
            put("act_valid", 0)
        feed = feeds[phase]
        put("go", int(edge >= releases[phase]))
        put("phase", phase), put("tokens", feed.tokens), put("steps", feed.steps)
        _put_burst(get, put, feeds, coming, edge)
        if get("in_credit"):
            starts[phase].append(edge)
        if out := get("out_valid"):
            values = _BENCH.parted(get("out_sum"), p.sum_bits, p.outputs)
            sums[phase] += [
                (edge - 1, output, values[output]) for output in range(p.outputs) if out >> output & 1
            ]
        rows = feed.tokens if p.weight_stationary else p.rows
        if len(sums[phase]) == len(numbers[phase][0]) * rows:
            phase += 1
        return phase == len(feeds)

    _BENCH.run_clocks(unit, step)
    summed = [_in_tiles(p, feed, found) for feed, found in zip(feeds, sums, strict=True)]
    return Multiplied([np.array(each) for each in starts], [k for k, _ in summed], [s for _, s in summed])


def _put_burst(get: Any, put: Any, feeds: list[_Feed], coming: list[tuple[int, int, int]], edge: int) -> None:
    """Give the arrays the next burst, if it has arrived."""
    valid = bool(coming) and coming[0][0] <= edge
    put("in_valid", int(valid))
    if not valid:
        return
    _, region, burst = coming.pop(0)
    put("in_data", feeds[region].data(burst)), put("in_phase", region)
    put("in_step", feeds[region].place(burst))
    if not get("in_ready"):
        raise AssertionError(f"a burst is lost at clock {edge}")


def _in_tiles(p: Any, feed: _Feed, found: list[tuple[int, int, int]]) -> tuple[Ints, Ints]:
    """The edge of the last sum of each tile, and the sums int64[output, token]."""
    rows = feed.tokens if p.weight_stationary else p.rows
    of_output: list[list[tuple[int, int]]] = [[] for _ in range(p.outputs)]
    for edge, output, value in found:
        of_output[output].append((edge, value))
    edges = np.array([[edge for edge, _ in each] for each in of_output]).reshape(p.outputs, -1, rows)
    values = np.array([[value for _, value in each] for each in of_output]).reshape(p.outputs, -1, rows)
    if not p.weight_stationary:
        values = values[:, :, ::-1]  # the lowest row leaves first
    sums = values[:, :, : feed.tokens].transpose(1, 0, 2).reshape(-1, feed.tokens)
    return edges.max(axis=(0, 2)), sums


def compare_systolic(
    machine: NdpMachine, expert: PlacedOnDimms, tokens: int, unit: Any, seed: int = 65
) -> tuple[list[str], ObservedReads, Multiplied]:
    """Run an expert on a machine of one lane, and give its bursts to the arrays as hardware.

    Rows fill whole bursts, and tiles have as many rows as the arrays have columns.
    """
    model = ObservedReads(machine, expert)
    model.run_queue([((tokens,), 0)], lambda share: None)
    random, p, ticks = np.random.default_rng(seed), unit.parameters, machine.unit_ticks
    half = 1 << p.bits - 1
    numbers = [
        (
            random.integers(-half, half, (region.rows, region.columns)),
            random.integers(-(1 << 15), 1 << 15, (tokens, region.columns)),
        )
        for region in expert.placed[0].interleaving.regions
    ]
    first, bursts = 0, []
    for region in model.bursts:
        bursts.append(np.stack((region[:, 0] - first, -(-region[:, 1] // ticks)), axis=1))
        first += len(region)
    releases = [-(-release // ticks) for release in model.releases]
    hardware = multiply(unit, numbers, bursts, releases)
    differences = []
    for region, (weights, activations) in enumerate(numbers):
        starts, known = (
            model.bursts[region][:, 2] / ticks,
            model.known[region][p.outputs - 1 :: p.outputs] / ticks,
        )
        differences += first_difference(f"region {region}, burst", starts, hardware.starts[region])
        # The model tells rows in their order; so do tiles.
        differences += first_difference(f"region {region}, tile", known, hardware.known[region])
        if not np.array_equal(hardware.sums[region], weights @ activations.T):
            differences.append(f"region {region}: the sums are not those of the matrices")
    return differences, model, hardware


# ---- The unit at a bank


def run_bank(unit: Any, commands: UnitCommands, period: int, seed: int = 65) -> list[str]:
    """Give the commands of a channel to the unit at one of its banks; what went wrong, in words.

    Each command reaches the unit at an edge of its clock of `period` clocks of the DRAM. Data are drawn; what
    a read of a register gives is compared with the integer product, also whether it is complete.
    """
    p, clock, random = unit.parameters, commands.columns[0], np.random.default_rng(seed)
    names = [commands.names[number] for number in commands.columns[1]]
    coming = [(int(t) // period, name) for t, name in zip(clock, names, strict=True) if name in _BANK]
    problems, total, reads = list[str](), 0, 0

    def step(edge: int, get: Any, put: Any) -> bool:
        nonlocal total, reads
        put("mac_valid", 0), put("write_valid", 0)
        while coming and coming[0][0] <= edge:
            due, name = coming.pop(0)
            if due < edge:
                problems.append(f"two commands come to the unit at clock {due}")
            if name == "MAC16":
                column, vector = random.integers(-(1 << 15), 1 << 15, (2, p.multipliers))
                total += int(column @ vector)
                put("mac_valid", 1)
                put("mac_column", _BENCH.joined(column.tolist(), p.bits))
                put("mac_vector", _BENCH.joined(vector.tolist(), p.bits))
            elif name == "WRMAC16":
                total = 0
                put("write_valid", 1), put("write_sum", 0)
            else:
                reads += 1
                if not get("out_complete"):
                    problems.append(f"read {reads}: products are on their way, at clock {edge}")
                elif get("out_sum") != total:
                    problems.append(
                        f"read {reads}: the sum is {get('out_sum')}, not {total}, at clock {edge}"
                    )
            break
        return not coming

    _BENCH.run_clocks(unit, step)
    if not reads:
        problems.append("no register is read")
    return problems


_BANK = ("MAC16", "WRMAC16", "RDMAC16")
