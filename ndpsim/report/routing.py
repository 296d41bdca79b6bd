"""What routing is like, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.report.printing import print_grid, print_table, print_text
from ndpsim.report.words import counted
from ndpsim.routing import RoutingStatistics
from ndpsim.routing.estimates import Estimate
from ndpsim.routing.statistics import PhaseStatistics, Reuse
from ndpsim.units import percent

_CLASSES = (("hot", "warm", "cold"), ("top_10", "next_30", "rest_60"))
_FRACTIONS = (("5%", "25%", "70%"), ("10%", "30%", "60%"))


def source_words(source: Mapping[str, Any]) -> str:
    """Where a trace comes from."""
    if "generated" in source:
        return f"{source['generated']}, seed {source['seed']}{', offline' if source['offline'] else ''}"
    if "imported" in source:
        return f"{', '.join(source['files'])} ({source['imported']})"
    return str(source.get("captured", "routing"))


def routing_title(statistics: RoutingStatistics) -> str:
    """The source and the size of a routing trace, in a line."""
    return trace_title(statistics.trace)


def trace_title(trace: Mapping[str, Any]) -> str:
    """The same of what statistics say of their trace."""
    layers = counted(len(trace["layers"]), "layer")
    experts = f"{trace['experts_per_token']} of {trace['experts']} experts in {layers}"
    decode = f"{counted(trace['steps'], 'step')} of {counted(trace['batch'], 'sequence')}"
    prompts = f", {counted(trace['prefill_tokens'], 'prompt token')}" if trace["prefill_tokens"] else ""
    return f"{source_words(trace['source'])}: {experts}, {decode if trace['steps'] else 'no decode'}{prompts}"


def _share(estimate: Estimate) -> str:
    """A share with its sampling error: ``22.01% +- 0.06``."""
    error = "" if estimate.error is None else f" +- {100 * estimate.error:.2f}"
    return f"{100 * estimate.value:z.2f}%{error}"


def _number(estimate: Estimate) -> str:
    error = "" if estimate.error is None else f" +- {estimate.error:.3f}"
    return f"{estimate.value:z.3f}{error}"


def _range(estimate: Estimate) -> str:
    return f"layers {100 * estimate.least:z.1f} to {100 * estimate.most:z.1f}%"


def _shares(title: str, shares: Mapping[str, Estimate]) -> None:
    rows = [
        (f"{name.replace('_', ' ')} ({of_experts} of experts)", _share(shares[name]), _range(shares[name]))
        for names, fractions in zip(_CLASSES, _FRACTIONS, strict=True)
        for name, of_experts in zip(names, fractions, strict=True)
        if name in shares
    ]
    print_table(title, ("class", "share of selections", "from layer to layer"), rows, left=1)


def _curve(phase: PhaseStatistics) -> str:
    return ", ".join(f"{point.experts}: {percent(point.cumulative_share)}" for point in phase.rank_curve)


def _phase_facts(name: str, phase: PhaseStatistics) -> list[tuple[str, str, str]]:
    unused = counted(phase.unused, "pair") + " of layer and expert never chosen"
    return [
        (f"{name}, largest over mean", _number(phase.largest_over_mean), unused),
        (f"{name}, by rank", "most popular:", _curve(phase)),
    ]


def _reuse(name: str, reuse: Reuse | None) -> list[tuple[str, str, str]]:
    if reuse is None:
        return []
    words = f"{_share(reuse.independent)} if independent, so stickiness {_number(reuse.stickiness)}"
    return [(name, _share(reuse.reuse), words)]


def print_routing(statistics: RoutingStatistics) -> None:
    """The result of `describe_routing`."""
    print_text(routing_title(statistics), bold=True)
    facts: list[tuple[str, str, str]] = []
    for name, phase in (("decode", statistics.decode), ("prefill", statistics.prefill)):
        if phase is not None:
            _shares(f"{name}, experts ranked over all of it", phase.shares)
            facts += _phase_facts(name, phase)
    if statistics.decode is not None and statistics.trace["steps"] > 1:
        _shares("decode, experts ranked in each step", statistics.decode.step_shares)
    facts += _reuse("reuse, token to token", statistics.token_reuse)
    facts += _reuse("reuse, step to step", statistics.step_reuse)
    facts += _reuse("reuse in prompts", statistics.prefill_reuse)
    if statistics.step_drift is not None:
        words = "of experts exchange their popularity from a step to the next"
        facts.append(("drift", _share(statistics.step_drift), words))
    if statistics.prefill_cosine is not None and statistics.prefill_overlap is not None:
        words = f"cosine of loads; {_share(statistics.prefill_overlap)} of decode's top 10% are prefill's"
        facts.append(("prefill and decode", _number(statistics.prefill_cosine), words))
    if statistics.active_experts:
        active = ", ".join(f"{one.batch}: {one.mean:.1f}" for one in statistics.active_experts)
        facts.append(("active experts", f"of {statistics.trace['experts']}", f"by batch, mean: {active}"))
    if statistics.prediction is not None:
        found = statistics.prediction
        words = (
            f"of selections foretold by a moving average ({found.weight:g}); hot experts "
            f"{percent(found.hot_found)}, classes {percent(found.class_accuracy)}"
        )
        facts.append(("predictability", percent(found.load_overlap), words))
    print_grid(facts)
    print_text("+-: sampling error of 95%, with the bias of ranking, from groups of sequences left out")
