"""Results as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np

from ndpsim.base.reported import label_of, quantities, quantity_of, said, table_of, with_unit
from ndpsim.base.units import format_energy, format_power, format_time, percent, significant
from ndpsim.dram.traces import CommandTrace, write_commands
from ndpsim.report.printing import is_terminal, print_grid, print_table, print_text
from ndpsim.report.words import clock_words, component_words, counted, unknown_components
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    RelayoutResult,
    TraceResult,
)
from ndpsim.simulate.results import JobTime, Phase

Timed: TypeAlias = ContentionResult | ExpertResult | HostReadResult | RelayoutResult | TraceResult

_SPANS_SHOWN = 15  # experts, and phases, on a terminal
_CLOCKS = ("cycles", "clock_ns")  # shown together, with the name of the clock
_PARTS_SHOWN = 12  # values of a mapping; of more, only the extremes are shown


def print_pairs(values: Mapping[str, Any], title: str = "") -> None:
    """Print names and values, one a line, under an optional title."""
    if title:
        print_text(title, bold=True)
    print_grid((name, _written(value)) for name, value in values.items())


def _written(value: Any) -> str:
    """A plain value as text, or several in a row."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def print_rows(title: str, rows: Iterable[tuple[str, Any, str, str]]) -> None:
    """Print key, value, unit and origin, one a line."""
    cells = [(key, str(value), unit, origin) for key, value, unit, origin in rows]
    print_table(title, ("key", "value", "unit", "where it comes from"), cells, left=None, heading=3)


def _model_name(config: Mapping[str, Any]) -> str:
    shape = f"{config['hidden']} x {config['intermediate']}"
    return f"{config['model']} ({shape})" if config["model"] else shape


def title_of(result: Timed) -> str:
    """What ran on which machine, in a line."""
    config = result.config
    if isinstance(result, TraceResult):
        parts = ", ".join(f"{name} {config[name]}" for name in ("ranks", "pseudochannels") if name in config)
        memory = f"{config['timing']} {config['org']}, {counted(config['channels'], 'channel')}, {parts}"
        return f"{counted(result.requests, 'request')} on {memory}"
    machine, model = config["hardware"]["name"], _model_name(config)
    if isinstance(result, RelayoutResult):
        experts = counted(result.experts, "expert")
        return f"{experts} of {model} on {machine}, {config['source']} to {config['target']}"
    if isinstance(result, HostReadResult):
        return f"The host of {machine} reads one expert of {model}, {config['layout']}, {bits_of(config)}"
    experts = "One expert" if len(result.jobs) == 1 else f"{len(result.jobs):,} experts in turn"
    tokens = counted(sum(job.tokens for job in result.jobs), "token")
    if isinstance(result, ExpertResult):
        dimms = "" if result.dimms == 1 else f"{result.dimms} DIMMs of "
        return f"{experts} of {model} on {dimms}{machine}, {tokens}, {bits_of(config)}"
    turns = f" of {counted(config['slice_clocks'], 'DRAM clock')}" if config["slice_clocks"] else ""
    host = "saturating host traffic" if config["host_gbps"] == "saturate" else "host traffic"
    return (
        f"{experts} of {model} on {machine}, {tokens}, {bits_of(config)}, beside {host} "
        f"({config['pattern']}), arbitration {config['arbitration']}{turns}"
    )


def facts_of(result: Timed) -> list[tuple[str, str, str]]:
    """A row for each quantity that a result describes: its label, its value, and an explanation."""
    described = quantities(type(result))
    inner = {name for each in described.values() for name in (*each.beside, each.whole, each.share)}
    rows: list[tuple[str, str, str]] = []
    for name, quantity in described.items():
        value = getattr(result, name)
        if name == "energy_nj":
            rows += energy_facts(value, result.energy_note, *_used(result))
        elif name not in inner:
            figure, detail = ("-", "") if value is None else _figure(result, name)
            beside = _explained(result, name)
            if value is not None or any(beside):
                rows.append((quantity.label, figure, "; ".join(filter(None, (detail, *beside)))))
    return rows


