"""Who beats whom on a local PC: Section 6 of the DALI paper, on `dali-7532-3090`.

``python validation/dali.py [STEPS] > validation/dali.md``: decode (Figure 12), prefill (Figure 13), greedy
against optimal (Table 4), what each part brings (Figure 19), windows and swaps (Table 9). Nothing is tuned to
the paper's figures; what is not a default is in each table's command.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence

from ndpsim import run_moe
from ndpsim.simulate.results import MoeResult, PolicyRun

HARDWARE = "dali-7532-3090"
MODELS = ("mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b")
BATCHES = (8, 16, 32)
CONTEXT = 128

#: Section 6.1: all with comparable memory of the GPU; Figure 12: half of the experts are cached.
SHARE = 0.5
SYSTEMS = {
    "llama-cpp": f"llama-cpp:gpu_share={SHARE}",
    "ktransformers": f"ktransformers:gpu_share={SHARE},strategy=front-loading",
    "moe-lightning": f"moe-lightning:gpu_share={SHARE}",
    "hybrimoe": f"hybrimoe:cache_share={SHARE}",
    "dali": f"dali:cache_share={SHARE}",
}
#: The same systems, otherwise: what a ranking may depend on.
OTHERWISE = {
    "llama-cpp --no-op-offload": f"llama-cpp:gpu_share={SHARE},offload=false",
    "ktransformers, frequency": f"ktransformers:gpu_share={SHARE}",
    "hybrimoe, threshold": f"hybrimoe:cache_share={SHARE},schedule=threshold",
    "hybrimoe, code's constants": f"hybrimoe:cache_share={SHARE},constants=code",
    "dali, hottest at first": f"dali:cache_share={SHARE},initial=hottest",
    "dali, hottest, optimal": f"dali:cache_share={SHARE},initial=hottest,assignment=optimal",
}
ALL = {**SYSTEMS, **OTHERWISE}
RESTORED = {
    **SYSTEMS,
    "hybrimoe": OTHERWISE["hybrimoe, threshold"],
    "dali": OTHERWISE["dali, hottest at first"],
}
SLOW_CPU = ("host.cpu_read_gbps=15", "host.cpu_compute_efficiency=0.0592")
DECODE = {"llama-cpp": 3.97, "ktransformers": 2.16, "moe-lightning": 1.48, "hybrimoe": 1.32}
PREFILL = {"llama-cpp": 7.62, "ktransformers": 3.80, "moe-lightning": 2.45, "hybrimoe": 2.00}
#: Seconds of 32 steps: optimal, greedy.
TABLE_4 = {
    ("deepseek-v2-lite", 16): (12.4, 14.4),
    ("deepseek-v2-lite", 32): (19.7, 22.4),
    ("mixtral-8x7b", 16): (22.6, 26.7),
    ("mixtral-8x7b", 32): (28.0, 30.4),
}
#: Tokens/s by (w, u).
TABLE_9 = {
    "deepseek-v2-lite": {(2, 8): 1.84, (2, 16): 1.76, (4, 8): 1.89, (4, 16): 1.83, (8, 8): 1.97},
    "qwen3-30b-a3b": {(2, 8): 1.88, (2, 16): 1.82, (4, 8): 1.96, (4, 16): 1.92, (8, 8): 1.94},
    "mixtral-8x7b": {(2, 1): 1.92, (2, 2): 1.89, (4, 1): 2.02, (4, 2): 1.87, (8, 1): 1.98},
}


def ran(
    model: str,
    batch: int,
    policies: Iterable[str],
    steps: int,
    prompt: int | None = None,
    sets: Sequence[str] = (),
) -> MoeResult:
    """Policies on one trace."""
    return run_moe(
        HARDWARE, model, tuple(policies), batch, steps, prompt=prompt, context=CONTEXT, sets=sets,
        bounds=False,
    )  # fmt: skip


def row(*cells: object) -> None:
    """A line of a table."""
    texts = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |")


def head(*cells: str) -> None:
    """The first two lines of a table."""
    row(*cells)
    print("|" + "---|" * len(cells))


def distance(found: float, published: float) -> str:
    """How far a figure is from the published one."""
    return f"{100 * (found / published - 1):+.0f}%"


def said(command: str, assumption: str, paper: str) -> None:
    """The text above a table."""
    print(f"`ndpsim moe --hw {HARDWARE} {command}`\n\nAssumption: {assumption}\n\nThe paper: {paper}\n")


def systems_table(
    times: Mapping[tuple[str, int], Mapping[str, float]], published: Mapping[str, float]
) -> None:
    """Speed-ups of DALI over each system, then their means and distances."""
    names = list(published)
    head("model", "batch", *(f"dali over {name}" for name in names), "ranking as printed")
    for (model, batch), of in times.items():
        order = [of[name] for name in (*names, "dali")]
        first = min(order[:-1]) > order[-1]
        holds = all(before > after for before, after in itertools.pairwise(order))
        words = "yes" if holds else "DALI first" if first else "no"
        row(model, batch, *(of[name] / of["dali"] for name in names), words)
    means = {name: sum(of[name] / of["dali"] for of in times.values()) / len(times) for name in names}
    row("mean", "", *means.values(), "")
    row("paper", "", *published.values(), "yes")
    row("distance", "", *(distance(means[name], published[name]) for name in names), "")
    print()


def decode(steps: int) -> dict[tuple[str, int], dict[str, float]]:
    """Figure 12; returns the times of all systems."""
    print("## Decode (Figure 12)\n")
    said(
        f"--model MODEL --batch BATCH --steps {steps} --context {CONTEXT} "
        + " ".join(f"--policy {one}" for one in SYSTEMS.values()),
        "all policies have the same share of experts in the GPU, half or what fits. llama.cpp and "
        "KTransformers have whole layers there, as DALI describes them. llama.cpp's CPU kernels are as "
        "fast as the others' (elsewhere they were 1.84 times slower). Routing is generated, Mixtral's by "
        "its measured popularity.",
        "DALI 3.97, 2.16, 1.48 and 1.32 times as fast, on average over models and batches that only a "
        "picture names.",
    )
    asked = ALL
    results = {
        (model, batch): dict(zip(asked, ran(model, batch, asked.values(), steps).runs, strict=True))
        for model in MODELS
        for batch in BATCHES
    }
    times = {at: {name: run.decode_ns for name, run in of.items()} for at, of in results.items()}
    systems_table(times, DECODE)
    print("Tokens/s of a sequence, the same runs and others:\n")
    head("model", "batch", *asked)
    for (model, batch), of in results.items():
        row(model, batch, *(run.tokens_per_s / batch for run in of.values()))
    print()
    return times


def restored(steps: int, as_is: Mapping[tuple[str, int], Mapping[str, float]]) -> None:
    """Figure 12, with what brings its ranking back."""
    print("## Changes that restore the published order\n")
    said(
        f"--model MODEL --batch BATCH --steps {steps} --context {CONTEXT} "
        + " ".join(f"--policy {one}" for one in RESTORED.values())
        + ", and the same with "
        + " ".join(f"--set {one}" for one in SLOW_CPU),
        "HybriMoE sends a missing expert to the GPU by a threshold of its tokens, as DALI describes it, in "
        "place of its code's two ends; DALI's cache begins with the hottest experts, as the others' do, not "
        "at random; and the CPU is six times slower, as the paper's seconds for DeepSeek (Table 4) suggest: "
        "with the CPU as it is, an expert of DeepSeek or Qwen takes less there than its copy, and algorithm "
        "1, which sorts by the difference, decides on missing experts before those that are cached.",
        "as above.",
    )
    names = {asked: key for key, asked in ALL.items()}
    print("The CPU as it is:\n")
    systems_table(
        {at: {name: of[names[asked]] for name, asked in RESTORED.items()} for at, of in as_is.items()}, DECODE
    )
    print("Six times slower:\n")
    times = {}
    for at in as_is:
        runs = ran(*at, RESTORED.values(), steps, sets=SLOW_CPU).runs
        times[at] = {name: run.decode_ns for name, run in zip(RESTORED, runs, strict=True)}
    systems_table(times, DECODE)


def prefill() -> None:
    """Figure 13."""
    print("## Prefill (Figure 13)\n")
    said(
        "--model deepseek-v2-lite --batch BATCH --steps 1 --prompt 64 "
        + " ".join(f"--policy {one}" for one in SYSTEMS.values()),
        "as above; one prefill of all prompts of the batch; HybriMoE computes it on the GPU, as its code "
        "does.",
        "DALI 7.62, 3.80, 2.45 and 2.00 times as fast, on average over batches that only a picture names.",
    )
    asked = {
        **SYSTEMS,
        "llama-cpp --no-op-offload": OTHERWISE["llama-cpp --no-op-offload"],
        "ktransformers, frequency": OTHERWISE["ktransformers, frequency"],
        "hybrimoe, schedule": f"{SYSTEMS['hybrimoe']},prefill=schedule",
        "dali, hottest at first": OTHERWISE["dali, hottest at first"],
    }
    times = {}
    for batch in BATCHES:
        runs = ran("deepseek-v2-lite", batch, asked.values(), 1, 64).runs
        times["deepseek-v2-lite", batch] = {
            name: run.prefill_ns for name, run in zip(asked, runs, strict=True)
        }
    systems_table(times, PREFILL)
    print("Prompt tokens/s, the same runs and others. llama.cpp offloads batches of 32 tokens and more:\n")
    head("batch", *asked)
    for (_, batch), of in times.items():
        row(batch, *(round(64 * batch / ns * 1e9) for ns in of.values()))
    print()


def greedy_and_optimal() -> None:
    """Table 4."""
    print("## Greedy against optimal assignment (Table 4)\n")
    plain = "replace=false,prefetch=0,initial=hottest"
    said(
        "--model MODEL --batch BATCH --steps 32 "
        f"--policy dali:cache_share=SHARE,assignment=ASSIGNMENT,{plain}",
        "the paper gives neither the size of the cache nor DeepSeek's precision. The runs have no cache, "
        "or half of the experts or what fits. Times are of the experts alone, without the solver.",
        "greedy reaches 86 to 92% of the optimal assignment's speed; seconds as in the table.",
    )
    head(
        "model", "batch", "share cached", "optimal s", "paper", "distance", "greedy s", "paper", "distance",
        "optimal / greedy", "paper", "beam / optimal",
    )  # fmt: skip
    for (model, batch), (best, near) in TABLE_4.items():
        for share in (0.0, SHARE):
            asked = [
                f"dali:cache_share={share},{plain},assignment={name}"
                for name in ("optimal", "greedy", "beam")
            ]
            optimal, greedy, beam = (run.decode_moe_ns / 1e9 for run in ran(model, batch, asked, 32).runs)
            row(
                model, batch, share, optimal, best, distance(optimal, best), greedy, near,
                distance(greedy, near), optimal / greedy, best / near, beam / optimal,
            )  # fmt: skip
    print()


def parts(steps: int) -> None:
    """Figure 19."""
    print("## Gain of each part (Figure 19)\n")
    steps_of = {
        "all on the CPU": "ktransformers:gpu_share=0",
        "greedy": "dali:cache_share=0,replace=false,prefetch=0",
        "+ prefetching": "dali:cache_share=0,replace=false,prefetch=PS",
        "+ cache": "dali:cache_share=0.25,prefetch=PS",
    }
    said(
        f"--model MODEL --batch BATCH --steps {steps} "
        + " ".join(f"--policy {one}" for one in steps_of.values()),
        "PS is 1 for Mixtral, 8 for Qwen. 'Naive' in the paper is a run of KTransformers; here all experts "
        "are on the simulated CPU.",
        "greedy 4.1, prefetching 1.09, cache 1.38 times as fast as the line before, over models and batches.",
    )
    names = list(steps_of)[1:]
    head("model", "batch", *names)
    found: list[list[float]] = []
    for model, size in (("mixtral-8x7b", 1), ("qwen3-30b-a3b", 8)):
        for batch in BATCHES:
            asked = [one.replace("PS", str(size)) for one in steps_of.values()]
            times = [run.decode_ns for run in ran(model, batch, asked, steps).runs]
            found.append([before / after for before, after in itertools.pairwise(times)])
            row(model, batch, *found[-1])
    means = [sum(column) / len(found) for column in zip(*found, strict=True)]
    row("mean", "", *means)
    row("paper", "", 4.1, 1.09, 1.38)
    row("distance", "", *(distance(*pair) for pair in zip(means, (4.1, 1.09, 1.38), strict=True)))
    print()


def windows(steps: int) -> None:
    """Table 9."""
    print("## Windows and swaps (Table 9)\n")
    said(
        f"--model MODEL --batch 32 --steps {steps} --policy dali:cache_share={SHARE},w=W,u=U",
        "a hit is an expert that the GPU has and computes. The text says that (4, 8) beats (8, 8); in "
        "the table it is the other way round for DeepSeek.",
        "tokens/s in the table; smaller w and larger u raise the hit rate; (4, 8), (4, 8) and (4, 1) are "
        "chosen.",
    )
    head("model", "(w, u)", "tokens/s", "paper", "over the chosen one", "paper", "hit rate")
    for model, of in TABLE_9.items():
        asked = [f"dali:cache_share={SHARE},w={w},u={u}" for w, u in of]
        runs = dict(zip(of, ran(model, 32, asked, steps).runs, strict=True))
        chosen = next(at for at in of if at[0] == 4)
        for at, published in of.items():
            speed, base = (run.tokens_per_s / 32 for run in (runs[at], runs[chosen]))
            row(model, at, speed, published, speed / base, published / of[chosen], hits(runs[at]))
    print()


def readings(steps: int) -> None:
    """Algorithm 2 against the text."""
    print("## Readings of algorithm 2\n")
    ways: Sequence[str] = (
        "", "evict=topk", "first=fire", "swap=better", "initial=hottest", "replace=false",
        "initial=hottest,replace=false",
    )  # fmt: skip
    said(
        f"--model MODEL --batch 16 --steps {steps} --policy dali:cache_share={SHARE},PARAMETERS",
        "none besides those of the parameters.",
        "line 11 evicts TopK where the text says lowest; line 9 fires at i = 0; no figures.",
    )
    head("model", *(f"{way or 'default'}: tokens/s, hit rate" for way in ways))
    for model in MODELS:
        asked = [f"dali:cache_share={SHARE},{way}" for way in ways]
        runs = ran(model, 16, asked, steps).runs
        row(model, *(f"{run.tokens_per_s / 16:.2f}, {hits(run)}" for run in runs))


def hits(run: PolicyRun) -> str:
    """The hit rate of a run."""
    rate = run.cache["hit_rate"]
    return "-" if rate is None else f"{100 * rate:.1f}%"


def main(steps: int) -> None:
    print("# DALI's evaluation\n")
    print(
        f"Made by `python validation/dali.py {steps}`, seed 1. Options that a command does not "
        "name have their defaults.\n"
    )
    restored(steps, decode(steps))
    prefill()
    greedy_and_optimal()
    parts(steps)
    windows(steps)
    readings(steps)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
