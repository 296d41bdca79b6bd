"""One expert on DIMMs, or several in turn, from the arrival of activations to the last results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ndpsim.base.arguments import Progress, progress_function
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.base.options.gemv import ExpertSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.layout import parse_layout
from ndpsim.dram import state
from ndpsim.dram.refresh_policies import Schedule
from ndpsim.simulate.alone import LanesAlone
from ndpsim.simulate.lane import Ints, ensure_recordable, name_commands
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms, lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.power import unit_work
from ndpsim.simulate.program import FIRST_CLOCK, Queue, TilesFrom
from ndpsim.simulate.results.cache import Lookup
from ndpsim.simulate.results.expert import ExpertResult, OverRefresh
from ndpsim.simulate.results.stopwatch import Stopwatch

if TYPE_CHECKING:
    from ndpsim.simulate.channel import LanesInTurn

_IDLE = {"refresh": state.IDLE_REFRESH, "fifo": state.IDLE_CREDIT, "rows": state.IDLE_ROW}


@called_with(ExpertSettings)
def simulate_expert(settings: ExpertSettings, *, progress: Progress | bool | None = None) -> ExpertResult:
    """Simulate an expert of a model, or several in turn, on one DIMM or on several, cycle by cycle.

    Each expert has its own weights, placed behind those of the previous one, from the next row on. Its
    activations arrive when the previous results have left; meanwhile its weights are read ahead into the
    FIFOs.

    >>> result = ndpsim.simulate_expert("trimoe", ndpsim.Expert(256, 128), sets={"dimm.ranks": 2})
    >>> result.weight_bytes, result.bound
    (196608, 'memory')

    Args:
        progress: called with the share of the work that is done, first with 0 after all checks; None: no
            calls.

    Raises:
        InputError: an argument, the hardware or the model is invalid or does not fit.
        MismatchError: the exact check found a difference.
    """
    stopwatch, count = Stopwatch(), settings.refresh_phases
    show = progress_function(progress)
    hardware = load_hardware(settings.hw, settings.sets, "gemv")
    if count is None:
        return _simulate(hardware, settings, show, stopwatch)
    first = _simulate(hardware, settings, lambda share: show(share / count), Stopwatch())
    over = _over_refresh(first, count, hardware, replace(settings, record_commands=False), show)
    return replace(first, over_refresh=over, **stopwatch.times())


def _simulate(
    hardware: Hardware, settings: ExpertSettings, progress: Progress, stopwatch: Stopwatch
) -> ExpertResult:
    """The run from one start clock."""
    layout, start_clock, recording = settings.layout, settings.start_clock, settings.record_commands
    of_experts, releases_ns = settings.of_experts, settings.releases_ns
    if parse_layout(layout)[0] == "striped":
        raise InputError(
            "striped spreads each row of weights over all DIMMs, and a DIMM multiplies only rows of its own: "
            "relayout it into localized or sharded:N first, or let the host read it",
            "unsupported",
            key="layout",
        )
    weights, model_name = named_weights(settings.model, settings.bits)
    lookup = Lookup(
        ExpertResult,
        settings.cache,
        recording or settings.exact_check or settings.rtl is not None,
        (hardware, weights, of_experts, layout, releases_ns, start_clock),
        {"model": model_name},
    )
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    with hardware.errors_at_origins():
        machine = lower_machine(hardware)
        expert = place_on_dimms(machine, layout, weights)
        tilings = [machine.unit.tile(each, weights.hidden, expert.slice) for each in of_experts]
    jobs = [(tiles, machine.release_tick(ns)) for tiles, ns in zip(tilings, releases_ns, strict=True)]
    _check_room(machine, expert, len(jobs))
    if recording:
        ensure_recordable(expert.layout.bursts * sum(map(len, tilings)))
    run: LanesAlone | LanesInTurn
    if settings.rtl is None:
        run = _lanes(machine)(machine, expert, recording, start_clock)
    else:
        run = _with_rtl(machine, expert, settings, tilings)
    queue = run.run_queue(jobs, progress)
    if settings.exact_check:
        _check(run, queue, jobs)
    config = {
        "hardware": machine.described,
        **expert.described,
        "model": model_name,
        "tokens": of_experts[0] if len(of_experts) == 1 else list(of_experts),
        "layout": layout,
        **({"release_ns": list(releases_ns)} if any(releases_ns) else {}),
        **({"start_clock": start_clock} if start_clock != FIRST_CLOCK else {}),
        **({"rtl": settings.rtl} if settings.rtl is not None else {}),
    }
    return lookup.store(_result(run, queue, config, stopwatch))


def _lanes(machine: NdpMachine) -> type[LanesAlone] | type[LanesInTurn]:
    """The lanes on which a machine runs experts in turn."""
    if not machine.shared_commands:
        return LanesAlone
    from ndpsim.simulate.channel import LanesInTurn  # noqa: PLC0415 (brings kernels that others do not need)

    return LanesInTurn


def _with_rtl(
    machine: NdpMachine, expert: PlacedOnDimms, settings: ExpertSettings, tilings: Sequence[tuple[int, ...]]
) -> LanesAlone:
    """The lanes with a unit as hardware."""
    from ndpsim.simulate.rtl.run import lanes_with_unit  # noqa: PLC0415 (an extra)

    if len(tilings) > 1 or any(settings.releases_ns):
        problem = "not supported: several experts in turn, or a release, with an RTL unit"
        raise InputError(problem, "unsupported", key="rtl")
    if settings.exact_check or settings.refresh_phases is not None:
        problem = "not supported: an exact check, or refresh phases, with an RTL unit"
        raise InputError(problem, "unsupported", key="rtl")
    assert settings.rtl is not None
    recording, start_clock = settings.record_commands, settings.start_clock
    return lanes_with_unit(
        machine, expert, recording, start_clock, settings.rtl, tilings[0], settings.vcd or ""
    )


def _over_refresh(
    first: ExpertResult, count: int, hardware: Hardware, settings: ExpertSettings, progress: Progress
) -> OverRefresh:
    """Runs from this many start clocks over one refresh period; `first` is the run from `start_clock`.

    All runs without a refresh are equal, so only one of them is simulated.
    """
    schedule, begin = lower_machine(hardware).schedule, settings.start_clock
    clocks = [begin + number * schedule.period // count for number in range(count)]
    runs: list[ExpertResult] = []
    undisturbed: ExpertResult | None = None
    for clock in clocks:
        run = undisturbed
        if run is None or _refreshes(schedule, clock, run.cycles):
            here = replace(settings, start_clock=clock)
            run = _simulate(hardware, here, lambda share: None, Stopwatch()) if runs else first
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
        energies[0] and {name: _mean([(energy or {})[name] for energy in energies]) for name in energies[0]},
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


def _check_room(machine: NdpMachine, expert: PlacedOnDimms, count: int) -> None:
    """Check that this many experts have room in sequence.

    Raises:
        InputError: they do not fit.
    """
    rows, have = expert.end // machine.row_places, machine.device.rows
    if count * rows > have:
        problem = f"{count} experts do not fit behind each other, each on {rows} of the {have} rows of a bank"
        raise InputError(problem, "too-large", key="tokens")


def _check(run: Any, first: Queue, jobs: Sequence[TilesFrom]) -> None:
    """Run everything again on plain controllers, and compare.

    Raises:
        MismatchError: a result differs.
    """
    again = run.plain_twin()
    other = again.run_queue(jobs, lambda share: None)
    if (first.end, first.of_phase) != (other.end, other.of_phase):
        raise MismatchError(f"the plain run ends at tick {other.end}, not {first.end}, or in other phases")
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
        gflops=2 * len(weights.format.names) * weights.hidden * weights.intermediate * tokens / time_ns,
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
