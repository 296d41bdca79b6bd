"""Observers of a run of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.orchestrator.record import LayerRecord, RunRecord
from ndpsim.serving.engine import DoneStep
from ndpsim.serving.sequence import Sequence


class ServingObserver:
    """Is told what happens, in order: it does nothing with it."""

    def begin(self, header: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """The run, as the first line of a log has it; `ids`: names of the requests."""

    def arrived(self, sequence: Sequence) -> None:
        """A request."""

    def layer(self, run: RunRecord, layer: LayerRecord) -> None:
        """A layer of a step."""

    def done(self, step: DoneStep) -> None:
        """A step, behind its layers."""
