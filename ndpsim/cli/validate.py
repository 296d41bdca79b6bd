"""``ndpsim validate``: compare published figures with simulated ones."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from ndpsim.base.options import Flag, Folder, Kind, Parameter, Real, refuse, table
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.swept import STUDY
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, naming, progress_of

#: Time for runs with other values of assumptions.
MINUTES = 30.0

_VALIDATE = table(
    {
        "Validation": (
            Parameter(
                "names",
                "Papers or claims to run.",
                Kind(form="PAPER|CLAIM"),
                positional=True,
                repeatable=True,
            ),
            replace(SET, help="Change a key in all runs that have it, e.g. batch=4. Repeatable."),
            STUDY["jobs"],
            Parameter(
                "sensitivity", "Run again with other values of unstated assumptions; takes long.", Flag()
            ),
            Parameter(
                "minutes",
                "Time for runs with other values. What is left out then is named, and the next call "
                "goes on there.",
                Real(0.0),
                MINUTES,
                needs="sensitivity",
            ),
        ),
        "Results": (
            JSON,
            Parameter(
                "report", "Write REPORT.md and redrawn figures of the papers into this folder.", Folder()
            ),
            Parameter(
                "stated-loads",
                "Headlines with the loads of their claims alone; others take most of the time of --report.",
                Flag(),
                needs="report",
            ),
        ),
    }
)


@taking(
    _VALIDATE,
    examples=(
        "ndpsim validate cxl-decode-largest --set batch=4",
        "ndpsim validate --report validation --sensitivity",
    ),
)
def command(options: Options) -> None:
    """Run the simulations for published claims, and compare published figures with simulated ones.

    The figure of an exact claim must be equal. The figure of a simulated claim must be within the tolerance
    of its class; a ratio must also be on the same side of 1. The exit status is 1 if a verdict differs from
    the expected one, also if a claim holds unexpectedly, unless --set changes a key. Runs of the same version
    of ndpsim are read from the cache. ndpsim show claim NAME prints a claim and the commands of its runs.
    """
    from ndpsim.cli.sweep import keys_as_typed, pairs
    from ndpsim.studies.claims.evaluate import chosen_claims, evaluate, on_other_loads, with_settings
    from ndpsim.studies.claims.evaluate import sensitivity as at_other_values
    from ndpsim.studies.claims.pairs import pairs as at_two_values
    from ndpsim.studies.claims.words import plain_data, print_outcomes
    from ndpsim.studies.sweeps.executors.local import chosen_jobs

    if "sensitivity" in options:
        refuse(options, "cannot be used with --sensitivity, which changes loads, too", "stated-loads")
    with naming(claim="PAPER|CLAIM"):
        claims = chosen_claims(options.get("names", ()))
    settings = pairs(options, "set", "batch=4")
    with keys_as_typed(options):
        claims = with_settings(claims, settings)
    processes = chosen_jobs(options.get("jobs"))
    with progress_of("running claims") as progress:
        outcomes = evaluate(claims, processes, progress)
    changes, two = None, []
    if "sensitivity" in options:
        end = time.monotonic() + 60 * options.get("minutes", MINUTES)
        with progress_of("changing assumptions") as progress:
            changes = at_other_values(claims, processes, progress, end - time.monotonic())
        with progress_of("changing two assumptions") as progress:
            left = end - time.monotonic()
            two = at_two_values(claims, outcomes, changes, processes, progress, seconds=left)
    if "report" in options:
        from ndpsim.studies.claims.report import write_report

        loads = changes
        if changes is None and "stated-loads" not in options:
            with progress_of("changing loads") as progress:
                loads = on_other_loads(claims, processes, progress)
        write_report(Path(options["report"]), outcomes, changes, two, loads)
    answer(
        options,
        lambda: plain_data(outcomes, changes, two),
        lambda: print_outcomes(outcomes, changes, two),
    )
    if not settings and any(outcome.is_news for outcome in outcomes):
        click.get_current_context().exit(1)
