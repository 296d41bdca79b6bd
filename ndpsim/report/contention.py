"""The text report of an expert beside the host."""

from __future__ import annotations

from ndpsim.report.text import bits_of, experts_in_turn, facts_of, print_facts, print_jobs, simulated_in
from ndpsim.report.words import counted
from ndpsim.simulate import ContentionResult


def contention_facts(result: ContentionResult) -> list[tuple[str, str, str]]:
    """The rows of the result."""
    moved_bytes = sum(sum(lane.values()) for lane in result.by_lane)
    return facts_of(result, moved_bytes, max(result.ndp_time_ns, result.host_time_ns))


def contention_title(result: ContentionResult) -> str:
    """The expert, the machine and the host's traffic, in a line."""
    config = result.config
    tokens = counted(sum(job.tokens for job in result.jobs), "token")
    turns = f" of {counted(config['slice_clocks'], 'DRAM clock')}" if config["slice_clocks"] else ""
    host = "saturating host traffic" if config["host_gbps"] == "saturate" else "host traffic"
    shape = f"{config['hidden']} x {config['intermediate']}"
    of = f" of {config['model']}" if config["model"] else ""
    return (
        f"{experts_in_turn(len(result.jobs))}{of} ({shape}) on {config['hardware']['name']}, {tokens}, "
        f"{bits_of(config)}, beside {host} ({config['pattern']}), arbitration {config['arbitration']}{turns}"
    )


def print_contention(result: ContentionResult) -> None:
    """The result of `simulate_contention`."""
    print_facts(
        contention_title(result),
        contention_facts(result),
        f"simulated in {simulated_in(result)}",
    )
    print_jobs(result)
