"""Settings of a call: each field is an option of its command, a key of its sweeps and an argument in Python.

A class states each default, check and help once. `table_of` makes the options, `called_with` the function in
Python, with its signature and docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ndpsim.base.options.kinds import Kind
from ndpsim.base.options.table import Parameter, Table, table

R = TypeVar("R")
D = TypeVar("D")  # a class or function with a docstring

#: The default of a field that has none.
NEEDED = MISSING
_WIDTH = 110


def option(
    default: Any, kind: Kind, help: str, section: str, accepts: str = "", told: str = "", **more: Any
) -> Any:
    """A field of `Settings` with an option.

    Args:
        default: the default in Python; `stated`: that of the option, if it differs.
        told: the description of the argument in Python, if that of the option does not fit.
        accepts: annotation of an argument in Python that may be more than text; other values than text are
            checked where they are used.
        more: as in `Parameter`; `name` is by default the field's name with dashes.
    """
    name, stated = more.pop("name", ""), more.pop("stated", None if default is NEEDED else default)
    parameter = Parameter(name, help, kind, stated, **more)
    return like(parameter, section, default=default, accepts=accepts, told=told)


def like(parameter: Parameter, section: str, *, default: Any = ..., accepts: str = "", told: str = "") -> Any:
    """A field with a parameter that several commands have; `default`, `accepts`, `told`: as in `option`."""
    given = parameter.default if default is ... else default
    told = told or parameter.help
    return _field(given, replace(parameter, section=section), parameter.kind, told, accepts)


def argument(default: Any, help: str, accepts: str = "", kind: Kind | None = None) -> Any:
    """A field without an option; without a kind, its value is checked where it is used."""
    return _field(default, None, kind, help, accepts)


def _field(default: Any, parameter: Parameter | None, kind: Kind | None, help: str, accepts: str) -> Any:
    metadata = {"parameter": parameter, "kind": kind, "help": help, "accepts": accepts}
    return field(default=default, metadata=metadata)


class Settings:
    """Settings of a call, checked; a subclass is a frozen dataclass.

    Attributes:
        sections: sections of the help that come first, in their order.
        first: names of the fields that come first in a call, in their order; others follow, those of base
            classes first.

    Raises:
        InputError: a value is not allowed; its key is the field's name.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    sections: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[str] = ""

    if TYPE_CHECKING:  # a call of a subclass has its fields as arguments

        def __init__(self, *values: Any, **named: Any) -> None: ...

    def __init_subclass__(cls, kw_only: bool = True) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def __post_init__(self) -> None:
        for one in fields(self):
            value, kind = getattr(self, one.name), one.metadata["kind"]
            more_than_text = one.metadata["accepts"] and not isinstance(value, str)
            if kind is not None and not more_than_text and not (value is None and one.default is None):
                object.__setattr__(self, one.name, kind.check(value, one.name))


def _fields(settings: type[Settings]) -> list[Field[Any]]:
    """The fields in the order of a call."""
    places = {name: place for place, name in enumerate(settings.first.split())}
    return sorted(fields(settings), key=lambda one: places.get(one.name, len(places)))


def fields_of(settings: type[Settings], given: object) -> dict[str, Any]:
    """The values of the fields of settings in an object that has them all, by name."""
    return {one.name: getattr(given, one.name) for one in fields(settings)}


def table_of(settings: type[Settings]) -> Table:
    """The options of settings by the sections of the help; others follow as fields first name them."""
    sections: dict[str, list[Parameter]] = {title: [] for title in settings.sections}
    for one in _fields(settings):
        if (parameter := one.metadata["parameter"]) is not None:
            name = parameter.name or one.name.replace("_", "-")
            named = replace(parameter, name=name, argument=one.name)
            sections.setdefault(parameter.section, []).append(named)
    return table(sections)


def _annotation(one: Field[Any]) -> str:
    return one.metadata["accepts"] or str(one.type)


def called_with(settings: type[Settings]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function or method of settings be called with their fields as arguments.

    The function has a parameter `settings`, in whose place the call has the fields, in its signature and in
    its docstring.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        own = inspect.signature(function).parameters
        place, every = list(own).index("settings"), list(own.values())
        every[place : place + 1] = [_parameter(one, own["settings"].kind) for one in _fields(settings)]
        signature = inspect.signature(function).replace(parameters=every)

        @functools.wraps(function)
        def call(*values: Any, **named: Any) -> R:
            given = signature.bind(*values, **named).arguments
            of_function = {name: given.pop(name) for name in own if name in given}
            return function(settings=settings(**given), **of_function)

        documented_with(settings, *list(own)[place + 1 : place + 2])(call)
        vars(call)["__signature__"] = signature
        return call

    return decorate


def _parameter(one: Field[Any], kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is NEEDED else one.default
    return inspect.Parameter(one.name, kind, default=default, annotation=_annotation(one))


def documented_with(settings: type[Settings], before: str = "") -> Callable[[D], D]:
    """Put the fields of settings into the ``Args`` of a docstring, before another argument or first."""

    def decorate(made: D) -> D:
        text = inspect.cleandoc(made.__doc__ or "")
        place = re.search(rf"^    (?={before}[:,])" if before else r"(?<=^Args:\n)", text, re.MULTILINE)
        if place is not None:
            text = text[: place.start()] + "".join(_lines(settings)) + text[place.start() :]
        made.__doc__ = text
        return made

    return decorate


def _lines(settings: type[Settings]) -> Iterator[str]:
    """The lines of fields in a docstring."""
    for one in _fields(settings):
        told = one.metadata["help"].rstrip(".")
        if told[1:2].islower() or told[1:2] == " ":  # and not DRAM
            told = told[0].lower() + told[1:]
        parameter = one.metadata["parameter"]
        usual = parameter.stated_default if parameter is not None and one.default is None else ""
        text = f"{one.name}: {told}" + (f"; None: {usual}." if usual else ".")
        wrapped = textwrap.wrap(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        yield "\n".join(wrapped) + "\n"
