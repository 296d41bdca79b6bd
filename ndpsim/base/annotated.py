"""Records that take only what their annotations say: their fields, and the counts that their methods take."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, ClassVar

from ndpsim.base.arguments import flag, instance, several, text, whole_number

#: The largest number of a field or an argument.
MOST = 1 << 48


class Annotated:
    """A frozen dataclass whose fields, and whole-number arguments of public methods, are checked.

    A whole number is from 0 to `MOST`. It is at least 1 if its field has such a default, or no default.

    Raises:
        InputError: by the constructor and by methods: a value is not of the annotated type, or such a number
            is out of range.
    """

    #: Fields without a default that may be 0.
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        for name, method in vars(cls).copy().items():
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _of_counts(method))

    def __post_init__(self) -> None:
        record: Any = type(self)
        for name, hint, least in _fields(record):
            value = getattr(self, name)
            if type(value) is not hint or hint is int:
                object.__setattr__(self, name, _as(hint, value, name, least))


@functools.cache
def _fields(record: Any) -> tuple[tuple[str, Any, int], ...]:
    """Name, type and least number of each field."""
    hints = typing.get_type_hints(record)
    parameters = inspect.signature(record).parameters.values()
    return tuple(
        (one.name, hints[one.name], 0 if one.name in record.may_be_zero or one.default in (0, None) else 1)
        for one in parameters
    )


def _as(hint: Any, value: Any, name: str, least: int) -> Any:
    """A value of an annotated type: a number, a flag, a text, a tuple, or an object of a class."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in kinds:
        return None
    if int in kinds:
        return whole_number(value, name, least, MOST)
    if bool in kinds:
        return flag(value, name)
    if str in kinds:
        return text(value, name)
    if typing.get_origin(hint) is tuple:
        each = typing.get_args(hint)[0]
        return several(value, name, lambda element, key: _as(each, element, key, 0))
    known = [typing.get_origin(kind) or kind for kind in kinds if kind is not types.NoneType]
    return value if isinstance(value, tuple(known)) else instance(value, name, known[0])


def _of_counts(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose arguments are whole numbers from 0 to `MOST`, if all are annotated as such."""
    taken = inspect.signature(method)
    names = list(taken.parameters)[1:]
    if not names or any(taken.parameters[name].annotation != "int" for name in names):
        return method

    @functools.wraps(method)
    def checked(self: Any, *values: Any, **named: Any) -> Any:
        for value in values:
            if type(value) is not int or not 0 <= value <= MOST:
                break
        else:
            if not named:
                return method(self, *values)
        given = taken.bind(self, *values, **named).arguments
        return method(self, *(whole_number(given[name], name, 0, MOST) for name in names))

    return checked
