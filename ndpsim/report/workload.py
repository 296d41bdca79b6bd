"""Statistics of routing and of requests, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndpsim.base.reported import label_of, said, with_unit
from ndpsim.base.units import PLUS_MINUS, percent
from ndpsim.report.printing import print_grid, print_table, print_text
from ndpsim.report.words import counted, source_words
from ndpsim.workload.requests.statistics import Lengths, RequestStatistics
from ndpsim.workload.routing import RoutingStatistics
from ndpsim.workload.routing.activity import CoActivation, Estimate
from ndpsim.workload.routing.statistics import PhaseStatistics, Reuse

_CLASSES = (("hot", "warm", "cold"), ("top_10", "next_30", "rest_60"))
_FRACTIONS = (("5%", "25%", "70%"), ("10%", "30%", "60%"))


def routing_title(statistics: RoutingStatistics) -> str:
    """A title: the source and size of a routing trace."""
    return trace_title(statistics.trace)


def trace_title(trace: Mapping[str, Any]) -> str:
    """The title of `routing_title`, from the description of a trace in its statistics."""
    layers = counted(len(trace["layers"]), "layer")
    experts = f"{trace['experts_per_token']} of {trace['experts']} experts in {layers}"
    decode = f"{counted(trace['steps'], 'step')} of {counted(trace['batch'], 'sequence')}"
    prompts = f", {counted(trace['prefill_tokens'], 'prompt token')}" if trace["prefill_tokens"] else ""
    source = source_words(trace["source"], "routing")
    return f"{source}: {experts}, {decode if trace['steps'] else 'no decode'}{prompts}"


def _shares(title: str, shares: Mapping[str, Estimate]) -> None:
    rows = [
        (
            f"{name.replace('_', ' ')} ({share} of experts)",
            with_unit("shares", shares[name], PhaseStatistics),
            f"layers {100 * shares[name].least:z.1f} to {100 * shares[name].most:z.1f}%",
        )
        for names, fractions in zip(_CLASSES, _FRACTIONS, strict=True)
        for name, share in zip(names, fractions, strict=True)
        if name in shares
    ]
    print_table(title, ("class", label_of("shares", PhaseStatistics), "from layer to layer"), rows, left=1)


def _phase_facts(name: str, phase: PhaseStatistics) -> list[tuple[str, str, str]]:
    curve = ", ".join(f"{point.experts}: {percent(point.cumulative_share)}" for point in phase.rank_curve)
    largest = with_unit("largest_over_mean", phase.largest_over_mean)
    return [
        (f"{name}, {label_of('largest_over_mean', PhaseStatistics)}", largest, said(phase, "unused")),
        (f"{name}, by rank", "most popular:", curve),
    ]


def _facts(statistics: RoutingStatistics) -> Iterator[tuple[str, str, str]]:
    """Facts other than shares: a label, a value, and an explanation."""

    def row(name: str, detail: str = "") -> tuple[str, str, str]:
        value = with_unit(name, getattr(statistics, name), RoutingStatistics)
        return label_of(name, RoutingStatistics), value, detail

    for name in ("token_reuse", "step_reuse", "prefill_reuse"):
        reuse: Reuse | None = getattr(statistics, name)
        if reuse is not None:
            share = with_unit("reuse", reuse.reuse, Reuse)
            yield label_of(name, RoutingStatistics), share, said(reuse, "independent", "stickiness")
    if statistics.step_drift is not None:
        yield row("step_drift")
    if statistics.prefill_cosine is not None:
        yield row("prefill_cosine", said(statistics, "prefill_overlap"))
    if statistics.co_activation is not None:
        share = with_unit("top_pairs", statistics.co_activation.top_pairs, CoActivation)
        words = f"of the choices are the most frequent 10%; {said(statistics.co_activation, 'independent')}"
        yield label_of("co_activation", RoutingStatistics), share, words
    if statistics.active_experts:
        active = ", ".join(f"{count.batch}: {count.mean:.1f}" for count in statistics.active_experts)
        label = label_of("active_experts", RoutingStatistics)
        yield label, f"of {statistics.trace['experts']}", f"by batch, mean: {active}"
    if statistics.prediction is not None:
        yield label_of("prediction", RoutingStatistics), "", with_unit("prediction", statistics.prediction)


def print_routing(statistics: RoutingStatistics) -> None:
    """Print the result of `describe_routing`."""
    print_text(routing_title(statistics), bold=True)
    facts: list[tuple[str, str, str]] = []
    for name, phase in (("decode", statistics.decode), ("prefill", statistics.prefill)):
        if phase is not None:
            _shares(f"{name}, experts ranked over all of it", phase.shares)
            facts += _phase_facts(name, phase)
    if statistics.decode is not None and statistics.trace["steps"] > 1:
        _shares("decode, experts ranked in each step", statistics.decode.step_shares)
    print_grid([*facts, *_facts(statistics)])
    words = "sampling error of 95%, with the bias of ranking, from groups of sequences left out"
    print_text(f"{PLUS_MINUS}: {words}")


# ---- requests ----


def requests_title(source: Mapping[str, Any], count: int) -> str:
    """A title: the origin and number of requests."""
    return f"{source_words(source, 'requests')}: {counted(count, 'request')}"


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
