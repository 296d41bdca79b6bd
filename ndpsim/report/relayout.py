"""Relayouts as text, and as timelines for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ndpsim.files import replacing
from ndpsim.report.dram import clock_words
from ndpsim.report.printing import print_table
from ndpsim.report.text import energy_facts, print_pairs, simulated_in
from ndpsim.report.trace_events import span_of
from ndpsim.report.words import counted, listed, percent
from ndpsim.simulate import RelayoutResult
from ndpsim.units import format_bytes, format_energy, format_time


def relayout_title(result: RelayoutResult) -> str:
    """What moved where, in a line."""
    config = result.config
    shape = f"{config['hidden']} x {config['intermediate']}"
    experts = counted(result.experts, "expert")
    of = f"{config['model']} ({shape})" if config["model"] else shape
    return f"{experts} of {of} on {config['hardware']['name']}, {config['source']} to {config['target']}"


def _energy(parts: Mapping[str, float | None] | None, note: str, result: RelayoutResult) -> str:
    (_, total, power), *of_it = energy_facts(parts, note, result.time_ns or 1.0, result.weight_bytes)
    return ", ".join((total, power, *(shares for _, _, shares in of_it)))


def relayout_facts(result: RelayoutResult) -> dict[str, str]:
    """What there is to say of a relayout, by what it is about."""
    links = sorted(result.link_busy.values())
    busy = ", ".join(f"{kind} {percent(share)}" for kind, share in result.dram_busy.items())
    clocks = clock_words(result.cycles, result.clock_ns, result.config)
    facts = {
        "relayout": relayout_title(result),
        "time": f"{format_time(result.time_ns)}, {clocks}",
        "moved": f"{format_bytes(result.weight_bytes)}: {counted(result.sent_bytes, 'byte')} over links, "
        f"{counted(result.local_bytes, 'byte')} within their DIMM; "
        f"{result.moved} of {counted(result.experts, 'expert')}, "
        + ("at once" if result.waves < 2 else f"in {result.waves} turns"),
        "bandwidth": f"{result.bandwidth_gbps:.2f} GB/s",
        "bound by": f"{result.bottleneck}; at least "
        + ", ".join(f"{name} {format_time(ns)}" for name, ns in result.bounds_ns.items()),
        "links": f"{result.topology}, {counted(len(links), 'wire')} used, busy "
        + (f"{percent(links[0])} to {percent(links[-1])}" if links else "never")
        + f"; transit buffers {format_bytes(result.transit_bytes)}",
        "DRAM": f"busiest lane: {busy}",
        "commands": listed(result.commands),
    }
    facts["energy"] = _energy(result.energy_nj, result.energy_note, result)
    if result.host is not None and result.host_speedup is not None:
        facts["by the host"] = (
            f"{format_time(result.host.time_ns)}, {result.host_speedup:.2f}x; "
            f"{result.host.bandwidth_gbps:.2f} GB/s, its busiest bus {percent(result.host.bus_busy)}"
            + (f", {format_energy(total)}" if (total := (result.host.energy_nj or {}).get("total")) else "")
        )
    if result.other_dimms is not None:
        other, dimms = result.other_dimms, ", ".join(map(str, result.other_dimms.source_dimms))
        facts["other DIMMs"] = f"{format_time(other.time_ns)} from DIMMs {dimms}" + (
            f"; by the host {format_time(other.host_time_ns)}, {other.host_speedup:.2f}x"
            if other.host_time_ns is not None
            else ""
        )
    return facts


def print_relayout(result: RelayoutResult) -> None:
    """The result of `simulate_relayout`."""
    print_pairs({**relayout_facts(result), "simulated in": simulated_in(result)})


def topologies_table(results: Mapping[str, RelayoutResult]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of columns, and a row for each topology."""
    columns = (
        "topology",
        "bound by",
        "ports",
        "time",
        "bandwidth",
        "at least",
        "busiest wire",
        "transit buffers",
        "faster than the host",
    )
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        busiest = max(result.link_busy.values(), default=0.0)
        row = (
            name,
            result.bottleneck,
            str(result.config["hardware"]["link"]["ports"]),
            format_time(result.time_ns),
            f"{result.bandwidth_gbps:.1f} GB/s",
            format_time(max(result.bounds_ns.values())),
            percent(busiest),
            format_bytes(result.transit_bytes),
            f"{result.host_speedup:.2f}x" if result.host_speedup else "-",
        )
        rows.append(row)
    return columns, rows


def print_topologies(results: Mapping[str, RelayoutResult]) -> None:
    """The same relayout over several topologies."""
    columns, rows = topologies_table(results)
    print_table(relayout_title(next(iter(results.values()))), columns, rows)


def write_relayout_timeline(path: str, result: RelayoutResult) -> None:
    """When each DIMM read and wrote, a row for each; times are in us."""
    rows = sorted({(one.dimm, one.name) for one in result.stretches})
    names = [
        {
            "ph": "M",
            "pid": 0,
            "tid": number,
            "name": "thread_name",
            "args": {"name": f"DIMM {dimm} {'reads' if name == 'read' else 'writes'}"},
        }
        for number, (dimm, name) in enumerate(rows)
    ]
    events = [
        {
            "ph": "X",
            "pid": 0,
            "tid": rows.index((one.dimm, one.name)),
            "name": one.name,
            **span_of(one.start_ns, one.end_ns),
        }
        for one in result.stretches
    ]
    with replacing(path) as file:
        file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": names + events}).encode())
