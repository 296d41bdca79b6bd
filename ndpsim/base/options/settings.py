"""Settings of a call: each field is an option of its command, a key of its sweeps and an argument in Python.

A class states each default, check and help once. `table_of` makes the options, `called_with` the function in
Python, with its signature and docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar, dataclass_transform

from ndpsim.base.options.kinds import Kind
from ndpsim.base.options.table import Parameter, Table, table

R = TypeVar("R")

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


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, like, argument))
class Settings:
    """Settings of a call, checked; a subclass is a frozen dataclass with keyword-only fields.

    Attributes:
        sections: sections of the help that come first, in their order.

    Raises:
        InputError: a value is not allowed; its key is the field's name.
    """

    sections: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value, kind = getattr(self, one.name), one.metadata["kind"]
            more_than_text = one.metadata["accepts"] and not isinstance(value, str)
            if kind is not None and not more_than_text and not (value is None and one.default is None):
                object.__setattr__(self, one.name, kind.check(value, one.name))


def _fields(settings: type[Settings]) -> tuple[Field[Any], ...]:
    return fields(settings)  # type: ignore[arg-type]


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
    """Let a function of settings be called with their fields as arguments.

    The function takes the settings, then keywords of its own. The call has all in its signature and in its
    docstring, where the fields stand before the function's own ``Args``.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        _, *own = inspect.signature(function).parameters.values()
        keywords = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if one.default is NEEDED else one.default,
                annotation=_annotation(one),
            )
            for one in _fields(settings)
        ]
        signature = inspect.signature(function).replace(parameters=[*keywords, *own])
        names = {one.name for one in own}

        @functools.wraps(function)
        def call(*values: Any, **named: Any) -> R:
            given = signature.bind(*values, **named).arguments
            of_function = {name: value for name, value in given.items() if name in names}
            asked = {name: value for name, value in given.items() if name not in names}
            return function(settings(**asked), **of_function)

        call.__doc__ = _documented(function.__doc__ or "", settings)
        vars(call)["__signature__"] = signature
        return call

    return decorate


def _documented(text: str, settings: type[Settings]) -> str:
    """A docstring with the fields of settings before other arguments."""
    lines = []
    for one in _fields(settings):
        told = one.metadata["help"].rstrip(".")
        if told[1:2].islower() or told[1:2] == " ":  # and not DRAM
            told = told[0].lower() + told[1:]
        parameter = one.metadata["parameter"]
        usual = parameter.stated_default if parameter is not None and one.default is None else ""
        lines += textwrap.wrap(
            f"{one.name}: {told}" + (f"; None: {usual}." if usual else "."),
            _WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
        )
    return re.sub(r"\n    Args:\n", lambda found: found[0] + "\n".join(lines) + "\n", text, count=1)
