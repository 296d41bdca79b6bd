"""Results as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ndpsim.report.dram import clock_words
from ndpsim.report.printing import is_terminal, print_grid, print_table, print_text
from ndpsim.report.words import counted, listed, percent
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    RelayoutResult,
    TraceResult,
)
from ndpsim.units import format_bytes, format_energy, format_power, format_time, significant

Timed: TypeAlias = ContentionResult | ExpertResult | HostReadResult | RelayoutResult | TraceResult

_PHASES_SHOWN = 15  # on a terminal
_JOBS_SHOWN = 16


def print_pairs(values: Mapping[str, Any], title: str = "") -> None:
    """Names and values, one a line, under a title if there is one."""
    if title:
        print_text(title, bold=True)
    print_grid((name, _written(value)) for name, value in values.items())


def _written(value: Any) -> str:
    """A plain value; of several, one behind the other."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {of_name}" for name, of_name in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def print_rows(title: str, rows: Iterable[tuple[str, Any, str, str]]) -> None:
    """Key, value, unit and origin, one a line."""
    cells = [(key, str(value), unit, origin) for key, value, unit, origin in rows]
    print_table(title, ("key", "value", "unit", "where it comes from"), cells, left=None, heading=3)


def _model_name(result: ExpertResult | HostReadResult) -> str:
    config = result.config
    shape = f"{config['hidden']} x {config['intermediate']}"
    return f"{config['model']} ({shape})" if config["model"] else shape


def simulated_in(result: Timed) -> str:
    """How long a result took, and its kernels to compile where they were not in the cache."""
    compiled = f" after {format_time(1e9 * result.compile_s)} of compiling" if result.compile_s > 0 else ""
    return format_time(1e9 * result.wall_s) + compiled


def _forwarded(result: ExpertResult | HostReadResult | TraceResult) -> str:
    return f"{percent(result.fast_forwarded)} fast-forwarded, exactly"


def expert_facts(result: ExpertResult) -> list[tuple[str, str, str]]:
    """What there is to say, its figure, and what stands behind it."""
    reads = "" if result.weight_reads == 1 else f", read {result.weight_reads:g} times"
    of_peak = f"{percent(result.peak_fraction)} of {result.peak_bandwidth_gbps:.1f} GB/s"
    of_flops = f"{percent(result.gflops / result.peak_gflops)} of {result.peak_gflops:.0f} GFLOPS"
    busy = ", ".join(f"{name} {percent(share)}" for name, share in result.busy.items())
    idle = ", ".join(f"{name} {format_time(ns)}" for name, ns in result.idle_ns.items())
    facts = [
        (
            "time",
            format_time(result.time_ns),
            clock_words(result.cycles, result.clock_ns, result.config),
        ),
        *_over_refresh(result),
        (
            "weights",
            format_bytes(result.weight_bytes),
            f"{counted(result.weight_bytes, 'byte')} in {counted(result.weight_bursts, 'burst')}{reads}",
        ),
        ("bandwidth", f"{result.bandwidth_gbps:.2f} GB/s", f"{of_peak} over {counted(result.lanes, 'lane')}"),
        ("compute", f"{result.gflops:.1f} GFLOPS", of_flops),
        ("bound by", result.bound, f"busy: {busy}"),
        ("idle lanes", format_time(sum(result.idle_ns.values())), f"{idle} (mean of the lanes)"),
        ("commands", f"{sum(result.commands.values()):,}", listed(result.commands)),
        *energy_facts(
            result.energy_nj,
            result.energy_note,
            result.time_ns,
            round(result.weight_bytes * result.weight_reads),
        ),
    ]
    if result.dimms > 1:
        moved = f"{counted(result.communication_bytes, 'byte')} of activations and partial sums over the host"
        facts.append(("communication", format_time(result.communication_ns), moved))
    if len(result.token_tiles) > 1:
        facts.append(("token tiles", str(len(result.token_tiles)), _tiles(result.token_tiles)))
    return facts


def _over_refresh(result: ExpertResult) -> list[tuple[str, str, str]]:
    """The time over the phases of refresh, where it was asked for."""
    over = result.over_refresh
    if over is None:
        return []
    extremes = f"least {format_time(over.least_ns)}, most {format_time(over.most_ns)}"
    runs = f"mean of {counted(len(over.times_ns), 'start clock')} over a period of refreshes; {extremes}"
    return [("any start", format_time(over.mean_ns), runs)]


def _tiles(tokens: Sequence[int]) -> str:
    """How many tokens the tiles have, those of one size together."""
    counts = Counter(tokens)
    if len(counts) == 1:
        return f"of {counted(tokens[0], 'token')} each"
    return ", ".join(f"{counts[size]:,} of {counted(size, 'token')}" for size in counts)


