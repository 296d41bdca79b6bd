"""Which policy is best on which machine, why, and what is left: every policy on five machines.

``python validation/best.py > validation/best.md``: three models, three batches, measured and skewed routing
on each machine; the KV cache in the host's memory, and long contexts, with two batches each. Each cell is one
run of all policies, and is kept in `best.cells` (`--store`): an ended call goes on where it was. Pictures go
to `validation/figures`. `--machine`, `--model`, `--batch` and `--policy` leave others out; the slow policy
`oracle` runs at the middle batch, with skewed routing.

``python validation/best.py --gpus > validation/best_gpus.md``: the same on machines with several GPUs.

``python validation/best.py --routing TRACE.npz --model NAME --title TEXT > validation/recorded.md``: the same
on a recorded trace, beside routing that is drawn from its counts of each layer and expert. What differs is
what a generator does not model: which experts tokens choose together, and one after another. The model needs
the experts of the trace; another one's routing may stand for its own, which the title then says.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import ndpsim
from ndpsim.base.reported import flattened
from ndpsim.simulate.results.cache import digest_of, version

#: Of each model, measured counts of experts, of it or its like.
MEASURED = {
    "deepseek-v2": "ranks:deepseek-v3",
    "deepseek-v2-lite": "ranks:deepseek-v3",
    "glm-4.5-air": "ranks:glm-4.5-air",
    "mixtral-8x7b": "popularity:mixtral-8x7b",
    "qwen3-235b-a22b": "ranks:qwen3-235b-a22b",
    "qwen3-30b-a3b": "ranks:qwen3-235b-a22b",
    "qwen3-next-80b-a3b": "ranks:qwen3-next-80b-a3b",
}
#: Of each machine: models that fit it, and batches.
MACHINES: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "trimoe": (("deepseek-v2", "qwen3-235b-a22b", "glm-4.5-air"), (16, 128, 512)),
    "edge": (("qwen3-30b-a3b", "mixtral-8x7b", "qwen3-next-80b-a3b"), (1, 8, 64)),
    "cxl": (("mixtral-8x7b", "qwen3-235b-a22b", "glm-4.5-air"), (1, 8, 64)),
    "cache-7960x-4090": (("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-next-80b-a3b"), (1, 8, 64)),
    "dali-7532-3090": (("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite"), (1, 8, 64)),
}
SKEWED = "skewed"
#: Of all machines, with measured routing: what differs from the defaults, by name, and which batches have it.
SETTINGS: Mapping[str, tuple[Mapping[str, Any], slice]] = {
    "KV on the host": ({"kv": "host", "context": 1024}, slice(1, 3)),
    "context 16384": ({"context": 16384}, slice(0, 2)),
}
#: Of machines whose GPUs have a PCIe link each, in place of `SETTINGS`, with `--gpus`.
SEVERAL: Mapping[str, tuple[Mapping[str, Any], slice]] = {
    "2 GPUs": ({"sets": ["gpu.count=2"]}, slice(0, 3)),
    "4 GPUs": ({"sets": ["gpu.count=4"]}, slice(1, 2)),
}
STEPS = 4
LAYERS = 6  # of each model, spread evenly over those with experts
BITS = 16  # of a weight
OURS, KNOWN = "balance", "oracle"
FIGURES = Path(__file__).with_name("figures")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A machine, a model, a batch and a routing, with the runs of all policies in it.

    `setting`: a name in `SETTINGS` or `SEVERAL`, or none.
    """

    machine: str
    model: str
    batch: int
    routing: str
    runs: Mapping[str, Row]
    setting: str = ""

    @property
    def kind(self) -> str:
        """The kind of its routing."""
        if self.routing == SKEWED:
            return "skewed"
        if self.routing.endswith(".npz"):
            return "recorded"
        return "drawn" if ".json" in self.routing else "measured"

    @property
    def name(self) -> str:
        return f"{self.model}, batch {self.batch}, {self.setting or self.kind}"

    def only(self, wanted: Callable[[str, Row], bool]) -> dict[str, Row]:
        """The runs that are wanted, the fastest first."""
        chosen = [(policy, row) for policy, row in self.runs.items() if wanted(policy, row)]
        return dict(sorted(chosen, key=lambda pair: float(pair[1]["moe_ns"])))

    @property
    def exact(self) -> dict[str, Row]:
        """Published policies, and ours, that compute with all weights in full precision."""
        return self.only(lambda policy, row: policy != KNOWN and not is_lossy(row, self.pairs))

    @property
    def published(self) -> dict[str, Row]:
        """Those of them that are published."""
        return {policy: row for policy, row in self.exact.items() if policy != OURS}

    @property
    def lossy(self) -> dict[str, Row]:
        """Policies that compute with fewer bits, or skip experts."""
        return self.only(lambda policy, row: is_lossy(row, self.pairs))

    @property
    def pairs(self) -> float:
        """Pairs of a token and an expert, of the policy with the most."""
        return max((row["pairs"] for row in self.runs.values()), default=0)

    @property
    def bound_ns(self) -> float | None:
        """The largest lower bound that a run has."""
        return max((row["bound_ns"] for row in self.exact.values() if row["bound_ns"]), default=None)

    @property
    def known_ns(self) -> float | None:
        """The time of `oracle`, the best that is known; None: it was not run."""
        return self.runs[KNOWN]["moe_ns"] if KNOWN in self.runs else None


