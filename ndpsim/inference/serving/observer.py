"""Observers of a run of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.sequence import Sequence


class ServingObserver:
    """Receives events of a run in order, and ignores them."""

    def begin(self, header: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """A run begins; `header` as in the first line of a log, `ids`: names of the requests."""

    def arrived(self, sequence: Sequence) -> None:
        """A request arrived."""

    def layer(self, run: RunRecord, layer: LayerRecord) -> None:
        """A layer of a step was run."""

    def done(self, step: DoneStep) -> None:
        """A step was run, after its layers."""
