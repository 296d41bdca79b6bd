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

from ndpsim.base.options.table import Kind, Parameter, Table, table

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
    usual = parameter.default if default is ... else default
    told = told or parameter.help
    return _field(usual, replace(parameter, section=section), parameter.kind, told, accepts)


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
        for setting in fields(self):
            value, kind = getattr(self, setting.name), setting.metadata["kind"]
            more_than_text = setting.metadata["accepts"] and not isinstance(value, str)
            if kind is not None and not more_than_text and not (value is None and setting.default is None):
                object.__setattr__(self, setting.name, kind.check(value, setting.name))


def _fields(settings: type[Settings]) -> list[Field[Any]]:
    """The fields in the order of a call."""
    places = {name: index for index, name in enumerate(settings.first.split())}
    return sorted(fields(settings), key=lambda setting: places.get(setting.name, len(places)))


def fields_of(settings: type[Settings], holder: object) -> dict[str, Any]:
    """The values of the fields of settings in an object that has them all, by name."""
    return {setting.name: getattr(holder, setting.name) for setting in fields(settings)}


def table_of(settings: type[Settings]) -> Table:
    """The options of settings by the sections of the help; others follow as fields first name them."""
    sections: dict[str, list[Parameter]] = {title: [] for title in settings.sections}
    for setting in _fields(settings):
        if (parameter := setting.metadata["parameter"]) is not None:
            name = parameter.name or setting.name.replace("_", "-")
            named = replace(parameter, name=name, argument=setting.name)
            sections.setdefault(parameter.section, []).append(named)
    return table(sections)


def called_with(settings: type[Settings]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function or method of settings be called with their fields as arguments.

    The function has a parameter `settings`, in whose place the call has the fields, in its signature and in
    its docstring.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        own = inspect.signature(function).parameters
        index, every = list(own).index("settings"), list(own.values())
        every[index : index + 1] = [
            _parameter(setting, own["settings"].kind) for setting in _fields(settings)
        ]
        signature = inspect.signature(function).replace(parameters=every)

        @functools.wraps(function)
        def call(*values: Any, **named: Any) -> R:
            arguments = signature.bind(*values, **named).arguments
            others = {name: arguments.pop(name) for name in own if name in arguments}
            return function(settings=settings(**arguments), **others)

        documented_with(settings, *list(own)[index + 1 : index + 2])(call)
        vars(call)["__signature__"] = signature
        return call

    return decorate


def _parameter(setting: Field[Any], kind: Any) -> inspect.Parameter:
    annotation = setting.metadata["accepts"] or str(setting.type)
    default = inspect.Parameter.empty if setting.default is NEEDED else setting.default
    return inspect.Parameter(setting.name, kind, default=default, annotation=annotation)


def documented_with(settings: type[Settings], before: str = "") -> Callable[[D], D]:
    """Put the fields of settings into the ``Args`` of a docstring, before another argument or first."""

    def decorate(made: D) -> D:
        text = inspect.cleandoc(made.__doc__ or "")
        beginning = re.search(rf"^    (?={before}[:,])" if before else r"(?<=^Args:\n)", text, re.MULTILINE)
        if beginning is not None:
            text = text[: beginning.start()] + "".join(_lines(settings)) + text[beginning.start() :]
        made.__doc__ = text
        return made

    return decorate


def _lines(settings: type[Settings]) -> Iterator[str]:
    """The lines of fields in a docstring."""
    for setting in _fields(settings):
        told = setting.metadata["help"].rstrip(".")
        if told[1:2].islower() or told[1:2] == " ":  # and not DRAM
            told = told[0].lower() + told[1:]
        parameter = setting.metadata["parameter"]
        usual = parameter.stated_default if parameter is not None and setting.default is None else ""
        text = f"{setting.name}: {told}" + (f"; None: {usual}." if usual else ".")
        wrapped = textwrap.wrap(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        yield "\n".join(wrapped) + "\n"
