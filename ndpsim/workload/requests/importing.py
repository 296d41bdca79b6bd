"""Requests from files of ndpsim or other programs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from ndpsim.base.arguments import choice, instance, path_of, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.files import replacing
from ndpsim.base.plugins import plugins_by_module
from ndpsim.base.text_files import recognised
from ndpsim.workload.requests import formats as _folder
from ndpsim.workload.requests.formats.csv import lines_of
from ndpsim.workload.requests.recorded import Sink, WorkloadFormat
from ndpsim.workload.requests.requests import Requests


@functools.cache
def request_formats() -> dict[str, WorkloadFormat]:
    """All formats of recorded requests by name."""
    return plugins_by_module(_folder, "FORMAT")


def import_requests(
    file: str | PathLike[str],
    format: str | None = None,
    first: int | None = None,
    run: int | None = None,
) -> Requests:
    """Requests that another program recorded, or ndpsim wrote.

    >>> ndpsim.save_requests(ndpsim.generate_requests("poisson:requests=3"), "requests.csv")
    >>> len(ndpsim.import_requests("requests.csv", first=2))
    2

    Args:
        file: plain, or packed with gzip.
        format: a name of `request_formats`; None: it is detected.
        first: requests to take, the first ones; None: all.
        run: number, from 1, of the run to take from a file with several; None: the file has one.

    Raises:
        InputError: the file cannot be read, has no known format, or has impossible content.
    """
    return _read(file, format, first, run, None)


def _read(file: Any, format: str | None, first: int | None, run: int | None, sink: Sink | None) -> Requests:
    path = path_of(file, "file")
    most = None if first is None else whole_number(first, "first", 1)
    if format is None:
        name = recognised(path, request_formats(), "workload-formats")
    else:
        name = choice(format, "format", request_formats(), "format of requests")
    form, number = request_formats()[name], None if run is None else whole_number(run, "run", 1)
    if number is not None and not form.has_runs:
        raise InputError(f"a file of {name} has one run", "conflict", file=path, key="run")
    requests = form.read(path, most, sink, *([number] if form.has_runs else []))
    stated = {} if number is None else {"run": number}
    return replace(requests, source={"imported": name, **(requests.source or {}), **stated})


def convert_requests(
    file: str | PathLike[str],
    path: str | PathLike[str],
    format: str | None = None,
    first: int | None = None,
    run: int | None = None,
) -> tuple[Mapping[str, Any], int]:
    """Write a recording as `save_requests` does, block by block: memory does not grow with the file.

    Recordings with names or with blocks of tokens are kept until the end. For other arguments see
    `import_requests`.

    Returns:
        The origin of the requests, as `Requests.source`, and their number.

    Raises:
        InputError: as for `import_requests` and `save_requests`.
    """
    with replacing(path_of(path, "path")) as written:
        count = 0

        def write(requests: Requests) -> None:
            nonlocal count
            for line in lines_of(requests, header=not count):
                written.write(line.encode())
            count += len(requests)

        last = _read(file, format, first, run, write)
        write(last)
    return last.source or {}, count


def save_requests(requests: Requests, path: str | PathLike[str]) -> None:
    """Write requests as CSV; `ndpsim.workload.requests.formats.csv` lists the columns.

    >>> ndpsim.save_requests(ndpsim.generate_requests("poisson:requests=3"), "requests.csv")
    >>> len(ndpsim.load_requests("requests.csv"))
    3

    Raises:
        InputError: the file cannot be written, or an id has a comma or a line break.
    """
    requests = instance(requests, "requests", Requests)
    with replacing(path_of(path, "path")) as file:
        for line in lines_of(requests):
            file.write(line.encode())
