"""Commands whose options come from tables of `ndpsim.base.options`."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ndpsim.base.errors import SETS, InputError, unknown
from ndpsim.base.options import Folder, Output, Parameter, Table, joined
from ndpsim.cli.completion import offered
from ndpsim.cli.options import check_folder, check_outputs

Section = tuple[str, Sequence[tuple[str, str]]]  # a title, and names with what they are
#: The parameters of a command that the user typed, by name.
Options = dict[str, Any]

_WIDEST = 100
# Each command has its own: click remembers the help option of the first context that asks for it.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}

_OTHERS = "Other options"
_COMPLETION = (
    ("bash", 'eval "$(_NDPSIM_COMPLETE=bash_source ndpsim)"'),
    ("zsh", 'eval "$(_NDPSIM_COMPLETE=zsh_source ndpsim)"'),
    ("fish", "_NDPSIM_COMPLETE=fish_source ndpsim | source"),
)


class _Value(click.types.StringParamType):
    """The type of a value for click, from a parameter's kind."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter, self.name = parameter, parameter.form

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parameter.take(value, self.parameter.typed)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offered(self.parameter, ctx, incomplete)


class _Option(click.Option):
    """An option of a table. An option with one value may be given once; click would take the last value."""

    def __init__(self, parameter: Parameter) -> None:
        self.section = parameter.section
        default = f"  [default: {parameter.stated_default}]" if parameter.stated_default else ""
        super().__init__(
            [*([f"-{parameter.short}"] if parameter.short else []), parameter.typed, parameter.argument],
            type=None if parameter.is_flag else _Value(parameter),
            is_flag=parameter.is_flag or None,
            multiple=parameter.repeatable,
            required=parameter.required,
            metavar=parameter.form or None,
            help=parameter.help + default,
        )

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if self.is_flag or self.multiple:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(self, self.opts, self.name, "append")

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        if isinstance(value, list) and not self.multiple:
            if len(value) > 1:
                raise InputError(f"is given {len(value)} times", key=max(self.opts, key=len), code="twice")
            value = value[0]
        return super().process_value(ctx, value)


def _argument(parameter: Parameter) -> click.Argument:
    form = parameter.form if parameter.required else f"[{parameter.form}]"
    return click.Argument(
        [parameter.argument],
        type=_Value(parameter),
        nargs=-1 if parameter.repeatable else 1,
        required=parameter.required,
        metavar=form + ("..." if parameter.repeatable else ""),
    )


def options_of(table: Table) -> list[click.Parameter]:
    """The parameters of a table, for click."""
    return [_argument(each) if each.positional else _Option(each) for each in table.values()]


def _typed_options(context: click.Context, table: Mapping[str, Parameter]) -> Options:
    default = ParameterSource.DEFAULT
    sources = {name: context.get_parameter_source(parameter.argument) for name, parameter in table.items()}
    return {
        name: context.params[table[name].argument]
        for name, source in sources.items()
        if source not in (None, default)
    }


class TableCommand(click.Command):
    """A command whose parameters are in tables.

    Args:
        function: called with the parameters that the user typed.
        tables: its parameters.
        examples: calls, each beginning with ``ndpsim``.
    """

    def __init__(
        self,
        function: Callable[[Options], None],
        tables: Sequence[Table],
        examples: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.function, self.table, self.examples = function, joined(*tables), tuple(examples)
        name = function.__name__.removesuffix("_")  # Python has a word of its own for import
        options = {"name": name, "help": function.__doc__, "context_settings": CONTEXT_SETTINGS, **options}
        super().__init__(params=options_of(self.table), callback=self.run, **options)

    def run(self, **values: Any) -> None:
        """Call the function. A mistake in a Python argument names the option."""
        try:
            options = _typed_options(click.get_current_context(), self.table)
            self.table.check_needs(options, "--")
            self._check_outputs(options)
            self.function(options)
        except InputError as error:
            raise as_typed(error, self.table) from None

    def _check_outputs(self, options: Options) -> None:
        kinds = {name: type(self.table[name].kind) for name in options}
        check_outputs({self.table[name].typed: options[name] for name in options if kinds[name] is Output})
        for name in options:
            if kinds[name] is Folder:
                check_folder(Path(options[name]), self.table[name].typed)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text(self, ctx, self.examples, _option_sections(self, ctx)))


def as_typed(error: InputError, table: Mapping[str, Parameter]) -> InputError:
    """A mistake in a parameter, with the option as its key instead of the name or the Python name."""
    if error.file == SETS:
        return error.at("--set")
    typed = {name: each.typed for each in table.values() for name in (each.argument, each.name)}
    if error.file is not None or error.key not in typed:
        return error
    return error.at(key=typed[error.key])


def taking(
    *tables: Table, examples: Sequence[str], **options: Any
) -> Callable[[Callable[[Options], None]], TableCommand]:
    """Make a command from a function; the command's help is the function's docstring."""
    return lambda function: TableCommand(function, tables, examples, **options)


class CommandGroup(click.Group):
    """A command with subcommands and examples.

    Attributes:
        named: what its arguments name, in words.
    """

    named = "command"

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **{"context_settings": CONTEXT_SETTINGS, **options})
        self.examples = tuple(examples)

    def command_rows(self) -> list[tuple[str, str]]:
        """Its subcommands with their descriptions, for the help."""
        return [(name, command.get_short_help_str(_WIDEST)) for name, command in self.commands.items()]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        mistyped = bool(args) and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None
        if mistyped and not ctx.resilient_parsing:  # nothing is printed during completion
            known = [name for name, _ in self.command_rows()]
            raise unknown(args[0], known, self.named, key=ctx.info_name if ctx.parent else None)
        return super().resolve_command(ctx, args)

    def help_sections(self, ctx: click.Context) -> list[Section]:
        """The tables of the help, with their titles."""
        return [("Commands", self.command_rows()), *_option_sections(self, ctx)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text(self, ctx, self.examples, self.help_sections(ctx)))


def group(
    *examples: str, cls: type[CommandGroup] = CommandGroup, **options: Any
) -> Callable[[Callable[..., None]], CommandGroup]:
    """Make a group of commands from a function whose docstring is its help."""
    return click.group(cls=cls, examples=examples, **options)


def help_text(
    command: click.Command, context: click.Context, examples: Sequence[str], sections: Sequence[Section]
) -> str:
    """The help of a command: usage, examples, description, tables with titles, and completion."""
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
    complete = [("Completion in the shell, for its startup file", _COMPLETION)]
    for title, rows in (*sections, *(complete if context.parent is None else [])):
        blocks.append([f"{title}:", *_indented(aligned(rows, width - 2))])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _typed(example: str, width: int) -> Iterator[str]:
    """A call in lines that are short enough, joined by backslashes as in a shell."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(example)):
        if lines[-1] and len(lines[-1]) + len(word) + 5 > width:  # two blanks before, a blank and \ behind
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    yield from (f"  {line} \\" for line in lines[:-1])
    yield f"  {lines[-1]}"


def _option_sections(command: click.Command, context: click.Context) -> list[Section]:
    found: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            found.setdefault(getattr(parameter, "section", _OTHERS) or _OTHERS, []).append(record)
    return list(found.items()) if found.keys() != {_OTHERS} else [("Options", found[_OTHERS])]
