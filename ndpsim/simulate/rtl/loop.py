"""The closed loop: lanes of the simulated DRAM, and a unit as hardware that is simulated edge by edge.

A read issues only if the FIFO has a place for its burst. A burst arrives `read_latency` clocks after its
read; the unit gets it at the first edge of its clock at or after that. When a burst leaves the FIFO at an
edge, its place is free from the next DRAM clock on. Both sides therefore advance in turn, by as many DRAM
clocks as a read needs: what a side does within that time cannot reach the other before.

The numbers are drawn: weights and activations are integers, and each sum of a row is compared with the
integer product of the matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress
from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import LaneShare
from ndpsim.dram import sink, state
from ndpsim.simulate.alone import LanesAlone, MakeLane, plain
from ndpsim.simulate.lane import Ints, Lane
from ndpsim.simulate.machine import NdpMachine, Placed, PlacedOnDimms, every_lane
from ndpsim.simulate.program import FIRST_CLOCK, Awaited, Queue, TilesFrom
from ndpsim.simulate.rtl import arrivals
from ndpsim.simulate.rtl.arrivals import Bursts
from ndpsim.simulate.rtl.handshake import STUCK_EDGES, Bytes, Phase, RunningUnit, Sizes

_SEED = 65
_ACTIVATION_BITS = 16

_take_arrivals: Any = arrivals.take_arrivals
_set_credits: Any = arrivals.set_credits


class UnitError(InputError):
    """A unit broke the handshake, or computed other numbers."""

    def __init__(self, problem: str, edge: int) -> None:
        super().__init__(f"{problem}, at clock {edge} of the unit", "invalid", key="rtl")


@dataclass(eq=False)
class PhaseRecord:
    """What the unit did in a phase.

    Attributes:
        region: the region of the expert; `tokens`: of the tile.
        go_from: the first edge at which bursts could start.
        known: int64[row], the edge after which the last sum of each row was there.
        starts: by lane, parts of the edges at which bursts left the FIFO, one number a burst.
    """

    region: int
    tokens: int
    go_from: int
    known: Ints
    starts: list[list[Ints]] = field(default_factory=list)

    def starts_of(self, lane: int) -> Ints:
        """int64[burst], the edges at which the bursts of a lane left the FIFO."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.starts[lane]])


class _LaneReads:
    """The reads of a lane, region by region, and what the unit has taken of them."""

    def __init__(self, lane: Lane, number: int) -> None:
        self.lane, self.number = lane, number
        self.credits_of: Ints = np.zeros(0, dtype=np.int64)  # clocks from which places are free, in order
        self.given = 0  # of these
        self.handed = 0  # bursts of the open region before the first that the unit does not have
        self.until = 0  # reads up to the end of the regions that may be read
        self.bursts: Bursts | None = None  # of the phase that is read
        self.done: Ints = np.zeros(0, dtype=np.int64)  # and the clocks at which they arrive
        self.next_phase = 0

    def add_credits(self, clocks: Ints) -> None:
        """The clocks from which places of further bursts are free."""
        end = self.given + len(clocks)
        if end > len(self.credits_of):
            self.credits_of = np.concatenate((self.credits_of, np.zeros(max(end, 1024), dtype=np.int64)))
        self.credits_of[self.given : end] = clocks
        self.given = end


def check_machine(machine: NdpMachine, expert: PlacedOnDimms) -> None:
    """Check that a unit as hardware can stand in this machine.

    Raises:
        InputError: it cannot.
    """
    problem = ""
    if len(expert.of_dimm) > 1:
        problem = "an RTL unit runs an expert on one DIMM"
    elif machine.shared_commands or machine.lock_step:
        problem = "an RTL unit needs lanes with command buses of their own"
    elif machine.link is not None:
        problem = "an RTL unit stands on a DIMM, not behind a link"
    elif any(form.group_size for form in expert.weights.format.matrices):
        problem = "an RTL unit takes weights without scales"
    elif len({form.bits for form in expert.weights.format.matrices}) > 1:
        problem = "an RTL unit takes weights of equal bits"
    burst_bits = machine.device.burst_bytes * 8
    if not problem:
        for region in expert.placed[0].interleaving.regions:
            if region.formats[0].row_bits(region.columns) % burst_bits:
                row = f"{region.columns} weights of {region.formats[0].bits} bits"
                problem = f"a row of {row} ends within a burst; an RTL unit takes rows of whole bursts"
    if problem:
        raise InputError(f"not supported: {problem}", "unsupported", key="rtl")


