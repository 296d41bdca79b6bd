"""REPORT.md, and the papers' figures redrawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ndpsim.base.files import replacing
from ndpsim.studies.claims.claim import Assumption, Paper, read_tolerances
from ndpsim.studies.claims.evaluate import (
    RATIOS,
    Change,
    Outcome,
    Pair,
    allowed_interval,
    interval_of,
    loads_of,
)
from ndpsim.studies.claims.words import (
    COLUMNS,
    PAIR_COLUMNS,
    SENSITIVITY_COLUMNS,
    VALUE_COLUMNS,
    Changes,
    command_of,
    decided_by_pair,
    decided_by_value,
    figure_in_words,
    number_in_words,
    omitted,
    range_of,
    row_of,
    sensitivity_row,
    summary,
    value_in_words,
)

_PICTURES = "figures"
_LOADS = ("measured", "skewed")


@dataclass(frozen=True)
class _Picture:
    """A redrawn figure of a paper: its file, relative to the report, and its name in the paper."""

    file: str
    paper: str
    figure: str


def write_report(
    folder: Path,
    outcomes: Sequence[Outcome],
    changes: Changes | None,
    pairs: Sequence[Pair] = (),
    loads: Changes | None = None,
) -> None:
    """Write REPORT.md, and in ``figures`` a picture of every figure with two claims or more.

    loads: outcomes of the headlines with other loads; None: they were not run.

    Raises:
        InputError: a file cannot be written.
    """
    pictures = _draw(folder, outcomes, changes or {})
    with replacing(folder / "REPORT.md") as file:
        file.write("\n".join(_lines(outcomes, changes, pairs, pictures, loads)).encode() + b"\n")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of Markdown."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _lines(
    outcomes: Sequence[Outcome],
    changes: Changes | None,
    pairs: Sequence[Pair],
    pictures: Sequence[_Picture],
    loads: Changes | None,
) -> list[str]:
    option = " --stated-loads" if loads is None else "" if changes is None else " --sensitivity"
    papers = {outcome.paper.paper: outcome.paper for outcome in outcomes}
    lines = [
        "# Published and simulated figures",
        "",
        f"Made by `ndpsim validate{option} --report validation`. `validation/claims/` has the "
        "quote of each claim, its reading, its runs and its tolerance; `ndpsim show claim NAME` prints them, "
        "with a command for each run. Three kinds of claims are no "
        "predictions: fitted claims (a parameter was fitted to the figure), transcribed figures (a model or "
        "hardware file copies them), and given trends (inputs or the construction make them true).",
        "",
        *(f"- {line}" for line in summary(outcomes)),
        "",
        *_headlines(outcomes, loads),
        "Contents: " + ", ".join(f"[{name}](#{name})" for name in papers) + ".",
        "",
        "## Tolerances",
        "",
        *markdown_table(
            ("class", "share", "why"),
            ((name, f"{100 * rule.share:.0f}%", rule.reason) for name, rule in read_tolerances().items()),
        ),
    ]
    if changes is not None:
        lines += _decided(outcomes, changes, pairs)
    for name, paper in papers.items():
        theirs = [outcome for outcome in outcomes if outcome.paper.paper == name]
        lines += _paper_section(paper, theirs, changes, [drawn for drawn in pictures if drawn.paper == name])
    return lines


def _decided(outcomes: Sequence[Outcome], changes: Changes, pairs: Sequence[Pair]) -> list[str]:
    """The verdicts that values of assumptions change, alone and in pairs."""
    lines = [
        "",
        "## The most influential values",
        "",
        "The verdicts that another value of an assumption turns from off to holds (mends), and from "
        "holds to off (breaks), one assumption changed at a time. Values that were fitted to the figure of a "
        "claim turn no verdict of it here.",
        "",
        *([f"{left}.", ""] if (left := omitted(outcomes, changes)) else []),
        *markdown_table(VALUE_COLUMNS, decided_by_value(outcomes, changes)),
    ]
    rows = decided_by_pair(pairs)
    words = (
        "The same for two values at once, of the five most influential assumptions, over claims that have "
        "both; the last column has the verdicts that neither value turns alone."
    )
    return lines + (["", words, "", *markdown_table(PAIR_COLUMNS, rows)] if rows else [])


def _headlines(outcomes: Sequence[Outcome], changes: Changes | None) -> list[str]:
    """The papers' main figures, each with measured and with skewed loads of experts if these were run."""
    rows, kinds = [], () if changes is None else _LOADS
    for outcome in outcomes:
        if outcome.claim.is_headline:
            name, place, published, ours, error, _, verdict = row_of(outcome)
            loads = [_on_loads(outcome, kind, (changes or {}).get(outcome.claim.name, ())) for kind in kinds]
            rows.append((name, place, published, ours, error, verdict, *loads))
    words = 'The simulated figure ("ours") has the loads of the claim.'
    if kinds:
        words += " The last columns have the first measured and the first skewed loads among its assumptions."
    header = (*COLUMNS[:5], COLUMNS[6], *(f"on {kind} loads" for kind in kinds))
    return ["## The papers' headlines", "", words, "", *markdown_table(header, rows), ""] if rows else []


def _on_loads(outcome: Outcome, kind: str, changes: Sequence[Change]) -> str:
    """The simulated figure with such loads; empty: it was not run, or does not depend on loads."""
    others = [
        change.outcome for change in changes if change.loads == kind and change.assumption.key == "routing"
    ]
    found = [outcome] if loads_of(outcome.claim) == kind else others
    return f"{row_of(found[0])[3]}, {found[0].verdict}" if found else ""


