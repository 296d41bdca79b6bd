"""Statistics of requests to a serving system, as text."""

from __future__ import annotations

from ndpsim.base.units import percent
from ndpsim.report.printing import print_grid, print_text
from ndpsim.report.words import counted, source_words
from ndpsim.workload.requests import Requests
from ndpsim.workload.requests.statistics import Lengths, RequestStatistics


def requests_title(requests: Requests) -> str:
    """A title: the origin and number of requests."""
    return f"{source_words(requests.source or {}, 'requests')}: {counted(len(requests), 'request')}"


def _lengths(name: str, lengths: Lengths) -> tuple[str, str, str]:
    spread = ", ".join(
        f"{word} {getattr(lengths, word):,.0f}" for word in ("min", "p50", "p90", "p99", "max")
    )
    return name, f"{lengths.total:,}", f"mean {lengths.mean:,.1f}, {spread}"


def print_requests(statistics: RequestStatistics) -> None:
    """Print the result of `describe_requests`."""
    title = f"{source_words(statistics.source, 'requests')}: {counted(statistics.requests, 'request')}"
    failed = statistics.source.get("failed")
    print_text(title + (f", {failed:,} failed and left out" if failed else ""), bold=True)
    rows = [_arrivals(statistics)]
    rows.append(_lengths("prompt tokens", statistics.prompt_tokens))
    rows.append(_lengths("output tokens", statistics.output_tokens))
    if statistics.blocks is not None:
        blocks = statistics.blocks
        words = f"of {blocks.tokens} tokens, {percent(blocks.reused_share)} as in an earlier prompt"
        rows.append(("prompt blocks", f"{blocks.count:,}", words))
    print_grid(rows)


def _arrivals(statistics: RequestStatistics) -> tuple[str, str, str]:
    if statistics.closed_loop is not None:
        words = f"{counted(statistics.closed_loop, 'request')} in the system at any time"
        return "arrivals", "closed loop", words
    if statistics.requests_per_s is None:
        return "arrivals", "at once", ""
    words = f"over {statistics.span_s:,.1f} s, at most {statistics.peak_requests_per_s} in a second"
    if statistics.burstiness is not None:
        words += f", burstiness {statistics.burstiness:.2f}"
    return "arrivals", f"{statistics.requests_per_s:.4g}/s", words
