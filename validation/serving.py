"""Writes serving.md and serving_simulated.csv: recorded runs of vLLM beside simulated ones.

Run in the checkout: python validation/serving.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from serving_runs import MAX_TOKENS, RUNS, Case, Run, column, requests_of, served, table

HERE = Path(__file__).parent
SIMULATED = HERE / "serving_simulated.csv"
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99}

TEXT = """\
# Serving: recorded runs of vLLM

Made by `python validation/serving.py`. vLLM 0.19.0 served 300 requests, Poisson arrivals at 10 a second, in
bfloat16, on RTX PRO 6000 cards (Blackwell, Server Edition) and on an RTX 4090. An engine computes at most
{tokens} tokens in a step. The records are from casys-kaist/LLMServingSim @5daddb2, whose authors compare
their own simulator with them (`validation/serving_measured/`, MIT). Requests arrive when vLLM's engine
received them, with the lengths of the run.

`run_serving` simulates the scheduler `vllm` with asynchronous scheduling, its KV cache in blocks, and the
layers of the model on the part `rtx-pro-6000-blackwell` or `rtx-4090`, with the values of its family in
[gpu.md](gpu.md). These values were fitted to kernels that others measured: those of Blackwell among them to
Qwen3-30B-A3B on this card, by the same authors; those of Ada to another card, except for the values that
stand for all families. Nothing is fitted to the runs. The part `rtx-pro-6000-blackwell` is the Workstation
Edition with 1792 GB/s. The authors give 1597 GB/s for the card of the runs, which is used here.

Sampling, the time of vLLM's own code between steps, and CUDA graphs are not simulated by default.
Cases with 2.5 ms a step have `step_overhead_us=2500`; this version of vLLM spends 2 to 3 ms. The records have
no steps, so steps are not compared.

An error is simulated minus measured, as a share of measured. The last column has the errors that the authors
print for their simulator.

`ndpsim validate serving --sensitivity` changes one assumption at a time: with a link of 64 GB/s, 15 of the 39
claims no longer hold, with 1792 GB/s for the memory 6, and with a link without latency none. No change makes
one hold.

{sections}"""

LINKED = """\
The link between the cards is not recorded. There are three assumptions: 16 GB/s and 20 us, as in the
authors' simulator; 64 GB/s, the maximum of 16 lanes of PCIe 5; and a link that takes no time.

"""

NOTES = {
    "llama-3.1-8b-rtx-4090": """\
vLLM had {run.kv_blocks} blocks of 16 tokens, and so has the simulation. They are always full, so that
sequences are preempted and computed again. The records do not say how often.

""",
    "qwen3-32b-tp2": LINKED
    + """\
In each layer the cards add up the halves of attention and of the feed-forward network; the logits of the head
are collected.

""",
    "qwen3-30b-a3b-dp2": LINKED
    + """\
The engines meet in every layer: tokens go to the other card, each card computes its half of the experts for
all of them, and results come back. Which engine had a request is not recorded; it goes to the one with the
least load, where a waiting request counts as four running ones. Which experts tokens chose is not recorded
either. They are drawn for each token from experts that are all equally popular; in the last case they are as
popular as was measured of Qwen3-235B-A22B, which has as many experts in a layer, and a step reads fewer of
them. The authors' profile of this model has 6 us a layer for norms and rotations of queries and keys, and
83 us a step for the sampler, at 128 sequences: 0.4 ms a step that is not simulated.

The goal for this run is 10% of throughput and of the mean time per output token, and 25% of the median time
to the first token. {goal}

