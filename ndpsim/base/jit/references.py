"""Named tuples of arrays by reference, by inner steps of Numba (`inner_steps`).

Numba passes a named tuple by its parts, seven words for an array of one dimension. With sixty arrays that is
four hundred arguments of every function that hands them on, and most of the time of compiling. A named tuple
decorated here is passed as the address of a table with the words of its fields, read where they are used.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba.core.typing import templates

from ndpsim.base.jit.lowering import array_at
from ndpsim.base.jit.releases import extending, numba, types

T = TypeVar("T", bound=tuple[Any, ...])

# Numba's functions have no types.
_extending: Any = extending
_templates: Any = templates
_numba_types: Any = types
_typeof: Any = numba.typeof

_FIELDS = (types.Integer, types.Array, types.Record, types.BaseTuple, types.NoneType)
_WORD = ir.IntType(64)


class Reference(types.Type):
    """The type of such a named tuple, with the types of its fields."""

    def __init__(self, referred: type, fields: tuple[tuple[str, Any], ...]) -> None:
        self.of, self.fields = referred, fields
        listed = ", ".join(f"{name}: {kind}" for name, kind in fields)
        super().__init__(name=f"{referred.__module__}.{referred.__qualname__}({listed})")


def _words(kind: Any) -> int:
    """Words of a table that a value of a type takes."""
    if isinstance(kind, _numba_types.Array):
        return 1 + int(kind.ndim) * (1 if kind.layout == "C" else 2)
    if isinstance(kind, _numba_types.BaseTuple):
        return sum(map(_words, kind.types))
    return 0 if isinstance(kind, _numba_types.NoneType) else 1


def _put(value: Any, words: list[int]) -> None:
    """Append the words of a value."""
    if isinstance(value, np.ndarray):
        words += (value.__array_interface__["data"][0], *value.shape)
        if not value.flags.c_contiguous:
            words += value.strides
    elif isinstance(value, np.void):
        words.append(value.__array_interface__["data"][0])
    elif hasattr(value, "_address"):
        words.append(value._address)
    elif isinstance(value, tuple):
        for part in value:
            _put(part, words)
    elif value is not None:
        words.append(int(value))


def _table(value: Any) -> Any:
    words: list[int] = []
    for field in value:
        _put(field, words)
    return np.array(words, dtype=np.int64)


def _address(value: Any) -> int:
    return int(value._table.__array_interface__["data"][0])


def referenced(cls: type[T]) -> type[T]:
    """The named tuple whose values are passed as the address of a table."""
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    table = {"_table": functools.cached_property(_table), "_address": functools.cached_property(_address)}
    no_table = {"__getstate__": lambda value: None}  # a copy has arrays of its own
    made: Any = type(cls.__name__, (cls,), {**names, **table, **no_table})

    def typeof(value: Any, context: Any) -> Reference:
        return Reference(made, tuple((name, _type_of(name, getattr(value, name))) for name in made._fields))

    _extending.typeof_impl.register(made)(typeof)
    return made  # type: ignore[no-any-return]


def _type_of(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        for field, part in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            _type_of(f"{name}.{field}", part)
    kind = _typeof(value)
    if not isinstance(kind, (*_FIELDS, Reference)):
        raise TypeError(f"{name} is {kind}, not an integer, an array, a record, None or a tuple of these")
    return kind


@_extending.register_model(Reference)
class _Model(_extending.models.PrimitiveModel):  # type: ignore[misc]
    """The address of the table."""

    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


@_extending.unbox(Reference)  # type: ignore[untyped-decorator]
def _unbox(kind: Reference, value: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(value, "_address")
    address = c.builder.inttoptr(c.pyapi.long_as_longlong(number), _WORD.as_pointer())
    c.pyapi.decref(number)
    return _extending.NativeValue(address, is_error=c.pyapi.c_api_error())


@_templates.infer_getattr
class _Fields(_templates.AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, kind: Reference, name: str) -> Any:
        """The type of a field."""
        return dict(kind.fields).get(name)


@_extending.lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _get_field(context: Any, builder: Any, kind: Reference, table: Any, name: str) -> Any:
    place = 0
    for field, kind_of_field in kind.fields:
        if field == name:
            return _read(context, builder, kind_of_field, table, place)
        place += _words(kind_of_field)
    raise AttributeError(name)


def _read(context: Any, builder: Any, kind: Any, table: Any, place: int) -> Any:
    """The value of a type whose words begin at a place of a table."""
    if isinstance(kind, _numba_types.Array):
        return _read_array(context, builder, kind, table, place)
    if isinstance(kind, _numba_types.BaseTuple):
        parts = []
        for part in kind.types:
            parts.append(_read(context, builder, part, table, place))
            place += _words(part)
        return context.make_tuple(builder, kind, parts)
    if isinstance(kind, _numba_types.NoneType):
        return context.get_dummy_value()
    return _read_word(builder, table, place, context.get_value_type(kind))


def _read_word(builder: Any, table: Any, place: int, kind: Any = _WORD) -> Any:
    address = builder.gep(table, [_WORD(place)], inbounds=True)
    word = builder.load(builder.bitcast(address, kind.as_pointer()))
    # No kernel writes to a table: LLVM need not read a word again after a store.
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word


def _read_array(context: Any, builder: Any, kind: Any, table: Any, place: int) -> Any:
    shape = [_read_word(builder, table, place + 1 + axis) for axis in range(kind.ndim)]
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    if kind.layout == "C":
        strides = [size]
        for length in reversed(shape[1:]):
            last = strides[0]
            strides.insert(0, builder.mul(length, _WORD(last) if isinstance(last, int) else last))
    else:
        first = place + 1 + kind.ndim
        strides = [_read_word(builder, table, first + axis) for axis in range(kind.ndim)]
    data = _read_word(builder, table, place, context.get_value_type(kind).elements[4])
    return array_at(context, builder, kind, data, shape, strides, size)