def _paper_section(
    paper: Paper, outcomes: Sequence[Outcome], changes: Changes | None, pictures: Sequence[_Picture]
) -> list[str]:
    lines = ["", f"## {paper.paper}", "", f"*{paper.title}*", ""]
    lines += (f"- {line}" for line in summary(outcomes))
    compared = [outcome for outcome in outcomes if outcome.claim.kind != "not-reproducible"]
    rows = ((*row_of(outcome), f"`{command_of(outcome.claim)}`") for outcome in compared)
    lines += ["", *markdown_table((*COLUMNS, "command"), rows)]
    reasons = [(outcome.claim.name, outcome.why or outcome.reason) for outcome in compared]
    explained = [f"- `{name}`: {reason}" for name, reason in reasons if reason]
    if explained:
        lines += ["", f"### {paper.paper}: why not", "", *explained]
    lines += _trends(paper, [outcome for outcome in compared if outcome.claim.kind == "trend"])
    for picture in pictures:
        lines += ["", f"![{picture.figure} of {paper.paper}, published and ours]({picture.file})"]
    if changes is not None:
        lines += _sensitivity(paper, compared, changes)
    others = [outcome.claim for outcome in outcomes if outcome.claim.kind == "not-reproducible"]
    if others:
        rows = (
            (claim.name, claim.place, figure_in_words(claim.published), claim.why or "") for claim in others
        )
        header = ("claim", "place", "published", "why")
        lines += ["", f"### {paper.paper}: not reproducible here", "", *markdown_table(header, rows)]
    return lines


def _trends(paper: Paper, outcomes: Sequence[Outcome]) -> list[str]:
    """Conditions that would make each trend false, or inputs that make it true."""
    if not outcomes:
        return []
    rows = []
    for outcome in outcomes:
        claim = outcome.claim
        says = claim.falsified_by.says if claim.falsified_by else f"given by {claim.given_by}"
        figures = (f"{name} {number_in_words(value)}" for name, value in outcome.metrics.items())
        rows.append((claim.name, says, "; ".join(figures), outcome.verdict))
    header = ("trend", "false where", "figures", "verdict")
    return ["", f"### {paper.paper}: what would make its trends false", "", *markdown_table(header, rows)]


def _sensitivity(paper: Paper, outcomes: Sequence[Outcome], changes: Changes) -> list[str]:
    simulated = [outcome for outcome in outcomes if outcome.claim.name in changes]
    rows = (sensitivity_row(outcome, changes[outcome.claim.name]) for outcome in simulated)
    return [
        "",
        f"### {paper.paper}: effect of assumptions",
        "",
        "Simulated figures at other values of what the paper does not say, one changed at a time; "
        "`validation/claims/` has the values and their reasons.",
        "",
        *markdown_table(SENSITIVITY_COLUMNS, rows),
        "",
        f"<details><summary>{paper.paper}: each value</summary>",
        "",
        *markdown_table(
            ("claim", "assumption", "ours by its value"),
            (
                (claim.name, assumption.key, "; ".join(_at_values(assumption, changes[claim.name])))
                for claim in (outcome.claim for outcome in simulated)
                for assumption in claim.assumptions
            ),
        ),
        "",
        "</details>",
    ]


def _at_values(assumption: Assumption, changes: Sequence[Change]) -> Iterator[str]:
    """The simulated figure at each value of an assumption, and whether it holds."""
    for change in changes:
        if change.assumption == assumption:
            ours = change.outcome.ours
            number = "" if ours is None else f"{number_in_words(ours)}, "
            yield f"{value_in_words(change.value)}: {number}{change.outcome.verdict}"


def _draw(folder: Path, outcomes: Sequence[Outcome], changes: Changes) -> list[_Picture]:
    """A picture of each figure, with its claims that have numbers in one unit."""
    from ndpsim.report.pictures.claims import ClaimBar, draw_claims  # noqa: PLC0415 (brings matplotlib)

    (folder / _PICTURES).mkdir(parents=True, exist_ok=True)
    figures: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        claim = outcome.claim
        if claim.figure is not None and claim.kind in ("exact", "simulated"):
            figures.setdefault((outcome.paper.paper, claim.figure, claim.published.unit), []).append(outcome)
    pictures = []
    for (paper, figure, unit), together in figures.items():
        if len(together) < 2:
            continue
        bars = [
            ClaimBar(
                name=outcome.claim.name.removeprefix(f"{paper}-"),
                published=interval_of(outcome.claim.published),
                ours=None if outcome.ours is None else float(outcome.ours),
                allowed=allowed_interval(outcome.claim.published, outcome.tolerance or 0.0),
                holds=outcome.verdict == "holds",
                fitted=bool(outcome.claim.fitted),
                reach=range_of(outcome, changes.get(outcome.claim.name, ())),
            )
            for outcome in together
        ]
        file = f"{_PICTURES}/{_file_name(f'{paper} {figure} {unit}')}.svg"
        is_ratio = unit in RATIOS
        words = "times" if is_ratio else unit
        draw_claims(str(folder / file), f"{paper}, {figure}", words, bars, 1.0 if is_ratio else None)
        pictures.append(_Picture(file, paper, figure))
    return pictures


def _file_name(words: str) -> str:
    letters = "".join(c if c.isalnum() else " " for c in words.replace("%", "percent").lower())
    return "-".join(letters.split())
