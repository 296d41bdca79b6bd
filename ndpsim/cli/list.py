"""``ndpsim list``: the names of what is bundled."""

from __future__ import annotations

import click

from ndpsim.cli.command import Command
from ndpsim.errors import InputError, one_of


def _names() -> dict[str, list[str]]:
    from ndpsim.config import hardware_names, part_names, rtl_names
    from ndpsim.config.files import PART_KINDS
    from ndpsim.layout import LAYOUTS
    from ndpsim.moe import model_names
    from ndpsim.moe.weights import weight_names
    from ndpsim.policies.choose import policy_names
    from ndpsim.processors import table_names
    from ndpsim.routing import routing_formats, routing_names
    from ndpsim.spec import standards
    from ndpsim.traces import command_forms, request_formats

    known = standards().values()
    return {
        "hw": hardware_names(),
        "parts": [name for kind in PART_KINDS for name in part_names(kind)],
        "rtl": rtl_names(),
        "models": model_names(),
        "expert-times": table_names(),
        "layouts": sorted(LAYOUTS),
        "standards": sorted(standard.name for standard in known),
        "orgs": [org for standard in known for org in standard.organisations],
        "request-formats": sorted(request_formats()),
        "policies": policy_names(),
        "routing": routing_names(),
        "routing-formats": list(routing_formats()),
        "command-forms": sorted(command_forms()),
        "timings": [timing for standard in known for timing in standard.speeds],
        "weights": weight_names(),
    }


@click.command(
    cls=Command,
    examples=(
        "ndpsim list",
        "ndpsim list models",
    ),
)
@click.argument("what", required=False)
def command(what: str | None) -> None:
    """List names, one a line: hw, models, orgs, ...; by default all kinds with their names.

    Policies come with their engines, those of them that they need, and their papers; parts with their main
    numbers.
    """
    from ndpsim.report.printing import print_text

    names = _names()
    if what is None:
        for kind, members in names.items():
            print_text(f"{kind}: {' '.join(members)}", indent="  ")
        return
    if what not in names:
        raise InputError(one_of(what, names, "kind of thing"), key="list")
    if what == "policies":
        from ndpsim.report.policies import print_policies

        print_policies()
        return
    if what == "parts":
        from ndpsim.report.parts import print_parts

        print_parts()
        return
    for name in names[what]:
        print_text(name)
