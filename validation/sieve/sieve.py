"""Bimodal experts, and their division between a GPU and units on DIMMs (after Sieve, arXiv 2605.11277).

``python validation/sieve/sieve.py > validation/sieve/predicted.md``; README.md says what is predicted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

import ndpsim
from ndpsim.studies.claims.report import markdown_table

HARDWARE = "trimoe"
#: Models with a measured load curve of their own.
MODELS = ("qwen3-next-80b-a3b", "qwen3-235b-a22b")
BATCHES = (16, 64, 256)
CELLS = tuple(itertools.product(MODELS, BATCHES))
STEPS, LAYERS, CONTEXT = 2, (1, 2, 3, 4), 1024
FEW = 2  # tokens of a thin expert, at most
THICK = 0.1  # share of a layer's active experts that are called thick
#: Ways to divide a layer's experts, all of which are on the DIMMs at first.
WAYS = {
    "GPU alone": "on-demand",
    "units alone": "monde:variant=bandwidth,alpha=0,residents=none",
    "divided by tokens": "monde:residents=none",
    "divided by a fixed number": "monde:variant=dynande,residents=none",
}


def modes(model: str, batch: int) -> tuple[float, float, float, float]:
    """Shares: thin experts, their pairs, pairs of thick experts; and the most tokens over the mean.

    Means over layers and steps; experts without tokens do not count.
    """
    trace = ndpsim.generate_routing(f"ranks:{model}", model, batch, STEPS)
    found = []
    for layer in trace.ids.reshape(-1, batch, trace.ids.shape[-1]):
        loads = np.bincount(layer.ravel())
        loads = np.sort(loads[loads > 0])[::-1]
        thin, thick = loads <= FEW, loads[: max(1, round(THICK * len(loads)))]
        of = thin.mean(), loads[thin].sum() / loads.sum(), thick.sum() / loads.sum(), loads[0] / loads.mean()
        found.append(of)
    few, of_few, of_thick, most = map(float, np.mean(found, axis=0))
    return few, of_few, of_thick, most


def of_gpu(counts: Mapping[str, float]) -> float:
    """The GPU's share of counts by engine."""
    return (counts["gpu_hit"] + counts["gpu_miss"]) / sum(counts.values())


def divided(model: str, batch: int) -> tuple[str, ...]:
    """Cells: the time of a layer's experts by each way, and what the GPU has where tokens divide them."""
    runs = ndpsim.run_moe(
        HARDWARE, model, list(WAYS.values()), batch, STEPS, f"ranks:{model}", layers=LAYERS, kv="gpu",
        context=CONTEXT, bounds=False,
    ).runs  # fmt: skip
    times = [run.decode_moe_ns / STEPS / len(LAYERS) / 1e3 for run in runs]
    split = runs[list(WAYS).index("divided by tokens")]
    shares = of_gpu(split.experts), of_gpu(split.pairs_by_engine)
    gain = min(times[:2]) / times[2]
    return *(f"{time:.0f}" for time in times), f"{gain:.2f}", *(f"{share:.0%}" for share in shares)


def main() -> None:
    print("# Bimodal experts: predicted\n\nMade by `python validation/sieve/sieve.py`.\n")
    print("## Loads of a step\n")
    head = ("model", "batch", "thin experts", "their pairs", "pairs of the thickest tenth", "most over mean")
    rows = []
    for model, batch in CELLS:
        *shares, most = modes(model, batch)
        rows.append((model, str(batch), *(f"{share:.0%}" for share in shares), f"{most:.1f}"))
    print("\n".join(markdown_table(head, rows)))
    print("\n## Time of a layer's experts, in µs\n")
    layers = ",".join(map(str, LAYERS))
    print(
        f"`ndpsim moe --hw {HARDWARE} --model MODEL --batch BATCH --steps {STEPS} --layers {layers} "
        f"--context {CONTEXT} --kv gpu --routing ranks:MODEL`, with these policies: "
        + "; ".join(f"{way}, `{policy}`" for way, policy in WAYS.items())
        + ".\n"
    )
    head = ("model", "batch", *WAYS, "better one alone, over divided", "experts of the GPU", "its pairs")
    rows = [(model, str(batch), *divided(model, batch)) for model, batch in CELLS]
    print("\n".join(markdown_table(head, rows)))


if __name__ == "__main__":
    main()
