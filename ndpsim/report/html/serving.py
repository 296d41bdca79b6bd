"""Reports of serving: a run with its requests, several rates beside each other, and a search for a rate."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.config import Hardware
from ndpsim.report.html.page import provenance, write_page
from ndpsim.report.html.parts import Cell, Folded, Part, Row, Section, Table
from ndpsim.report.html.sections import columns, configuration, measured_cell, plain_cell
from ndpsim.report.html.svg import picture
from ndpsim.report.pictures.serving import rates_figure, serving_figure
from ndpsim.report.serving import (
    LATENCY_COLUMNS,
    found_note,
    latency_rows,
    rates_notes,
    rates_table,
    serving_notes,
    serving_table,
    serving_title,
    tries_table,
)
from ndpsim.report.words import counted, source_words
from ndpsim.simulate.results.serving import FoundRate, ServedRequest, ServingResult


def write_serving_report(path: str, result: ServingResult, hardware: Hardware) -> None:
    """The report of `run_serving`.

    Raises:
        InputError: the file cannot be written.
    """
    _write(path, result, hardware, [Section("Summary", *_summary(result)), _over_time(result)])


def write_found_rate_report(path: str, found: FoundRate, hardware: Hardware) -> None:
    """The report of `find_rate`.

    Raises:
        InputError: the file cannot be written.
    """
    tries = Folded(f"Search: {counted(len(found.tries), 'rate')}", _measured(*tries_table(found)))
    summary = Section("Summary", found_note(found), *_summary(found.run), tries)
    _write(path, found.run, hardware, [summary, _over_time(found.run)])


def write_rates_report(path: str, results: Sequence[ServingResult], hardware: Hardware) -> None:
    """The report of several results of `run_serving`, which differ in the rate of arrivals.

    Raises:
        InputError: the file cannot be written.
    """
    title = serving_title(results[0])
    over_rate = picture("rates", lambda: rates_figure(results), title)
    summary = Section("Summary", _measured(*rates_table(results)), rates_notes(results))
    _write(path, results[0], hardware, [summary, Section("Over the rate", over_rate)])


def _write(path: str, result: ServingResult, hardware: Hardware, sections: Sequence[Section]) -> None:
    requests = source_words(result.config["requests"], "given as they are")
    routing = {"routing": routed} if (routed := result.config["routing"]) else {}
    page = [
        *sections,
        configuration(result.config, hardware),
        provenance({"requests": requests, **routing}),
    ]
    write_page(path, serving_title(result), f"ndpsim serve\n{requests}", page)


def _summary(result: ServingResult) -> list[Part]:
    return [
        _measured(LATENCY_COLUMNS, latency_rows(result)),
        Table((), [(label, measured_cell(text)) for label, text in serving_table(result)]),
        serving_notes(result),
    ]


def _measured(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of a text report, whose figures sort."""
    return Table(heads, [[first, *map(measured_cell, cells)] for first, *cells in rows])


def _over_time(result: ServingResult) -> Section:
    drawn = picture("run", lambda: serving_figure(result), serving_title(result))
    return Section("Run", drawn, _requests_table(result.per_request))


def _requests_table(requests: Sequence[ServedRequest]) -> Folded:
    """When each request arrived, and its latencies."""
    first_ns = requests[0].arrival_ns
    heads, times = columns(
        {
            "arrival": ("time_ns", [one.arrival_ns - first_ns for one in requests]),
            "waited": ("time_ns", [one.admitted_ns - one.arrival_ns for one in requests]),
            "to the first token": ("ttft_ns", [one.ttft_ns for one in requests]),
            "per output token": ("tpot_ns", [one.tpot_ns for one in requests]),
            "to the last token": ("latency_ns", [one.latency_ns for one in requests]),
        }
    )
    rows: list[Row] = [
        (
            one.id,
            Cell(f"{one.prompt_tokens:,}", one.prompt_tokens),
            Cell(f"{one.output_tokens:,}", one.output_tokens),
            *of_request,
            plain_cell(one.reused_tokens),
            plain_cell(one.preemptions),
        )
        for one, of_request in zip(requests, times, strict=True)
    ]
    names = ("request", "prompt tokens", "output tokens", *heads, "reused tokens", "preemptions")
    return Folded(f"Requests: {len(rows):,}", Table(names, rows, "--json, --log"))