def _used(result: Timed) -> tuple[float, int]:
    """The time in ns over which the energy was used, and the bytes that it moved."""
    if isinstance(result, ContentionResult):
        moved = sum(sum(lane.values()) for lane in result.by_lane)
        return max(result.ndp_time_ns, result.host_time_ns), moved
    if isinstance(result, TraceResult):
        return result.time_ns, round(result.bandwidth_gbps * result.time_ns)
    reads = result.weight_reads if isinstance(result, ExpertResult) else 1
    return result.time_ns, round(result.weight_bytes * reads)


def _explained(result: Timed, name: str) -> list[str]:
    """Explanations of a quantity of a result: its share of a peak, its clocks, and the fields in its row."""
    quantity = quantity_of(name, (type(result),))
    if quantity.beside == _CLOCKS and not isinstance(result, ContentionResult):
        return [clock_words(result.cycles, result.clock_ns, result.config)]
    shares: list[str] = []
    if quantity.whole and getattr(result, name) is not None:
        whole = getattr(result, quantity.whole)
        share = (
            getattr(result, quantity.share) if quantity.share else getattr(result, name) / (whole or math.inf)
        )
        shares.append(f"{percent(share)} of {with_unit(quantity.whole, whole)}")
    return [*shares, *(_beside(result, field) for field in quantity.beside)]


def _beside(result: Timed, name: str) -> str:
    value, label = getattr(result, name), quantity_of(name, (type(result),)).label
    if value is None or value == {}:
        return ""
    figure, detail = _figure(result, name)
    return f"{label}: {detail}" if detail and not isinstance(value, int) else f"{label} {figure}"


def _figure(result: Timed, name: str) -> tuple[str, str]:
    """A value of a result, or its total with its parts."""
    value, kind = getattr(result, name), type(result)
    if isinstance(value, tuple):
        sizes = ", ".join(f"{count:,} of {counted(size, 'token')}" for size, count in Counter(value).items())
        return f"{len(value):,}", sizes
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return "", said(value, *(key for key, part in parts.items() if isinstance(part, float)))
    if not isinstance(value, Mapping):
        exact = isinstance(value, int) and name.endswith("bytes")
        return with_unit(name, value, kind), f"{value:,} B" if exact and value >= 1024 else ""
    if len(value) > _PARTS_SHOWN:
        least, most = (with_unit(name, end(value.values()), kind) for end in (min, max))
        return "", f"{least} to {most}, {len(value)} of them"
    numbers = [part for part in value.values() if isinstance(part, int | float)]
    adds_up = name.endswith("_ns") or all(isinstance(part, int) for part in value.values())
    whole = value.get("mean", sum(numbers) if adds_up and numbers else None)
    return "" if whole is None else with_unit(name, whole, kind), with_unit(name, value, kind)