def is_lossy(row: Row, pairs: float) -> bool:
    """Whether a run computed with fewer bits than the model has, or fewer pairs than others."""
    bits = [value for key, value in row.items() if key.startswith("weight_bits.") and value is not None]
    return min(bits, default=BITS) < BITS or row["pairs"] < pairs


def resource(row: Row) -> str:
    """The resource that binds a run: the one with the largest share of the layers' critical paths."""
    shares = {
        key.partition(".")[2]: value for key, value in row.items() if key.startswith("bottleneck.") and value
    }
    if not shares:
        return ""
    name, share = max(shares.items(), key=lambda pair: float(pair[1]))
    return f"{name} {share:.0%}"


# Running


def layers_of(model: str, among: Collection[int] | None = None) -> str:
    """Layers with experts, spread evenly over the model, or over those of a trace."""
    shape = ndpsim.load_model(model)
    layers = [
        layer
        for layer in range(shape.layers)
        if layer not in shape.dense_layers and (among is None or layer in among)
    ]
    return ",".join(str(layers[round(n * (len(layers) - 1) / (LAYERS - 1))]) for n in range(LAYERS))


@functools.cache
def drawn_from(trace: str) -> str:
    """A SPEC that draws from the counts of a trace, which are written beside it."""
    routing = ndpsim.load_routing(trace)
    counts = [
        sum(routing.loads(step, layer) for step in range(routing.steps)).tolist() for layer in routing.layers
    ]
    file = Path(trace).with_suffix(".counts.json")
    file.write_text(json.dumps({"counts": counts, "layers": list(routing.layers)}))
    return f"popularity:{file}"


def recorded_points(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells on a recorded trace and on its counts, as arguments of `run_moe`."""
    trace = ndpsim.load_routing(arguments.routing)
    return [
        {
            "hw": machine,
            "model": model,
            "layers": layers_of(model, trace.layers),
            "batch": batch,
            "routing": routing,
            "policies": arguments.policy or ["all"],
        }
        for machine, (models, batches) in MACHINES.items()
        if machine in (arguments.machine or MACHINES)
        for model in arguments.model or models
        for batch in arguments.batch or batches
        if batch <= trace.batch
        for routing in (arguments.routing, drawn_from(arguments.routing))
    ]


def wanted_points(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells that the options leave, as arguments of `run_moe`; and the name of a setting."""
    found: list[dict[str, Any]] = []
    settings = SEVERAL if arguments.gpus else SETTINGS
    for machine, (models, batches) in MACHINES.items():
        if arguments.gpus and ndpsim.load_hardware(machine).system.cxl is not None:
            continue
        for model in models:
            kinds = () if arguments.gpus else (MEASURED[model], SKEWED)
            plain = [(batch, routing, "") for batch in batches for routing in kinds]
            others = [
                (batch, MEASURED[model], name)
                for name, (_, which) in settings.items()
                for batch in batches[which]
            ]
            for batch, routing, setting in plain + others:
                with_known = batch == batches[1] and routing == SKEWED
                names = [name for name in arguments.policy or ("all", KNOWN) if with_known or name != KNOWN]
                if (
                    names
                    and machine in (arguments.machine or MACHINES)
                    and model in (arguments.model or models)
                    and batch in (arguments.batch or batches)
                ):
                    found.append(
                        {
                            "hw": machine,
                            "model": model,
                            "layers": layers_of(model),
                            "batch": batch,
                            "routing": routing,
                            "policies": names,
                            "setting": setting,
                        }
                    )
    return found


def cells_of(points: Sequence[Row], store: Path) -> Iterator[Cell]:
    """Run the cells, or find what an earlier call has run."""
    store.mkdir(exist_ok=True)
    for number, point in enumerate(points, 1):
        file = store / f"{digest_of([*point.values(), STEPS, version()])}.json"
        if not file.exists():
            unfinished = file.with_suffix(".tmp")
            unfinished.write_text(json.dumps(runs_of(point)))
            unfinished.replace(file)
        print(f"best: {number} of {len(points)} cells", file=sys.stderr)
        key = (point[name] for name in ("hw", "model", "batch", "routing"))
        if runs := json.loads(file.read_text()):
            yield Cell(*key, runs, point.get("setting", ""))


def runs_of(point: Row) -> dict[str, Row]:
    """The run of each policy in a cell; none if the model does not fit, or a named policy cannot run."""
    given = {key: value for key, value in point.items() if key not in ("setting", "policies")}
    changed, _ = (SETTINGS | SEVERAL).get(point.get("setting", ""), ({}, None))
    try:
        result = ndpsim.run_moe(policies=point["policies"], steps=STEPS, cache=True, **given, **changed)
    except ndpsim.InputError as error:
        print(f"best: {point['hw']}, {point['model']}, batch {point['batch']}: {error}", file=sys.stderr)
        return {}
    return {run.policy: flattened(run.to_dict()) for run in result.runs}


# The page


def say(text: str) -> None:
    """A paragraph."""
    print(textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False) + "\n")


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """As Markdown; None is an empty cell."""
    print(f"| {' | '.join(map(str, head))} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join('' if one is None else str(one) for one in row)} |")
    print()


def ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def energy_nj(row: Row) -> float:
    """The energy of all parts whose energy is known."""
    known = (key for key, value in row.items() if key.startswith("energy_nj.") and value is not None)
    return sum(row[key] for key in known if key != "energy_nj.total")


def over(cell: Cell, policy: str) -> float | None:
    """How much longer the best published policy takes than `policy`; None: one of them was not run."""
    if policy not in cell.runs or not cell.published:
        return None
    return float(next(iter(cell.published.values()))["moe_ns"] / cell.runs[policy]["moe_ns"])


def summary(cells: Sequence[Cell]) -> None:
    """A row for each machine."""
    rows = []
    for machine in dict.fromkeys(cell.machine for cell in cells):
        here = [cell for cell in cells if cell.machine == machine and cell.exact]
        winners = [next(iter(cell.published), "") for cell in here]
        counts = {name: winners.count(name) for name in sorted(set(winners), key=winners.count, reverse=True)}
        gains = [gain for cell in here if (gain := over(cell, OURS)) is not None]
        tight = [cell.bound_ns / next(iter(cell.exact.values()))["moe_ns"] for cell in here if cell.bound_ns]
        rows.append(
            (
                machine,
                len(here),
                ", ".join(f"{name} {count}" for name, count in counts.items()),
                ratio(geometric_mean(gains)) if gains else "not run",
                f"{min(gains):.2f} to {max(gains):.2f}" if gains else None,
                f"{min(tight):.2f} to {max(tight):.2f}" if tight else None,
            )
        )
    head = (
        "machine",
        "cells",
        "best published, in how many cells",
        f"`{OURS}` over it, geometric mean",
        "range",
    )
    table((*head, "bound over the best"), rows)


def own_systems(cells: Sequence[Cell]) -> None:
    """Whether the system that a machine was built for is the best published one there, batch by batch."""
    rows = []
    for machine, batch in dict.fromkeys((cell.machine, cell.batch) for cell in cells):
        own = machine.partition("-")[0]
        here = [
            cell for cell in cells if (cell.machine, cell.batch) == (machine, batch) and own in cell.published
        ]
        if here:
            best = [next(iter(cell.published)) for cell in here]
            behind = [
                cell.published[own]["moe_ns"] / next(iter(cell.published.values()))["moe_ns"] for cell in here
            ]
            names = ", ".join(f"{name} {best.count(name)}" for name in dict.fromkeys(best))
            rows.append((machine, own, batch, f"{best.count(own)} of {len(here)}", names, ratio(max(behind))))
    head = ("machine", "its own system", "batch", "is the best published one", "which is", "behind at most")
    table(head, rows)


