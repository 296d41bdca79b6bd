"""Results as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

from ndpsim.report.dram import clock_words
from ndpsim.report.printing import is_terminal, print_grid, print_table, print_text
from ndpsim.report.words import counted
from ndpsim.reported import label_of, quantities, quantity_of, said, table_of, with_unit
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    RelayoutResult,
    TraceResult,
)
from ndpsim.units import format_energy, format_power, format_time, percent, significant

Timed: TypeAlias = ContentionResult | ExpertResult | HostReadResult | RelayoutResult | TraceResult

_PHASES_SHOWN = 15  # on a terminal
_JOBS_SHOWN = 16
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
        return ", ".join(f"{name} {of_name}" for name, of_name in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def print_rows(title: str, rows: Iterable[tuple[str, Any, str, str]]) -> None:
    """Print key, value, unit and origin, one a line."""
    cells = [(key, str(value), unit, origin) for key, value, unit, origin in rows]
    print_table(title, ("key", "value", "unit", "where it comes from"), cells, left=None, heading=3)


def _model_name(result: ExpertResult | HostReadResult) -> str:
    config = result.config
    shape = f"{config['hidden']} x {config['intermediate']}"
    return f"{config['model']} ({shape})" if config["model"] else shape


def simulated_in(result: Timed) -> str:
    """The duration of a call, and of compiling its kernels if they were not cached."""
    compiled = f" after {format_time(1e9 * result.compile_s)} of compiling" if result.compile_s > 0 else ""
    return format_time(1e9 * result.wall_s) + compiled


def facts_of(result: Timed, moved_bytes: float, busy_ns: float | None = None) -> list[tuple[str, str, str]]:
    """A row for each quantity of a result: its label, its value, and an explanation.

    Args:
        result: a result, whose fields have descriptions.
        moved_bytes: the bytes that the energy moved.
        busy_ns: the time over which the energy was used; None: the time of the result.
    """
    described = quantities(type(result))
    inner = {name for of in described.values() for name in (*of.beside, of.whole, of.share)}
    rows: list[tuple[str, str, str]] = []
    for name, of in described.items():
        value = getattr(result, name)
        if name == "energy_nj":
            over_ns = getattr(result, "time_ns", 0.0) if busy_ns is None else busy_ns
            rows += energy_facts(value, getattr(result, "energy_note", ""), over_ns, round(moved_bytes))
        elif name not in inner:
            figure, detail = ("-", "") if value is None else _figure(result, name)
            beside = _explained(result, name)
            if value is not None or any(beside):
                rows.append((of.label, figure, "; ".join(filter(None, (detail, *beside)))))
    return rows


def _explained(result: Timed, name: str) -> list[str]:
    """Explanations of a quantity of a result: its share of a peak, its clocks, and the fields in its row."""
    of = quantity_of(name, (type(result),))
    if of.beside == _CLOCKS and not isinstance(result, ContentionResult):
        return [clock_words(result.cycles, result.clock_ns, result.config)]
    of_whole: list[str] = []
    if of.whole and getattr(result, name) is not None:
        whole = getattr(result, of.whole)
        share = getattr(result, of.share) if of.share else getattr(result, name) / (whole or math.inf)
        of_whole.append(f"{percent(share)} of {with_unit(of.whole, whole)}")
    return [*of_whole, *(_beside(result, one) for one in of.beside)]


def _beside(result: Timed, name: str) -> str:
    value, label = getattr(result, name), quantity_of(name, (type(result),)).label
    if value is None or value == {}:
        return ""
    figure, detail = _figure(result, name)
    return f"{label}: {detail}" if detail and not isinstance(value, int) else f"{label} {figure}"


def _figure(result: Timed, name: str) -> tuple[str, str]:
    """A value of a result, or its total with its parts."""
    value, of = getattr(result, name), type(result)
    if isinstance(value, tuple):
        sizes = ", ".join(f"{count:,} of {counted(size, 'token')}" for size, count in Counter(value).items())
        return f"{len(value):,}", sizes
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return "", said(value, *(key for key, part in parts.items() if isinstance(part, float)))
    if not isinstance(value, Mapping):
        exact = isinstance(value, int) and name.endswith("bytes")
        return with_unit(name, value, of), f"{value:,} B" if exact and value >= 1024 else ""
    if len(value) > _PARTS_SHOWN:
        least, most = (with_unit(name, end(value.values()), of) for end in (min, max))
        return "", f"{least} to {most}, {len(value)} of them"
    numbers = [part for part in value.values() if isinstance(part, int | float)]
    adds_up = name.endswith("_ns") or all(isinstance(part, int) for part in value.values())
    whole = value.get("mean", sum(numbers) if adds_up and numbers else None)
    return "" if whole is None else with_unit(name, whole, of), with_unit(name, value, of)


def energy_facts(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> list[tuple[str, str, str]]:
    """The energy, power, energy for each bit moved, and components; or the reason for their absence."""
    if parts is None:
        return [(label_of("energy_nj"), "not known", note)]
    time_ns = time_ns or 1.0  # a run of no time
    total = parts["total"] or 0.0
    known = [(name, nj) for name, nj in parts.items() if nj is not None and name != "total"]
    shares = [f"{name} {format_power(nj / time_ns)}" for name, nj in known if nj]
    unknown = [name for name, nj in parts.items() if nj is None]
    if unknown:
        shares.append(f"without {', '.join(unknown)} (not known)")
    by_bit = f", {significant(1000 * total / (8 * moved_bytes))} pJ/bit" if moved_bytes else ""
    facts = [(label_of("energy_nj"), format_energy(total), f"{format_power(total / time_ns)}{by_bit}")]
    return [*facts, ("power by component", "", ", ".join(shares))] if shares else facts


def print_energy(
    parts: Mapping[str, float | None] | None, note: str, time_ns: float, moved_bytes: int
) -> None:
    """Print energies in nJ by component over `time_ns`, or the `note` with the reason for their absence."""
    print_grid(energy_facts(parts, note, time_ns, moved_bytes))


def experts_in_turn(count: int) -> str:
    """The number of experts, as the beginning of a title."""
    return "One expert" if count == 1 else f"{count:,} experts in turn"


def print_jobs(result: ExpertResult | ContentionResult) -> None:
    """Print when each of several experts in turn ran."""
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
    """A title: the expert and the machine."""
    name = result.config["hardware"]["name"]
    where = name if result.dimms == 1 else f"{result.dimms} DIMMs of {name}"
    tokens, experts = counted(result.tokens, "token"), experts_in_turn(len(result.jobs))
    return f"{experts} of {_model_name(result)} on {where}, {tokens}, {bits_of(result.config)}"


def expert_facts(result: ExpertResult) -> list[tuple[str, str, str]]:
    """The rows of an expert's result."""
    return facts_of(result, result.weight_bytes * result.weight_reads)