""",
}


#: Largest errors that are asked for, of the run with experts.
GOALS = {"tokens_per_s": 0.1, "tpot_ms mean": 0.1, "ttft_ms p50": 0.25}


def simulated(run: Run, case: Case) -> dict[str, float]:
    """The quantities of the page, of a simulated run."""
    result = served(run, case)
    # As in the record, from 0 on; `tokens_per_s` of the result counts from the first arrival.
    rate = result.output_tokens / (max(one.end_ns for one in result.per_request) / 1e9)
    found = {"tokens_per_s": rate}
    for name, times in (("ttft", result.ttft_ns), ("tpot", result.tpot_ns), ("latency", result.latency_ns)):
        found |= {f"{name}_ms {of}": ns / 1e6 for of, ns in times.items()}
    at_ns = column(table(f"{run.name}-by-second"), "second") * 1e9
    running = np.interp(at_ns, result.over_time["time_ns"], result.over_time["running"], right=0.0)
    return found | {"running mean": float(running.mean()), "running max": float(result.most_running)}


def measured(run: Run) -> dict[str, float]:
    """The same of the recorded run."""
    rows = table(run.name)
    rate = requests_of(run).output_tokens.sum() / column(rows, "last_token_s").max()
    found = {"tokens_per_s": float(rate)}
    for name in ("ttft_ms", "tpot_ms", "latency_ms"):
        times = column(rows, name)
        found[f"{name} mean"] = float(times.mean())
        found |= {f"{name} {word}": float(np.percentile(times, of)) for word, of in PERCENTILES.items()}
    running = column(table(f"{run.name}-by-second"), "running")
    return found | {"running mean": float(running.mean()), "running max": float(running.max())}


def authors(run: Run) -> dict[str, float]:
    """Errors of LLMServingSim 2 on the run in percent, by the same names."""
    rows = (row for row in table("authors") if row["run"] == run.name)
    return {f"{row['quantity']} {row['of']}": float(row["error_percent"]) for row in rows}


def section(run: Run, found: dict[tuple[str, str], dict[str, float]]) -> str:
    """A table of a run: measured, simulated with its error, and the error of the authors' simulator."""
    real, others = measured(run), authors(run)
    head = "".join(f" simulated, {case.title} | error |" for case in run.cases)
    lines = [
        f"| quantity | measured |{head} LLMServingSim 2 |",
        f"|---|---|{'---|---|' * len(run.cases)}---|",
    ]
    for name, value in real.items():
        ours = [found[run.name, case.title][name] for case in run.cases]
        cells = "".join(f" {one:,.1f} | {one / value - 1:+.1%} |" for one in ours)
        theirs = f"{others[name]:+.1f}%" if name in others else ""
        lines.append(f"| {label(name)} | {value:,.1f} |{cells} {theirs} |")
    note = NOTES.get(run.name, "").format(goal=goal(run, found), run=run)
    return (
        f"## {run.title}\n\nAn engine runs at most {run.max_batch} sequences.\n\n{note}"
        + "\n".join(lines)
        + "\n"
    )


def errors(run: Run, case: Case, found: dict[tuple[str, str], dict[str, float]]) -> dict[str, float]:
    """Simulated over measured, less 1, by quantity."""
    return {name: found[run.name, case.title][name] / value - 1 for name, value in measured(run).items()}


def goal(run: Run, found: dict[tuple[str, str], dict[str, float]]) -> str:
    """Which cases of a run are within the goals, in a sentence."""
    met = [
        f"{case.title}"
        for case in run.cases
        if all(abs(errors(run, case, found)[name]) <= most for name, most in GOALS.items())
    ]
    return f"It is reached with: {'; '.join(met)}." if met else "No case reaches it."


def label(name: str) -> str:
    """A quantity in words."""
    what, _, of = name.partition(" ")
    words = {
        "tokens_per_s": "output tokens/s", "ttft_ms": "TTFT (ms)", "tpot_ms": "TPOT (ms)",
        "latency_ms": "latency (ms)", "running": "running sequences"
    }  # fmt: skip
    return f"{words[what]}, {of}" if of else words[what]


def read_simulated() -> dict[tuple[str, str], dict[str, float]]:
    """The rows of serving_simulated.csv, by run and case."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    with SIMULATED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["run"], row["case"]), {})[row["quantity"]] = float(row["value"])
    return found


def simulated_lines() -> Iterator[str]:
    """The lines of serving_simulated.csv."""
    yield "run,case,quantity,value\n"
    for run in RUNS:
        for case in run.cases:
            for name, value in simulated(run, case).items():
                yield f'{run.name},"{case.title}",{name},{value:.6f}\n'


def text() -> str:
    """The text of serving.md."""
    found = read_simulated()
    sections = "\n".join(section(run, found) for run in RUNS)
    return TEXT.format(tokens=MAX_TOKENS, sections=sections)


if __name__ == "__main__":
    SIMULATED.write_text("".join(simulated_lines()), encoding="utf-8")
    (HERE / "serving.md").write_text(text(), encoding="utf-8")
