"""Options as sweeps take them: as text from a command line, or as values of a YAML file or of Python."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ndpsim.arguments import is_flag, shown
from ndpsim.config.nodes import scalar
from ndpsim.errors import InputError, one_of
from ndpsim.layout import ExpertFormat
from ndpsim.moe.weights import weight_file, weight_name
from ndpsim.processors.weights import expert_format_of
from ndpsim.sweeps.command import Parameter


def plain(value: Any) -> Any:
    """A value of Python, texts as YAML reads them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()  # NumPy's
    return scalar(value.strip()) if isinstance(value, str) else value


def _whole(value: Any, least: int, most: int | None) -> int:
    taken = plain(value)
    if isinstance(taken, float) and taken.is_integer():
        taken = int(taken)
    if is_flag(taken) or not isinstance(taken, int) or taken < least or (most is not None and taken > most):
        upto = "" if most is None else f" to {most}"
        raise InputError(f"{shown(value)} is not a whole number from {least}{upto}")
    return taken


def whole(words: str, default: object, least: int = 1, most: int | None = None) -> Parameter:
    """A whole number from `least` to `most`."""
    return Parameter(words, str(default), lambda value: _whole(value, least, most), whole=True)


def _real(value: Any, least: float, most: float) -> float:
    taken = plain(value)
    if is_flag(taken) or not isinstance(taken, int | float) or not least <= taken <= most:
        upto = "" if most == math.inf else f" to {most:g}"
        raise InputError(f"{shown(value)} is not a number from {least:g}{upto}")
    return taken


def real(words: str, default: object, least: float = 0.0, most: float = math.inf) -> Parameter:
    """A number from `least` to `most`."""
    return Parameter(words, str(default), lambda value: _real(value, least, most))


def _word(value: Any) -> str:
    taken = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(taken, str) or not taken.strip():
        raise InputError(f"{shown(value)} is not a text")
    return str(taken.strip())


def word(words: str, default: object, is_file: bool = False) -> Parameter:
    """A text, or with `is_file` perhaps the name of a file."""
    return Parameter(words, str(default), _word, is_file=is_file)


def choice(words: str, default: object, allowed: Iterable[str], what: str) -> Parameter:
    """One of some names; `what` they name."""
    names = tuple(allowed)

    def take(value: Any) -> str:
        name = _word(value)
        if name not in names:
            raise InputError(one_of(name, names, what))
        return name

    return Parameter(f"{words}: {', '.join(names)}", str(default), take)


def flag(words: str) -> Parameter:
    """True or false."""

    def take(value: Any) -> bool:
        taken = plain(value)
        if not is_flag(taken):
            raise InputError(f"{shown(value)} is neither true nor false")
        return bool(taken)

    return Parameter(words, "false", take)


def several(one: Parameter) -> Parameter:
    """A number, or a list of them: ``3,1,2`` as text."""

    def take(value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return one.take(parts)
        taken = [one.take(part) for part in parts]
        return taken[0] if len(taken) == 1 else taken

    return Parameter(one.words, one.default, take, one.whole)


def _bits(value: Any) -> int | dict[str, int]:
    """Bits of a weight, or of each matrix: ``gate=4,up=4,down=8`` as text."""
    parts = value
    if isinstance(value, str) and "=" in value:
        pairs = [part.partition("=") for part in value.split(",")]
        parts = {name.strip(): number for name, _, number in pairs}
        if len(parts) < len(pairs):
            raise InputError(f"{shown(value)} names a matrix twice")
    if isinstance(parts, Mapping):
        return {str(name): _whole(number, 1, 64) for name, number in parts.items()}
    return _whole(parts, 1, 64)


#: The options that say how weights are written.
WEIGHTS: Mapping[str, Parameter] = {
    "bits": Parameter("Bits of a weight, or gate=BITS,up=BITS,down=BITS", "16", _bits, whole=True),
    "group-size": whole("Weights along a row that share a scale and a zero point", "no groups"),
    "scale-bits": whole("Bits of a group's scale", 16, 0),
    "zero-point-bits": whole("Bits of a group's zero point", "those of a weight", 0),
    "weights": Parameter("A weight file instead, which says the format of each matrix", "none", weight_name),
}


def weight_format(given: Mapping[str, Any]) -> ExpertFormat:
    """What the options of `WEIGHTS` say.

    Raises:
        InputError: it makes no sense.
    """
    if "weights" in given:
        for key in ("bits", "group-size", "scale-bits", "zero-point-bits", "shape"):
            if key in given:
                raise InputError("is not for weights of a file of a model", key=key)
        return expert_format_of(weight_file(given["weights"], given.get("model", "qwen3-235b-a22b")))
    for key in ("scale-bits", "zero-point-bits"):
        if key in given and "group-size" not in given:
            raise InputError("is of group-size, which is not given", key=key)
    return ExpertFormat.of(
        given.get("bits", 16),
        given.get("group-size", 0),
        given.get("scale-bits", 16),
        given.get("zero-point-bits"),
    )


def _setting(value: Any) -> str:
    """A value as ``--set`` takes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_setting, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_setting(of_key)}' for key, of_key in value.items())}}}"
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or is_flag(value) else str(value)
    )


def hardware_sets(given: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> list[str]:
    """The keys of the hardware among what is given, as ``--set`` takes them."""
    return [f"{key}={_setting(value)}" for key, value in given.items() if key not in parameters]


def options_of(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of a call, by their `names` for options: of those options that are given."""
    return {name: given[key] for key, name in names.items() if key in given}


def file_digests(*paths: str | os.PathLike[str]) -> list[str | None]:
    """Digests of what is in files; None for what is no file, as the name of something bundled."""
    return [_file_digest(Path(path)) for path in paths]


def _file_digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except (OSError, ValueError):
        return None