def print_expert(result: ExpertResult) -> None:
    """Print the result of `simulate_expert`."""
    print_facts(expert_title(result), expert_facts(result), f"simulated in {simulated_in(result)}")
    print_jobs(result)
    _print_phases(result)


def print_facts(title: str, facts: Iterable[tuple[str, str, str]], end: str) -> None:
    """Print facts, one a line, between a title and an end: a label, a value, and an explanation."""
    print_text(title, bold=True)
    print_grid(facts)
    print_text(end)


def bits_of(config: Mapping[str, Any]) -> str:
    """The bits of the weights in words, for each matrix if they differ."""
    bits = config["bits"]
    if isinstance(bits, int):
        return "1 bit" if bits == 1 else f"{bits} bits"
    return ", ".join(f"{name} {of_matrix:.4g}" for name, of_matrix in bits.items()) + " bits"


def host_read_title(result: HostReadResult) -> str:
    """A title: the expert that the host reads, and its location."""
    name, layout = result.config["hardware"]["name"], result.config["layout"]
    return f"The host of {name} reads one expert of {_model_name(result)}, {layout}, {bits_of(result.config)}"


def host_read_facts(result: HostReadResult) -> list[tuple[str, str, str]]:
    """The rows of a host read's result."""
    return facts_of(result, result.weight_bytes)


def print_host_read(result: HostReadResult) -> None:
    """Print the result of `simulate_host_read`."""
    print_facts(host_read_title(result), host_read_facts(result), f"simulated in {simulated_in(result)}")


def trace_run_title(result: TraceResult) -> str:
    """A title: the number of requests, and the memory."""
    config = result.config
    channels = counted(config["channels"], "channel")
    parts = ", ".join(f"{name} {config[name]}" for name in ("ranks", "pseudochannels") if name in config)
    memory = f"{config['timing']} {config['org']}, {channels}, {parts}"
    return f"{counted(result.requests, 'request')} on {memory}"


def trace_facts(result: TraceResult) -> list[tuple[str, str, str]]:
    """The rows of a request trace's result."""
    return facts_of(result, result.bandwidth_gbps * result.time_ns)


def print_trace(result: TraceResult) -> None:
    """Print the result of `run_trace`."""
    rate = f"{result.requests / result.run_s:,.0f} requests/s in the controllers"
    print_facts(trace_run_title(result), trace_facts(result), f"simulated in {simulated_in(result)} ({rate})")


def print_sweep(points: Sequence[LoadPoint]) -> None:
    """Print the result of `sweep_load`."""
    print_table("", *table_of(points, *quantities(LoadPoint)), left=0)
