"""Serving as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ndpsim.base.reported import quantity_of, with_unit
from ndpsim.base.units import percent, significant
from ndpsim.report.moe import busy_share
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.text import bits_of, traffic_of
from ndpsim.report.words import counted, unknown_components
from ndpsim.simulate.results.moe import RESOURCES
from ndpsim.simulate.results.serving import FoundRate, MeasuredComparison, ServingResult

_LATENCIES = ("ttft_ns", "tpot_ns", "itl_ns", "latency_ns")
_PERCENTILES = ("mean", "p50", "p90", "p99")
#: Header of `latency_rows`.
LATENCY_COLUMNS = ("", *_PERCENTILES)
_NONE = "-"
_MANY = 100  # requests in the steady part of a run: with fewer a found rate comes with a warning


def serving_title(result: ServingResult) -> str:
    """A title: the model, the requests and the machine."""
    config = result.config
    file = f"{config['weights']}: " if "weights" in config else ""
    bits = bits_of(config if config["bits"] else {"bits": config["dense_bits"]})
    policy = f", {config['policy']}" if config["policy"] else ""
    return f"{config['model']} on {config['hardware']['name']}, {file}{bits}{policy}{traffic_of(config)}"


def print_serving(result: ServingResult) -> None:
    """Print the result of `run_serving`."""
    print_text(serving_title(result), bold=True)
    for note in serving_notes(result):
        print_text(note, indent="  ")
    print_table("", LATENCY_COLUMNS, latency_rows(result), left=1)
    print_table("", ("", ""), serving_table(result), left=1)


def print_rates(results: Sequence[ServingResult]) -> None:
    """Print results of `run_serving` at several rates of arrivals."""
    print_text(serving_title(results[0]), bold=True)
    for note in rates_notes(results):
        print_text(note, indent="  ")
    print_table("", *rates_table(results))


def rates_table(results: Sequence[ServingResult]) -> tuple[list[str], list[list[str]]]:
    """Labels of columns, and a row for each rate."""
    names = [
        *("offered_per_s", "ttft_ns.p50", "ttft_ns.p99", "tpot_ns.p50", "tpot_ns.p99", "tokens_per_s"),
        *([] if results[0].goodput_per_s is None else ["goodput_per_s"]),
    ]
    plain = [run.to_dict(flat=True) for run in results]
    rows = [
        [_NONE if row.get(name) is None else with_unit(name, row[name], ServingResult) for name in names]
        for row in plain
    ]
    return [_label(name) for name in names], rows


def rates_notes(results: Sequence[ServingResult]) -> list[str]:
    """Notes on several runs, in sentences."""
    notes = [_served_note(results[0])]
    growing = [run.offered_per_s for run in results if run.growing and run.offered_per_s is not None]
    if growing:
        served = max(run.requests_per_s for run in results)
        notes.append(
            f"more requests arrive than are served from {significant(min(growing))} requests/s on; at most "
            f"{significant(served)} are served"
        )
    return notes


def print_found_rate(found: FoundRate) -> None:
    """Print the result of `find_rate`."""
    print_serving(found.run)
    print_text(found_note(found), bold=True)
    print_table("", *tries_table(found))


def print_measured(compared: MeasuredComparison) -> None:
    """Print the result of `compare_measured`."""
    print_text(serving_title(compared.run), bold=True)
    for note in serving_notes(compared.run):
        print_text(note, indent="  ")
    print_table("", ("", "", *_PERCENTILES), measured_rows(compared), left=2)
    rows: list[tuple[str, ...]] = []
    for name in ("tokens_per_s", "requests_per_s"):
        rates: Mapping[str, float] | None = getattr(compared, name)
        if rates is not None:
            cells = (with_unit(name, rates[side], MeasuredComparison) for side in ("simulated", "measured"))
            rows.append((_label(name), *cells, _ratio(rates["ratio"])))
    if rows:
        print_table("", ("", "simulated", "measured", "ratio"), rows, left=1)


def measured_rows(compared: MeasuredComparison) -> list[tuple[str, ...]]:
    """Rows for each latency: simulated, measured, and their ratio."""
    rows: list[tuple[str, ...]] = []
    for name in ("ttft_ns", "tpot_ns", "latency_ns"):
        latency: Mapping[str, Mapping[str, float]] | None = getattr(compared, name)
        if latency is None:
            rows.append((_label(name), "not measured", *[_NONE] * len(_PERCENTILES)))
            continue
        for side in ("simulated", "measured"):
            cells = (with_unit(name, latency[side][part]) for part in _PERCENTILES)
            rows.append((_label(name) if side == "simulated" else "", side, *cells))
        rows.append(("", "ratio", *(_ratio(latency["ratio"][part]) for part in _PERCENTILES)))
    return rows


def _ratio(value: float) -> str:
    return _NONE if value != value else significant(value, 3)


def found_note(found: FoundRate) -> str:
    """The highest rate, in sentences."""
    beyond = next(tried for tried in found.tries if tried.rate_per_s == found.beyond_per_s)
    if beyond.within_share < found.attainment:
        why = f"only {percent(beyond.within_share)} are within it"
    elif beyond.steady_share is None:
        why = "the run is too short to have a steady part: use more requests"
    else:
        why = f"only {percent(beyond.steady_share or 0.0)} of what arrives is served"
    note = (
        f"{significant(found.rate_per_s)} requests/s: {percent(found.within_share)} of the requests are "
        f"within the service level ({percent(found.attainment)} asked), and "
        f"{percent(found.run.steady_share or 0.0)} of what arrives in the steady part of the run is served "
        f"in it. At {significant(found.beyond_per_s)} "
        f"requests/s {why}."
    )
    if found.run.steady_requests >= _MANY:
        return note
    return (
        f"{note} Caution: the steady part has only {counted(found.run.steady_requests, 'request')}; "
        f"use more requests, until it has {_MANY}."
    )


def tries_table(found: FoundRate) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Labels of columns, and a row for each tried rate."""
    columns = (
        "requests/s",
        "within",
        "served, steady",
        "time to first token, p90",
        "time per output token, p90",
    )
    rows: list[tuple[str, ...]] = [
        (
            significant(tried.rate_per_s),
            percent(tried.within_share),
            _NONE if tried.steady_share is None else percent(tried.steady_share),
            with_unit("ttft_ns", tried.ttft_ns["p90"]),
            with_unit("tpot_ns", tried.tpot_ns["p90"]) if tried.tpot_ns else _NONE,
        )
        for tried in found.tries
    ]
    return columns, rows


