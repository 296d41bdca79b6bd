"""Who beats whom on the edge system: Sections IV-B to IV-D of the edge paper.

``python validation/edge.py [STEPS] > validation/edge.md``: Figures 8 to 11, one sequence with a prompt of 512
tokens. Nothing is tuned to the paper's speed-ups; settings are defaults where nothing else is said.
"""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from ndpsim import run_moe
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.simulate.results import PolicyRun

MODELS = ("deepseek-moe-16b", "qwen3-30b-a3b", "phi-3.5-moe", "mixtral-8x7b")
DIMMS = (2, 4, 6)
PROMPT = 512
OUT = 512  # tokens
MONDE = "monde:variant=bandwidth,placement=cyclic,residents=none"
#: The combinations of Section IV-D, which prefetch TopK experts a layer where there is room.
ABLATION = {
    "TP": "edge:balance=false,prefetch=false",
    "TP+LB": "edge:prefetch=false",
    "TP+PRE": "edge:balance=false,prefetch_experts=topk",
    "all": "edge:prefetch_experts=topk",
}
PUBLISHED_DECODE = {"TP": 1.99, "TP+LB": 2.19, "TP+PRE": 2.23, "all": 2.41}
PUBLISHED_PREFILL = {"TP": 1.26, "TP+LB": 1.46}
#: Section IV-C: the largest speed-up over each.
PUBLISHED_END_TO_END = {"on-demand": 5.49, "fiddler on the CPU": 4.05, "MoNDE": 2.56}
#: What the host reads instead of memory of its own: the NDP-DIMMs, over two channels or three.
READS_DIMMS = {
    "two channels": ("host.memory=null",),
    "three channels": ("host.memory=null", "host.channels=3"),
}
POLICIES = {
    "MoNDE": MONDE,
    "MoNDE, alpha 1": f"{MONDE},alpha=1",
    "MoNDE, alpha 0": f"{MONDE},alpha=0",
    "MoNDE, hot": MONDE.removesuffix(",residents=none"),
    **ABLATION,
    "TP+LB, activated": "edge:prefetch=false,prefill_experts=activated",
    "edge": "edge",
    "on-demand": "on-demand",
    "fiddler on the CPU": "fiddler:experts=cpu,residents=none",
    "fiddler": "fiddler",
}


@dataclass(frozen=True)
class Case:
    """A model on so many DIMMs.

    `runs`: by the names of `POLICIES`; with the changes of `READS_DIMMS`, "TP, two channels".
    """

    model: str
    dimms: int
    steps: int
    routing: str
    runs: dict[str, PolicyRun]

    def decode(self, name: str, over: str = "MoNDE") -> float:
        """The speed-up of the experts in decode."""
        return self.runs[over].decode_moe_ns / self.runs[name].decode_moe_ns

    def prefill(self, name: str, over: str = "MoNDE") -> float:
        """The speed-up of the experts in the prefill."""
        return self.runs[over].prefill_moe_ns / self.runs[name].prefill_moe_ns

    def total(self, name: str, over: str) -> float:
        """The speed-up of a prefill and `OUT` decode steps."""
        slow, fast = (
            run.prefill_ns + run.decode_ns * OUT / self.steps for run in (self.runs[over], self.runs[name])
        )
        return slow / fast


def sets_of(dimms: int) -> list[str]:
    """So many DIMMs of 32 GB."""
    return [f"dimm.count={dimms}"]


def command(policies: Iterable[str], steps: int) -> str:
    """The parts of a row of a table."""
    asked = " ".join(f"--policy {POLICIES[name]}" for name in policies)
    of_all = f"--hw edge --set dimm.count=N --model M --batch 1 --prompt {PROMPT} --steps {steps}"
    return f"`ndpsim moe {of_all} {asked}`"


def case_of(model: str, dimms: int, steps: int) -> Case | None:
    """All policies on one trace; None: the model is not supported."""
    given: dict[str, Any] = {"batch": 1, "steps": steps, "prompt": PROMPT, "bounds": False}
    try:
        result = run_moe("edge", model, tuple(POLICIES.values()), sets=sets_of(dimms), **given)
    except InputError as error:
        if "is not supported" not in str(error):
            raise
        return None
    runs = dict(zip(POLICIES, result.runs, strict=True))
    for name, sets in READS_DIMMS.items():
        of_these = ("MoNDE", *ABLATION)
        asked = [POLICIES[one] for one in of_these]
        other = run_moe("edge", model, asked, sets=[*sets_of(dimms), *sets], **given)
        runs |= {f"{one}, {name}": run for one, run in zip(of_these, other.runs, strict=True)}
    return Case(model, dimms, steps, str(result.config["routing"]["generated"]), runs)


# Tables

Cases = dict[tuple[str, int], Case | None]
Columns = dict[str, Callable[[Case], float]]


