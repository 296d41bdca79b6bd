"""Makes a `System` from the values of a draft, or an error of one line."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from ndpsim.base.errors import Code, InputError, nearest, one_of
from ndpsim.config.keys import allowed, field_at, section_of
from ndpsim.config.needs import refuse_missing
from ndpsim.config.origins import Draft, KeyPath, dotted, shown
from ndpsim.config.settings import MOST_GUESSES, all_keys, timing_names
from ndpsim.config.system import System


def validated(draft: Draft, command: str | None) -> System:
    try:
        system = System.model_validate(draft.values)
        problems = []
    except ValidationError as error:
        # A misspelt key makes the right key missing; the error names the misspelt one.
        problems = [problem for problem in error.errors(include_url=False) if problem["type"] != "missing"]
    if problems:
        raise _input_error(draft, problems[0])
    refuse_missing(draft, command)
    return system


#: Codes for pydantic's types of errors; all other types are limits of numbers and texts.
_CODES: dict[str, Code] = {
    "extra_forbidden": "unknown-key",
    "value_error": "invalid",
    **{f"{kind}_type": "type" for kind in ("string", "int", "float", "bool", "list", "dict", "model")},
}


def _input_error(draft: Draft, problem: Any) -> InputError:
    """One of pydantic's errors as a line with the allowed values."""
    path = tuple(str(part) for part in problem["loc"])
    field, code = field_at(path), _CODES.get(problem["type"], "range")
    if problem["type"] == "extra_forbidden":
        parent = field_at(path[:-1]) if path[:-1] else None
        section = section_of(parent) if parent is not None else System
        text = _unknown_key(path, section.model_fields if section is not None else ())
    elif problem["type"] == "value_error":
        what = "" if isinstance(problem["input"], dict | list) else f"{shown(problem['input'])} "
        text = f"{what}{problem['ctx']['error']}"
    elif field is not None and get_origin(field.annotation) is Literal and isinstance(problem["input"], str):
        text, code = one_of(problem["input"], get_args(field.annotation), "value"), "unknown-name"
    else:
        text = f"{shown(problem['input'])} is not {allowed(field) if field is not None else 'allowed'}"
    return draft.origin(path).error(text, dotted(path), code)


def _unknown_key(path: KeyPath, known: Collection[str]) -> str:
    """Message for an unknown key of a file; the same word in another section comes before a similar one."""
    elsewhere = [dotted(key) for key in all_keys() if key[-1] == path[-1]]
    elsewhere += [f"dram.overrides.{path[-1]}"] if path[-1] in timing_names() else []
    if elsewhere and (len(path) == 1 or nearest(path[-1], known) is None):
        guesses = " or ".join(map(repr, elsewhere[:MOST_GUESSES]))
        return f"unknown key '{path[-1]}'; did you mean {guesses}? (known here: {', '.join(sorted(known))})"
    return one_of(path[-1], known, "key")
