"""``ndpsim cite``: BibTeX of ndpsim and of the papers whose systems a run used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import click

from ndpsim.base.arguments import choice
from ndpsim.base.errors import InputError
from ndpsim.base.options import Kind, Parameter, table
from ndpsim.base.text_files import read_json
from ndpsim.cli.command import Options, taking
from ndpsim.cli.names import NAMES

_PAPERS = Path(__file__).with_name("papers.bib")
_FIELD = re.compile(r"\n  ndpsim = \{([^}]*)\},")


class Paper(NamedTuple):
    """An entry of `papers.bib`, and the names of the bundled hardware and policies that follow it."""

    entry: str
    hw: tuple[str, ...]
    policies: tuple[str, ...]


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, in the order of the file."""
    entries = re.findall(r"(?ms)^@.*?^\}$", _PAPERS.read_text(encoding="utf-8"))
    found = []
    for entry in entries:
        stated = _FIELD.search(entry)
        kinds = dict(part.split(": ") for part in stated[1].split("; ")) if stated else {}
        hw, policies = (tuple(filter(None, kinds.get(kind, "").split(", "))) for kind in ("hw", "policy"))
        found.append(Paper(_FIELD.sub("", entry), hw, policies))
    return tuple(found)


def own_entry() -> str:
    """The entry of ndpsim itself, of this version."""
    about = metadata.metadata("ndpsim")
    addresses = dict(line.split(", ", 1) for line in about.get_all("Project-URL") or ())
    fields = {
        "title": f"ndpsim: {about['Summary']}",
        "author": f"{{{about['Author']}}}",
        "version": about["Version"],
        "url": addresses.get("Repository", ""),
    }
    lines = (f"  {name} = {{{value}}}," for name, value in fields.items() if value)
    return "\n".join(("@software{ndpsim,", *lines, "}"))


def citations(hw: Iterable[str], policies: Iterable[str]) -> list[str]:
    """The entry of ndpsim, then those of the papers of these systems; a system without a paper has none."""
    hw, policies = set(hw), set(policies)
    used = (
        paper.entry
        for paper in papers()
        if hw.intersection(paper.hw) or policies.intersection(paper.policies)
    )
    return [own_entry(), *used]


def systems_of(result: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names of the hardware and the policies in a result of ``--json``."""
    config = result.get("config") or {}
    hardware = config.get("hardware") or {}
    runs: Sequence[Mapping[str, Any]] = result.get("runs") or ()
    names = [config.get("policy"), result.get("policy"), *(run.get("policy") for run in runs)]
    policies = [name.partition(":")[0] for name in names if isinstance(name, str)]
    return [hardware["name"]] if isinstance(hardware.get("name"), str) else [], policies


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
    from ndpsim.cli.cite import citations, systems_of

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
