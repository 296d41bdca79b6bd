"""Parameters of commands, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.options.kinds import TEXT, Flag, Kind


@dataclass(frozen=True)
class Parameter:
    """An option of a command: on the command line, in sweeps and in Python.

    Attributes:
        name: the option without its dashes; with `positional`, a word for it in lower case.
        help: its description; one or several sentences.
        kind: the kind of its values.
        default: the value if it is not given; None: there is none.
        otherwise: the behaviour if it is not given, in words, if `default` does not describe it.
        argument: its name in Python; empty: `name` with underscores.
        form: the placeholder of a value in the help; empty: the form of the kind.
        names: the names that a value may have: kinds of ``ndpsim list``, or the names themselves.
        files: endings of the files that a value may name; an empty ending: any file.
        needs: the option, or ``OPTION=VALUE``, without which it has no effect.
        repeatable: it may be given several times, and all values count.
        positional: it is given by its place, without a name.
        required: it must be given.
        short: one letter for it.
        negates: as an option it is a flag that turns the argument off.
        section: the section of the help.
    """

    name: str
    help: str
    kind: Kind = TEXT
    default: Any = None
    otherwise: str = ""
    argument: str = ""
    form: str = ""
    names: str | tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    needs: str = ""
    repeatable: bool = False
    positional: bool = False
    required: bool = False
    short: str = ""
    negates: bool = False
    section: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "argument", self.argument or self.name.replace("-", "_"))
        object.__setattr__(self, "form", self.form or self.kind.form)
        object.__setattr__(self, "files", self.files or self.kind.files)

    @property
    def is_flag(self) -> bool:
        """Whether it has no value on the command line."""
        return isinstance(self.kind, Flag)

    @property
    def stated_default(self) -> str:
        """The default in words; empty: there is none."""
        return self.otherwise or ("" if self.default is None else str(self.default))

    @property
    def typed(self) -> str:
        """Its name as typed on a command line."""
        return self.form if self.positional else f"--{self.name}"

    def take(self, value: Any, key: str | None = None) -> Any:
        """Read and check a text of a command line, or a value of a file.

        Raises:
            InputError: the value is not allowed; its key is `key`, or the parameter's name.
        """
        return self.kind.take(value, self.name if key is None else key)

    def checked(self, value: Any) -> Any:
        """Check a value given in Python.

        Raises:
            InputError: the value is not allowed; its key is the name in Python.
        """
        return self.kind.check(value, self.argument)


class Table(dict[str, Parameter]):
    """Parameters by name."""

    def value(self, options: Mapping[str, Any], name: str) -> Any:
        """The value of an argument in Python: what is given, else its default."""
        return options.get(name, self[name].default) if not self[name].negates else not options.get(name)

    def arguments(self, options: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """The given values of these parameters (none: of all), by their names in Python."""
        return {self[name].argument: self.value(options, name) for name in names or self if name in options}

    def check_needs(self, options: Mapping[str, Any], dashes: str = "") -> None:
        """Refuse options that have no effect without another option.

        Args:
            dashes: the prefix of an option's name in a message.

        Raises:
            InputError: something is.
        """
        for name in options:
            needed, _, value = self[name].needs.partition("=") if name in self else ("", "", "")
            if needed and (needed not in options or value not in ("", options[needed])):
                problem = f"needs {dashes}{needed}{value and f' {value}'}"
                raise InputError(problem, key=name, code="conflict")

    def but(self, **changed: Parameter | None) -> Table:
        """The table with some parameters replaced; None removes a parameter."""
        kept = {**self, **{name.replace("_", "-"): parameter for name, parameter in changed.items()}}
        return Table({name: parameter for name, parameter in kept.items() if parameter is not None})


def table(sections: Mapping[str, Iterable[Parameter]]) -> Table:
    """A table of parameters by the sections of the help."""
    return Table(
        {each.name: replace(each, section=title) for title, group in sections.items() for each in group}
    )


def joined(*tables: Table, first: Iterable[str] = ()) -> Table:
    """All parameters of several tables; `first`: those that come first, in their order."""
    every = {name: parameter for each in tables for name, parameter in each.items()}
    return Table({name: every[name] for name in dict.fromkeys((*first, *every))})


def refuse(options: Mapping[str, Any], why: str, *names: str) -> None:
    """Refuse some parameters.

    Raises:
        InputError: one of them is given; `why`: the reason why it has no effect.
    """
    for name in names:
        if name in options:
            raise InputError(why, key=name, code="conflict")
