"""REPORT.md, and the papers' figures redrawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ndpsim.claims.claim import Paper
from ndpsim.claims.evaluate import Moved
from ndpsim.claims.files import read_papers, read_tolerances
from ndpsim.claims.verdict import Outcome
from ndpsim.claims.words import COLUMNS, figure_in_words, row_of, summary
from ndpsim.files import replacing
from ndpsim.units import significant

__all__ = ["write_report"]


def write_report(folder: Path, outcomes: Sequence[Outcome], moved: Sequence[Moved]) -> list[Path]:
    """Write REPORT.md and a picture of every figure with two claims or more; returns what was written.

    Raises:
        InputError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _pictures(folder, outcomes)
    report = folder / "REPORT.md"
    with replacing(report) as file:
        file.write("\n".join(_lines(outcomes, moved, pictures)).encode() + b"\n")
    return [report, *(path for path, _, _ in pictures)]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _lines(
    outcomes: Sequence[Outcome], moved: Sequence[Moved], pictures: Sequence[tuple[Path, str, str]]
) -> list[str]:
    papers = read_papers()
    made = f"ndpsim validate --report DIR{' --sensitivity' if moved else ''}"
    lines = [
        "# Published figures, and ours",
        "",
        f"Made by `{made}`. How each claim is read, what "
        "it is run with and why it may be how far off stand in `validation/claims/`.",
        "",
        *(f"- {line}" for line in summary(outcomes)),
        "",
        "## How far off is allowed",
        "",
        *_table(
            ("class", "share", "why"),
            ((name, f"{100 * one.share:.0f}%", one.reason) for name, one in read_tolerances().items()),
        ),
    ]
    for name, paper in papers.items():
        of_paper = [one for one in outcomes if one.paper == name]
        if of_paper:
            lines += _of_paper(paper, of_paper, [one for one in pictures if one[1] == name])
    if moved:
        lines += _sensitivity(outcomes, moved)
    return lines


def _of_paper(
    paper: Paper, outcomes: Sequence[Outcome], pictures: Sequence[tuple[Path, str, str]]
) -> list[str]:
    lines = [
        "",
        f"## {paper.paper}",
        "",
        f"*{paper.title}*",
        "",
        *(f"- {one}" for one in summary(outcomes)),
        "",
    ]
    compared = [one for one in outcomes if one.claim.kind != "not-reproducible"]
    lines += _table(COLUMNS, map(row_of, compared))
    why = [one for one in compared if one.claim.why or one.reason]
    if why:
        lines += ["", *(f"- `{one.claim.name}`: {one.claim.why or one.reason}" for one in why)]
    for path, _, figure in pictures:
        lines += ["", f"![{figure} of {paper.paper}, published and ours]({path.name})"]
    others = [one for one in outcomes if one.claim.kind == "not-reproducible"]
    if others:
        rows = (
            (one.claim.name, one.claim.place, figure_in_words(one.claim.published), one.claim.why or "")
            for one in others
        )
        lines += ["", "Not reproducible here:", "", *_table(("claim", "place", "published", "why"), rows)]
    return lines


def _sensitivity(outcomes: Sequence[Outcome], moved: Sequence[Moved]) -> list[str]:
    ours = {one.claim.name: one.ours for one in outcomes}
    rows = []
    for one in moved:
        values = ", ".join(f"{value}: {_value(result)}" for value, result in one.ours.items())
        claim = one.claim
        rows.append(
            (
                claim.name,
                figure_in_words(claim.published),
                _value(ours.get(claim.name)),
                one.assumption.key,
                values,
                one.assumption.reason,
            )
        )
    header = ("claim", "published", "ours", "assumption", "ours by its value", "why these values")
    return ["", "## What each assumption decides", "", *_table(header, rows)]


def _value(value: float | bool | None) -> str:
    if value is None:
        return "cannot be run"
    if isinstance(value, bool):
        return "so" if value else "not so"
    return significant(value)


def _pictures(folder: Path, outcomes: Sequence[Outcome]) -> list[tuple[Path, str, str]]:
    """A picture of each figure, with its paper and what the paper calls it."""
    from ndpsim.report.pictures.claims import ClaimBar, draw_claims  # noqa: PLC0415 (brings matplotlib)

    figures: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in outcomes:
        drawn = one.claim.figure is not None and one.claim.published.statement is None
        if drawn and one.claim.kind != "not-reproducible":
            figures.setdefault((one.paper, str(one.claim.figure), one.claim.published.unit), []).append(one)
    pictures = []
    for (paper, figure, unit), of_figure in figures.items():
        if len(of_figure) < 2:
            continue
        bars = []
        for one in of_figure:
            published = one.claim.published
            low = published.value if published.low is None else published.low
            high = published.value if published.high is None else published.high
            assert low is not None
            assert high is not None
            ours = None if one.ours is None else float(one.ours)
            name = one.claim.name.removeprefix(f"{paper}-")
            bars.append(ClaimBar(name, low, high, ours, one.tolerance or 0.0, one.verdict == "holds"))
        words = "-".join(
            "".join(c if c.isalnum() else " " for c in f"{paper} {figure} {unit}".lower()).split()
        )
        path = folder / f"{words}.svg"
        draw_claims(str(path), f"{paper}, {figure}", unit or "ratio", bars)
        pictures.append((path, paper, figure))
    return pictures
