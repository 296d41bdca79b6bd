"""A prediction as text: tokens/s with a band, the parts of the time, and the gains of upgrades."""

from __future__ import annotations

from ndpsim.base.reported import label_of, said, table_of, with_unit
from ndpsim.base.units import percent, significant
from ndpsim.report.printing import print_table, print_text
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction

_LEAST = 0.001  # least share of the time of a part that is shown
_OF_UPGRADES = (
    "name",
    "change",
    "prefill_tokens_per_s",
    "prefill_gain",
    "decode_tokens_per_s",
    "decode_gain",
)


def rate_words(phase: PhasePrediction) -> str:
    """``throughput 13.20 tokens/s (10.9 to 15.8)``, or ``throughput not known (5.1 to 8.8 tokens/s)``."""
    band = phase.band
    if band is None:
        return said(phase, "tokens_per_s")
    unit = " tokens/s" if phase.tokens_per_s is None else ""
    return f"{said(phase, 'tokens_per_s')} ({significant(band.low, 3)} to {significant(band.high, 3)}{unit})"


def parts_shown(phase: PhasePrediction) -> dict[str, float]:
    """The parts of the time of a phase that are not too short to show."""
    return {part: ns for part, ns in phase.parts_ns.items() if ns >= _LEAST * phase.time_ns}


def print_prediction(result: Prediction) -> None:
    """Print the result of `predict`."""
    work = result.config["work"]
    print_text(result.title, bold=True)
    print_text(
        f"weights {work['weights']['weights']}, a prompt of {work['prompt']:,} tokens in chunks of "
        f"{min(work['chunk'], work['prompt']):,}, {work['generated']:,} tokens generated, "
        f"policy {work['policy']}"
    )
    for name, what, phase in (("prefill", "prompt", result.prefill), ("decode", "token", result.decode)):
        time_words = "" if phase.tokens_per_s is None else f"{said(phase, 'time_ns')} of a {what}, "
        words = f"{rate_words(phase)}, {time_words}{said(phase, 'bound')}"
        print_text(f"{name}: {words}", bold=True)
        rows = [
            (part, with_unit("parts_ns", ns, PhasePrediction), percent(ns / phase.time_ns))
            for part, ns in parts_shown(phase).items()
        ]
        time = label_of("time_ns", PhasePrediction)
        print_table("", (label_of("parts_ns", PhasePrediction), time, f"share of the {time}"), rows, left=1)
    _print_memory(result)
    possible = [upgrade for upgrade in result.upgrades if not upgrade.problem]
    if possible:
        print_table("What one better part would give:", *table_of(possible, *_OF_UPGRADES), left=2)
    for upgrade in result.upgrades:
        if upgrade.problem:
            print_text(f"{upgrade.name}: not possible: {upgrade.problem}")
    _print_band(result)


def _print_memory(result: Prediction) -> None:
    held = {name.replace("_", " "): size for name, size in result.gpu_bytes.items() if size}
    if held:
        print_text(f"{label_of('gpu_bytes', Prediction)}: {with_unit('gpu_bytes', held)}")
    what = "experts" if held else "weights, KV cache and work space"
    print_text(
        f"{label_of('host_bytes', Prediction)}: {with_unit('host_bytes', result.host_bytes)} of {what}"
    )


def _print_band(result: Prediction) -> None:
    band = result.decode.band
    if band is not None:
        print_text(
            f"In brackets: 80% of machines are expected within this range, by {band.runs} measured runs "
            "(validation/machines.md)."
        )
    unknown = [name for name in ("prefill", "decode") if getattr(result, name).tokens_per_s is None]
    if unknown:
        print_text(
            f"The throughput of {' and '.join(unknown)} is not known: on measured machines with "
            f"{result.config['machine']['kind']}, the rates of the parts give another one. Times and shares "
            "above are theirs."
        )
