"""Requests from files of ndpsim or other programs."""

from __future__ import annotations

import functools
from dataclasses import replace
from os import PathLike

from ndpsim.arguments import choice, instance, path_of, whole_number
from ndpsim.files import replacing
from ndpsim.plugins import plugins_by_module
from ndpsim.text_files import recognised
from ndpsim.workloads import formats as _folder
from ndpsim.workloads.formats.csv import lines_of
from ndpsim.workloads.recorded import WorkloadFormat
from ndpsim.workloads.requests import Requests


@functools.cache
def request_formats() -> dict[str, WorkloadFormat]:
    """All formats of recorded requests by name."""
    return plugins_by_module(_folder, "FORMAT")


def import_requests(
    file: str | PathLike[str], format: str | None = None, first: int | None = None
) -> Requests:
    """Requests that another program recorded, or ndpsim wrote.

    Args:
        file: plain, or packed with gzip.
        format: a name of `request_formats`; None: it is detected.
        first: requests to take, the first ones; None: all.

    Raises:
        InputError: the file cannot be read, has no known format, or has impossible content.
    """
    path = path_of(file, "file")
    most = None if first is None else whole_number(first, "first", 1)
    if format is None:
        name = recognised(path, request_formats(), "requests")
    else:
        name = choice(format, "format", request_formats(), "format of requests")
    requests = request_formats()[name].read(path, most)
    return replace(requests, source={"imported": name, **(requests.source or {})})


def save_requests(requests: Requests, path: str | PathLike[str]) -> None:
    """Write requests as CSV; `ndpsim.workloads.formats.csv` lists the columns.

    Raises:
        InputError: the file cannot be written, or an id has a comma or a line break.
    """
    requests = instance(requests, "requests", Requests)
    with replacing(path_of(path, "path")) as file:
        for line in lines_of(requests):
            file.write(line.encode())
