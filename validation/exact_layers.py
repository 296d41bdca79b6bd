"""How far layers by rates are from the cycle-level session, on 44 layers.

``python validation/exact_layers.py > validation/exact_layers.md`` (some quarter of an hour)
"""

from __future__ import annotations

from ndpsim import run_moe
from ndpsim.simulate.results.moe import LayerCheck

STEPS = 4
#: On `trimoe`: model, routing (None: the model's default), batch, policy, changes, step, layer.
LAYERS = (
    ("deepseek-v2", None, 512, "trimoe", (), 0, 1),
    ("deepseek-v2", None, 512, "trimoe", (), 1, 3),
    ("deepseek-v2", None, 512, "trimoe", (), 3, 4),
    ("deepseek-v2", "skewed:step_drift=0.3", 512, "trimoe", (), 2, 3),
    ("deepseek-v2", "ranks:deepseek-v3", 256, "trimoe", (), 2, 2),
    ("deepseek-v2", None, 128, "trimoe", (), 3, 2),
    ("deepseek-v2", None, 64, "trimoe", (), 3, 3),
    ("deepseek-v2", None, 16, "trimoe", (), 2, 1),
    ("qwen3-235b-a22b", "skewed", 256, "trimoe", (), 2, 2),
    ("qwen3-235b-a22b", None, 128, "trimoe", (), 1, 1),
    ("glm-4.5-air", "skewed", 256, "trimoe", (), 3, 1),
    ("glm-4.5-air", None, 64, "trimoe", (), 1, 4),
    ("deepseek-v2", None, 512, "klotski", (), 1, 2),
    ("deepseek-v2", None, 512, "enhanced-ktransformers", (), 1, 2),
    ("deepseek-v2", None, 512, "monde", (), 1, 2),
    ("qwen3-235b-a22b", "skewed", 64, "monde", (), 3, 3),
    ("deepseek-v2", None, 128, "oracle", (), 1, 4),
    ("deepseek-v2", None, 128, "trimoe", ("dimm.ranks=2",), 2, 2),
    ("deepseek-v2", None, 128, "trimoe", ("dram.nRFC=1500",), 2, 2),
    ("qwen3-235b-a22b", "skewed", 128, "trimoe", ("host.channels=4",), 2, 2),
    # Experts sharded over all DIMMs, copied to the GPU one after the other.
    ("deepseek-v2", None, 16, "edge", (), 1, 2),
    ("deepseek-v2", None, 128, "edge", (), 1, 2),
    ("glm-4.5-air", "skewed", 64, "edge", ("dimm.count=8",), 1, 2),
    ("deepseek-v2", None, 64, "edge", ("dimm.ranks=2",), 2, 3),
    # Experts sharded over DIMMs that cover all channels, on all engines at once.
    ("deepseek-v2", "ranks:deepseek-v3", 16, "balance", (), 1, 2),
    ("deepseek-v2", "ranks:deepseek-v3", 128, "balance", (), 2, 3),
    ("deepseek-v2", "ranks:deepseek-v3", 512, "balance", (), 3, 4),
    ("deepseek-v2", "skewed", 512, "balance", (), 1, 2),
    ("deepseek-v2", "skewed", 128, "balance:shards=8", (), 1, 2),
    ("deepseek-v2", "skewed", 512, "balance:shards=8", (), 2, 3),
    ("qwen3-235b-a22b", "skewed", 16, "balance", (), 1, 2),
    ("qwen3-235b-a22b", "ranks:qwen3-235b-a22b", 128, "balance", (), 2, 3),
    ("glm-4.5-air", "skewed", 16, "balance", (), 3, 2),
    ("glm-4.5-air", "ranks:glm-4.5-air", 128, "balance", (), 1, 3),
    ("deepseek-v2", "skewed", 128, "balance", ("host.channels=4",), 2, 2),
    ("deepseek-v2", "skewed", 128, "balance", ("dimm.ranks=2",), 1, 2),
    ("deepseek-v2", "skewed", 128, "balance", ("dimm.count=32",), 1, 2),
)
#: Likewise on `edge`, whose host channels have three DIMMs each.
ON_EDGE = (
    ("qwen3-30b-a3b", "skewed", 8, "balance", (), 1, 2),
    ("qwen3-30b-a3b", "ranks:qwen3-235b-a22b", 64, "balance", (), 2, 3),
    ("mixtral-8x7b", "popularity:mixtral-8x7b", 8, "balance", (), 1, 2),
    ("mixtral-8x7b", "skewed", 64, "balance", (), 2, 3),
    ("mixtral-8x7b", "skewed", 8, "edge", (), 1, 2),
    ("mixtral-8x7b", "skewed", 8, "balance", ("host.memory=null",), 1, 2),
    ("qwen3-30b-a3b", "skewed", 64, "balance", ("host.memory=null",), 2, 3),
)
CELLS = (*(("trimoe", *cell) for cell in LAYERS), *(("edge", *cell) for cell in ON_EDGE))

HEAD = f"""\
# Layers simulated with rates, and command by command

Made by `python validation/exact_layers.py`: layers 0 to 5, {STEPS} steps, seed 1, defaults otherwise.
Errors are shares of the layer's time: the error of the layer, and the largest error of the end times of
DIMMs and host reads. On the critical path the error is a share of the end time itself; the largest one is
in column "path". `--check-layer` allows 2% for the layer and 5% for each end.

| hw | model | routing | batch | policy | set | step, layer | rates | cycles | layer | largest | path | ok |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


TAIL = """
With half of the ranks, two layers are beyond the limits. In one, an expert moves from a DIMM while the host
reads another expert there and the DIMM's unit computes. In the other, experts over all DIMMs run beside
several reads of the host, and the simulation with rates is 5% too fast. With 16 sequences of qwen3-235b-a22b
it is 2.6% too slow: such parts of experts are so short that their rhythm and that of the reads decide. Other
ends beyond 5% are single reads of the CPU; their layers are right within 0.8%."""


def checked(
    machine: str,
    model: str,
    routing: str | None,
    batch: int,
    policy: str,
    sets: tuple[str, ...],
    step: int,
    layer: int,
) -> LayerCheck:
    """The layer, after those before it."""
    (run,) = run_moe(
        machine, model, policies=(policy,), batch=batch, steps=STEPS, routing=routing, sets=sets,
        layers=range(6), check_layer=(step, layer), bounds=False,
    ).runs  # fmt: skip
    assert run.check is not None
    return run.check


def main() -> None:
    print(HEAD)
    layers, ends = [], []
    for machine, model, routing, batch, policy, sets, step, layer in CELLS:
        check = checked(machine, model, routing, batch, policy, sets, step, layer)
        largest = check.largest
        assert largest is not None
        critical = max(
            (end for end in check.ends if end.critical), key=lambda end: abs(end.error), default=None
        )
        on_path = "" if critical is None else f"{critical.name} {100 * critical.error:+.2f}%"
        layers.append(abs(check.error))
        ends.append(abs(largest.error))
        print(
            f"| {machine} | {model} | {routing or 'default'} | {batch} | {policy} | {', '.join(sets)} "
            f"| {step}, {layer} | {check.rate_ns / 1e6:.3f} ms | {check.cycle_ns / 1e6:.3f} ms "
            f"| {100 * check.error:+.2f}% | {largest.name} {100 * largest.error:+.2f}% | {on_path} "
            f"| {'yes' if check.ok else 'no'} |",
            flush=True,
        )
    print(f"\nLargest: {100 * max(layers):.2f}% of a layer, {100 * max(ends):.2f}% of an end.")
    print(TAIL)


if __name__ == "__main__":
    main()
