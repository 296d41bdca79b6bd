"""Arguments of public functions: taken as Python users write them, or refused in one line that names them."""

from __future__ import annotations

import importlib
import inspect
import math
import numbers
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ndpsim.base.errors import Code, InputError, listed, shown, unknown

T = TypeVar("T")
#: A function that a simulation calls with the share of its work that is done.
Progress = Callable[[float], None]


def whole_number(value: Any, name: str, least: int, most: int | None = None, counted: str = "") -> int:
    """`value` as an int: Python's, NumPy's, or any other with `__index__`; no bool, no float.

    `counted`: the things that it counts, for the message: " of clocks".

    Raises:
        InputError: it is no whole number, or not from `least` to `most` (None: no limit).
    """
    try:
        whole = None if is_flag(value) else operator.index(value)
    except Exception:  # an object's own error, too
        whole = None
    if whole is None or whole < least or (most is not None and whole > most):
        upto = "" if most is None else f" to {most}"
        code: Code = "type" if whole is None else "range"
        raise InputError(f"{shown(value)} is not a whole number{counted} from {least}{upto}", code, key=name)
    return whole


def number(value: Any, name: str, least: float, most: float = math.inf) -> float:
    """`value` as a float; no bool.

    Raises:
        InputError: it is no real number, not finite, or not from `least` to `most`.
    """
    real = isinstance(value, numbers.Real) and not is_flag(value)
    if not (real and least <= value <= most and value < math.inf):
        upto = "" if most == math.inf else f" to {most:g}"
        problem = f"{shown(value)} is not a number from {least:g}{upto}"
        raise InputError(problem, "range" if real else "type", key=name)
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{shown(value)} is too large", "range", key=name) from None


def is_finite(value: float) -> bool:
    """Whether a number is one as a float, too: whole numbers may have more digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_flag(value: Any) -> bool:
    """Whether `value` is True or False, Python's or NumPy's."""
    return isinstance(value, bool) or (
        attribute_of(attribute_of(value, "dtype"), "kind") == "b" and attribute_of(value, "shape") == ()
    )


def attribute_of(value: Any, name: str) -> Any:
    """An attribute of any object; None: it has none, or an error of its own."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def as_python(value: Any) -> Any:
    """A number of NumPy, or of an array without axes, as Python's; other values are returned unchanged."""
    return value.item() if attribute_of(value, "shape") == () and attribute_of(value, "item") else value


def flag(value: Any, name: str) -> bool:
    """`value` as a bool.

    Raises:
        InputError: it is neither True nor False.
    """
    if not is_flag(value):
        raise InputError(f"{shown(value)} is neither True nor False", "type", key=name)
    return bool(value)


def text(value: Any, name: str) -> str:
    """`value` as a plain str.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, str):
        raise InputError(f"{shown(value)} is not a text", "type", key=name)
    return str(value)


def settings(written: str, key: str) -> dict[str, str]:
    """Keys and values of ``KEY=VALUE,...``.

    Raises:
        InputError: a part is not of this form, or a key is given twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in written.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise InputError(f"{shown(part)} is not of the form KEY=VALUE", "form", key=key)
        if name in values:
            raise InputError(f"{shown(name)} is given twice", "twice", key=key)
        values[name] = value
    return values


def choice(value: Any, name: str, allowed: Iterable[str], what: str) -> str:
    """`value`, which must be one of the names `allowed`; `what`: what these names stand for, in words.

    Raises:
        InputError: it is none of them.
    """
    names = list(allowed)
    if not isinstance(value, str):
        raise InputError(f"{shown(value)} is not a text; give one of {listed(names)}", "type", key=name)
    if value not in names:
        raise unknown(value, names, what, key=name)
    return str(value)


def path_of(value: Any, name: str) -> Path:
    """`value`, a str or an `os.PathLike` of one, as a `Path`.

    Raises:
        InputError: it is neither, it is empty, or it has a NUL character.
    """
    try:
        written = os.fspath(value)
        os.fsencode(written)  # a part of a surrogate pair has no name on the disk
    except Exception:  # an object's own error, too
        written = None
    if not isinstance(written, str) or not written or "\0" in written:
        raise InputError(f"{shown(value)} is not a path; give a str or a Path", "type", key=name)
    return Path(written)


