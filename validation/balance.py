"""What each part of `balance` is worth: time without it, over the time with all parts.

``python validation/balance.py > validation/balance.md`` (some five minutes)
"""

from __future__ import annotations

from statistics import geometric_mean

from best import LAYERS, MACHINES, SKEWED, STEPS, layers_of
from ndpsim import run_moe

#: What is left out, and the policy without it.
PARTS = {
    "splits": "balance:splits=0",
    "order of arrival": "balance:gpu_order=listed",
    "losses": "balance:losses=false",
    "prefetch": "balance:prefetch=false",
}
LOCALIZED = "balance:shards=1"  # the layout: each expert on one DIMM

HEAD = f"""\
# What each part of balance is worth

Made by `python validation/balance.py`: the cells of [best.md](best.md) with skewed routing, {LAYERS} layers,
{STEPS} steps. Each figure is the time of the layers' experts without a part over that with all parts,
geometric mean over the cells of a machine, and the largest.

| machine | layout (localized instead) | {" | ".join(PARTS)} |
|---|---{"|---" * len(PARTS)}|"""


def ratios(machine: str) -> dict[str, list[float]]:
    """By part: the ratio of each cell."""
    models, batches = MACHINES[machine]
    parts = dict(PARTS)
    if machine in ("trimoe", "edge"):
        parts = {"layout": LOCALIZED, **parts}
    found: dict[str, list[float]] = {part: [] for part in parts}
    for model in models:
        for batch in batches:
            full, *others = run_moe(
                machine, model, ["balance", *parts.values()], batch, STEPS, SKEWED,
                layers=[int(layer) for layer in layers_of(model).split(",")], bits=16,
            ).runs  # fmt: skip
            for part, run in zip(parts, others, strict=True):
                found[part].append(run.moe_ns / full.moe_ns)
    return found


def main() -> None:
    print(HEAD)
    for machine in MACHINES:
        found = ratios(machine)
        cells = (found.get(part, []) for part in ("layout", *PARTS))
        texts = (f"{geometric_mean(one):.2f}, {max(one):.2f}" if one else "" for one in cells)
        print(f"| {machine} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
