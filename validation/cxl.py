"""Context-aware inference on a GPU and a CXL device with NDP: Section 5.2 of the cxl paper.

``python validation/cxl.py [STEPS] > validation/cxl.md``: Figures 5 and 6. Nothing is tuned to the paper's
speed-ups.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from ndpsim import run_moe, simulate_expert
from ndpsim.orchestrator.record import LayerRecord, RunRecord
from ndpsim.results.moe import PolicyRun

HARDWARE = "cxl"
#: Model: routing, and the experts a layer that the GPU holds (Section 5.1).
MODELS = {
    "mixtral-8x7b": ("popularity:mixtral-8x7b", 4),
    "mixtral-8x22b": ("skewed:prefill_cosine=0.89", 2),
}
PROMPTS = (128, 512)
OURS = ("cxl:bits=2", "cxl:bits=3")
BASELINES = {
    "MoNDE": "monde:residents=none",
    "MoNDE, migrations=0.05": "monde:residents=none,migrations=0.05",
    "MoNDE, hot experts on the GPU": "monde",
    "MoNDE, hot, migrations=0.05": "monde:migrations=0.05",
    "HOBBIT": "hobbit",
}
THROUGHPUT = ("inverse-bits", "fixed")
#: Over MoNDE: end to end from, to, and decode "up to", with 3 and with 2 bits; over HOBBIT "up to".
PUBLISHED = {
    "mixtral-8x7b": {3: (6.6, 8.3, 8.7), 2: (7.9, 10.6, 11.2), "HOBBIT": 18.0},
    "mixtral-8x22b": {3: (7.6, 8.7, 8.9), 2: (9.5, 11.2, 11.5), "HOBBIT": 19.0},
}


def say(text: str) -> None:
    """A paragraph."""
    print(textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n")


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    """As Markdown; numbers with two digits after the point."""
    print(f"| {' | '.join(map(str, head))} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(f'{one:.2f}' if isinstance(one, float) else str(one) for one in row)} |")
    print()


def ran(
    model: str, prompt: int, steps: int, throughput: str, room: int | None
) -> list[tuple[PolicyRun, float]]:
    """Ours and all baselines on one trace, one sequence; each with the time of the later half of decode."""
    begins: list[float] = []

    def note(run: RunRecord, layer: LayerRecord) -> None:
        if (layer.phase, layer.step, layer.layer) == ("decode", steps // 2, 0):
            begins.append(layer.start_ns - layer.window_ns)

    runs = run_moe(
        HARDWARE,
        model,
        [*OURS, *BASELINES.values()],
        batch=1,
        steps=steps,
        prompt=prompt,
        routing=MODELS[model][0],
        sets=[f"ndp.systolic.low_bit_throughput={throughput}"],
        gpu_experts=room,
        observer=note,
    ).runs
    return [(run, run.time_ns - begin) for run, begin in zip(runs, begins, strict=True)]


def alone() -> None:
    """An expert of one token on the device, by bits."""
    rows = []
    for model in MODELS:
        for throughput in THROUGHPUT:
            sets = [f"ndp.systolic.low_bit_throughput={throughput}"]
            times = [
                simulate_expert(HARDWARE, model, bits=bits, sets=sets, cache=True).time_ns
                for bits in (16, 3, 2)
            ]
            ratios = [times[0] / one for one in times[1:]]
            off = [f"{ratio / published - 1:+.0%}" for ratio, published in zip(ratios, (5, 8), strict=True)]
            rows.append(
                [
                    model,
                    throughput,
                    times[0] / 1e6,
                    *(x for pair in zip(ratios, off, strict=True) for x in pair),
                ]
            )
    head = ["model", "low_bit_throughput", "16 bits, ms", "3 bits: times as fast", "to 5", "2 bits", "to 8"]
    table(head, rows)


def speed_ups(model: str, steps: int, throughput: str, room: int | None, prompts: Sequence[int]) -> None:
    """End to end, in decode, and in its second half, when all is where it was to go."""
    rows: list[list[object]] = []
    for prompt in prompts:
        runs = ran(model, prompt, steps, throughput, room)
        for bits, (ours, late_ns) in zip((2, 3), runs, strict=False):
            for name, (other, other_late_ns) in zip(BASELINES, runs[len(OURS) :], strict=True):
                whole, decode, late = (
                    other.time_ns / ours.time_ns,
                    other.decode_ns / ours.decode_ns,
                    other_late_ns / late_ns,
                )
                said = published(model, bits, name, whole, late)
                rows.append([prompt, bits, name, whole, decode, late, *said])
    held = "what fits" if room is None else f"{room} experts a layer"
    print(f"### {model}, {throughput}, on the GPU {held}\n")
    head = [
        "prompt",
        "bits",
        "over",
        "end to end",
        "decode",
        "its second half",
        "published",
        "distance",
    ]
    table(head, rows)


def published(model: str, bits: int, name: str, whole: float, late: float) -> list[str]:
    """What the paper has, and how far it is."""
    said = PUBLISHED[model]
    if name == "HOBBIT":
        return [f"up to {said['HOBBIT']}", f"{whole / said['HOBBIT'] - 1:+.0%}"] if bits == 2 else ["", ""]
    low, high, best = said[bits]
    inside = min(max(whole, low), high)
    distance = "within" if inside == whole else f"{whole / inside - 1:+.0%}"
    return [f"{low} to {high}; decode up to {best}", f"{distance}; {late / best - 1:+.0%}"]


def main(steps: int) -> None:
    print("# The evaluation of context-aware inference on CXL-NDP\n")
    say(
        f"Made by `python validation/cxl.py {steps}`: {HARDWARE}, batch 1, prompts of {PROMPTS[0]} and "
        f"{PROMPTS[1]} tokens, {steps} decode steps, all layers, seed 1. Speed-ups are of cxl with 2 and 3 "
        "bits over what the column says."
    )
    say(
        "Assumptions: the paper gives neither batch nor lengths. Routing is generated: popularity of "
        "Mixtral-8x7B is measured, as a whole and not of a sequence, and flat; of 8x22B no counts are at "
        "hand, and it is `skewed` with prefill and decode as alike as the paper measures for 8x7B. All "
        "policies have the same room on the GPU, the 4 and 2 experts a layer of Section 5.1. MoNDE with "
        "`residents=none` moves activations only; with `migrations=0.05` an expert of every twentieth layer "
        "is copied in the background; `hot` holds as many experts as ours, chosen offline. Decode has the "
        "migration after the prefill in it; its second half has not. HOBBIT has its defaults; traces have "
        "no scores, so that with two choices a token nothing ranks behind 0.6 and all is loaded in full."
    )
    print("## The device alone (Section 5.2: about 5 and 8 times)\n")
    alone()
    print("## Speed-ups (Figures 5 and 6)\n")
    for model, (_, room) in MODELS.items():
        speed_ups(model, steps, THROUGHPUT[0], room, PROMPTS)
    print("## Arrays that multiply few bits no faster than 16\n")
    for model, (_, room) in MODELS.items():
        speed_ups(model, steps, THROUGHPUT[1], room, PROMPTS[:1])
    print("## As many experts on the GPU as fit\n")
    say("Ours holds the paper's 4 and 2 a layer; the baselines fill the memory.")
    for model in MODELS:
        speed_ups(model, steps, THROUGHPUT[0], None, PROMPTS[:1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
