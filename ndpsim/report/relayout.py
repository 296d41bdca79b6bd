"""Relayouts as text, and as timelines for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Mapping

from ndpsim.base.reported import label_of, with_unit
from ndpsim.report.printing import print_table
from ndpsim.report.serving_timeline import timeline_file
from ndpsim.report.text import title_of
from ndpsim.simulate import RelayoutResult


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
            "-" if value is None else with_unit(of, value, RelayoutResult) for of, value in values.items()
        )
        rows.append((name, result.bottleneck, ports, *cells))
    labels = {name: label_of(name, RelayoutResult) for name in ("topology", "bottleneck", "ports", *values)}
    labels |= {name: f"{labels[name]}, largest" for name in ("bounds_ns", "link_busy")}
    return tuple(labels.values()), rows


def print_topologies(results: Mapping[str, RelayoutResult]) -> None:
    """Print a relayout over several topologies."""
    columns, rows = topologies_table(results)
    print_table(title_of(next(iter(results.values()))), columns, rows)


def write_relayout_timeline(path: str, result: RelayoutResult) -> None:
    """Write the times in us at which each DIMM read and wrote, a row for each DIMM."""
    with timeline_file(path) as timeline:
        timeline.begin_process(title_of(result))
        kinds = sorted({(one.dimm, one.name) for one in result.stretches})
        rows = {(dimm, name): f"DIMM {dimm} {name}s" for dimm, name in kinds}
        for row in rows.values():
            timeline.row(row)
        for one in result.stretches:
            timeline.span(rows[one.dimm, one.name], one.name, one.start_ns, one.end_ns, {})
