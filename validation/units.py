"""Writes docs/units-compared.md and its pictures: units on buffer chips, at banks and behind CXL.

Run in the checkout: python validation/units.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim import simulate_expert
from ndpsim.base.units import format_time
from ndpsim.config import load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.inference.processors import Processors, Step
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import SERIES, Panel, compose, save
from ndpsim.simulate.bank_operands import simulate_bank_attention
from ndpsim.simulate.bank_turns import AttentionTurns, bank_expert_token
from ndpsim.workload.models import Attention, Expert, load_model

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
DIES, STACKS = 32, 5
EXPERT_MODEL, MODELS = "mixtral-8x7b", ("mixtral-8x7b", "qwen3-235b-a22b")
CONTEXTS, BATCHES = (512, 2048, 8192), (1, 8, 32, 128)
TOKENS = (1, 2, 4, 8, 16, 32, 64)


class Unit(NamedTuple):
    """Units that share an expert: their words, and how many devices have `DIES` dies."""

    name: str
    hw: str
    sets: tuple[str, ...]
    devices: int
    dies: str


DIMM = Unit("buffer chip (TriMoE, DDR5)", "trimoe", (), 1, "a DIMM: 4 ranks x 2 sub-channels x 4 x8 chips")
CXL = Unit(
    "CXL device (DDR5)",
    "cxl",
    ("dimm.subchannels=8", "ndp.systolic.arrays=16"),
    1,
    "8 sub-channels x 4 x8 chips, 16 arrays",
)
IN_BANKS = (
    Unit("bank (AiM, GDDR6)", "aim", (), 2, "2 cards of 16 chips"),
    Unit("bank (AttAcc, HBM3)", "attacc", (), 4, "4 stacks of 8 dies"),
    Unit("bank group (AttAcc, HBM3)", "attacc", ("level=bankgroup",), 4, "4 stacks of 8 dies"),
    Unit("two banks (HBM-PIM, HBM2)", "hbm-pim", ("channels=16",), 4, "4 stacks of 8 dies"),
)
PLACES = {
    "bank": ("banks.level=bank",),
    "bank group": ("banks.level=bankgroup",),
    "pseudo-channel": ("banks.level=buffer",),
}


def part_of(expert: Expert, parts: int) -> Expert:
    """A device's part of an expert."""
    return Expert(expert.hidden, -(-expert.intermediate // parts))


def expert_times() -> dict[str, list[float]]:
    """Times in ns of an expert on `DIES` dies, by tokens."""
    expert = load_model(EXPERT_MODEL).expert
    found = {
        unit.name: [
            simulate_expert(load_hardware(unit.hw, unit.sets), expert, tokens, cache=True).time_ns
            for tokens in TOKENS
        ]
        for unit in (DIMM, CXL)
    }
    for unit in IN_BANKS:
        device = load_bank_hardware(unit.hw, unit.sets)
        token_ns = bank_expert_token(device, part_of(expert, unit.devices)).time_ns
        found[unit.name] = [tokens * token_ns for tokens in TOKENS]
    return found


def attention_times(name: str) -> dict[str, dict[int, list[float]]]:
    """Times in ns of a layer's scores and context on five stacks, by place, context and batch."""
    found: dict[str, dict[int, list[float]]] = {}
    model = load_model(name)
    for place, sets in PLACES.items():
        devices = AttentionDevices(
            load_hardware("dgx-attacc", sets), model, model.attention_kinds, 16, cache=True
        )
        found[place] = {
            context: [devices.attention(0, Step(batch, context), 0.0, 0.0).time_ns for batch in BATCHES]
            for context in CONTEXTS
        }
    processors = Processors(load_hardware("dgx-attacc"))

    def on_gpu_ns(batch: int, context: int) -> float:
        done = processors.step_time(model, Step(batch, context)).operations
        return next(one.time_ns for one in done if one.name == "attend")

    found["GPU"] = {context: [on_gpu_ns(batch, context) for batch in BATCHES] for context in CONTEXTS}
    return found


def lines(x: Sequence[int], times: Mapping[str, Sequence[float]], label: str) -> Panel:
    """Times over tokens or sequences, on logarithmic scales."""

    def draw(axes: Axes) -> None:
        for number, (name, ns) in enumerate(times.items()):
            style = {"color": SERIES[number % len(SERIES)], "linestyle": ("-", "--", ":")[number % 3]}
            axes.plot(x, [one / 1000 for one in ns], marker=".", label=name, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(x, [str(one) for one in x])
        axes.set(xlabel=label, ylabel="time (us)")
        axes.minorticks_off()

    return Panel(draw, 12)


def figure(title: str, panels: Mapping[str, Panel]) -> Figure:
    """Panels below each other."""
    return compose(title, (panels,), DEFAULT_SIZE)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    listed = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in listed)


def fastest(times: Mapping[str, float]) -> str:
    """The place with the least time."""
    return min(times, key=times.__getitem__)


TEXT = """\
# Units compared

Which place of units is fastest for an expert, and for attention: on a buffer chip, at banks, at bank
groups, at pseudo-channels, or behind CXL? Made by `python validation/units.py`; times of units are simulated.
Devices, rules and layouts: [units in banks](banks.md).

## An expert on as many DRAM dies

An expert of {model} with 16 bits on {dies} DRAM dies. Dies differ in size: those of DDR5 have 32 Gb, those
of GDDR6 and HBM 8 or 16.

{devices}

![An expert on {dies} dies](pictures/units_expert.svg)

{experts}

Units in banks read the weights again for each token (their makers' layout), while units on buffer chips and
behind CXL read them once for all tokens that their buffer holds. But banks read {few:.0f} times as fast,
and the multipliers of the others are busy from a few tokens on: with {tokens} tokens the fastest unit in
banks still takes 1/{many:.0f} of the time of the fastest other.

## Attention of a layer on the same stacks

Scores and context of a layer on the five HBM3 stacks of `dgx-attacc`, with units at three places, and on a
GPU that reads the same five stacks (3,352 GB/s; its time is a roofline, not simulated commands).

{attentions}

AttAcc's layout has a copy of keys and values for each query that shares a head of them, and reads each; a GPU
reads them once. So the more queries share a head, the earlier the GPU is ahead, and the more room the KV
cache takes in the banks.

## Equal power

Energies of commands, data and products are published for AttAcc and AiM, without refresh and standby. Six
sequences of 2,048 tokens of mixtral-8x7b on one device, with the energies that are known:

{powers}

With equal power there are as many devices as their powers allow, so that times are to each other as energies:
the last column. The place at banks is ahead of the other places of AttAcc by less than in time at equal dies.
Energies of AttAcc and AiM are of different sources; powers of HBM-PIM, of units on buffer chips and behind
CXL, and of the GPU in this work are not known.

AttAcc's distances between multiplications (`nCCDAB`, `nCCDSB`: 6) are those that keep the power of a stack
within its limit, and all its places above keep it. Without the limit (`nCCDAB=4`), units at banks take
{unlimited} of the time for 32 sequences of 2,048 tokens of mixtral-8x7b.

## Limits

- Attention on buffer chips and behind CXL is not simulated, and neither are transfers over links here.
- HBM-PIM is written from papers; its change of mode is an assumption.
"""


OF_MODEL = """\
### {model}: {queries} queries share each head of keys

![Attention of {model} on five stacks](pictures/units_attention_{model}.svg)

{table}"""


def attention_part(name: str, times: Mapping[str, Mapping[int, Sequence[float]]]) -> str:
    """The picture and the table of a model."""
    panels = {
        f"context {context}": lines(
            BATCHES,
            {place: of_place[context] for place, of_place in times.items()},
            f"sequences of {context:,} tokens",
        )
        for context in CONTEXTS
    }
    title = f"Attention of a layer of {name} on five HBM3 stacks"
    save(figure(title, panels), str(PICTURES / f"units_attention_{name}.svg"), DEFAULT_SIZE)
    rows = []
    for context in CONTEXTS:
        for number, batch in enumerate(BATCHES):
            here = {place: of_place[context][number] for place, of_place in times.items()}
            rows.append([f"{context:,}", str(batch), *map(format_time, here.values()), fastest(here)])
    kind = load_model(name).attention_kinds[0]
    listed = table(("context", "sequences", *times, "fastest"), rows)
    return OF_MODEL.format(model=name, queries=kind.heads // kind.kv_heads, table=listed)


def share_without_limit(limited_ns: float) -> float:
    """The time of 32 sequences of 2,048 tokens without AttAcc's power limit, as a share of that with it."""
    kind = load_model(MODELS[0]).attention_kinds[0]
    assert isinstance(kind, Attention)
    device = load_bank_hardware("attacc", ["nCCDAB=4"])
    parts = -(-32 * kind.kv_heads // STACKS)
    return AttentionTurns(device, kind, MODELS[0]).time_ns([2048] * parts) / limited_ns


def power_table() -> str:
    """Power and energy of attention on devices whose energies are published."""
    devices = [
        (f"{place} (AttAcc)", "attacc", (sets[0].removeprefix("banks."),)) for place, sets in PLACES.items()
    ]
    found = {
        name: simulate_bank_attention(hw, MODELS[0], 2048, 6, sets)
        for name, hw, sets in [*devices, ("bank (AiM, 32 channels)", "aim", ())]
    }
    energies = {name: result.energy_nj["total"] or 0.0 for name, result in found.items()}
    least = min(energies.values())
    rows = [
        [name, format_time(result.time_ns), f"{energies[name] / result.time_ns:.1f} W",
         f"{energies[name] / 1e6:.2f} mJ", f"{energies[name] / least:.2f}"]
        for name, result in found.items()
    ]  # fmt: skip
    return table(("units", "time", "power", "energy", "time at equal power, of the least"), rows)


def main() -> None:
    """Write the page and its pictures."""
    experts, attention = expert_times(), {name: attention_times(name) for name in MODELS}
    drawn = figure(
        f"An expert of {EXPERT_MODEL} on {DIES} dies", {"expert": lines(TOKENS, experts, "tokens")}
    )
    save(drawn, str(PICTURES / "units_expert.svg"), DEFAULT_SIZE)
    units = (DIMM, CXL, *IN_BANKS)
    rows = [[name, *map(format_time, times)] for name, times in experts.items()]
    winners = [fastest({name: times[k] for name, times in experts.items()}) for k in range(len(TOKENS))]
    ratios = [
        min(experts[unit.name][k] for unit in (DIMM, CXL)) / min(experts[unit.name][k] for unit in IN_BANKS)
        for k in (0, -1)
    ]
    text = TEXT.format(
        model=EXPERT_MODEL,
        dies=DIES,
        devices=table(("units", "dies"), [[unit.name, unit.dies] for unit in units]),
        experts=table(("units, by tokens", *map(str, TOKENS)), [*rows, ["fastest", *winners]]),
        tokens=TOKENS[-1],
        few=ratios[0],
        many=ratios[1],
        attentions="\n\n".join(attention_part(name, times) for name, times in attention.items()),
        powers=power_table(),
        unlimited=f"{share_without_limit(attention[MODELS[0]]['bank'][2048][2]):.0%}",
    )
    (HERE.parent / "docs" / "units-compared.md").write_text(text)


if __name__ == "__main__":
    main()
