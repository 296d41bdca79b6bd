"""Finds the formats: every module in `request_formats/` with `FORMAT`, in `command_formats/` with `FORM`."""

from __future__ import annotations

import functools

from ndpsim.plugins import plugins
from ndpsim.traces import command_formats as _command_folder
from ndpsim.traces import request_formats as _request_folder
from ndpsim.traces.command_form import CommandForm
from ndpsim.traces.request_format import RequestFormat


@functools.cache
def request_formats() -> dict[str, RequestFormat]:
    """All formats of request traces by name."""
    return {format_.name: format_ for format_ in plugins(_request_folder, "FORMAT")}


@functools.cache
def command_forms() -> dict[str, CommandForm]:
    """All forms in which command traces are written, by name."""
    return {form.name: form for form in plugins(_command_folder, "FORM")}
