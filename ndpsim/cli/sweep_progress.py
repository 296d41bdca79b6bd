"""Progress of a sweep on standard error: a bar on a terminal, otherwise lines at intervals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ndpsim.studies.sweeps.points import Progress

_LINES_S = 10.0  # between two lines, if standard error is no terminal


def _in_words(state: Progress, elapsed_s: float) -> str:
    """``120 of 1000 points, 25.3 points/s, 35 s left, 2 failed``."""
    rate = (state.done - state.found) / elapsed_s
    parts = [f"{state.done} of {state.points} points", f"{rate:.3g} points/s"]
    if rate > 0 and state.done < state.points:
        parts.append(f"{_duration((state.points - state.done) / rate)} left")
    if state.failed:
        parts.append(f"{state.failed} failed")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """``35 s``, ``4 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def showing() -> Iterator[Callable[[Progress], None]]:
    """A function to call with the progress of a sweep."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        last = began

        def write_line(state: Progress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _LINES_S and state.done < state.points:
                last = now
                click.echo(f"ndpsim: {_in_words(state, now - began)}", err=True)

        yield write_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def draw(state: Progress) -> None:
        words = _in_words(state, time.monotonic() - began)
        bar.update(task, completed=state.done, total=state.points, description=words)

    with bar:
        yield draw