def cell(value: float | None, published: float | None = None) -> str:
    """A number, with its distance to a published one."""
    if value is None:
        return "N.S."
    return f"{value:.2f}" + ("" if published is None else f" ({100 * (value / published - 1):+.0f}%)")


def say(text: str) -> None:
    """A paragraph."""
    print(textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n")


def table(
    cases: Cases, columns: Columns, published: dict[str, float], all_of_them: Callable[[list[float]], float]
) -> None:
    """A row for each case, and one for all of them beside what was published."""
    print(f"| model | DIMMs | {' | '.join(columns)} |")
    print(f"|---|---|{'---|' * len(columns)}")
    for (model, dimms), case in cases.items():
        values = [cell(None if case is None else value(case)) for value in columns.values()]
        print(f"| {model} | {dimms} | {' | '.join(values)} |")
    there = supported(cases)
    cells = [
        cell(all_of_them([value(case) for case in there]), published.get(name))
        for name, value in columns.items()
    ]
    print(f"| **{'largest' if all_of_them is max else 'mean'}** | | {' | '.join(cells)} |")
    figures = [f"{published[name]:.2f}" if name in published else "" for name in columns]
    print(f"| *paper* | | {' | '.join(figures)} |\n")


def supported(cases: Cases) -> list[Case]:
    """Those that fit."""
    return [case for case in cases.values() if case is not None]


def mean(values: list[float]) -> float:
    """The arithmetic one."""
    return sum(values) / len(values)


def decode_table(cases: Cases, suffix: str, over: str) -> None:
    """Figure 11 over one MoNDE, and in how many cases the paper's order holds, pair by pair."""

    def speed_up(name: str) -> Callable[[Case], float]:
        return lambda case: case.decode(name + suffix, over)

    table(cases, {name: speed_up(name) for name in ABLATION}, PUBLISHED_DECODE, mean)
    there, words = supported(cases), []
    for slow, fast in (("TP", "TP+LB"), ("TP+LB", "TP+PRE"), ("TP+PRE", "all")):
        count = sum(speed_up(fast)(case) > speed_up(slow)(case) for case in there)
        words.append(f"{fast} over {slow} in {count} of {len(there)}")
    say(f"The paper's order, case by case: {'; '.join(words)}.")


def most_of_balance() -> str:
    """The most that balance can gain, as arithmetic on bandwidths."""
    hardware = load_hardware("edge")
    assert hardware.system.pcie is not None
    gains = [100 * hardware.system.pcie.gbps / (dimms * hardware.dimm_peak_gbps) for dimms in DIMMS]
    return (
        "The largest possible gain of TP+LB over TP can be computed. The units read at N x the bandwidth "
        "inside a DIMM, and PCIe copies weights to the GPU at the same time. Together they are "
        "at most 1 + PCIe / (N x the bandwidth inside a DIMM) times as fast as the units alone: "
        + ", ".join(f"{gain:.0f}% with {dimms}" for gain, dimms in zip(gains, DIMMS, strict=True))
        + " DIMMs more. If the host reads the NDP-DIMMs, the units cannot read while a byte is copied. "
        "If the units are memory-bound, balance then gains almost nothing."
    )


def decode(cases: Cases, steps: int) -> None:
    """Figure 11, and what Section IV-D says of two DIMMs."""
    print("## Decode: gain of each part (Figure 11)\n")
    print(f"{command(('MoNDE', *ABLATION), steps)}\n")
    say(
        "Speed-ups of the experts' time in decode over MoNDE. The numbers in brackets are the difference "
        "of the mean from the paper's mean. Assumption: TopK experts of a layer are prefetched if there "
        "is room, as in Section IV-D."
    )
    decode_table(cases, "", "MoNDE")
    say(most_of_balance())
    for name, sets in READS_DIMMS.items():
        print(f"### The host reads the NDP-DIMMs, over {name}\n")
        say(
            f"As before with `{' '.join(f'--set {one}' for one in sets)}`: copies to the GPU come over "
            f"channels of DDR4-3200, {25.6 * int(name == 'three channels') + 51.2:g} GB/s, and the units of "
            "the DIMMs that are read wait for them."
        )
        decode_table(cases, f", {name}", f"MoNDE, {name}")
    print("### Over MoNDE with alpha 1\n")
    say(
        "Assumption: MoNDE's rule is not corrected. By this rule the share of experts that the GPU loads "
        "is computed from the bandwidths of PCIe and of all NDP units, although the experts of one token "
        "keep only a few units busy."
    )
    decode_table(cases, "", "MoNDE, alpha 1")
    print("## Tensor parallelism with two DIMMs (Section IV-D)\n")
    names = ("MoNDE", "MoNDE, alpha 0", "MoNDE, alpha 1", "MoNDE, hot")
    print(f"{command((*names, 'TP'), steps)}\n")
    say(
        "In the paper it is slightly slower than MoNDE (below 1) for DeepSeek-MoE and Qwen3. Here it is "
        "far below 1 if MoNDE keeps as many hot experts as fit the GPU's memory, chosen from an offline "
        "trace."
    )
    print(
        "| model | TP over MoNDE | over alpha 0 (all on NDP) | over alpha 1 | over MoNDE with hot experts |"
    )
    print("|---|---|---|---|---|")
    for case in supported(cases):
        if case.dimms == min(DIMMS):
            overs = [case.decode("TP", over) for over in names]
            print(f"| {case.model} | {' | '.join(map(cell, overs))} |")
    print()


def prefill(cases: Cases, steps: int) -> None:
    """Figures 8 and 10."""
    print("## Prefill (Figure 10)\n")
    print(f"{command(('MoNDE', 'MoNDE, alpha 0', 'TP', 'TP+LB', 'TP+LB, activated'), steps)}\n")
    say(
        "Speed-ups of the experts' time in the prefill over MoNDE, whose alpha is 1 in the prefill. TP+LB "
        "distributes TopK experts by equation 2, as printed. In column 'activated' it distributes all "
        "activated experts. The columns over alpha 0 assume that MoNDE computes its prefill only on the "
        "NDP units. Then TP is faster, as in the paper. MoNDE's rule uses the time of one token for an "
        "expert on NDP. It still moves enough experts to the GPU to be faster than TP alone with few "
        "DIMMs."
    )
    columns: Columns = {
        "TP": lambda case: case.prefill("TP"),
        "TP+LB": lambda case: case.prefill("TP+LB"),
        "TP+LB, activated": lambda case: case.prefill("TP+LB, activated"),
        "TP over alpha 0": lambda case: case.prefill("TP", "MoNDE, alpha 0"),
        "TP+LB over alpha 0": lambda case: case.prefill("TP+LB", "MoNDE, alpha 0"),
    }
    published = {name: 1.46 if "LB" in name else 1.26 for name in columns}
    table(cases, columns, published, mean)
    qwen = [case for case in supported(cases) if case.model == "qwen3-30b-a3b"]
    if qwen:
        pair = mean([case.prefill("all") for case in qwen]), mean([case.decode("all") for case in qwen])
        say(
            f"Figure 8, Qwen3 with all parts, mean over DIMMs: prefill {cell(pair[0], 1.36)}, decode "
            f"{cell(pair[1], 1.69)}; the paper 1.36 and 1.69."
        )


def end_to_end(cases: Cases, steps: int) -> None:
    """Figure 9."""
    print("## End to end (Figure 9)\n")
    names = ("on-demand", "fiddler on the CPU", "fiddler", "MoNDE", "all", "edge")
    print(f"{command(names, steps)}\n")
    say(
        "Speed-ups of the whole time over each baseline, with all parts and TopK prefetched experts. "
        f"`edge` prefetches as many as fit. Each of the {OUT} output tokens takes the mean time of a "
        "decode step. The paper prints the largest speed-ups. Assumption: Fiddler computes all experts on "
        "the CPU, as the paper describes it. Fiddler by its own rule, with popular experts in the GPU's "
        "memory, is a further baseline."
    )
    columns: Columns = {
        "on-demand": lambda case: case.total("all", "on-demand"),
        "fiddler on the CPU": lambda case: case.total("all", "fiddler on the CPU"),
        "fiddler": lambda case: case.total("all", "fiddler"),
        "MoNDE": lambda case: case.total("all", "MoNDE"),
        "edge over fiddler": lambda case: case.total("edge", "fiddler"),
        "edge over MoNDE": lambda case: case.total("edge", "MoNDE"),
    }
    table(cases, columns, PUBLISHED_END_TO_END, max)


def main(steps: int) -> None:
    pairs = list(itertools.product(MODELS, DIMMS))
    with ProcessPoolExecutor() as pool:
        found = pool.map(case_of, *zip(*pairs, strict=True), itertools.repeat(steps))
    cases = dict(zip(pairs, found, strict=True))
    routing = {case.model: case.routing for case in supported(cases)}
    print("# The edge paper's evaluation\n")
    traces = ", ".join(f"{name} of {model}" for model, name in routing.items())
    say(
        f"Made by `python validation/edge.py {steps}`: one sequence, {PROMPT} tokens in, {steps} decode "
        f"steps of the paper's {OUT}, seed 1, all layers. Nothing here was fitted to the paper's figures. "
        f"Routing: {traces}. CPU and GPU read experts from the host's own DDR5-5600, with a peak of 89.6 "
        "GB/s. NDP units read NDP-DIMMs of 32 GB. N.S. (not supported): the experts do not fit on the "
        "DIMMs. These are the same cases as in the paper's figures."
    )
    say("MoNDE is `monde:variant=bandwidth,placement=cyclic,residents=none`, alpha by its past.")
    decode(cases, steps)
    prefill(cases, steps)
    end_to_end(cases, steps)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
