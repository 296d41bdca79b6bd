"""``ndpsim list``: list what is bundled: hardware, models, presets, formats."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.base.options import Choice, Parameter, table
from ndpsim.cli.command import Options, taking
from ndpsim.cli.names import NAMES

_WHAT = Parameter(
    "what", "Kind of names.", Choice(tuple(NAMES), "kind of thing", form="WHAT"), positional=True
)


_WIDTH = 78  # columns of a line of the short list


def _in_short(kind: str, names: Sequence[str]) -> str:
    """A kind and as many of its names as fit in a line: ``models: deepseek-moe-16b and 21 more``."""
    for shown in range(len(names), -1, -1):
        rest = [f"and {len(names) - shown} more"] if shown < len(names) else []
        line = " ".join((f"{kind}:", *names[:shown], *rest))
        if len(line) <= _WIDTH:
            return line
    return f"{kind}: {len(names)}"


@taking(table({"": (_WHAT,)}), examples=("ndpsim list", "ndpsim list models"))
def command(options: Options) -> None:
    """List the names of one kind (hw, models, orgs, ...), or the kinds with their first names.

    For a policy, the list has the engines that it uses and those that it needs, and its paper. For a part,
    the list has the main numbers, and for a format of routing or requests its program and its columns.
    """
    from ndpsim.report.printing import print_text

    what = options.get("what")
    if what is None:
        for kind, names in NAMES.items():
            print_text(_in_short(kind, names()))
        print_text("All names of a kind: ndpsim list KIND, for instance ndpsim list models")
    elif what == "policies":
        from ndpsim.report.bundled import print_policies

        print_policies()
    elif what == "parts":
        from ndpsim.report.bundled import print_parts

        print_parts()
    elif what in ("routing-formats", "workload-formats"):
        from ndpsim.report.bundled import print_formats
        from ndpsim.workload.requests.importing import request_formats
        from ndpsim.workload.routing.importing import routing_formats

        print_formats(routing_formats() if what == "routing-formats" else request_formats())
    else:
        for name in NAMES[what]():
            print_text(name)
