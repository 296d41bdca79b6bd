"""``ndpsim cite``: BibTeX of ndpsim and of the papers whose systems a run used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ndpsim.base.arguments import choice
from ndpsim.base.errors import InputError
from ndpsim.base.options import Kind, Parameter, table
from ndpsim.base.text_files import read_json
from ndpsim.cli.command import Options, taking
from ndpsim.cli.names import NAMES

_CITE = table(
    {
        "What was used": (
            Parameter(
                "results",
                "Results of --json, which name the hardware and the policies.",
                Kind(form="RESULT.json"),
                positional=True,
                repeatable=True,
                files=(".json",),
            ),
            Parameter("hw", "Hardware. Repeatable.", Kind(form="NAME"), names="hw pim-hw", repeatable=True),
            Parameter("policy", "Policy. Repeatable.", Kind(form="NAME"), names="policies", repeatable=True),
        )
    }
)


@taking(_CITE, examples=("ndpsim cite --hw trimoe --policy dali", "ndpsim cite result.json"))
def command(options: Options) -> None:
    """Print BibTeX of ndpsim, and of the papers whose hardware and policies a run used.

    A file of one's own has no paper here; cite what it follows.
    """
    from ndpsim.report.citing import citations, systems_of

    machines = [*NAMES["hw"](), *NAMES["pim-hw"]()]
    known = NAMES["policies"]()
    hw = [choice(name, "hw", machines, "hardware") for name in options.get("hw", ())]
    policies = [
        choice(name.partition(":")[0], "policy", known, "policy") for name in options.get("policy", ())
    ]
    for file in options.get("results", ()):
        used = systems_of(_result(file))
        hw, policies = [*hw, *used[0]], [*policies, *used[1]]
    click.echo("\n\n".join(citations(hw, policies)))


def _result(file: str) -> dict[str, Any]:
    """The result in a file of ``--json``.

    Raises:
        InputError: it is none.
    """
    result = read_json(Path(file))
    if not isinstance(result, dict):
        raise InputError("is not one result of --json", "form", file=file)
    return result