def energy_facts(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> list[tuple[str, str, str]]:
    """The energy, power, energy for each bit moved, and components; or the reason for their absence."""
    if parts is None:
        return [(label_of("energy_nj"), "not known", note)]
    time_ns = time_ns or 1.0  # a run of no time
    total = parts["total"] or 0.0
    known = [(name, nj) for name, nj in parts.items() if nj is not None and name != "total"]
    shares = [f"{component_words(name)} {format_power(nj / time_ns)}" for name, nj in known if nj]
    if unknown := unknown_components(parts):
        shares.append(f"without {unknown} (not known)")
    by_bit = f", {significant(1000 * total / (8 * moved_bytes))} pJ/bit" if moved_bytes else ""
    facts = [(label_of("energy_nj"), format_energy(total), f"{format_power(total / time_ns)}{by_bit}")]
    return [*facts, ("power by component", "", ", ".join(shares))] if shares else facts


def print_energy(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> None:
    """Print energies in nJ by component over `time_ns`, or the `note` with the reason for their absence."""
    print_grid(energy_facts(parts, note, time_ns, moved_bytes))


def print_result(result: Timed) -> None:
    """Print a run: its title, a row for each quantity, and when its experts and phases ran."""
    compiled = f" after {format_time(1e9 * result.compile_s)} of compiling" if result.compile_s > 0 else ""
    took = f"simulated in {format_time(1e9 * result.wall_s)}{compiled}"
    if isinstance(result, TraceResult):
        took += f" ({result.requests / result.run_s:,.0f} requests/s in the controllers)"
    print_text(title_of(result), bold=True)
    print_grid(facts_of(result))
    print_text(took)
    if isinstance(result, ExpertResult | ContentionResult) and len(result.jobs) > 1:
        jobs = [(str(number), str(job.tokens), job) for number, job in enumerate(result.jobs)]
        _print_spans("expert", "tokens", jobs, left=0)
    if isinstance(result, ExpertResult):
        _print_spans("phase", "tile", [(p.name, str(p.tile), p) for p in result.phases], left=1)


def _print_spans(name: str, more: str, spans: Sequence[tuple[str, str, JobTime | Phase]], left: int) -> None:
    """Print when each of several ran, or on a terminal the first of them."""
    shown = spans[:_SPANS_SHOWN] if is_terminal() else spans
    rows = [
        (*words, *map(format_time, (span.start_ns, span.end_ns, span.end_ns - span.start_ns)))
        for *words, span in shown
    ]
    print_table("", (name, more, "start", "end", "length"), rows, left=left)
    if len(shown) < len(spans):
        print_text(f"and {len(spans) - len(shown):,} more {name}s: --json - tells them all")


def bits_of(config: Mapping[str, Any]) -> str:
    """The bits of the weights in words, for each matrix if they differ."""
    bits = config["bits"]
    if isinstance(bits, int):
        return "1 bit" if bits == 1 else f"{bits} bits"
    return ", ".join(f"{name} {width:.4g}" for name, width in bits.items()) + " bits"


def traffic_of(config: Mapping[str, Any]) -> str:
    """The host's own traffic beside the layers of a model, for a title; "": there is none."""
    gbps = config.get("host_gbps")  # a dense model has none
    return "" if gbps is None else f", beside host traffic of {gbps:.4g} GB/s on each DIMM"


def print_sweep(points: Sequence[LoadPoint]) -> None:
    """Print the result of `sweep_load`."""
    print_table("", *table_of(points, *quantities(LoadPoint)), left=0)


def topologies_table(results: Mapping[str, RelayoutResult]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Names of columns, and a row for each topology."""
    rows = []
    for name, result in results.items():
        values = {
            "time_ns": result.time_ns,
            "bandwidth_gbps": result.bandwidth_gbps,
            "bounds_ns": max(result.bounds_ns.values()),
            "link_busy": max(result.link_busy.values(), default=0.0),
            "transit_bytes": result.transit_bytes,
            "host_speedup": result.host_speedup,
        }
        ports = str(result.config["hardware"]["link"]["ports"])
        cells = (
            "-" if value is None else with_unit(metric, value, RelayoutResult)
            for metric, value in values.items()
        )
        rows.append((name, result.bottleneck, ports, *cells))
    labels = {name: label_of(name, RelayoutResult) for name in ("topology", "bottleneck", "ports", *values)}
    labels |= {name: f"{labels[name]}, largest" for name in ("bounds_ns", "link_busy")}
    return tuple(labels.values()), rows


def print_topologies(results: Mapping[str, RelayoutResult]) -> None:
    """Print a relayout over several topologies."""
    columns, rows = topologies_table(results)
    print_table(title_of(next(iter(results.values()))), columns, rows)


# ---- Command traces of the lanes of a DIMM


def all_lanes(traces: tuple[CommandTrace, ...], ranks: int = 1) -> CommandTrace:
    """One trace of all lanes, by clock and then lane, with the lane instead of the rank.

    A lane is a channel of one rank, so nothing is lost and the file has its usual columns. With several
    `ranks` in a lane, the ranks of all lanes are counted consecutively.
    """
    columns = np.concatenate([trace.columns() for trace in traces], axis=1)
    lane = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    columns[2] += lane * ranks
    return CommandTrace.of(columns[:, np.lexsort((lane, columns[0]))], traces[0].names)


def write_lanes(path: str, result: ExpertResult | ContentionResult, lane: int | None) -> None:
    """Write the commands of one lane, or with `lane` None of all."""
    traces, ranks = result.command_traces, result.config["hardware"]["derived"]["lane_ranks"]
    write_commands(path, all_lanes(traces, ranks) if lane is None else traces[lane])