class Numbers:
    """Drawn weights of the regions, and activations of each tile, with the sums that must come out."""

    def __init__(self, placed: Placed, bits: int, burst_bytes: int) -> None:
        self._generator = np.random.default_rng(_SEED)
        self.bits, self.burst_bytes, self.values = bits, burst_bytes, burst_bytes * 8 // bits
        half = 1 << (bits - 1)
        low, high = (-half, half) if bits > 1 else (-1, 1)
        self.weights = [
            self._generator.integers(low, high, (region.rows, region.columns), dtype=np.int16)
            for region in placed.interleaving.regions
        ]
        self.packed = [self._packed(weights) for weights in self.weights]

    def _packed(self, weights: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> Bytes:
        """uint8[burst, byte]: weights one behind the other, from the lowest bit on."""
        if self.bits == 16:
            return np.ascontiguousarray(weights).view(np.uint8).reshape(-1, self.burst_bytes)
        if self.bits == 8:
            return weights.astype(np.int8).view(np.uint8).reshape(-1, self.burst_bytes)
        fields = (weights.reshape(-1, 1).astype(np.int64) >> np.arange(self.bits)) & 1
        return np.packbits(fields.astype(np.uint8).ravel(), bitorder="little").reshape(-1, self.burst_bytes)

    def draw(self, region: int, tokens: int) -> tuple[Bytes, Ints]:
        """Activations as uint8[column of bursts, token, byte], and the sums int64[row, token]."""
        weights = self.weights[region]
        drawn = self._generator.integers(-(1 << 15), 1 << 15, (tokens, weights.shape[1]), dtype=np.int16)
        vectors = drawn.reshape(tokens, -1, self.values).transpose(1, 0, 2)
        sums: Ints = _product(weights, drawn)
        return np.ascontiguousarray(vectors).view(np.uint8), sums


def _product(weights: Any, drawn: Any) -> Ints:
    """The integer product, exact: halves of the activations keep sums below 2^53."""
    high, low = drawn >> 8, drawn & 255
    parts = (weights.astype(np.float64) @ part.T.astype(np.float64) for part in (high, low))
    first, second = (part.astype(np.int64) for part in parts)
    product: Ints = first * 256 + second
    return product


class LanesWithUnit(LanesAlone):
    """The lanes of a DIMM whose unit is hardware; see `simulate.alone.LanesAlone`.

    Attributes:
        records: a `PhaseRecord` for each phase so far.
    """

    def __init__(
        self,
        machine: NdpMachine,
        expert: PlacedOnDimms,
        recording: bool,
        start_clock: int,
        unit: RunningUnit,
        make_channel: MakeLane = plain,
    ) -> None:
        check_machine(machine, expert)
        super().__init__(machine, every_lane(machine, expert), recording, start_clock, make_channel)
        self.hardware, self.records = unit, list[PhaseRecord]()
        self._placed = placed = self.expert.placed[0]
        bits = expert.weights.format.up.bits
        self.numbers = Numbers(placed, bits, machine.device.burst_bytes)
        self._reads = [_LaneReads(lane, number) for number, lane in enumerate(self.lanes)]
        self._latency = int(machine.tables.read_latency)
        self._sums: list[Ints] = []  # of each phase: int64[row, token]
        self._written_at, self._clock = 0, FIRST_CLOCK
        self._fields: Ints = np.zeros((64, 5), dtype=np.int64)  # room for bursts that a lane hands over
        self._phases: list[tuple[int, int]] = []  # region and tokens
        for lane in self.lanes:
            requests = len(lane.source.place)
            groups = sink.a_group_each(requests)
            # A burst that has no service time is done when it arrives, in DRAM clocks.
            lane.sink = sink.make_sink(machine.unit.fifo_bursts, 1, 1, 1, groups)

    # The program.

    def run_queue(self, jobs: Sequence[TilesFrom], progress: Progress) -> Queue:
        ((tiles, _),) = jobs
        self._phases = [(region, tokens) for tokens in tiles for region in (0, 1)]
        for region, packed in enumerate(self.numbers.packed):
            self.hardware.set_weights(region, packed)
        self._write_activations(0)
        for reads in self._reads:
            self._admit(reads)
        return super().run_queue(jobs, progress)

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        yield from ()
        machine, number = self.machine, len(self.records)
        unit = self.hardware
        go_from = -(-release[0] // machine.unit_ticks)
        if go_from < unit.edge + 1 and number:
            problem = "not supported: an RTL unit needs two clocks between phases"
            raise InputError(problem, "unsupported", key="ndp.activation.latency_cycles")
        if go_from < self._written_at:
            problem = (
                f"activations are written until clock {self._written_at} of the unit, the phase begins at"
            )
            raise InputError(f"not supported: {problem} {go_from}", "unsupported", key="rtl")
        self._write_activations(number + 1)
        rows = self._placed.interleaving.regions[region].rows
        phase = Phase(number % 2, go_from, tokens, self._row_bursts(region), rows * tokens)
        record = PhaseRecord(region, tokens, go_from, np.full(rows, -1, dtype=np.int64))
        record.starts = [[] for _ in self.lanes]
        self.records.append(record)
        self._advance(phase, record)
        known = record.known * machine.unit_ticks
        self._report(sum(lane.stream.share.bursts[region] for lane in self.lanes))
        return [known]

    def count_until(self, clock: int) -> list:  # type: ignore[type-arg]
        """See `LanesAlone`; lanes are busy from the start of a phase to its last sum."""
        for lane in self.lanes:
            edges = sum(int(record.known.max()) - record.go_from for record in self.records)
            lane.busy = edges * self.machine.unit_ticks
        return super().count_until(clock)

    # Both sides in turn.

    def _row_bursts(self, region: int) -> int:
        of_region = self._placed.interleaving.regions[region]
        return of_region.bursts // of_region.rows

    def _columns(self, region: int) -> int:
        """Of how many columns of bursts a lane has the activations of one.

        A lane has those of its own columns; if these differ from row to row, those of all columns.
        """
        lanes = len(self.lanes)
        return lanes if self._row_bursts(region) % lanes == 0 else 1

    def _first_vector(self, region: int) -> int:
        """The first vector of a region: the inputs of down are behind those of gate and up."""
        most = max(tokens for _, tokens in self._phases)
        return ((self._row_bursts(0) - 1) // self._columns(0) + 1) * most if region else 0

    def _write_activations(self, number: int) -> None:
        """Give the unit the activations of a phase, and keep the sums that must come out."""
        if number == len(self._phases):
            return
        region, tokens = self._phases[number]
        vectors, sums = self.numbers.draw(region, tokens)
        self._sums.append(sums)
        count, lanes = len(vectors), len(self.lanes)
        column, token = np.divmod(np.arange(count * tokens), tokens)
        columns = self._columns(region)
        places = self._first_vector(region) + column // columns * tokens + token
        mask = np.full(len(column), (1 << lanes) - 1) if columns == 1 else 1 << (column % lanes)
        most = self.machine.unit.buffer_bytes // lanes // vectors.shape[-1]
        if int(places.max()) >= most:
            problem = f"a lane needs {int(places.max()) + 1} vectors of activations, its buffer holds {most}"
            raise InputError(f"not supported: {problem}", "too-large", key="ndp.gemv.buffer_kib")
        flat = np.ascontiguousarray(vectors.reshape(count * tokens, -1))
        self.hardware.add_activations(mask.astype(np.int64), places.astype(np.int64), flat)
        self._written_at = max(self._written_at, self.hardware.edge) + len(flat)

    def _advance(self, phase: Phase, record: PhaseRecord) -> None:
        """Run both sides until the unit has given all sums of a phase."""
        machine, unit = self.machine, self.hardware
        found, progress_edge = 0, max(unit.edge, phase.go_from)
        for reads in self._reads:
            self._hand_over(reads)
        while True:
            # What arrives before `horizon` is known.
            horizon = self._clock + self._latency
            until = -(-horizon * machine.dram_ticks // machine.unit_ticks)
            left = phase._replace(wanted=phase.wanted - found)
            advanced = unit.advance(until, left)
            if advanced.lost is not None:
                lane, edge = advanced.lost
                raise UnitError(f"lane {lane}: a burst arrives, but in_ready is 0: its data is lost", edge)
            self._take_credits(advanced.credits, record)
            self._take_results(advanced.results, record)
            found += len(advanced.results)
            if len(advanced.results) or len(advanced.credits):
                progress_edge = unit.edge
            if found == phase.wanted:
                return
            self._ensure_alive(progress_edge, found, phase, record)
            if unit.edge >= until:
                self._run_lanes(horizon)

    def _ensure_alive(self, progress_edge: int, found: int, phase: Phase, record: PhaseRecord) -> None:
        """Raises UnitError if the unit has done nothing for long."""
        if self.hardware.edge - progress_edge < STUCK_EDGES:
            return
        taken = sum(len(record.starts_of(lane)) for lane in range(len(self.lanes)))
        wanted = phase.row_bursts * len(record.known)
        rows = np.flatnonzero(record.known < 0)
        row = f"row {rows[0] if len(rows) else 0} never comes out"
        if taken < wanted:
            problem = f"the unit took {taken} of {wanted} bursts of the phase, and no more, and {row}"
            raise UnitError(f"{problem}: it is never ready, or lost a burst", progress_edge)
        raise UnitError(f"all bursts are taken, but {row}", progress_edge)

    def _take_credits(self, credits: Ints, record: PhaseRecord) -> None:
        """Places of the FIFOs are free from the next DRAM clock on."""
        if not len(credits):
            return
        machine = self.machine
        lane, edges = (np.repeat(credits[:, place], credits[:, 2]) for place in (0, 1))
        clocks = -(-edges * machine.unit_ticks // machine.dram_ticks)
        for reads in self._reads:
            own = lane == reads.number
            record.starts[reads.number].append(edges[own])
            reads.add_credits(clocks[own])

    def _take_results(self, results: Ints, record: PhaseRecord) -> None:
        """Compare the sums, and note when each row was complete."""
        if not len(results):
            return
        edge, row, token, found = results.T
        sums = self._sums[len(self.records) - 1]
        inside = (row < len(record.known)) & (token < record.tokens)
        wrong = ~inside
        wrong[inside] = sums[row[inside], token[inside]] != found[inside]
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            wanted = int(sums[row[first], token[first]]) if inside[first] else "none"
            raise UnitError(
                f"row {row[first]}, token {token[first]}: the sum is {found[first]}, not {wanted}",
                int(edge[first]),
            )
        np.maximum.at(record.known, row, edge)

    # The lanes.

    def _admit(self, reads: _LaneReads) -> None:
        """Let a lane read its next region, if there is one."""
        lane, number = reads.lane, reads.next_phase
        if number == len(self._phases):
            return
        region = self._phases[number][0]
        share: LaneShare = lane.stream.share
        first = sum(share.bursts[:region])
        reads.bursts, reads.handed = self._bursts_of(reads.number, number), 0
        reads.done = lane.sink.done[first : first + share.bursts[region]]
        reads.done[:] = 0  # of an earlier tile
        reads.until += share.bursts[region]
        lane.source.admitted[0] = reads.until
        reads.next_phase += 1

    def _bursts_of(self, lane: int, number: int) -> Bursts:
        """The bursts of a lane in a phase."""
        region, tokens = self._phases[number]
        row_bursts, first = self._row_bursts(region), self._first_vector(region)
        return Bursts(len(self.lanes), lane, row_bursts, self._columns(region), first, tokens, number % 2)

    def _run_lanes(self, horizon: int) -> None:
        """Run all lanes up to a clock, and give the unit what arrives after it."""
        for reads in self._reads:
            self._set_credits(reads, horizon)
            lane, value = reads.lane, reads.lane.channel.value
            while True:
                value[state.PAUSE] = horizon
                if int(value[state.SERVED]) < reads.until:
                    lane.run(reads.until)
                if int(value[state.SERVED]) < reads.until:
                    break
                self._hand_over(reads)
                before = reads.next_phase
                self._admit(reads)
                if reads.next_phase == before:
                    break
            value[state.PAUSE] = state.FAR
            self._hand_over(reads)
        self._clock = horizon

    def _set_credits(self, reads: _LaneReads, horizon: int) -> None:
        """The clocks from which places of a lane's FIFO are free; those not known yet are later."""
        fifo = reads.lane.sink
        _set_credits(fifo.credit, reads.credits_of, reads.given, int(fifo.value[sink.TAKEN]), horizon)

    def _hand_over(self, reads: _LaneReads) -> None:
        """Give the unit the bursts that a lane has read since the last time."""
        if reads.bursts is None:
            return
        # Reads leave the queue of the controller in another order, but enter it in theirs.
        taken = int(reads.lane.channel.value[state.TAKEN]) - (reads.until - len(reads.done))
        end = min(len(reads.done), taken)
        if len(self._fields) < end - reads.handed:
            self._fields = np.zeros((2 * (end - reads.handed), 5), dtype=np.int64)
        ticks = self.machine.dram_ticks, self.machine.unit_ticks
        count, reads.handed = _take_arrivals(reads.done, reads.handed, end, ticks, reads.bursts, self._fields)
        if count:
            self.hardware.add_bursts(reads.number, self._fields[:count])


def sizes_of(machine: NdpMachine, bits: int, tokens: int) -> Sizes:
    """The sizes of the ports of a unit in a machine, for weights of some bits."""
    burst_bytes = machine.device.burst_bytes
    vector_bytes = burst_bytes * 8 // bits * _ACTIVATION_BITS // 8
    return Sizes(machine.lanes, burst_bytes, vector_bytes, tokens)
