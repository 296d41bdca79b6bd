"""One expert on a DIMM while the host reads and writes the same DIMM.

The expert program is that of `simulate.expert`, on the lanes and buses of `dimm`, which describes the model.
The host's traffic begins at the program's first clock and ends when the host has the last result. Each side
is also simulated alone: the expert as by `simulate_expert`, the host with the same requests. All lanes are
simulated, since the host's requests make them differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ndpsim.base.arguments import Progress, progress_function
from ndpsim.base.errors import InputError
from ndpsim.base.options.gemv import ContentionSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import load_hardware
from ndpsim.dimm import state as shared
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.dimm.layout import parse_layout
from ndpsim.dram import state
from ndpsim.dram.engines import make_controller
from ndpsim.simulate.channel import Channel
from ndpsim.simulate.expert import simulate_expert
from ndpsim.simulate.host_traffic import HostTraffic, RequestRound, host_round
from ndpsim.simulate.lane import Bus, Ints, name_commands
from ndpsim.simulate.machine import ensure_on_channel, lower_machine, named_weights
from ndpsim.simulate.power import Energy
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.results.cache import Lookup
from ndpsim.simulate.results.expert import ContentionResult, ExpertResult
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.statistics import Samples, read_latencies, sample_clocks

_MOST_SLOWDOWN = 100  # A slower NDP unit is reported as starved.


def _host_alone(run: Channel, requests: RequestRound) -> list[Bus]:
    """The host's requests alone, on a separate controller for each bus with requests."""
    tables, policy, buses = run.setup.host_tables, run.setup.policy, []
    for number, count in enumerate(run.dimms.agents.traffic.taken[0].tolist()):
        if count:
            source = requests.first(number, count)
            buses.append(Bus(tables, make_controller(tables, policy), source))
            buses[-1].run()
    return buses


def _rows(run: Channel, master: int) -> dict[str, int]:
    """Row hits, misses and conflicts of a master, and rows that it lost to the other."""
    values = run.dimms.values(master)
    places = {"hits": state.ROW_HITS, "misses": state.ROW_MISSES, "conflicts": state.ROW_CONFLICTS}
    found = {name: int(values[:, place].sum()) for name, place in places.items()}
    return {**found, "lost": int(run.dimms.agents.claims.totals[:, shared.ROWS_LOST + master].sum())}


def _run_concurrently(run: Channel, alone: ExpertResult) -> Samples:
    """Run the experts and the host's traffic, and stop at the clock of the last result.

    Returns the data that both have moved at equally spaced times.

    Raises:
        InputError: the host leaves the NDP unit almost no bandwidth.
    """
    machine, interval = run.machine, run.machine.tables.refresh_interval
    samples = Samples(2, FIRST_CLOCK, sample_clocks(alone.cycles, interval))
    limit = _MOST_SLOWDOWN * (alone.cycles + interval)
    while not run.run(min(limit, samples.next_clock)):
        if run.dimms.clock >= limit:
            problem = f"the host's traffic slows the NDP unit down more than {_MOST_SLOWDOWN} times"
            advice = "choose another arbitration or less traffic"
            raise InputError(f"not supported: {problem}; {advice}", "unsupported", key="host_gbps")
        samples.record(run.dimms.clock, run.moved())
    end = machine.clock_after(run.end)
    while samples.next_clock < end:
        run.run_until(samples.next_clock)
        samples.record(run.dimms.clock, run.moved())
    run.run_until(end)
    samples.record(run.dimms.clock, run.moved())
    return samples


@called_with(ContentionSettings)
def simulate_contention(
    settings: ContentionSettings, *, progress: Progress | bool | None = None
) -> ContentionResult:
    """Simulate an expert, or several in turn, on a DIMM, cycle by cycle, while the host reads and writes it.

    >>> ndpsim.simulate_contention(model=ndpsim.Expert(256, 128), host_gbps="30%").ndp_slowdown > 1
    True

    Args:
        progress: called with the share of the work that is done, first with 0 after all checks; None: no
            calls.

    Raises:
        InputError: an argument, the hardware, the model or the trace is invalid or does not fit, or the
            host's traffic leaves the NDP unit no bandwidth.
    """
    stopwatch, show = Stopwatch(), progress_function(progress)
    checked_arbitration(settings.arbitration)
    of_experts, releases_ns, layout = settings.of_experts, settings.releases_ns, settings.layout
    hardware = load_hardware(settings.hw, settings.sets, "gemv")
    host = HostTraffic.of(settings.host_gbps, settings.read_share, settings.pattern, hardware.dimm_host_gbps)
    ensure_on_channel(hardware)
    if parse_layout(layout)[1] > 1:
        problem = "host traffic needs the layout localized: one DIMM is simulated"
        raise InputError(problem, "unsupported", key="layout")
    weights, model_name = named_weights(settings.model, settings.bits)
    asked = (host.gbps, host.read_share, host.pattern if host.requests is None else host.requests)
    sharing = settings.arbitration, settings.slice_clocks
    inputs = (hardware, weights, of_experts, releases_ns, layout, *asked, *sharing)
    labels = {"model": model_name, "pattern": host.pattern}
    lookup = Lookup(ContentionResult, settings.cache, settings.record_commands, inputs, labels)
    if (found := lookup.find(stopwatch, show)) is not None:
        return found
    alone = simulate_expert(
        hardware,
        settings.model,
        of_experts,
        layout,
        settings.bits,
        release_ns=releases_ns,
        progress=lambda share: show(0.0),
    )

    machine = lower_machine(hardware)
    run = Channel(machine, settings.arbiter, recording=settings.record_commands)
    for each, ns in zip(of_experts, releases_ns, strict=True):
        run.add_expert(0, weights, each, machine.release_tick(ns))
    requests = host_round(hardware, host, run.first_free_place[0])
    run.dimms.add_stream(requests.stream(machine.host_buses, FIRST_CLOCK))
    samples = _run_concurrently(run, alone)
    meanwhile = run.moved_by_lane() * machine.device.burst_bytes
    run.dimms.end_streams()
    run.dimms.run_host(state.FAR)
    quiet = _host_alone(run, requests)
    config = {
        **alone.config,
        "host_gbps": "saturate" if host.gbps is None else host.gbps,
        "read_share": host.read_share if host.requests is None else None,
        "pattern": host.pattern,
        "arbitration": settings.arbitration,
        "slice_clocks": settings.own_slice_clocks,
    }
    return lookup.store(_result(run, meanwhile, samples, quiet, alone, host, config, stopwatch))


