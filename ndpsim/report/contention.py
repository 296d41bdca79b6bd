"""The two slowdowns of a shared DIMM as text."""

from __future__ import annotations

from ndpsim.report.text import bits_of, energy_facts, experts_in_turn, print_facts, print_jobs, simulated_in
from ndpsim.report.words import counted, listed, percent
from ndpsim.simulate import ContentionResult
from ndpsim.units import format_bytes, format_time


def _latency(result: ContentionResult) -> tuple[str, str, str]:
    figures = result.host_latency_ns
    if figures is None:
        return "host latency", "-", "no reads"
    beside = ", ".join(f"{name} {format_time(ns)}" for name, ns in figures.items())
    alone = result.host_alone_latency_ns
    words = (
        ""
        if alone is None
        else f"; alone: mean {format_time(alone['mean'])}, p99 {format_time(alone['p99'])}"
    )
    return "host latency", format_time(figures["mean"]), f"{beside}{words}"


def contention_facts(result: ContentionResult) -> list[tuple[str, str, str]]:
    """What there is to say, its figure, and what stands behind it."""
    slow = result.host_slowdown
    offered = "" if result.host_offered_gbps is None else f", {result.host_offered_gbps:g} GB/s asked for"
    moved = [sum(lane.values()) for lane in result.by_lane]
    rows = [
        (
            f"{owner} rows",
            f"{found['hits'] + found['misses'] + found['conflicts']:,}",
            f"{counted(found['hits'], 'hit')}, {counted(found['misses'], 'miss')}, "
            f"{counted(found['conflicts'], 'conflict')}; {counted(found['lost'], 'row')} lost to the other",
        )
        for owner, found in result.rows.items()
    ]
    return [
        (
            "NDP slowdown",
            f"{result.ndp_slowdown:.3f}x",
            f"{format_time(result.ndp_time_ns)} instead of {format_time(result.ndp_alone_ns)}",
        ),
        (
            "host slowdown",
            "-" if slow is None else f"{slow:.3f}x",
            f"{format_time(result.host_time_ns)} instead of {format_time(result.host_alone_ns)} "
            f"for the same {counted(result.host_requests, 'request')}",
        ),
        (
            "NDP bandwidth",
            f"{result.ndp_gbps:.2f} GB/s",
            f"{percent(result.ndp_peak_fraction)} of the lanes' {result.lanes_peak_gbps:.1f} GB/s; "
            f"alone {result.ndp_alone_gbps:.2f} GB/s",
        ),
        (
            "host bandwidth",
            f"{result.host_gbps:.2f} GB/s",
            f"{percent(result.host_peak_fraction)} of the bus's {result.bus_peak_gbps:.1f} GB/s{offered}; "
            f"alone {result.host_alone_gbps:.2f} GB/s",
        ),
        _latency(result),
        (
            "lanes",
            percent(result.lanes_fraction),
            f"busy with data of both; {format_bytes(min(moved))} to {format_bytes(max(moved))} a lane",
        ),
        *rows,
        (
            "turnarounds",
            f"{result.turnarounds:,}",
            f"on the lanes; to the host {result.bus_turnarounds:,}, "
            f"{counted(result.bus_rank_switches, 'change')} of rank",
        ),
        ("commands", f"{sum(result.commands.values()):,}", listed(result.commands)),
        *energy_facts(
            result.energy_nj, result.energy_note, max(result.ndp_time_ns, result.host_time_ns), sum(moved)
        ),
    ]


def contention_title(result: ContentionResult) -> str:
    """Which expert ran beside what, in a line."""
    config = result.config
    tokens = counted(sum(job.tokens for job in result.jobs), "token")
    turns = f" of {counted(config['slice_clocks'], 'DRAM clock')}" if config["slice_clocks"] else ""
    host = "as much host traffic as it takes" if config["host_gbps"] == "saturate" else "host traffic"
    shape = f"{config['hidden']} x {config['intermediate']}"
    of = f" of {config['model']}" if config["model"] else ""
    return (
        f"{experts_in_turn(len(result.jobs))}{of} ({shape}) on {config['hardware']['name']}, {tokens}, "
        f"{bits_of(config)}, beside {host}, {config['pattern']}: {config['arbitration']}{turns}"
    )


def print_contention(result: ContentionResult) -> None:
    """The result of `simulate_contention`."""
    print_facts(
        contention_title(result),
        contention_facts(result),
        f"simulated in {simulated_in(result)}; all {result.lanes} lanes, clock by clock",
    )
    print_jobs(result)
