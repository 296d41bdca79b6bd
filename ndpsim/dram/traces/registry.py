"""Finds the formats: every module in `request_formats/` with `FORMAT`, in `command_formats/` with `FORM`."""

from __future__ import annotations

import functools

from ndpsim.base.plugins import plugins_by_name
from ndpsim.dram.traces import command_formats as _command_folder
from ndpsim.dram.traces import request_formats as _request_folder
from ndpsim.dram.traces.command_form import CommandForm
from ndpsim.dram.traces.request_format import RequestFormat


@functools.cache
def request_formats() -> dict[str, RequestFormat]:
    """All formats of request traces by name."""
    return plugins_by_name(_request_folder, "FORMAT")


@functools.cache
def command_forms() -> dict[str, CommandForm]:
    """All forms of command traces by name."""
    return plugins_by_name(_command_folder, "FORM")
