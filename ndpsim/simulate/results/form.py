"""Conversion of results to text and back, and digests of their inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from ndpsim.base.reported import Reported
from ndpsim.config import Hardware
from ndpsim.dram.spec import Standard
from ndpsim.dram.spec.registry import standards
from ndpsim.dram.traces import Requests
from ndpsim.simulate import results
from ndpsim.simulate.results.slowdown import SlowdownTable

#: What the cache stores.
Stored = Reported | SlowdownTable

_TUPLE = "()"  # key of an object that represents a tuple; "Phase()" is that for a Phase
_ARRAY = "array()"  # and of one that represents an array: its type and its values


def digest_of(values: Sequence[Any]) -> str:
    """A digest of plain data, NumPy's numbers, dataclasses, hardware and requests.

    It does not depend on the order of mappings, nor on whether a number is Python's or NumPy's. It covers the
    values of hardware and the content of requests, but not the files that they were read from.

    Raises:
        TypeError: a value has another type.
    """
    text = json.dumps(values, sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _plain(value: Any) -> Any:
    """The JSON form of a value of another type."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Hardware):
        return value.digest
    if isinstance(value, Requests):
        return _digest_of_requests(value)
    if isinstance(value, Standard) and value == standards().get(value.name):
        return value.name  # the version of the cache covers its content
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"a result cannot depend on a {type(value).__name__}")


def _digest_of_requests(requests: Requests) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for name in ("address", "write", "cycle", "place"):
        column = getattr(requests, name)
        digest.update(f"{name} {None if column is None else column.shape} ".encode())
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def to_text(result: Stored) -> bytes:
    """A result as JSON, from which `from_text` makes an equal one of the same types."""
    return json.dumps(_encoded(result), separators=(",", ":")).encode()


def _encoded(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encoded(one) for one in value]
    if type(value) is tuple:
        return {_TUPLE: [_encoded(one) for one in value]}
    if type(value) is np.ndarray:
        return {_ARRAY: [value.dtype.str, value.tolist()]}
    if type(value) is dict and all(type(key) is str and not key.endswith(_TUPLE) for key in value):
        return {key: _encoded(of_key) for key, of_key in value.items()}
    name = type(value).__name__
    if getattr(results, name, None) is type(value):
        table = isinstance(value, SlowdownTable)
        parts = value if table else (getattr(value, one.name) for one in fields(value) if one.init)
        return {f"{name}{_TUPLE}": [_encoded(one) for one in parts]}
    raise TypeError(f"a result cannot be stored with a {name} in it")


def from_text(text: bytes) -> Stored:
    """The result that `to_text` wrote.

    Raises:
        ValueError, TypeError, AttributeError, RecursionError: the text is not such a result.
    """
    result = json.loads(text, object_hook=_decoded)
    if not isinstance(result, Stored):
        raise ValueError("the text is no result")
    return result


def _decoded(found: dict[str, Any]) -> Any:
    """The plain form of an object."""
    if len(found) != 1:
        return found
    ((name, parts),) = found.items()
    if name == _TUPLE:
        return tuple(parts)
    if name == _ARRAY:
        return np.array(parts[1], dtype=parts[0])
    if not name.endswith(_TUPLE):
        return found
    kind = getattr(results, name.removesuffix(_TUPLE))
    if not isinstance(kind, type) or not (is_dataclass(kind) or kind is SlowdownTable):
        raise ValueError(f"{name} is no part of a result")
    return kind(*parts)