def energy_facts(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> list[tuple[str, str, str]]:
    """The energy, as power and by bit moved, and its components; why there is none, where there is none."""
    if parts is None:
        return [("energy", "not known", note)]
    time_ns = time_ns or 1.0  # nothing was done in no time
    total = parts["total"] or 0.0
    known = [(name, nj) for name, nj in parts.items() if nj is not None and name != "total"]
    shares = [f"{name} {format_power(nj / time_ns)}" for name, nj in known if nj]
    unknown = [name for name, nj in parts.items() if nj is None]
    if unknown:
        shares.append(f"without {', '.join(unknown)} (not known)")
    by_bit = f", {significant(1000 * total / (8 * moved_bytes))} pJ/bit" if moved_bytes else ""
    facts = [("energy", format_energy(total), f"{format_power(total / time_ns)}{by_bit}")]
    return [*facts, ("", "of it", ", ".join(shares))] if shares else facts


def print_energy(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> None:
    """Energies in nJ by component over `time_ns`, or the `note` that says why there are none."""
    print_grid(energy_facts(parts, note, time_ns, moved_bytes))


def experts_in_turn(count: int) -> str:
    """How many experts, as the beginning of a title."""
    return "One expert" if count == 1 else f"{count:,} experts in turn"


def print_jobs(result: ExpertResult | ContentionResult) -> None:
    """Of several experts in turn, when each ran."""
    if len(result.jobs) == 1:
        return
    shown = result.jobs[:_JOBS_SHOWN] if is_terminal() else result.jobs
    rows = [
        (
            str(number),
            str(job.tokens),
            *map(format_time, (job.start_ns, job.end_ns, job.end_ns - job.start_ns)),
        )
        for number, job in enumerate(shown)
    ]
    print_table("", ("expert", "tokens", "start", "end", "length"), rows, left=0)
    if len(shown) < len(result.jobs):
        print_text(f"and {len(result.jobs) - len(shown):,} more experts: --json - tells them all")


def _print_phases(result: ExpertResult) -> None:
    shown = result.phases[:_PHASES_SHOWN] if is_terminal() else result.phases
    print_table(
        "",
        ("phase", "tile", "start", "end", "length"),
        [
            (
                phase.name,
                str(phase.tile),
                *map(format_time, (phase.start_ns, phase.end_ns, phase.end_ns - phase.start_ns)),
            )
            for phase in shown
        ],
        left=1,
    )
    if len(shown) < len(result.phases):
        print_text(f"and {len(result.phases) - len(shown):,} more phases: --json - tells them all")


def expert_title(result: ExpertResult) -> str:
    """Which expert ran where, in a line."""
    name = result.config["hardware"]["name"]
    where = name if result.dimms == 1 else f"{result.dimms} DIMMs of {name}"
    tokens, experts = counted(result.tokens, "token"), experts_in_turn(len(result.jobs))
    return f"{experts} of {_model_name(result)} on {where}, {tokens}, {bits_of(result.config)}"


def print_expert(result: ExpertResult) -> None:
    """The result of `simulate_expert`."""
    print_text(expert_title(result), bold=True)
    print_grid(expert_facts(result))
    print_jobs(result)
    _print_phases(result)
    print_text(
        f"simulated in {simulated_in(result)}, {_forwarded(result)}; "
        f"{result.lanes_simulated} of {result.lanes} lanes differ"
    )


def print_facts(title: str, facts: Iterable[tuple[str, str, str]], end: str) -> None:
    """What there is to say, its figure, and what stands behind it, one a line, between a title and an end."""
    print_text(title, bold=True)
    print_grid(facts)
    print_text(end)


def bits_of(config: Mapping[str, Any]) -> str:
    """The bits of the weights in words, of each matrix where they differ."""
    bits = config["bits"]
    if isinstance(bits, int):
        return "1 bit" if bits == 1 else f"{bits} bits"
    return ", ".join(f"{name} {of_matrix:.4g}" for name, of_matrix in bits.items()) + " bits"


def host_read_title(result: HostReadResult) -> str:
    """Which expert the host reads from where, in a line."""
    name, layout = result.config["hardware"]["name"], result.config["layout"]
    return f"The host of {name} reads one expert of {_model_name(result)}, {layout}, {bits_of(result.config)}"


def _buses(result: HostReadResult) -> str:
    return "1 bus" if result.buses == 1 else f"{result.buses} buses"


def host_read_facts(result: HostReadResult) -> list[tuple[str, str, str]]:
    """What there is to say, its figure, and what stands behind it."""
    channels = counted(result.channels, "channel")
    of_peak = f"{percent(result.peak_fraction)} of {result.peak_bandwidth_gbps:.1f} GB/s"
    idle = ", ".join(f"{why} {format_time(ns)}" for why, ns in result.idle_ns.items())
    held = f"{counted(result.weight_bytes, 'byte')} in {counted(result.weight_bursts, 'burst')}"
    return [
        (
            "time",
            format_time(result.time_ns),
            clock_words(result.cycles, result.clock_ns, result.config),
        ),
        ("weights", format_bytes(result.weight_bytes), held),
        ("bandwidth", f"{result.bandwidth_gbps:.2f} GB/s", f"{of_peak} over {channels}"),
        ("buses", str(result.buses), f"up to {counted(result.ranks_per_bus, 'rank')} on each"),
        ("idle buses", format_time(sum(result.idle_ns.values())), f"{idle} (mean of the buses)"),
        ("commands", f"{sum(result.commands.values()):,}", listed(result.commands)),
        *energy_facts(result.energy_nj, result.energy_note, result.time_ns, result.weight_bytes),
    ]


def print_host_read(result: HostReadResult) -> None:
    """The result of `simulate_host_read`."""
    print_facts(
        host_read_title(result),
        host_read_facts(result),
        f"simulated in {simulated_in(result)}, {_forwarded(result)}; "
        f"{result.buses_simulated} of {_buses(result)} differ",
    )


def trace_run_title(result: TraceResult) -> str:
    """How many requests ran on which memory, in a line."""
    config = result.config
    channels = counted(config["channels"], "channel")
    parts = ", ".join(f"{name} {config[name]}" for name in ("ranks", "pseudochannels") if name in config)
    memory = f"{config['timing']} {config['org']}, {channels}, {parts}"
    return f"{counted(result.requests, 'request')} on {memory}"


def trace_facts(result: TraceResult) -> list[tuple[str, str, str]]:
    """What there is to say, its figure, and what stands behind it."""
    found = result.row_hits + result.row_misses + result.row_conflicts
    rows = (("hit", result.row_hits), ("miss", result.row_misses), ("conflict", result.row_conflicts))
    facts = [
        (
            "time",
            format_time(result.time_ns),
            clock_words(result.cycles, result.clock_ns, result.config),
        ),
        (
            "bandwidth",
            f"{result.bandwidth_gbps:.2f} GB/s",
            f"{percent(result.peak_fraction)} of {result.peak_bandwidth_gbps:.1f} GB/s",
        ),
        (
            "requests",
            f"{result.requests:,}",
            f"{counted(result.reads, 'read')}, {counted(result.writes, 'write')}",
        ),
        ("rows", f"{found:,}", ", ".join(counted(count, name) for name, count in rows)),
        (
            "no command",
            f"{result.reads_forwarded + result.writes_coalesced:,}",
            f"{counted(result.reads_forwarded, 'read')} forwarded, "
            f"{counted(result.writes_coalesced, 'write')} coalesced",
        ),
        (
            "queues",
            "mean",
            ", ".join(f"{name} {count:z.1f} requests" for name, count in result.queue_occupancy.items()),
        ),
        ("commands", f"{sum(result.commands.values()):,}", listed(result.commands)),
        *energy_facts(
            result.energy_nj,
            result.energy_note,
            result.time_ns,
            round(result.bandwidth_gbps * result.time_ns),
        ),
    ]
    if result.read_latency_ns is not None:
        figures = ", ".join(f"{name} {format_time(ns)}" for name, ns in result.read_latency_ns.items())
        facts.insert(3, ("read latency", format_time(result.read_latency_ns["mean"]), figures))
    return facts


def print_trace(result: TraceResult) -> None:
    """The result of `run_trace`."""
    print_text(trace_run_title(result), bold=True)
    print_grid(trace_facts(result))
    rate = result.requests / result.run_s
    print_text(
        f"simulated in {simulated_in(result)} ({rate:,.0f} requests/s in the controllers, "
        f"{_forwarded(result)})"
    )


def print_sweep(points: Sequence[LoadPoint]) -> None:
    """The result of `sweep_load`."""
    rows = []
    for point in points:
        latencies = ("-" if ns is None else format_time(ns) for ns in (point.mean_ns, point.p99_ns))
        rows.append((f"{point.offered_gbps:.2f} GB/s", f"{point.bandwidth_gbps:.2f} GB/s", *latencies))
    print_table("", ("offered", "carried", "mean read latency", "p99"), rows, left=0)
