"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    RelayoutResult,
    TraceResult,
)
from ndpsim.units import format_bytes, format_energy, format_power, format_time

__all__ = [
    "bits_of",
    "energy_facts",
    "expert_title",
    "host_read_title",
    "print_energy",
    "print_expert",
    "print_facts",
    "print_host_read",
    "print_pairs",
    "print_rows",
    "print_sweep",
    "print_table",
    "print_trace",
    "simulated_in",
]

Timed: TypeAlias = ContentionResult | ExpertResult | HostReadResult | RelayoutResult | TraceResult

_PHASES_SHOWN = 15
_WIDE = 160  # columns of a pipe or a file, where nothing needs to fit a window


def _console() -> Console:
    # No markup: a name may hold brackets.
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_WIDE)


def _grid(title: str) -> Table:
    return Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))


def print_pairs(values: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    grid = _grid("")
    for name, value in values.items():
        grid.add_row(name, ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    _console().print(grid)


def print_rows(title: str, rows: Iterable[tuple[str, Any, str, str]]) -> None:
    """Key, value, unit and origin, one a line; the origin wraps under itself."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("key", no_wrap=True)
    table.add_column("value", max_width=44)
    table.add_column("unit", no_wrap=True)
    table.add_column("where it comes from")
    for key, value, unit, origin in rows:
        table.add_row(key, str(value), unit, origin)
    _console().print(table)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Cells under their columns' names; all but the first two columns hold numbers."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=place != 1)
    for cells in rows:
        table.add_row(*cells)
    _console().print(table)


def _model_name(result: ExpertResult | HostReadResult) -> str:
    config = result.config
    shape = f"{config['hidden']} x {config['intermediate']}"
    return f"{config['model']} ({shape})" if config["model"] else shape


def simulated_in(result: Timed) -> str:
    """How long a result took, and its kernels to compile where they were not in the cache."""
    compiled = f" after {format_time(1e9 * result.compile_s)} of compiling" if result.compile_s > 0 else ""
    return format_time(1e9 * result.wall_s) + compiled


def _forwarded(result: ExpertResult | HostReadResult | TraceResult) -> str:
    return f"{100 * result.fast_forwarded:.1f}% fast-forwarded, exactly"


def _facts(result: ExpertResult) -> list[tuple[str, str, str]]:
    """What there is to say, its figure, and what stands behind it."""
    clock = f"{result.clock_ns:.5g} ns ({1000 / result.clock_ns:.0f} MHz)"
    reads = "" if result.weight_reads == 1 else f", read {result.weight_reads} times"
    of_peak = f"{100 * result.peak_fraction:.1f}% of {result.peak_bandwidth_gbps:.1f} GB/s"
    of_flops = f"{100 * result.gflops / result.peak_gflops:.1f}% of {result.peak_gflops:.0f} GFLOPS"
    busy = ", ".join(f"{name} {100 * share:.1f}%" for name, share in result.busy.items())
    idle = ", ".join(f"{name} {format_time(ns)}" for name, ns in result.idle_ns.items())
    kinds = ", ".join(f"{count} {name}" for name, count in result.commands.items())
    facts = [
        ("time", format_time(result.time_ns), f"{result.cycles} DRAM clocks of {clock}"),
        (
            "weights",
            format_bytes(result.weight_bytes),
            f"{result.weight_bytes} bytes in {result.weight_bursts} bursts{reads}",
        ),
        ("bandwidth", f"{result.bandwidth_gbps:.2f} GB/s", f"{of_peak} over {result.lanes} lanes"),
        ("compute", f"{result.gflops:.1f} GFLOPS", of_flops),
        ("bound by", result.bound, f"busy: {busy}"),
        ("idle lanes", format_time(sum(result.idle_ns.values())), f"{idle} (mean of the lanes)"),
        ("commands", str(sum(result.commands.values())), kinds),
        *energy_facts(
            result.energy_nj, result.energy_note, result.time_ns, result.weight_bytes * result.weight_reads
        ),
    ]
    if result.dimms > 1:
        moved = f"{result.communication_bytes} bytes of activations and partial sums over the host"
        facts.append(("communication", format_time(result.communication_ns), moved))
    if len(result.token_tiles) > 1:
        tiles = ", ".join(map(str, result.token_tiles[:12])) + (
            ", ..." if len(result.token_tiles) > 12 else ""
        )
        facts.append(("token tiles", str(len(result.token_tiles)), f"of {tiles} tokens"))
    return facts


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
    by_bit = f", {1000 * total / (8 * moved_bytes):.4g} pJ/bit" if moved_bytes else ""
    facts = [("energy", format_energy(total), f"{format_power(total / time_ns)}{by_bit}")]
    return [*facts, ("", "of it", ", ".join(shares))] if shares else facts


def print_energy(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> None:
    """Energies in nJ by component over `time_ns`, or the `note` that says why there are none."""
    grid = _grid("")
    for fact in energy_facts(parts, note, time_ns, moved_bytes):
        grid.add_row(*fact)
    _console().print(grid)


def _phases(result: ExpertResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("phase")
    for name in ("tile", "start", "end", "length"):
        table.add_column(name, justify="right")
    for phase in result.phases[:_PHASES_SHOWN]:
        times = (phase.start_ns, phase.end_ns, phase.end_ns - phase.start_ns)
        table.add_row(phase.name, str(phase.tile), *map(format_time, times))
    return table


def expert_title(result: ExpertResult) -> str:
    """Which expert ran where, in a line."""
    name = result.config["hardware"]["name"]
    where = name if result.dimms == 1 else f"{result.dimms} DIMMs of {name}"
    tokens = "1 token" if result.tokens == 1 else f"{result.tokens} tokens"
    return f"One expert of {_model_name(result)} on {where}, {tokens}, {bits_of(result.config)}"


def print_expert(result: ExpertResult) -> None:
    """The result of `simulate_expert`."""
    console = _console()
    console.print(expert_title(result), style="bold")
    grid = _grid("")
    for fact in _facts(result):
        grid.add_row(*fact)
    console.print(grid)
    console.print(_phases(result))
    if len(result.phases) > _PHASES_SHOWN:
        console.print(f"... and {len(result.phases) - _PHASES_SHOWN} more phases")
    console.print(
        f"simulated in {simulated_in(result)}, {_forwarded(result)}; "
        f"{result.lanes_simulated} of {result.lanes} lanes differ"
    )


def print_facts(title: str, facts: Iterable[tuple[str, str, str]], end: str) -> None:
    """What there is to say, its figure, and what stands behind it, one a line, between a title and an end."""
    console = _console()
    console.print(title, style="bold")
    grid = _grid("")
    for fact in facts:
        grid.add_row(*fact)
    console.print(grid)
    console.print(end)


def bits_of(config: Mapping[str, Any]) -> str:
    """The bits of the weights in words, of each matrix where they differ."""
    bits = config["bits"]
    if isinstance(bits, int):
        return "1 bit" if bits == 1 else f"{bits} bits"
    return ", ".join(f"{name} {of_matrix}" for name, of_matrix in bits.items()) + " bits"


def host_read_title(result: HostReadResult) -> str:
    """Which expert the host reads from where, in a line."""
    name, layout = result.config["hardware"]["name"], result.config["layout"]
    return f"The host of {name} reads one expert of {_model_name(result)}, {layout}, {bits_of(result.config)}"


def print_host_read(result: HostReadResult) -> None:
    """The result of `simulate_host_read`."""
    clock = f"{result.clock_ns:.5g} ns ({1000 / result.clock_ns:.0f} MHz)"
    channels = "1 channel" if result.channels == 1 else f"{result.channels} channels"
    buses = "1 bus" if result.buses == 1 else f"{result.buses} buses"
    of_peak = f"{100 * result.peak_fraction:.1f}% of {result.peak_bandwidth_gbps:.1f} GB/s"
    idle = ", ".join(f"{why} {format_time(ns)}" for why, ns in result.idle_ns.items())
    kinds = ", ".join(f"{count} {kind}" for kind, count in result.commands.items())
    held = f"{result.weight_bytes} bytes in {result.weight_bursts} bursts"
    facts = [
        ("time", format_time(result.time_ns), f"{result.cycles} DRAM clocks of {clock}"),
        ("weights", format_bytes(result.weight_bytes), held),
        ("bandwidth", f"{result.bandwidth_gbps:.2f} GB/s", f"{of_peak} over {channels}"),
        ("buses", str(result.buses), f"up to {result.ranks_per_bus} ranks on each"),
        ("idle buses", format_time(sum(result.idle_ns.values())), f"{idle} (mean of the buses)"),
        ("commands", str(sum(result.commands.values())), kinds),
        *energy_facts(result.energy_nj, result.energy_note, result.time_ns, result.weight_bytes),
    ]
    print_facts(
        host_read_title(result),
        facts,
        f"simulated in {simulated_in(result)}, {_forwarded(result)}; "
        f"{result.buses_simulated} of {buses} differ",
    )


def print_trace(result: TraceResult) -> None:
    """The result of `run_trace`."""
    config = result.config
    console = _console()
    channels = "1 channel" if config["channels"] == 1 else f"{config['channels']} channels"
    memory = f"{config['timing']} {config['org']}, {channels}, ranks {config['ranks']}"
    console.print(f"{result.requests} requests on {memory}", style="bold")
    clock = f"{result.clock_ns:.5g} ns ({1000 / result.clock_ns:.0f} MHz)"
    found = result.row_hits + result.row_misses + result.row_conflicts
    rows = (("hits", result.row_hits), ("misses", result.row_misses), ("conflicts", result.row_conflicts))
    facts = [
        ("time", format_time(result.time_ns), f"{result.cycles} DRAM clocks of {clock}"),
        (
            "bandwidth",
            f"{result.bandwidth_gbps:.2f} GB/s",
            f"{100 * result.peak_fraction:.1f}% of {result.peak_bandwidth_gbps:.1f} GB/s",
        ),
        ("requests", str(result.requests), f"{result.reads} reads, {result.writes} writes"),
        ("rows", str(found), ", ".join(f"{count} {name}" for name, count in rows)),
        (
            "no command",
            str(result.reads_forwarded + result.writes_coalesced),
            f"{result.reads_forwarded} reads forwarded, {result.writes_coalesced} writes coalesced",
        ),
        (
            "queues",
            "mean",
            ", ".join(f"{name} {count:.1f} requests" for name, count in result.queue_occupancy.items()),
        ),
        (
            "commands",
            str(sum(result.commands.values())),
            ", ".join(f"{count} {name}" for name, count in result.commands.items()),
        ),
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
    grid = _grid("")
    for fact in facts:
        grid.add_row(*fact)
    console.print(grid)
    rate = result.requests / result.run_s / 1e6
    console.print(
        f"simulated in {simulated_in(result)} ({rate:.2f} million requests/s in the controllers, "
        f"{_forwarded(result)})"
    )


def print_sweep(points: Sequence[LoadPoint]) -> None:
    """The result of `sweep_load`."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("offered", "carried", "mean read latency", "p99"):
        table.add_column(name, justify="right")
    for point in points:
        latencies = ("-" if ns is None else format_time(ns) for ns in (point.mean_ns, point.p99_ns))
        table.add_row(f"{point.offered_gbps:.2f} GB/s", f"{point.bandwidth_gbps:.2f} GB/s", *latencies)
    _console().print(table)