def beside_drawn(cells: Sequence[Cell]) -> None:
    """For each recorded cell its times over those on routing drawn from the same counts."""
    drawn = {(cell.machine, cell.model, cell.batch): cell for cell in cells if cell.kind == "drawn"}
    rows = []
    for cell in cells:
        other = drawn.get((cell.machine, cell.model, cell.batch))
        if cell.kind != "recorded" or other is None:
            continue
        both = [name for name in cell.exact if name in other.exact]
        ratios = {name: cell.runs[name]["moe_ns"] / other.runs[name]["moe_ns"] for name in both}
        least, most = (choose(ratios, key=lambda name: ratios[name]) for choose in (min, max))
        order = [name for name in other.exact if name in both]
        swapped = sum(one != two for one, two in zip(both, order, strict=True))
        rows.append(
            (
                cell.machine,
                cell.batch,
                ", ".join(list(cell.published)[:2]),
                ", ".join(list(other.published)[:2]),
                f"{ratios[both[0]]:.2f}",
                f"{least} {ratios[least]:.2f}",
                f"{most} {ratios[most]:.2f}",
                f"{swapped} of {len(both)}",
                f"{ratio(over(cell, OURS))}, {ratio(over(other, OURS))}",
            )
        )
    head = (
        "machine", "batch", "best published, recorded", "drawn", "best's time over drawn",
        "least of all policies", "most", "places that differ", f"`{OURS}` over published, recorded and drawn",
    )  # fmt: skip
    table(head, rows)


def machine_table(cells: Sequence[Cell]) -> None:
    """A row for each cell: who is best, by how much, and why."""
    rows = []
    for cell in cells:
        ranked = list(cell.exact.items())
        if not ranked:
            continue
        (name, best), *others = ranked
        behind = f"{others[0][0]} {others[0][1]['moe_ns'] / best['moe_ns']:.2f}" if others else None
        estimate = best["estimated_ns"]
        frugal, energy = min(((name, energy_nj(row)) for name, row in ranked), key=lambda pair: pair[1])
        rows.append(
            (
                cell.name,
                f"**{name}**",
                f"{best['moe_ns'] / 1e6:.2f} ms",
                resource(best),
                behind,
                ratio(over(cell, OURS)),
                None if estimate is None else f"{estimate / best['moe_ns']:.2f}",
                ratio(cell.bound_ns / best["moe_ns"] if cell.bound_ns else None),
                ratio(cell.known_ns / best["moe_ns"] if cell.known_ns else None),
                f"{frugal} {energy / 1e6:.0f} mJ",
            )
        )
    head = ("cell", "best", "experts", "binds", "next", f"`{OURS}` over published", "own estimate", "bound")
    table((*head, "best known", "least energy"), rows)


def all_policies(cells: Sequence[Cell], kind: str) -> None:
    """Every policy's time over that of the best one in full precision."""
    names = list(dict.fromkeys(name for cell in cells for name in getattr(cell, kind)))
    if not names:
        say("None was run.")
        return
    rows = []
    for cell in cells:
        if cell.exact:
            best = next(iter(cell.exact.values()))["moe_ns"]
            runs = getattr(cell, kind)
            rows.append((cell.name, *(ratio(runs[n]["moe_ns"] / best) if n in runs else None for n in names)))
    table(("cell", *names), rows)


def draw(machine: str, cells: Sequence[Cell], folder: Path) -> str:
    """Times over that of the best published policy, cell by cell; the file's name."""
    from matplotlib.axes import Axes  # noqa: PLC0415 (it takes its time)

    from ndpsim.report.pictures.canvas import INK, SERIES, Panel, compose, save, tint  # noqa: PLC0415  # noqa: PLC0415
    from ndpsim.report.pictures.points import logarithmic  # noqa: PLC0415

    drawn = [cell for cell in cells if cell.published]

    def ours(cell: Cell) -> list[float]:
        return [cell.runs[OURS]["moe_ns"]] if OURS in cell.runs else []

    kinds: tuple[tuple[str, Callable[[Cell], Iterable[float | None]], str, str], ...] = (
        ("published", lambda cell: [row["moe_ns"] for row in cell.published.values()], "o", tint(INK, 0.5)),
        (OURS, ours, "D", SERIES[1]),
        ("best known", lambda cell: [cell.known_ns], "*", SERIES[2]),
        ("lower bound", lambda cell: [cell.bound_ns], "|", SERIES[0]),
    )

    def panel(axes: Axes) -> None:
        best = [next(iter(cell.published.values()))["moe_ns"] for cell in drawn]
        for label, times, marker, colour in kinds:
            points = [
                (time / best[n], n)
                for n, cell in enumerate(drawn)
                for time in times(cell)
                if time is not None
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker, color=colour, label=label, linestyle="none")
        axes.axvline(1, color=INK, linewidth=0.6, linestyle=":")
        axes.set_yticks(range(len(drawn)), [cell.name for cell in drawn])
        axes.invert_yaxis()
        logarithmic(axes, "x")
        axes.set_xlabel("time of experts, over that of the best published policy")

    folder.mkdir(exist_ok=True)
    file = folder / f"best-{machine}.svg"
    title = f"Policies on {machine}"
    save(
        compose(title, ({"best": [Panel(panel, 2 * len(drawn) + 2)]},), "two-columns"),
        str(file),
        "two-columns",
    )
    return file.name