def several(value: Any, name: str, each: Callable[[Any, str], T]) -> tuple[T, ...]:
    """The elements of a list, tuple or other ordered iterable, each as the function `each` takes it.

    Raises:
        InputError: it is a text, a mapping, a set or not iterable, or an element is refused.
    """
    if isinstance(value, str):
        raise InputError(f"{shown(value)} is a string; give a list of them", "type", key=name)
    refused = isinstance(value, (bytes, bytearray, Mapping, AbstractSet, os.PathLike))
    if refused or not isinstance(value, Iterable) or attribute_of(value, "shape") == ():
        raise InputError(f"{shown(value)} is not a list", "type", key=name)
    try:
        elements = list(value)
    except InputError:
        raise
    except Exception as error:
        problem = f"{shown(value)} cannot be iterated ({type(error).__name__}: {error})"
        raise InputError(problem, "type", key=name) from None
    return tuple(each(element, name) for element in elements)


#: Changes of hardware: texts "dimm.ranks=2", or values by key: {"dimm.ranks": 2}.
Sets: TypeAlias = Sequence[str] | Mapping[str, Any]


def setting_texts(sets: Any) -> tuple[str, ...]:
    """Changes of hardware as texts ``KEY=VALUE``, as ``--set`` takes them.

    Raises:
        InputError: they are neither texts nor a mapping whose keys are texts.
    """
    if isinstance(sets, Mapping):
        return tuple(f"{key}={setting_text(value)}" for key, value in plain_mapping(sets, "sets").items())
    return several(sets, "sets", text)


def setting_text(value: Any) -> str:
    """A value in the form of ``--set``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(setting_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {setting_text(inner)}' for key, inner in value.items())}}}"
    value = as_python(value)
    plain = value is None or is_flag(value)
    return {None: "null", True: "true", False: "false"}[value] if plain else str(value)


def plain_mapping(value: Any, name: str) -> dict[str, Any]:
    """A copy of a mapping whose keys are texts; None gives an empty one.

    Raises:
        InputError: the argument is not such a mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{shown(value)} is not a mapping whose keys are texts", "type", key=name)
    return dict(value)


def instance(value: Any, name: str, kind: type[T]) -> T:
    """`value`, which must be of a class.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InputError(f"{shown(value)} is not {article} {kind.__name__}", "type", key=name)
    return value


def _takes_one(value: Any) -> bool:
    """Whether a value can be called with one argument, as far as it says what it takes."""
    if not callable(value):
        return False
    try:
        signature = inspect.signature(value)
    except Exception:  # of another language, or an object's own error
        return True
    try:
        signature.bind(0.0)
    except TypeError:
        return False
    return True


def imported(package: str, how: str = "") -> Any:
    """A package that not every user has.

    Args:
        how: how it is installed; "": pip install and its name.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        how = how or f"pip install {package}"
        raise InputError(f"{package} is not installed: {how}", "not-installed") from None


def progress_bar() -> Progress:
    """A function that draws the share of work done: a bar in a notebook, else a line on standard error."""
    shell = sys.modules.get("IPython")
    kernel = None if shell is None else shell.get_ipython()
    if kernel is not None and type(kernel).__name__ == "ZMQInteractiveShell":
        return _notebook_bar()
    last = -1

    def write(share: float) -> None:
        nonlocal last
        percent = int(100 * share)
        if percent != last:
            last = percent
            sys.stderr.write(f"\r{percent:3d}%" + ("\n" if percent >= 100 else ""))
            sys.stderr.flush()

    return write


def _notebook_bar() -> Progress:
    display = importlib.import_module("IPython.display")
    bar = display.ProgressBar(100)
    bar.display()

    def draw(share: float) -> None:
        if int(100 * share) != bar.progress:
            bar.progress = int(100 * share)

    return draw


def progress_function(value: Any, name: str = "progress") -> Progress:
    """The function to call with the share of work done; None: one that does nothing; True: it draws a bar.

    Raises:
        InputError: it cannot be called.
    """
    if value is None or value is False:
        return lambda share: None
    if value is True:
        return progress_bar()
    if not _takes_one(value):
        raise InputError(f"{shown(value)} is no function of the share of work done", "type", key=name)
    called: Progress = value
    return called
