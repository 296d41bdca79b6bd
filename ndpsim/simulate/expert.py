"""One expert on DIMMs, or several in turn, from the arrival of activations to the last results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ndpsim.base.arguments import Progress, flag, progress_function, several, text
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.base.options import Real, Whole
from ndpsim.base.options.gemv import GEMV, LAST_RELEASE_NS, MAX_TOKENS
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.layout import ExpertFormat, parse_layout
from ndpsim.dram import state
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.simulate.alone import LanesAlone
from ndpsim.simulate.lane import Ints, ensure_recordable, name_commands
from ndpsim.simulate.machine import Machine, PlacedOnDimms, lower_machine, place_on_dimms
from ndpsim.simulate.power import unit_work
from ndpsim.simulate.program import FIRST_CLOCK, Queue, TilesFrom
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.expert import ExpertResult, OverRefresh
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.weights import named_weights
from ndpsim.workload.models import Expert, MoeShape

if TYPE_CHECKING:
    from ndpsim.simulate.channel import LanesInTurn

T = TypeVar("T")

_MOST_JOBS = 4096
_IDLE = {"refresh": state.IDLE_REFRESH, "fifo": state.IDLE_CREDIT, "rows": state.IDLE_ROW}


def _one_or_several(value: Any, key: str, each: Callable[[Any, str], T]) -> tuple[T, ...]:
    """The result of `each` for a value, or for each value of a list."""
    if not isinstance(value, list | tuple | np.ndarray) or getattr(value, "shape", None) == ():
        return (each(value, key),)
    return several(value, key, each)


def token_counts(tokens: int | Sequence[int]) -> tuple[int, ...]:
    """The tokens of each expert in turn.

    Raises:
        InputError: a count is not from 1 to `MAX_TOKENS`, or there are no experts or too many.
    """
    counts = _one_or_several(tokens, "tokens", Whole(1, MAX_TOKENS).check)
    if not 1 <= len(counts) <= _MOST_JOBS:
        raise InputError(f"{len(counts)} experts are not from 1 to {_MOST_JOBS}", "range", key="tokens")
    return counts


def release_times(release_ns: float | Sequence[float], experts: int) -> tuple[float, ...]:
    """The releases of several experts in turn.

    Raises:
        InputError: a time is invalid, or their number is neither 1 nor that of experts.
    """
    times = _one_or_several(release_ns, "release_ns", Real(0, LAST_RELEASE_NS).check)
    if len(times) not in (1, experts):
        problem = f"{len(times)} times for {experts} experts; give one for each, or one for all"
        raise InputError(problem, "conflict", key="release_ns")
    return times * (experts // len(times))


def simulate_expert(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    tokens: int | Sequence[int] = 1,
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    record_commands: bool = False,
    exact_check: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
    release_ns: float | Sequence[float] = 0.0,
    start_clock: int = FIRST_CLOCK,
    refresh_phases: int | None = None,
) -> ExpertResult:
    """Simulate an expert of a model, or several in turn, on one DIMM or on several, cycle by cycle.

    Each expert has its own weights, placed behind those of the previous one, from the next row on. Its
    activations arrive when the previous results have left; meanwhile its weights are read ahead into the
    FIFOs.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, what `load_model` returns, or an
            `Expert`.
        tokens: tokens that go through the expert, 1 to `MAX_TOKENS`; or those of each expert in turn.
        layout: layout of the weights: "localized", or "sharded:N" over N DIMMs.
        bits: bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.
        sets: changes to the hardware, "dimm.ranks=2".
        record_commands: keep the command trace of every lane.
        exact_check: run a second time with every lane by itself, step by step on the plain controller, and
            compare.
        progress: called with the share of the work that is done, first with 0 after all checks; None: no
            calls.
        cache: True, or a `ResultCache`, to reuse the result of an equal simulation; with `record_commands` or
            `exact_check` everything is simulated.
        release_ns: earliest start in ns after the first clock, of each expert in turn or of all; before it,
            no activations arrive and no weights are read ahead.
        start_clock: the DRAM clock at which the run begins. Refreshes are due at multiples of their interval
            from clock 0; refreshes that were due before the start are done, and all ranks are ready. Times
            are relative to the start; clocks of commands are relative to clock 0.
        refresh_phases: also run from this number of clocks (at most 1024), evenly over one period of the
            refreshes from `start_clock` on; the result has `over_refresh`. None: run from `start_clock` only.

    Raises:
        InputError: an argument, the hardware or the model is invalid or does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch = Stopwatch()
    of_jobs, layout = token_counts(tokens), text(layout, "layout")
    released = release_times(release_ns, len(of_jobs))
    record_commands, exact_check = flag(record_commands, "record_commands"), flag(exact_check, "exact_check")
    start_clock = GEMV["start-clock"].checked(start_clock)
    progress = progress_function(progress)
    hardware = load_hardware(hw, sets, "gemv")
    if refresh_phases is not None:
        count = GEMV["refresh-phases"].checked(refresh_phases)
        run_from = functools.partial(
            simulate_expert, hardware, model, of_jobs, layout, bits,
            exact_check=exact_check, cache=cache, release_ns=released,
        )  # fmt: skip
        first = run_from(
            start_clock=start_clock,
            record_commands=record_commands,
            progress=lambda share: progress(share / count),
        )
        schedule = lower_machine(hardware).schedule
        over = _over_refresh(first, schedule, start_clock, count, run_from, progress)
        return replace(first, over_refresh=over, **stopwatch.times())
    if parse_layout(layout)[0] == "striped":
        raise InputError(
            "striped spreads each row of weights over all DIMMs, and a DIMM multiplies only rows of its own: "
            "relayout it into localized or sharded:N first, or let the host read it",
            "unsupported",
            key="layout",
        )
    weights, model_name = named_weights(model, bits)
    lookup = Lookup(
        ExpertResult,
        cache,
        record_commands or exact_check,
        (hardware, weights, of_jobs, layout, released, start_clock),
        {"model": model_name},
    )
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    with hardware.errors_at_origins():
        machine = lower_machine(hardware)
        expert = place_on_dimms(machine, layout, weights)
        tilings = [machine.unit.tile(each, weights.hidden, expert.slice) for each in of_jobs]
    jobs = [(tiles, machine.release_tick(ns)) for tiles, ns in zip(tilings, released, strict=True)]
    _check_room(machine, expert, len(jobs))
    if record_commands:
        ensure_recordable(expert.layout.bursts * sum(map(len, tilings)))
    run = _lanes(machine)(machine, expert, record_commands, start_clock)
    queue = run.run_queue(jobs, progress)
    if exact_check:
        _check(run, queue, jobs)
    config = {
        "hardware": machine.described,
        **expert.described,
        "model": model_name,
        "tokens": of_jobs[0] if len(of_jobs) == 1 else list(of_jobs),
        "layout": layout,
        **({"release_ns": list(released)} if any(released) else {}),
        **({"start_clock": start_clock} if start_clock != FIRST_CLOCK else {}),
    }
    return lookup.store(_result(run, queue, config, stopwatch))


