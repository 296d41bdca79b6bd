"""The worth of each part of `balance`: time without it, over the time with all parts.

``python validation/balance.py > validation/balance.md`` (a minute)
"""

from __future__ import annotations

from statistics import geometric_mean

from best import LAYERS, MACHINES, SKEWED, STEPS, layers_of
from ndpsim import InputError, run_moe
from ndpsim.policies import policies

#: What is left out, and the policy without it.
PARTS = {
    "splits": "balance:splits=0",
    "order of arrival": "balance:gpu_order=listed",
    "losses": "balance:losses=false",
    "prefetch": "balance:prefetch=false",
}
LOCALIZED = "balance:shards=1"  # the layout: each expert on one DIMM

HEAD = f"""\
# The gain of each part of balance

Made by `python validation/balance.py`: the cells of [best.md](best.md) with skewed routing, {LAYERS}
layers, {STEPS} steps. Each figure is the experts' time without a part, divided by the time with all
parts: geometric mean over the cells of a machine, and maximum.

| machine | layout (localized instead) | {" | ".join(PARTS)} |
|---|---{"|---" * len(PARTS)}|"""

ORDER = """
## Order on the GPU of published policies

Experts' time with `gpu_order=listed`, divided by the time with `gpu_order=arrived`: skewed routing, the
middle batch, range over the three models. Below 1 the order of arrival is slower.

| machine | gain | at most 0.5% |
|---|---|---|"""


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
                layers=[int(layer) for layer in layers_of(model).split(",")], bits=16, bounds=False,
            ).runs  # fmt: skip
            for part, run in zip(parts, others, strict=True):
                found[part].append(run.moe_ns / full.moe_ns)
    return found


def gains_of_order(machine: str) -> dict[str, list[float]]:
    """By published policy: the time in listed order over that in order of arrival, for each model."""
    models, batches = MACHINES[machine]
    names = [name for name in policies() if name not in ("balance", "oracle")]
    found: dict[str, list[float]] = {}
    for model in models:
        for name in names:
            try:
                listed, arrived = run_moe(
                    machine, model, [name, f"{name}:gpu_order=arrived"], batches[1], STEPS, SKEWED,
                    layers=[int(layer) for layer in layers_of(model).split(",")], bits=16, bounds=False,
                ).runs  # fmt: skip
            except InputError:
                continue  # it cannot run there
            found.setdefault(name, []).append(listed.moe_ns / arrived.moe_ns)
    return found


def main() -> None:
    print(HEAD)
    for machine in MACHINES:
        found = ratios(machine)
        cells = (found.get(part, []) for part in ("layout", *PARTS))
        texts = (f"{geometric_mean(one):.2f}, {max(one):.2f}" if one else "" for one in cells)
        print(f"| {machine} | {' | '.join(texts)} |", flush=True)
    print(ORDER)
    for machine in MACHINES:
        gains = gains_of_order(machine)
        same = [name for name, of in gains.items() if all(abs(gain - 1) <= 0.005 for gain in of)]
        others = [f"{n} {min(of):.2f} to {max(of):.2f}" for n, of in gains.items() if n not in same]
        print(f"| {machine} | {', '.join(others)} | {', '.join(same)} |", flush=True)


if __name__ == "__main__":
    main()
