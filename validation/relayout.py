"""Writes relayout.md: what each topology makes of the relayouts of the TriMoE paper.

Run in the checkout: python validation/relayout.py
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ndpsim.config import load_hardware
from ndpsim.dimm.link import TOPOLOGIES, ports_needed
from ndpsim.simulate import RelayoutResult, simulate_relayout

EXPERTS = 4
PAPER_MS = 0.63
PAPER_RATIO = 62
MODELS = ("qwen3-235b-a22b", "deepseek-v2", "glm-4.5-air")
WAYS = (("localized", "striped"), ("striped", "localized"), ("localized", "localized"))

COLUMNS = (
    "topology",
    "ports",
    "time (ms)",
    "GB/s",
    "at least (ms)",
    "bound by",
    "busiest wire",
    "transit (B)",
    "host",
)

TEXT = """\
# Relayout: four experts on TriMoE

The TriMoE paper says that up to four experts migrate in about 0.63 ms (Section 5.5), and that relayout
without the host is over 62x more efficient than data movement by the CPU (Section 4.1). The paper does
not name the model, the layouts, the number of links of a DIMM, or the DIMMs that these links connect. The
tables have each topology with the links of `hwconfigs/trimoe.yaml` (25 GB/s in each direction). Nothing
was tuned. If a topology needs more ports than the file gives, the DIMMs have as many ports as it needs.

Made by `python validation/relayout.py`. One table by itself:

    ndpsim relayout --hw trimoe --model {model} --experts 4 --from localized --to striped --topology all

*time*: from the first DRAM command to the last beat written. *at least*: the minimum time of the busiest
resource, and its name. *transit*: the maximum number of bytes in the buffers of a DIMM's router. *host*:
the host's time for the same move, divided by *time*. The host moves the data through its memory channels,
command by command. As many bursts are in flight as fit its controllers' queues, and its cores take no
time.

{tables}
## Against the paper

- 0.63 ms: {shortest} to {longest};
  nearest is {nearest}.
- 62x: the host's memory channels alone make {least:.1f}x to {most:.1f}x. To be 62x slower than the ring's
  {ring:.3f} ms, a CPU would copy at {copy:.2f} GB/s, each byte counted once. The paper does not say how the
  CPU copies.
"""


def relayout(model: str, source: str, target: str, topology: str, host: bool) -> RelayoutResult:
    system = load_hardware("trimoe").system
    ports = max(system.link.ports, ports_needed(topology, system.dimm.count, system.link.group_dimms))
    sets = (f"link.topology={topology}", f"link.ports={ports}")
    return simulate_relayout("trimoe", model, EXPERTS, source, target, sets=sets, host=host)


def over_topologies(model: str, source: str, target: str) -> list[RelayoutResult]:
    results: list[RelayoutResult] = []
    for topology in (*TOPOLOGIES, "groups"):
        result = relayout(model, source, target, topology, host=not results)
        host = results[0].host if results else result.host
        assert host is not None
        results.append(dataclasses.replace(result, host=host, host_speedup=host.time_ns / result.time_ns))
        print(model, source, target, topology, f"{result.time_ns / 1e6:.3f} ms", flush=True)
    return results


def table(results: list[RelayoutResult]) -> str:
    config, host = results[0].config, results[0].host
    assert host is not None
    lines = [
        f"## {config['model']}, {config['source']} to {config['target']}",
        "",
        f"{results[0].weight_bytes} bytes, {results[0].sent_bytes} of them over links; "
        f"from DIMMs {config['source_dimms']}, to DIMMs {config['target_dimms']} (the first ones). "
        f"The host: {host.time_ns / 1e6:.3f} ms.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    for result in results:
        cells = (
            result.topology,
            result.config["hardware"]["link"]["ports"],
            f"{result.time_ns / 1e6:.3f}",
            f"{result.bandwidth_gbps:.1f}",
            f"{max(result.bounds_ns.values()) / 1e6:.3f}",
            result.bottleneck,
            f"{100 * max(result.link_busy.values()):.1f}%",
            result.transit_bytes,
            f"{result.host_speedup:.2f}x",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def named(result: RelayoutResult) -> str:
    """The time, and what it is of."""
    config = result.config
    way = f"{config['source']} to {config['target']}"
    return f"{result.time_ns / 1e6:.3f} ms ({config['model']}, {way}, {result.topology})"


def main() -> None:
    cases = [(MODELS[0], *way) for way in WAYS] + [(model, *WAYS[0]) for model in MODELS[1:]]
    all_results = [over_topologies(*case) for case in cases]
    flat = [result for results in all_results for result in results]
    nearest = min(flat, key=lambda result: abs(result.time_ns / 1e6 - PAPER_MS))
    quickest = min(flat, key=lambda result: result.time_ns)
    slowest = max(flat, key=lambda result: result.time_ns)
    ring = next(result for result in flat if result.topology == "ring")
    ratios = [result.host_speedup or 0.0 for result in flat]
    text = TEXT.format(
        model=MODELS[0],
        tables="\n".join(map(table, all_results)),
        shortest=f"from {named(quickest)}",
        longest=named(slowest),
        nearest=named(nearest),
        least=min(ratios),
        most=max(ratios),
        ring=ring.time_ns / 1e6,
        copy=ring.weight_bytes / (PAPER_RATIO * ring.time_ns),
    )
    (Path(__file__).parent / "relayout.md").write_text(text)


if __name__ == "__main__":
    main()
