"""A prediction as text: tokens/s with a band, where the time goes, what upgrades would give."""

from __future__ import annotations

from ndpsim.report.printing import print_table, print_text
from ndpsim.results.prediction import PhasePrediction, Prediction
from ndpsim.units import format_bytes, format_time, percent, significant


def rate_words(phase: PhasePrediction) -> str:
    """``13.2 tokens/s (10.9 to 15.8)``."""
    band = phase.band
    return f"{phase.tokens_per_s:.4g} tokens/s" + (
        "" if band is None else f" ({significant(band.low, 3)} to {significant(band.high, 3)})"
    )


def print_prediction(result: Prediction) -> None:
    """The result of `predict`."""
    work = result.config["work"]
    print_text(result.title, bold=True)
    print_text(
        f"weights {work['weights']['weights']}, a prompt of {work['prompt']:,} tokens in chunks of "
        f"{min(work['chunk'], work['prompt']):,}, {work['generated']:,} tokens generated, "
        f"policy {work['policy']}"
    )
    phases = (("prefill", "prompt", result.prefill), ("decode", "token", result.decode))
    for name, what, phase in phases:
        words = f"{name}: {rate_words(phase)}, {format_time(phase.time_ns)} a {what}, bound by {phase.bound}"
        print_text(words, bold=True)
        rows = [
            (part, format_time(ns), percent(ns / phase.time_ns))
            for part, ns in phase.parts_ns.items()
            if ns >= phase.time_ns / 1000
        ]
        print_table("", ("where the time goes", "time", "share"), rows, left=1)
    _print_memory(result)
    if result.upgrades:
        upgraded = [
            (
                one.name,
                one.change,
                f"{one.prefill_tokens_per_s:.4g} ({one.prefill_gain:.2f}x)",
                f"{one.decode_tokens_per_s:.4g} ({one.decode_gain:.2f}x)",
            )
            for one in result.upgrades
            if not one.problem
        ]
        columns = ("upgrade", "to", "prefill, tokens/s", "decode, tokens/s")
        print_table("What one better part would give:", columns, upgraded, left=2)
        for one in result.upgrades:
            if one.problem:
                print_text(f"{one.name}: not possible: {one.problem}")
    _print_band(result)


def _print_memory(result: Prediction) -> None:
    held = {name: size for name, size in result.gpu_bytes.items() if size}
    listed = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in held.items())
    if held:
        print_text(f"GPU memory: {listed}")
    what = "experts" if held else "weights, KV cache and work space"
    print_text(f"host memory: {format_bytes(result.host_bytes)} of {what}")


def _print_band(result: Prediction) -> None:
    band = result.decode.band
    if band is not None:
        print_text(
            f"In brackets: the range of 8 of 10 of {band.machines} measured machines around their "
            "predictions (validation/machines.md)."
        )
