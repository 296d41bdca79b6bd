"""Finds the formats: every module in `request_formats/` with `FORMAT`, in `command_formats/` with `FORM`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ndpsim.traces import command_formats as _command_folder
from ndpsim.traces import request_formats as _request_folder
from ndpsim.traces.command_form import CommandForm
from ndpsim.traces.request_format import RequestFormat

__all__ = ["command_forms", "request_formats"]


@functools.cache
def request_formats() -> dict[str, RequestFormat]:
    """All formats of request traces by name."""
    found = {}
    for module in pkgutil.iter_modules(_request_folder.__path__):
        format_ = importlib.import_module(f"{_request_folder.__name__}.{module.name}").FORMAT
        found[format_.name] = format_
    return found


@functools.cache
def command_forms() -> dict[str, CommandForm]:
    """All forms in which command traces are written, by name."""
    found = {}
    for module in pkgutil.iter_modules(_command_folder.__path__):
        form = importlib.import_module(f"{_command_folder.__name__}.{module.name}").FORM
        found[form.name] = form
    return found
