"""The prediction for a machine and a model: tokens/s, where the time goes, gains by upgrades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ndpsim.base.reported import Reported, quantity, said
from ndpsim.base.units import TIMES


class Band(NamedTuple):
    """Tokens/s between which a measured machine is expected, and how many measured runs say so."""

    low: float
    high: float
    runs: int


@dataclass(frozen=True, eq=False, repr=False)
class PhasePrediction(Reported):
    """The prefill of a prompt, or a decode step.

    Attributes:
        tokens_per_s: the throughput of one sequence; None: predictions of this kind of machine are too far
            from what was measured to name one, and `band` alone says what to expect.
        time_ns: of the whole prompt, or of a step on average, by the rates of the parts.
        parts_ns: the time by what the critical path was doing, longest first; together `time_ns`.
        bound: the longest of them.
        band: from the machines that predictions were held against; None: there were none.
    """

    tokens_per_s: float | None = field(metadata=quantity("throughput"))
    time_ns: float = field(metadata=quantity("time"))
    parts_ns: Mapping[str, float] = field(metadata=quantity("where the time goes", whole="time_ns"))
    bound: str = field(metadata=quantity("bottleneck"))
    band: Band | None


@dataclass(frozen=True, eq=False, repr=False)
class Upgrade(Reported):
    """The same machine with one part changed.

    Attributes:
        name: which part: "memory", "gpu", "link" or "ndp".
        change: what it becomes, in words.
        prefill_tokens_per_s, decode_tokens_per_s: predicted; 0 where it cannot be, None where it is not
            known.
        prefill_gain, decode_gain: over the machine as it is.
        problem: why it cannot be; empty where it can.
    """

    name: str = field(metadata=quantity("upgrade"))
    change: str = field(metadata=quantity("to"))
    prefill_tokens_per_s: float | None = field(default=0.0, metadata=quantity("prefill throughput"))
    decode_tokens_per_s: float | None = field(default=0.0, metadata=quantity("decode throughput"))
    prefill_gain: float = field(default=0.0, metadata=quantity("prefill speed-up", TIMES))
    decode_gain: float = field(default=0.0, metadata=quantity("decode speed-up", TIMES))
    problem: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Reported):
    """A machine with a model.

    Attributes:
        config: everything that was used, the sources of its rates among it.
        title: the machine and the model in a line.
        prefill, decode: both phases.
        gpu_bytes: what the GPU's memory holds, by part.
        host_bytes: what the host's memory holds of the model.
        upgrades: what each of them would give.
    """

    config: Mapping[str, Any] = field(repr=False)
    title: str
    prefill: PhasePrediction
    decode: PhasePrediction
    gpu_bytes: Mapping[str, int] = field(metadata=quantity("GPU memory"))
    host_bytes: int = field(metadata=quantity("host memory"))
    upgrades: tuple[Upgrade, ...]

    def _title(self) -> str:
        return f"Prediction: {self.title}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            (name, said(phase, "tokens_per_s", "time_ns", "bound"))
            for name, phase in (("prefill", self.prefill), ("decode", self.decode))
        ]
        return rows + [
            (f"upgrade: {upgrade.name}", upgrade.problem or said(upgrade, "decode_gain", "change"))
            for upgrade in self.upgrades
        ]
