"""Who beats whom, and what each part of TriMoE brings: Section 5.2 and 5.3 of the TriMoE paper.

``python validation/trimoe.py [STEPS] > validation/trimoe.md``: Figure 6 (batch 512) and Figure 8, on routing
of three classes and on measured load curves. Nothing is tuned to the paper's speed-ups: the KV cache is with
the host, as Section 4.1 has it, and the GPU holds 12 routed experts of a layer, as Section 2.2 has more than
90% of their weights with the host; all other settings are defaults.
"""

from __future__ import annotations

import itertools
import sys

from ndpsim import run_moe
from ndpsim.simulate.results import MoeResult

BATCH = 512
GPU_EXPERTS = 12
#: Model, and a load curve as measured, of this model or its like.
MODELS = {
    "deepseek-v2": "ranks:deepseek-v3",
    "qwen3-235b-a22b": "ranks:qwen3-235b-a22b",
    "glm-4.5-air": "ranks:glm-4.5-air",
}
BASELINES = ("klotski", "enhanced-ktransformers", "monde")
ABLATION = {
    "GPU and NDP": "cpu=false,refine=false,relayout=false,rebalance=false,prefetch=false",
    "+ CPU": "refine=false,relayout=false,rebalance=false,prefetch=false",
    "+ refinement": "relayout=false,rebalance=false,prefetch=false",
    "+ relayout, rebalancing, prefetch": "",
}
PUBLISHED = {"+ CPU": 1.75, "+ refinement": 1.28, "+ relayout, rebalancing, prefetch": 1.16}
WHOLE = "trimoe:contention=whole"
PARTS = tuple(f"trimoe:{text}" if text else "trimoe" for text in ABLATION.values())


def ran(model: str, routing: str, steps: int) -> MoeResult:
    """All policies of both tables on one trace."""
    policies = (*BASELINES, *PARTS, WHOLE)
    return run_moe(
        model=model, policies=policies, batch=BATCH, steps=steps, routing=routing, kv="host",
        gpu_experts=GPU_EXPERTS, bounds=False,
    )  # fmt: skip


def main(steps: int) -> None:
    results = {
        (model, routing): ran(model, routing, steps)
        for model, curve in MODELS.items()
        for routing in ("skewed", curve)
    }
    print("# TriMoE's evaluation\n")
    print(f"Made by `python validation/trimoe.py {steps}`: batch {BATCH}, {steps} decode steps, all layers, "
          f"seed 1, the KV cache in host\nmemory, {GPU_EXPERTS} experts of a layer in the GPU's memory. "
          "Speed-ups compare the experts' time, `moe_ns`. Nothing was\nfitted to the paper's "
          "figures.\n")  # fmt: skip
    print("## Speed-up over Klotski (Figure 6, batch 512)\n")
    print("In the paper TriMoE is 2.12 to 2.83 times as fast as the best baseline, on average over batches "
          "of 256 to 768.\n")  # fmt: skip
    names = (*BASELINES, "trimoe")
    print(f"| model | routing | {' | '.join(names)} | trimoe over the best of the others |")
    print(f"|---|---|{'---|' * (len(names) + 1)}")
    for (model, routing), result in results.items():
        speed = {run.policy: run.speedup_moe for run in result.runs[: len(BASELINES)]}
        speed["trimoe"] = result.runs[-2].speedup_moe
        best = max(speed[name] for name in BASELINES)
        cells = " | ".join(f"{speed[name]:.2f}" for name in names)
        print(f"| {model} | {routing} | {cells} | {speed['trimoe'] / best:.2f} |")
    print("\n## Gain of each part (Figure 8, batch 512)\n")
    print("Each figure is the speed-up over the previous line.\n")
    print(f"| model | routing | {' | '.join(PUBLISHED)} | all with contention=whole |")
    print(f"|---|---|{'---|' * (len(PUBLISHED) + 1)}")
    print(f"| paper | its traces | {' | '.join(map(str, PUBLISHED.values()))} | |")
    for (model, routing), result in results.items():
        times = [run.moe_ns for run in result.runs[len(BASELINES) :]]
        factors = [before / after for before, after in itertools.pairwise(times[:4])]
        cells = " | ".join(f"{factor:.2f}" for factor in factors)
        print(f"| {model} | {routing} | {cells} | {times[3] / times[4]:.2f} of all |")
    print("\n## Busy shares (Table 3), and predictions\n")
    print(
        "The paper, over its models: GPU 66.0%, CPU 74.9%, NDP 87.8%; predictions right in more than 78%.\n"
    )
    print("| model | routing | GPU | CPU | NDP, mean of DIMMs | classes right | decisions right | "
          "own estimate of the time |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for (model, routing), result in results.items():
        run = result.runs[-2]
        units = [share for name, share in run.utilization.items() if name.startswith("ndp ")]
        scale = run.time_ns / run.moe_ns
        shares = (run.utilization["gpu"], run.utilization["cpu"] * scale, sum(units) / len(units) * scale)
        prediction = run.prediction or {}
        right = (prediction.get("accuracy"), prediction.get("decision_accuracy"))
        cells = [*shares, *right, (run.estimated_ns or 0.0) / run.moe_ns]
        text = " | ".join("-" if cell is None else f"{100 * cell:.1f}%" for cell in cells)
        print(f"| {model} | {routing} | {text} |")
    print(
        "\nThe shares of CPU and NDP are shares of the experts' time. The GPU's share is a share of the "
        "whole time, with attention."
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
