"""``ndpsim list``: list what is bundled: hardware, models, presets, formats."""

from __future__ import annotations

from ndpsim.base.options import Choice, Parameter, table
from ndpsim.cli.command import Options, taking
from ndpsim.cli.names import NAMES

_WHAT = Parameter(
    "what", "Kind of names.", Choice(tuple(NAMES), "kind of thing", form="WHAT"), positional=True
)


@taking(table({"": (_WHAT,)}), examples=("ndpsim list", "ndpsim list models"))
def command(options: Options) -> None:
    """List the names of one kind (hw, models, orgs, ...), or of all kinds.

    For a policy, the list has the engines that it uses and those that it needs, and its paper. For a part,
    the list has the main numbers.
    """
    from ndpsim.report.printing import print_text

    what = options.get("what")
    if what is None:
        for kind, names in NAMES.items():
            print_text(f"{kind}: {' '.join(names())}", indent="  ")
    elif what == "policies":
        from ndpsim.report.bundled import print_policies

        print_policies()
    elif what == "parts":
        from ndpsim.report.bundled import print_parts

        print_parts()
    else:
        for name in NAMES[what]():
            print_text(name)
