"""Commands whose help begins with examples, and whose options the shell completes."""

from __future__ import annotations

import inspect
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ndpsim.cli.completion import completing
from ndpsim.errors import InputError

Section = tuple[str, Sequence[tuple[str, str]]]  # a title, and names with what they are

_WIDEST = 100
# Of every command by itself: click remembers the help option of the first context that asks for it.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}

# Options by what they are about, in the order of the help; what is in none of them comes last.
_SECTIONS = {
    "What is simulated": "hw model policy shape tokens release-ns start-clock refresh-phases engine experts "
    "from to from-dimms to-dimms topology no-host other-dimms layout layers kv context gpu-experts set row "
    "repeat",
    "Machine": "cpu sockets memory memory-gb gpu link",
    "Weights": "bits dense-bits weights kv-bits group-size scale-bits zero-point-bits",
    "Host traffic": "host-traffic host-reads host-pattern arbitration slice-clocks",
    "Memory": "standard org timing ranks rules channels mapper scheduler row-policy row-cap refresh "
    "read-buffer write-buffer wck lanes",
    "Trace": "format wrap start-clock sweep-load",
    "Program": "program chunk n-cpu-moe no-upgrades",
    "Routing": "routing batch steps prompt generated prefix seed offline experts-per-token",
    "Sweep": "vary zip baseline runs sampler seed batch jobs cluster retry-failed",
    "Validation": "sensitivity",
    "Results": "json plot size panels kind x y by report timeline log check-layer check-limit commands "
    "commands-format lane channel energy limit markdown out name force",
}
_OTHERS = "Other options"
_COMPLETION = (
    ("bash", 'eval "$(_NDPSIM_COMPLETE=bash_source ndpsim)"'),
    ("zsh", 'eval "$(_NDPSIM_COMPLETE=zsh_source ndpsim)"'),
    ("fish", "_NDPSIM_COMPLETE=fish_source ndpsim | source"),
)


class Command(click.Command):
    """A command with examples.

    Args:
        examples: calls as they are typed, each beginning with ``ndpsim``.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **{"context_settings": CONTEXT_SETTINGS, **options})
        self.examples = tuple(examples)
        self.params = [completing(parameter) for parameter in self.params]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; but an option with one value is given once, instead of the last one counting."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for parameter, count in Counter(given).items():
                several = parameter.multiple or getattr(parameter, "is_flag", False) or parameter.nargs == -1
                if count > 1 and not several:
                    raise InputError(f"is given {count} times", key=max(parameter.opts, key=len))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text(self, ctx, self.examples, _option_sections(self, ctx)))


class CommandGroup(click.Group):
    """A command with commands of its own, and examples as `Command` has them."""

    def command_rows(self) -> list[tuple[str, str]]:
        """Its commands with what they do, for the help."""
        return [(name, command.get_short_help_str(_WIDEST)) for name, command in self.commands.items()]

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **{"context_settings": CONTEXT_SETTINGS, **options})
        self.examples = tuple(examples)
        self.params = [completing(parameter) for parameter in self.params]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = [("Commands", self.command_rows()), *_option_sections(self, ctx)]
        formatter.write(help_text(self, ctx, self.examples, sections))


def help_text(
    command: click.Command,
    context: click.Context,
    examples: Sequence[str],
    sections: Sequence[Section],
) -> str:
    """The help of a command: usage, examples, what it does, tables with titles, and how to complete it."""
    from ndpsim.report.printing import aligned, line_width, wrapped

    width = min(line_width() or _WIDEST, _WIDEST)
    blocks = [
        wrapped(f"Usage: {context.command_path} {' '.join(command.collect_usage_pieces(context))}", width)
    ]
    blocks.append(["Examples:", *(line for example in examples for line in _typed(example, width))])
    blocks += [
        _indented(wrapped(" ".join(paragraph.split()), width - 2))
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n")
    ]
    complete = "Completion in the shell, for its startup file"
    for title, rows in (*sections, (complete, _COMPLETION)):
        blocks.append([f"{title}:", *_indented(aligned(rows, width - 2))])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _typed(example: str, width: int) -> Iterator[str]:
    """A call over as many lines as it needs, as a shell takes them."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(example)):
        if lines[-1] and len(lines[-1]) + len(word) + 5 > width:  # two blanks before, a blank and \ behind
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    yield from (f"  {line} \\" for line in lines[:-1])
    yield f"  {lines[-1]}"


def _option_sections(command: click.Command, context: click.Context) -> list[Section]:
    section_of = {f"--{name}": title for title, names in _SECTIONS.items() for name in names.split()}
    order = list(section_of)
    found: dict[str, list[tuple[int, tuple[str, str]]]] = {title: [] for title in (*_SECTIONS, _OTHERS)}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            name = max(parameter.opts, key=len)
            place = order.index(name) if name in order else len(order)
            found[section_of.get(name, _OTHERS)].append((place, record))
    in_order = {title: sorted(rows, key=lambda row: row[0]) for title, rows in found.items() if rows}
    return [(title, [record for _, record in rows]) for title, rows in in_order.items()]