def _lanes(machine: Machine) -> type[LanesAlone] | type[LanesInTurn]:
    """The lanes on which a machine runs experts in turn."""
    if not machine.shared_commands:
        return LanesAlone
    from ndpsim.simulate.channel import LanesInTurn  # noqa: PLC0415 (brings kernels that others do not need)

    return LanesInTurn


def _over_refresh(
    first: ExpertResult,
    schedule: Schedule,
    start_clock: int,
    count: int,
    run_from: Callable[..., ExpertResult],
    progress: Progress,
) -> OverRefresh:
    """Runs from this many start clocks over one refresh period; `first` is the run from `start_clock`.

    All runs without a refresh are equal, so only one of them is simulated.
    """
    clocks = [start_clock + number * schedule.period // count for number in range(count)]
    runs: list[ExpertResult] = []
    undisturbed: ExpertResult | None = None
    for clock in clocks:
        run = undisturbed
        if run is None or _refreshes(schedule, clock, run.cycles):
            run = run_from(start_clock=clock) if runs else first
        if not _refreshes(schedule, clock, run.cycles):
            undisturbed = run
        runs.append(run)
        progress(len(runs) / count)
    times_ns = tuple(run.time_ns for run in runs)
    energies = [run.energy_nj for run in runs]
    return OverRefresh(
        sum(times_ns) / count,
        min(times_ns),
        max(times_ns),
        energies[0] and {name: _mean([(of or {})[name] for of in energies]) for name in energies[0]},
        tuple(clocks),
        times_ns,
    )


def _refreshes(schedule: Schedule, clock: int, cycles: int) -> int:
    """The number of refreshes due from a clock to the end of a run."""
    return schedule.due_before(clock + cycles + 1) - schedule.due_before(clock)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _check_room(machine: Machine, expert: PlacedOnDimms, count: int) -> None:
    """Check that this many experts have room in sequence.

    Raises:
        InputError: they do not fit.
    """
    rows, have = expert.end // machine.row_places, machine.device.rows
    if count * rows > have:
        problem = f"{count} experts do not fit behind each other, each on {rows} of the {have} rows of a bank"
        raise InputError(problem, "too-large", key="tokens")


def _check(run: Any, one: Queue, jobs: Sequence[TilesFrom]) -> None:
    """Run everything again on plain controllers, and compare.

    Raises:
        MismatchError: a result differs.
    """
    again = run.plain_twin()
    other = again.run_queue(jobs, lambda share: None)
    if (one.end, one.of_phase) != (other.end, other.of_phase):
        raise MismatchError(f"the plain run ends at tick {other.end}, not {one.end}, or in other phases")
    run.ensure_same(again)


def _result(
    run: LanesAlone | LanesInTurn, queue: Queue, config: dict[str, Any], stopwatch: Stopwatch
) -> ExpertResult:
    machine, expert, jobs, weights = run.machine, run.expert, queue.jobs, run.expert.weights
    after_start_ns, clock_ns = machine.after_start_ns, machine.clocks_ns(1)
    tiles, dimms = tuple(tokens for job in jobs for tokens in job.tokens), len(expert.of_dimm)
    tokens, reads = sum(tiles), len(tiles)
    cycles = machine.clock_after(queue.end) - FIRST_CLOCK
    time_ns = machine.clocks_ns(cycles)
    lanes = run.count_until(cycles + FIRST_CLOCK)
    used = [lane.counter for lane in lanes if lane.counter[state.READS_SERVED]]
    streamed = max(counter[state.DATA_END] for counter in used) - FIRST_CLOCK
    times = queue.job_times(after_start_ns)
    waited_ns = queue.waiting_ns(times)
    peak_gbps = dimms * machine.lanes * machine.device.peak_gbps
    bandwidth_gbps = expert.layout.bytes * reads / (machine.clocks_ns(streamed) - waited_ns)
    skipped = sum(lane.lanes * lane.skipped for lane in lanes)
    issued: Ints = functools.reduce(np.add, (lane.lanes * lane.issued for lane in lanes))
    idle_ns = {
        name: sum(lane.lanes * lane.counter[place] for lane in lanes) / (dimms * machine.lanes) * clock_ns
        for name, place in _IDLE.items()
    }
    busy = {
        "memory": (streamed - min(counter[state.IDLE_CREDIT] for counter in used) - waited_ns / clock_ns)
        / cycles,
        "compute": max(lane.busy for lane in lanes) / (cycles * machine.dram_ticks),
        "io": float(run.path.busy_ticks / (cycles * machine.dram_ticks)),
    }
    work = unit_work(machine.unit, weights, tokens, reads * expert.layout.bytes)
    energy_nj, energy_note = machine.dram_power.split(
        issued,
        cycles * machine.device.ranks * machine.lanes * dimms,
        sum(lane.lanes * lane.open_clocks for lane in lanes),
        {**machine.unit_energy.split(*work, dimms * time_ns), **run.path.energy()},
    )
    return ExpertResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        tokens=tokens,
        jobs=times,
        weight_bytes=len(jobs) * expert.layout.bytes,
        weight_bursts=len(jobs) * expert.layout.bursts,
        weight_reads=reads / len(jobs) if reads % len(jobs) else reads // len(jobs),
        bandwidth_gbps=bandwidth_gbps,
        peak_bandwidth_gbps=peak_gbps,
        peak_fraction=bandwidth_gbps / peak_gbps,
        gflops=2 * 3 * weights.hidden * weights.intermediate * tokens / time_ns,
        peak_gflops=expert.peak_gflops,
        bound=max(busy, key=busy.__getitem__),
        busy=busy,
        phases=queue.phases(after_start_ns),
        commands=name_commands(issued, machine.device.standard),
        dimms=dimms,
        lanes=dimms * machine.lanes,
        lanes_simulated=len(lanes),
        stall_ns=idle_ns["fifo"],
        idle_ns=idle_ns,
        communication_ns=machine.timebase.to_ns(queue.communication_ticks()),
        communication_bytes=dimms * 2 * weights.hidden * tokens * machine.unit.activation_bytes,
        fast_forwarded=skipped / (reads * expert.layout.bursts),
        token_tiles=tiles,
        energy_nj=energy_nj,
        energy_note=energy_note,
        config=config,
        **stopwatch.times(),
        command_traces=run.command_traces(),
    )
