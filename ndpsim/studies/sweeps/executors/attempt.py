"""Runs a point in a worker."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from typing import Any

from ndpsim.base.errors import InputError, MismatchError
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.studies.sweeps.command import SweptCommand


def attempt(command: SweptCommand, settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Run a point, and return the part of its record that only the run knows.

    `stored` is False if a file of the point differs from what the sweep read, so that the result is not for
    this point.
    """
    stopwatch = Stopwatch()
    try:
        metrics = _plain(command.measure(settings))
        answer = {"status": "ok", "reason": None, "metrics": metrics}
    except (Exception, SystemExit) as error:  # other points continue after any error
        answer = failure(reason_of(error))
    changed = _what_changed(command, settings, key)
    if changed is not None:
        answer = failure(changed)
    return {
        **answer,
        "stored": changed is None,
        "host": {"name": platform.node(), "cpu": platform.machine(), "cores": os.cpu_count()},
        **stopwatch.times(),
    }


def failure(reason: str) -> dict[str, Any]:
    """The record of a point without a result."""
    return {"status": "failed", "reason": reason, "metrics": {}}


def reason_of(error: BaseException) -> str:
    """The reason of a failure in one line, with the type of error if it is not an `InputError`."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError | MismatchError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics for JSON, without infinite values and NaN."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }
    return dict(json.loads(json.dumps(finite, allow_nan=False)))


def _what_changed(command: SweptCommand, settings: Mapping[str, Any], key: str) -> str | None:
    """The reason why the point has changed, which can only be a file; None if it has not."""
    try:
        same = command.resolve(settings).key == key
    except Exception as error:
        return f"a file that is named is not as it was when the sweep began ({reason_of(error)})"
    return None if same else "a file that is named is not as it was when the sweep began"
