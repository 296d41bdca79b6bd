"""Parameters of commands, their kinds (whole numbers, names, lists, ...), and tables of them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ndpsim.base.arguments import as_python, attribute_of, choice, flag, number, text, whole_number
from ndpsim.base.errors import InputError

# ---- Kinds of parameters: whole numbers, names, lists of numbers and others


_INT = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Kind:
    """Any text.

    Attributes:
        form: the placeholder of a value in the help.
    """

    form: str = field(default="TEXT", kw_only=True)

    @property
    def allowed(self) -> str:
        """Allowed values in words, in addition to the form."""
        return ""

    @property
    def whole(self) -> bool:
        """Whether values are whole numbers."""
        return False

    @property
    def files(self) -> tuple[str, ...]:
        """Endings of the files that a value may name, unless the parameter has its own."""
        return ()

    def read(self, value: Any) -> Any:
        """Convert a text of a command line, or a value of a file, to the parameter's type."""
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def check(self, value: Any, key: str) -> Any:
        """Check a value given in Python.

        Raises:
            InputError: it is none of this kind.
        """
        return text(value, key).strip()

    def take(self, value: Any, key: str) -> Any:
        """Read and check a value of a command line or a file.

        Raises:
            InputError: it is none of this kind.
        """
        return self.check(self.read(value), key)


TEXT = Kind()


def _whole(value: Any) -> Any:
    """A whole number from text or from NumPy; other values are returned unchanged."""
    value = as_python(value)
    return int(value) if isinstance(value, str) and _INT.fullmatch(value.strip()) else value


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number from `least` to `most` (None: no limit), in digits: 1e3 and 8.0 are refused."""

    whole = True
    least: int = 1
    most: int | None = None
    form: str = field(default="N", kw_only=True)

    @property
    def allowed(self) -> str:
        return f"{self.least:,} to {self.most:,}" if self.most is not None else f"from {self.least:,}"

    def read(self, value: Any) -> Any:
        return _whole(value)

    def check(self, value: Any, key: str) -> int:
        return whole_number(value, key, self.least, self.most)


@dataclass(frozen=True)
class Real(Kind):
    """A number from `least` to `most`."""

    least: float = 0.0
    most: float = math.inf
    form: str = field(default="NUMBER", kw_only=True)

    @property
    def allowed(self) -> str:
        return f"from {self.least:g}" + ("" if self.most == math.inf else f" to {self.most:g}")

    def read(self, value: Any) -> Any:
        """A number from text or from NumPy; other values are returned unchanged."""
        whole = _whole(value)
        return float(whole) if isinstance(whole, str) and _FLOAT.fullmatch(whole.strip()) else whole

    def check(self, value: Any, key: str) -> float:
        return number(value, key, self.least, self.most)


@dataclass(frozen=True)
class Choice(Kind):
    """One of `names`; `what`: their meaning. With `settings`, ``:KEY=VALUE,...`` may follow the name."""

    names: tuple[str, ...] = ()
    what: str = "name"
    settings: bool = False
    form: str = field(default="NAME", kw_only=True)

    @property
    def allowed(self) -> str:
        *others, last = self.names
        return f"{', '.join(others)} or {last}" if others else last

    def read(self, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    def check(self, value: Any, key: str) -> str:
        name = value.partition(":")[0] if self.settings and isinstance(value, str) else value
        choice(name, key, self.names, self.what)
        return str(value)


@dataclass(frozen=True)
class Flag(Kind):
    """True or false; on a command line the option is present or absent."""

    form: str = field(default="", kw_only=True)

    def read(self, value: Any) -> Any:
        words = {"true": True, "false": False}
        return words.get(value.strip().lower(), value) if isinstance(value, str) else value

    def check(self, value: Any, key: str) -> bool:
        return flag(value, key)


@dataclass(frozen=True)
class Several(Kind):
    """A value of a kind, or a list of values: ``3,1,2``. With `always`, a single value becomes a list."""

    element: Kind = TEXT
    always: bool = False
    form: str = field(default="N,...", kw_only=True)

    @property
    def allowed(self) -> str:
        return self.element.allowed and f"each {self.element.allowed}"

    @property
    def whole(self) -> bool:
        return self.element.whole

    def read(self, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            parts = [parts]
        read = [self.element.read(part) for part in parts]
        return read[0] if len(read) == 1 and not self.always else read

    def check(self, value: Any, key: str) -> Any:
        listed = isinstance(value, Sequence) or attribute_of(value, "shape")
        if not listed or isinstance(value, str | bytes):
            return self.element.check(value, key)
        return [self.element.check(part, key) for part in value]


@dataclass(frozen=True)
class Own(Kind):
    """A parameter with its own form: `taken` converts the given value, or raises an error with the key."""

    taken: Callable[[Any, str], Any] = lambda value, key: value
    allowed: str = ""
    whole: bool = False

    def check(self, value: Any, key: str) -> Any:
        return self.taken(value, key)


@dataclass(frozen=True)
class Output(Kind):
    """An output file. Whether it can be written is checked before any work."""

    files = ("",)  # any file
    form: str = field(default="FILE", kw_only=True)


@dataclass(frozen=True)
class Folder(Kind):
    """A folder in which files are written."""

    form: str = field(default="DIR", kw_only=True)


# ---- Parameters of commands, and tables of them


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
        needs: the option, or ``OPTION=VALUE``, without which it has no effect; or several, one of which
            it needs, with blanks between them.
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
            any_of = [needed.partition("=") for needed in self[name].needs.split()] if name in self else []
            if any_of and not any(
                needed in options and value in ("", options[needed]) for needed, _, value in any_of
            ):
                words = (f"{dashes}{needed}{value and f' {value}'}" for needed, _, value in any_of)
                raise InputError(f"needs {' or '.join(words)}", key=name, code="conflict")

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