def _energy(run: Channel, alone: Mapping[str, float | None]) -> Energy:
    """The energy of the DIMM: work of its units is as alone, but its buses carry more data."""
    units = {name: nj for name, nj in alone.items() if name.startswith("ndp_")}
    host = (alone.get("host") or 0.0) + run.machine.dram_power.io_nj(run.moved()[1])
    return run.energy({**units, "host": host})


def _result(
    run: Channel,
    meanwhile: Ints,
    samples: Samples,
    quiet: Sequence[Bus],
    alone: ExpertResult,
    host: HostTraffic,
    config: dict[str, Any],
    stopwatch: Stopwatch,
) -> ContentionResult:
    machine, dimms = run.machine, run.dimms
    device, burst_bytes = machine.device, machine.device.burst_bytes
    claims, host_values = dimms.agents.claims, dimms.values(shared.HOST)
    bus_value = dimms.agents.buses.value
    ns, queue = machine.clocks_ns, run.queues[0]
    time_ns = ns(machine.clock_after(run.end) - FIRST_CLOCK)
    streamed = int(dimms.values(shared.NDP)[:, state.DATA_END].max()) - FIRST_CLOCK
    times = queue.job_times(machine.after_start_ns)
    waited_ns = queue.waiting_ns(times)
    ndp_gbps = alone.weight_bytes * alone.weight_reads / (ns(streamed) - waited_ns)
    # until the last beat of the host's read data, or its last command
    host_ends = (host_values[:, state.DATA_END].max(), bus_value[:, shared.LAST_COLUMN_CLOCK].max())
    busy_ns, quiet_ns = ns(max(0, *map(int, host_ends))), ns(max((bus.cycles for bus in quiet), default=0))
    host_gbps = int(meanwhile[shared.HOST].sum()) / time_ns
    lanes_peak, bus_peak = alone.peak_bandwidth_gbps, machine.host_buses * device.peak_gbps
    requests = int(host_values[:, state.TAKEN].sum())
    sampled, bursts = samples.rises()
    at_ns = np.array([ns(clock) for clock in (sampled - FIRST_CLOCK).tolist()])
    energy_nj, energy_note = _energy(run, alone.energy_nj or {})
    ndp_curve, host_curve = bursts * burst_bytes / np.diff(at_ns)
    return ContentionResult(
        ndp_time_ns=time_ns,
        ndp_alone_ns=alone.time_ns,
        ndp_slowdown=time_ns / alone.time_ns,
        ndp_gbps=ndp_gbps,
        ndp_alone_gbps=alone.bandwidth_gbps,
        ndp_peak_fraction=ndp_gbps / lanes_peak,
        host_requests=requests,
        host_time_ns=busy_ns,
        host_alone_ns=quiet_ns,
        host_slowdown=busy_ns / quiet_ns if requests else None,
        host_offered_gbps=host.gbps,
        host_gbps=host_gbps,
        host_alone_gbps=requests * burst_bytes / quiet_ns if requests else 0.0,
        host_peak_fraction=host_gbps / bus_peak,
        host_latency_ns=read_latencies(
            dimms.host_latencies[:, 0], int(host_values[:, state.READ_LATENCY].sum()), alone.clock_ns
        ),
        host_alone_latency_ns=read_latencies(
            [bus.channel.latencies for bus in quiet],
            sum(int(bus.channel.value[state.READ_LATENCY]) for bus in quiet),
            alone.clock_ns,
        ),
        lanes_peak_gbps=lanes_peak,
        lanes_fraction=int(meanwhile.sum()) / time_ns / lanes_peak,
        bus_peak_gbps=bus_peak,
        clock_ns=alone.clock_ns,
        rows={"ndp": _rows(run, shared.NDP), "host": _rows(run, shared.HOST)},
        turnarounds=int(claims.totals[:, shared.TURNAROUNDS].sum()),
        bus_turnarounds=int(bus_value[:, shared.BUS_TURNAROUNDS].sum()),
        bus_rank_switches=int(bus_value[:, shared.RANK_SWITCHES].sum()),
        commands=name_commands(run.issued(), run.machine.device.standard),
        jobs=times,
        phases=queue.phases(machine.after_start_ns),
        token_tiles=tuple(tokens for job in queue.jobs for tokens in job.tokens),
        lanes=machine.lanes,
        by_lane=tuple(
            {"ndp_bytes": int(ndp), "host_bytes": int(of_host)}
            for ndp, of_host in zip(*meanwhile, strict=True)
        ),
        energy_nj=energy_nj,
        energy_note=energy_note,
        config=config,
        **stopwatch.times(),
        curve_ns=tuple(at_ns[1:].tolist()),
        ndp_curve_gbps=tuple(ndp_curve.tolist()),
        host_curve_gbps=tuple(host_curve.tolist()),
        command_traces=run.command_traces(),
    )
