"""``ndpsim validate``: what papers publish, beside ours."""

from __future__ import annotations

from pathlib import Path

import click

from ndpsim.cli.command import Command
from ndpsim.cli.options import (
    check_folder,
    check_outputs,
    json_option,
    named_as_options,
    progress_of,
    write_json,
)


@click.command(
    cls=Command,
    examples=(
        "ndpsim validate trimoe --json trimoe.json",
        "ndpsim validate --report validation --sensitivity",
    ),
)
@click.argument("names", nargs=-1, metavar="[PAPER|CLAIM]...")
@click.option("--jobs", "-j", type=int, help="Processes that run.  [default: one for each core]")
@json_option
@click.option(
    "--report", "report_to", metavar="DIR", help="Write REPORT.md and the papers' figures with ours there."
)
@click.option(
    "--sensitivity", is_flag=True, help="Run again with other values of what papers do not say; takes long."
)
def command(
    names: tuple[str, ...], jobs: int | None, json_to: str | None, report_to: str | None, sensitivity: bool
) -> None:
    """Run what the claims of papers are about, and hold ours beside what is published.

    Exact claims have to be equal, simulated ones within the tolerance of their class, and of a ratio on the
    same side of 1. A verdict that is not the one expected, for the better or for the worse, ends with exit
    status 1. What has been run before, with the same version of ndpsim, is found in the cache.
    """
    check_outputs({"--json": json_to})
    if report_to is not None:
        check_folder(Path(report_to), "--report")
    from ndpsim.devtools.claims.evaluate import chosen_claims, evaluate
    from ndpsim.devtools.claims.evaluate import sensitivity as at_other_values
    from ndpsim.devtools.claims.pairs import pairs as at_two_values
    from ndpsim.sweeps.executors.local import chosen_jobs

    with named_as_options("jobs", claim="PAPER|CLAIM"):
        claims = chosen_claims(names)
        processes = chosen_jobs(jobs)
    with progress_of("running claims") as progress:
        outcomes = evaluate(claims, processes, progress)
    changes, pairs = None, []
    if sensitivity:
        with progress_of("changing assumptions") as progress:
            changes = at_other_values(claims, processes, progress)
        with progress_of("changing two assumptions") as progress:
            pairs = at_two_values(claims, outcomes, changes, processes, progress)
    if report_to is not None:
        from ndpsim.devtools.claims.report import write_report

        write_report(Path(report_to), outcomes, changes, pairs)
    if json_to is not None:
        from ndpsim.devtools.claims.words import plain_data

        write_json(plain_data(outcomes, changes, pairs), json_to)
    if json_to != "-":
        from ndpsim.devtools.claims.words import print_outcomes

        print_outcomes(outcomes, changes, pairs)
    if any(one.is_news for one in outcomes):
        click.get_current_context().exit(1)