def latency_rows(result: ServingResult) -> list[tuple[str, ...]]:
    """Rows with the name of each latency, its mean and percentiles."""
    rows: list[tuple[str, ...]] = []
    for name in _LATENCIES:
        values: Mapping[str, float] | None = getattr(result, name)
        cells = (with_unit(name, values[part]) if values else _NONE for part in _PERCENTILES)
        rows.append((_label(name), *cells))
    return rows


def serving_table(result: ServingResult) -> list[tuple[str, str]]:
    """Rows of labels and values of a run."""
    names = [
        *("tokens_per_s", "user_tokens_per_s", "requests_per_s", "offered_per_s", "goodput_per_s"),
        *("time_ns", "steps"),
    ]
    rows = [
        (_label(name), with_unit(name, getattr(result, name), ServingResult))
        for name in names
        if getattr(result, name) is not None
    ]
    for what in ("running", "queue"):
        mean, most = getattr(result, f"mean_{what}"), getattr(result, f"most_{what}")
        rows.append((_label(f"mean_{what}"), f"{significant(mean)} in the mean, {most:,} at most"))
    blocks = f"{result.most_kv_blocks:,} of {result.config['engines'] * result.config['kv_blocks']:,}"
    rows.append((_label("most_kv_blocks"), blocks))
    rows.append((_label("preemptions"), f"{result.preemptions:,}"))
    rows.append((_label("reused_tokens"), percent(result.reused_tokens / result.prompt_tokens)))
    for group in RESOURCES:
        share = busy_share(result.utilization, group)
        if share is not None:
            rows.append((_label(f"utilization.{group}"), percent(share)))
    pairs = sum(result.pairs_by_engine.values())
    rows += [
        (_label(f"pairs_by_engine.{name}"), percent(count / pairs))
        for name, count in result.pairs_by_engine.items()
    ]
    nj = result.energy_per_token_nj["total"]
    if nj is not None:
        rows.append((_label("energy_per_token_nj"), with_unit("energy_per_token_nj", nj)))
    return [*rows, (_label("wall_s"), with_unit("wall_s", result.wall_s))]


def serving_notes(result: ServingResult) -> list[str]:
    """Notes on a run, in sentences."""
    notes = [_served_note(result)]
    if result.growing and result.offered_per_s is not None:
        notes.append(
            f"more requests arrive than are served: {significant(result.offered_per_s)} requests/s arrive, "
            f"and {significant(result.requests_per_s)} are served"
        )
    elif result.growing is None and result.offered_per_s is not None:
        notes.append(
            "too few requests to tell whether this rate can be served for long: they arrive for less than "
            f"two latencies ({with_unit('latency_ns', result.latency_ns['p90'])}, p90)"
        )
    if unknown := unknown_components(result.energy_nj):
        notes.append(f"energy without {unknown} (not known)")
    return notes


def _served_note(result: ServingResult) -> str:
    config: Mapping[str, Any] = result.config
    return (
        f"{counted(result.requests, 'request')} with {result.prompt_tokens:,} prompt and "
        f"{result.output_tokens:,} output tokens; scheduler {config['scheduler']}, at most "
        f"{config['max_batch']:,} sequences and {config['max_tokens']:,} tokens a step"
    )


def _label(name: str) -> str:
    return quantity_of(name, (ServingResult,)).label
