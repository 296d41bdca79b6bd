"""The division of a GPU's memory between experts and KV cache (after WiSP, arXiv 2606.21868).

``python validation/wisp/wisp.py > validation/wisp/predicted.md``; README.md says what is predicted.
"""

from __future__ import annotations

import ndpsim
from ndpsim.studies.claims.report import markdown_table

HARDWARE, MODEL, ROUTING = "cache-7960x-4090", "qwen3-30b-a3b", "ranks:qwen3-235b-a22b"
#: By name: requests in the system, all requests, tokens of a prompt, tokens of its answer.
LOADS = {
    "many long": (48, 48, 4096, 128),
    "many short": (48, 48, 512, 128),
    "one at a time": (1, 2, 512, 128),
}
#: Experts of each layer's 128 in the GPU's memory; the KV cache has the rest.
EXPERTS = (0, 8, 16, 24, 32, 40)
#: Both compute a missing expert on the CPU or, after a copy, on the GPU; the second one changes residents.
POLICIES = ("fiddler", "hybrimoe")


def spec_of(load: str) -> str:
    together, requests, prompt, output = LOADS[load]
    lengths = f"input_tokens={prompt},output_tokens={output}"
    return f"closed-loop:concurrency={together},requests={requests},{lengths}"


def served(load: str, policy: str, experts: int | None) -> tuple[float, float, int] | None:
    """Output tokens/s, mean running sequences, preemptions; None: the memory has no room for a request.

    Args:
        load: a name of `LOADS`.
        policy: see `POLICIES`.
        experts: of each layer, in the GPU's memory; None: what the blocks of the cache leave at each step.
    """
    kv = "auto" if experts is None else "gpu"
    try:
        result = ndpsim.run_serving(
            HARDWARE, MODEL, spec_of(load), policy, routing=ROUTING, gpu_experts=experts, kv=kv
        )
    except ndpsim.InputError as error:
        if error.code != "too-large":
            raise
        return None
    return result.tokens_per_s, result.mean_running, result.preemptions


def cell(run: tuple[float, float, int] | None) -> str:
    return f"{run[0]:.1f} ({run[1]:.0f}, {run[2]})" if run else "no room"


def main() -> None:
    print("# A GPU's memory for experts and KV cache: predicted\n")
    print(
        f"Made by `python validation/wisp/wisp.py`: `ndpsim serve --hw {HARDWARE} --model {MODEL} --routing "
        f"{ROUTING} --kv gpu --requests SPEC --policy POLICY --gpu-experts N`. *shared* has `--kv auto` in "
        "place of `--kv gpu` and a number of experts. A cell has output tokens/s, and in brackets the mean "
        "number of running sequences and the preemptions.\n"
    )
    for load in LOADS:
        print(f"- {load}: `{spec_of(load)}`")
    print()
    head = (
        "load",
        "policy",
        *(f"{experts} experts" for experts in EXPERTS),
        "best",
        "over the worst",
        "shared",
    )
    rows = []
    for load in LOADS:
        for policy in POLICIES:
            found = {experts: served(load, policy, experts) for experts in EXPERTS}
            speeds = {experts: run[0] for experts, run in found.items() if run}
            best = max(speeds, key=lambda experts: speeds[experts])
            *cells, shared = map(cell, [*found.values(), served(load, policy, None)])
            over_worst = f"{speeds[best] / min(speeds.values()):.2f}"
            rows.append((load, policy, *cells, str(best), over_worst, shared))
    print("\n".join(markdown_table(head, rows)))


if __name__ == "__main__":
    main()