HEAD = f"""\
# Which policy is best on which machine

Made by `python validation/best.py`: {LAYERS} layers spread over each model, {STEPS} decode steps, seed 1,
16 bits, all policies at their defaults, 512 tokens of context unless a cell says otherwise. "KV on the
host" cells have 1,024, and the KV cache in the host's memory. Machines with several GPUs are in
[best_gpus.md](best_gpus.md). Times are the experts' time (`moe_ns`). "Measured"
routing is drawn from measured counts or load curves of this model or of a similar one
([routing](../docs/routing.md)); "skewed" routing is drawn from TriMoE's three classes. "Own estimate",
"bound" and "best known" are shares of the best policy's time: the policy's estimate, a lower bound
([moe](../docs/moe.md)), and the time of the policy `{KNOWN}`, which runs in some cells. "Binds" is the
resource with the largest share of the layers' critical paths. If a policy is missing in a cell, it cannot
run there. "Least energy" is the sum of the components with known energy ([energy](../docs/energy.md)).
These components are the same for all policies of a machine.
"""


SEVERAL_GPUS = """\
# Policies on several GPUs

Made by `python validation/best.py --gpus`: as [best.md](best.md), with measured routing, on machines with
two and four of their GPUs, which have equal parts of each matrix, of the KV cache and of each expert
([moe](../docs/moe.md)). Exchanges between them take what a machine's `gpu.link_gbps` and
`gpu.link_latency_us` say. This is time of windows, and no part of the experts' time here.
"""


RECORDED = f"""\
# Policies on recorded routing

Made by `python validation/best.py --routing FILE`: {LAYERS} layers, {STEPS} decode steps, 16 bits, all
policies at their defaults, as in [best.md](best.md). "Recorded" is the trace; "drawn" has the counts of each
layer and expert of this trace, and draws each token's experts by themselves.
"""


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, kind in (("machine", str), ("model", str), ("batch", int), ("policy", str)):
        parser.add_argument(f"--{name}", type=kind, action="append", help=f"only this {name}; repeatable")
    parser.add_argument("--gpus", action="store_true", help="several GPUs, in place of other settings")
    parser.add_argument("--routing", help="a recorded trace, as `ndpsim routing import` writes it")
    parser.add_argument("--title", default="", help="what the trace is, with its source")
    parser.add_argument("--store", type=Path, default="best.cells", help="folder of finished cells")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="folder of the pictures")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parsed(words)
    points = recorded_points(arguments) if arguments.routing else wanted_points(arguments)
    if not points:
        sys.exit("best: nothing is left to run")
    cells = [*cells_of(points, arguments.store)]
    if arguments.routing:
        print(RECORDED)
        say(arguments.title or Path(arguments.routing).name)
        beside_drawn(cells)
        say("Each system on the machine of its paper, compared with other published ones, recorded routing:")
        own_systems([cell for cell in cells if cell.kind == "recorded"])
        for machine in dict.fromkeys(cell.machine for cell in cells):
            print(f"## {machine}\n")
            say("Times of all policies in full precision, relative to the best:")
            all_policies([cell for cell in cells if cell.machine == machine], "exact")
        return
    print(SEVERAL_GPUS if arguments.gpus else HEAD)
    summary(cells)
    if arguments.gpus:
        for machine in dict.fromkeys(cell.machine for cell in cells):
            print(f"## {machine}\n")
            say("Times of all policies in full precision, relative to the best:")
            all_policies([cell for cell in cells if cell.machine == machine], "exact")
        return
    say("Each system on the machine of its paper, compared with other published systems in full precision:")
    own_systems(cells)
    for machine in dict.fromkeys(cell.machine for cell in cells):
        here = [cell for cell in cells if cell.machine == machine]
        print(f"## {machine}\n")
        machine_table(here)
        picture = draw(machine, here, arguments.figures)
        print(f"![Policies on {machine}](figures/{picture})\n")
        say("Times of all policies in full precision, relative to the best:")
        all_policies(here, "exact")
        say("Times of policies with fewer bits or skipped experts, relative to the best in full precision:")
        all_policies(here, "lossy")


if __name__ == "__main__":
    main()
