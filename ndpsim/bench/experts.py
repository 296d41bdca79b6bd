"""One expert on one DIMM, again and again in one process, against the time the hardware itself needs."""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.bench.row import Row, Work, best_seconds, expect
from ndpsim.config import load_hardware
from ndpsim.errors import MismatchError
from ndpsim.moe import load_model
from ndpsim.simulate import ExpertResult, simulate_expert

__all__ = ["ExpertCall", "work_of"]

_LEAST_RUNS = 20  # a call lasts a fraction of a millisecond


def work_of(result: ExpertResult) -> Work:
    """What a call came to."""
    return Work(round(result.weight_bursts * result.weight_reads), result.cycles, dict(result.commands))


@dataclass(frozen=True)
class ExpertCall:
    """`simulate_expert` with hardware and model loaded and kernels compiled.

    Attributes:
        name, about: see `Benchmark`.
        hw, model: bundled names.
        tokens: that go through the expert.
        pinned: what must come out; requests are bursts of weights.
    """

    name: str
    about: str
    hw: str
    model: str
    pinned: Work
    tokens: int = 1

    def run(self, repeat: int) -> Row:
        """See `Benchmark`.

        Raises:
            MismatchError: the pinned work or the plain run disagrees.
        """
        hardware, expert = load_hardware(self.hw), load_model(self.model).expert

        def call() -> ExpertResult:
            return simulate_expert(hardware, expert, self.tokens)

        def call_and_check() -> ExpertResult:
            try:
                return simulate_expert(hardware, expert, self.tokens, exact_check=True)
            except MismatchError as error:
                raise MismatchError(f"{self.name}: {error}") from None

        result = call_and_check()
        expect(self.name, work_of(result), self.pinned)
        seconds = best_seconds(call, max(repeat, _LEAST_RUNS))
        # A checked call is the call and the plain run: every lane on its own, every read stepped through.
        plain_s = best_seconds(call_and_check, repeat) - seconds
        return Row(
            self.name,
            work_of(result),
            seconds,
            ratio_plain=plain_s / seconds,
            simulated_s=result.time_ns / 1e9,
            fast_forwarded=result.fast_forwarded,
        )
