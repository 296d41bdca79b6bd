"""``ndpsim show``: one bundled thing in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from ndpsim.cli.options import json_option, sets_option, write_json
from ndpsim.errors import InputError, one_of

__all__ = ["command"]


def _show_hw(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.config import load_hardware
    from ndpsim.energy import find_currents, power_rows
    from ndpsim.report.text import print_rows

    hardware = load_hardware(name, sets)
    if json_to is not None:
        write_json(hardware.to_dict(), json_to)
    else:
        currents = find_currents(hardware.lane_device(), hardware.power_changes)
        rows = hardware.rows() + ([] if currents is None else power_rows(currents))
        print_rows(f"{hardware.system.title or hardware.system.name} ({hardware.file})", rows)


def _show_model(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.moe import load_model
    from ndpsim.report.text import print_pairs

    _show_plain(load_model(name).to_dict(), json_to, print_pairs)


def _show_org(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from dataclasses import asdict

    from ndpsim.report.text import print_pairs
    from ndpsim.spec import standards

    known = {
        org: values for standard in standards().values() for org, values in standard.organisations.items()
    }
    if name not in known:
        raise InputError(one_of(name, known, "organisation"), key="show org")
    _show_plain(asdict(known[name]), json_to, print_pairs)


def _show_timing(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.report.text import print_pairs
    from ndpsim.spec import standards

    known = {
        timing: values for standard in standards().values() for timing, values in standard.speeds.items()
    }
    if name not in known:
        raise InputError(one_of(name, known, "timing preset"), key="show timing")
    _show_plain(dict(known[name]), json_to, print_pairs)


def _show_plain(
    values: dict[str, Any], json_to: str | None, print_pairs: Callable[[dict[str, Any]], None]
) -> None:
    if json_to is not None:
        write_json(values, json_to)
    else:
        print_pairs(values)


def _show_schema(name: str, sets: Sequence[str], json_to: str | None) -> None:
    from ndpsim.config import json_schema

    if name != "hw":
        raise InputError(one_of(name, ["hw"], "schema"), key="show schema")
    write_json(json_schema(), json_to or "-")


_KINDS = {
    "hw": _show_hw,
    "model": _show_model,
    "org": _show_org,
    "timing": _show_timing,
    "schema": _show_schema,
}


@click.command()
@click.argument("what")
@click.argument("name")
@sets_option
@json_option
def command(what: str, name: str, sets: tuple[str, ...], json_to: str | None) -> None:
    """Show one thing in full: hw NAME, model NAME, org NAME, timing NAME, or schema hw.

    `show hw` prints every value of a system with its unit and where it comes from; --set changes it first.
    """
    if what not in _KINDS:
        raise InputError(one_of(what, _KINDS, "kind of thing"), key="show")
    if sets and what != "hw":
        raise InputError(f"changes hardware; a {what} has nothing to change", key="--set")
    _KINDS[what](name, sets, json_to)
