"""The pages of the standards, found by name and checked; an error is one line with page, place and value."""

from __future__ import annotations

import functools
import importlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.plugins import module_names
from ndpsim.dram.spec import standards as _folder
from ndpsim.dram.spec.checking import check_standard, missing_timings
from ndpsim.dram.spec.standard import (
    ROUNDINGS,
    Command,
    Derivation,
    Organisation,
    Rule,
    Standard,
    latency_terms,
)

_WHOLE = ("transfers_per_clock", "prefetch", "channel_bits", "ticks_per_clock")
_DERIVATIONS = get_args(Derivation)


def read_page(module: str) -> Standard:
    """The standard in the module with this name.

    Raises:
        InputError: the module has no standard, or one that cannot be simulated.
    """
    try:
        page = importlib.import_module(module)
    except InputError:
        raise
    except Exception as error:  # the code of a page may raise any exception
        raise _code_error(error, module) from None
    file = str(page.__file__)
    standard = getattr(page, "STANDARD", None)
    if not isinstance(standard, Standard):
        problem = "the page does not end in STANDARD = Standard(...)"
        raise InputError(problem, "form", file=file, key="STANDARD")
    try:
        _check(standard)
    except InputError as error:
        raise error.at(file) from None
    except Exception as error:  # a part of it has an unexpected type
        raise InputError(_in_words(error), "form", file=file, key="STANDARD") from None
    return standard


def _in_words(error: Exception) -> str:
    """The last line of a Python error."""
    return "".join(traceback.format_exception_only(error)).splitlines()[-1]


def _code_error(error: Exception, module: str) -> InputError:
    """An error of a page's own code, with the page's line that raised it."""
    name = module.rpartition(".")[2] + ".py"
    if isinstance(error, SyntaxError) and error.filename is not None:
        return InputError(_in_words(error), "form", file=error.filename, line=error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(name)]
    file, line = (frames[-1].filename, frames[-1].lineno) if frames else (name, None)
    return InputError(_in_words(error), "form", file=file, line=line)


def _check(standard: Standard) -> None:
    for name in _WHOLE:
        whole_number(getattr(standard, name), name, 1)
    for name in ("max_postponed_refreshes", "max_pulled_in_refreshes"):
        whole_number(getattr(standard, name), name, 0)
    if standard.rounding not in ROUNDINGS:
        raise unknown(standard.rounding, ROUNDINGS, "rounding", key="rounding")
    for command in standard.commands:
        if not isinstance(command, Command):
            raise InputError(f"{shown(command)} is no Command(...)", "type", key="commands")
        whole_number(command.cycles, f"cycles of {command.name}", 1)
    for org, organisation in standard.organisations.items():
        _check_organisation(standard, org, organisation)
    for name, derivation in standard.derived.items():
        if not isinstance(derivation, _DERIVATIONS):
            known = ", ".join(sorted(kind.__name__ for kind in _DERIVATIONS))
            raise InputError(f"{shown(derivation)} is none of {known}", "type", key=f"derived {name}")
        rounding = getattr(derivation, "rounding", "up")
        if rounding not in ROUNDINGS:
            raise unknown(rounding, ROUNDINGS, "rounding", key=f"derived {name}")
        for value in _numbers_of(derivation):
            if isinstance(value, str):
                continue  # a sum of timings, see `checking.check_standard`
            whole_number(value, f"derived {name}", 0, counted=" of clocks, ns, MT/s, Mb or pins")
    for preset, speed in standard.speeds.items():
        _check_speed(standard, preset, speed)
    timings = {
        preset: {*speed, *standard.derived} - {"rate", "tCK_ps"} for preset, speed in standard.speeds.items()
    }
    for rule in (*standard.rules, *standard.checked_rules):
        _check_rule(standard, rule, timings)
    check_standard(standard)
    if standard.reference:
        _check(standard.under("reference"))


def _check_names(names: Any, key: str, known: Any, what: str) -> None:
    """Check that these are several known names."""
    if not isinstance(names, tuple):
        problem = f"{shown(names)} is no tuple of names; one name is written ('{known[0]}',)"
        raise InputError(problem, "type", key=key)
    for name in names:
        if name not in known:
            raise unknown(name, known, what, key=key)


def _check_organisation(standard: Standard, org: str, organisation: Organisation) -> None:
    for field in fields(organisation):
        least = int(field.name != "ranks")
        whole_number(getattr(organisation, field.name), f"organisation {org}: {field.name}", least)
    for name, number, whole in (
        ("dq", standard.channel_bits % organisation.dq, f"the {standard.channel_bits} pins of a channel"),
        ("columns", organisation.columns % standard.prefetch, f"bursts of {standard.prefetch}"),
    ):
        if number != 0:
            problem = f"{getattr(organisation, name)} does not divide evenly into {whole}"
            raise InputError(problem, "range", key=f"organisation {org}: {name}")


def _numbers_of(value: Any) -> Iterator[Any]:
    """All numbers of a derivation."""
    if isinstance(value, _DERIVATIONS):
        for field in fields(value):
            if field.name not in ("rounding", "exact"):
                yield from _numbers_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from value
        for inner in value.values():
            yield from _numbers_of(inner)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _numbers_of(part)
    else:
        yield value


def _check_speed(standard: Standard, preset: str, speed: Mapping[str, int]) -> None:
    missing = missing_timings(standard, {*speed, *standard.derived})
    if missing:
        problem = (
            f"states no {', '.join(missing)}, and nothing derives {'it' if len(missing) == 1 else 'them'}"
        )
        raise InputError(problem, "missing", key=f"speed {preset}")
    for name, value in speed.items():
        whole_number(value, f"speed {preset}: {name}", int(not name.startswith("n")))


def _check_rule(standard: Standard, rule: Rule, timings: Mapping[str, set[str]]) -> None:
    where = f"rule {rule.name}"
    _check_names(rule.previous, f"{where}: previous", standard.names, "command")
    _check_names(rule.next, f"{where}: next", standard.names, "command")
    if rule.level not in standard.levels:
        raise unknown(rule.level, standard.levels, "level", key=f"{where}: level")
    whole_number(rule.window, f"{where}: window", 1)
    try:
        terms = [term for _, term in latency_terms(rule.latency) if isinstance(term, str)]
    except (TypeError, ValueError, AttributeError):
        problem = f"{shown(rule.latency)} is not a sum of timings and whole numbers, as 'nCL + nBL + 2'"
        raise InputError(problem, "form", key=f"{where}: latency") from None
    for preset, known in timings.items():
        for term in terms:
            if term not in known:
                raise unknown(term, known, f"timing of {preset}", key=f"{where}: latency")


# ---- Finds the standards: every module in `ndpsim/dram/spec/standards/` that defines `STANDARD`


@functools.cache
def standards() -> dict[str, Standard]:
    """All standards by name.

    Raises:
        InputError: a page has no standard that can be simulated.
    """
    pages = [read_page(f"{_folder.__name__}.{name}") for name in module_names(_folder)]
    return {standard.name: standard for standard in pages}


def standard_names() -> list[str]:
    """The names of all standards, sorted."""
    return sorted(standards())


def command_names() -> tuple[str, ...]:
    """The names of the commands of all standards, each once."""
    return tuple(dict.fromkeys(name for standard in standards().values() for name in standard.names))
