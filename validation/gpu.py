"""Writes gpu.md and inference/processors/fits/gpu.csv: what the GPU's model is fitted to, and its errors.

Run in the checkout: python validation/gpu.py
"""

from __future__ import annotations

import csv
import functools
import io
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gpu_attention
import gpu_layers
import gpu_uneven
from gpu_fits import (
    FUSED,
    POWERS,
    RTX_4090,
    RTX_PRO_6000,
    SINGLE,
    TILES,
    Calls,
    Card,
    Floats,
    best,
    copy_overhead_us,
    copy_overheads,
    families,
    fused_fits,
    h800_errors,
    in_compute,
    link_shares,
    mean_error,
    rounded,
    rows,
    single_errors,
    single_fit,
    together,
)
from ndpsim.inference.processors import Gpu
from ndpsim.inference.processors.fitted import ANY, FOLDER

# What is chosen of the exponents and tiles in the table: within 0.003 of the least, and the better of those
# for operations of dense parts; tensor cores have no smaller tile.
POWER, TILE = 2.0, 16
NORMS = "RTX PRO 6000, norms"
PRODUCTS = "RTX PRO 6000, projections and head"
HEADER_BYTES = 24
LONE_US = 18  # gpu.expert_overhead_us of trimoe.yaml

TEXT = """\
# GPU: measured calls, kernels and copies

Made by `python validation/gpu.py`, which also writes `ndpsim/inference/processors/fits/gpu.csv`: the values
of keys that a machine with `gpu.family` does not give. The measurements were published by others;
`validation/gpu_measured/` has them with their sources. An error is simulated minus measured, as a share of
measured.

## One call for all experts of a layer

An expert of a fused call takes together(c, m) + `gpu.slice_us` + a, where c is the time to multiply, with
tokens rounded up to tiles of `gpu.tile_tokens`, at `gpu.fused_efficiency` of the peak. m is the time to
read its bytes at `gpu.fused_memory_efficiency` of the bandwidth, and together(c, m) = (c^p + m^p)^(1/p) with
p = `gpu.roofline_power`. a is the time in which the kernels of the call write and read activations:
2 (3 hidden + 6 intermediate) bytes for each token of an expert, at the same bandwidth. Without a, the time
of many tokens grows too slowly with the tokens, and sets with small experts are most wrong. The call adds
`gpu.call_overhead_us`.

### Layers measured by AIConfigurator

`gpu_measured/moe_layers.csv` has {layer_calls} calls of {layer_models} models. Values fitted to vLLM's
layers in 16 bits by family (other families take those of sets below):

| family | {layer_keys} |
|---|---|---|---|---|
{layer_values}

Errors of each model with values fitted to all others, by tokens an expert: the median, and the 90th
percentile. The goal was 8% and 30%.

| card | calls | {ranges} |
|---|---|{range_rule}
{layer_errors}

The B200's calls are of several kernels, which read large experts twice from 9 tokens on. The median error
over all families, by exponent: {layer_powers}.

Uneven loads: vLLM's layers of the same models, whose tokens choose experts by a power law (exponent 1.2;
`gpu_measured/moe_layers_uneven.csv`). Nothing is fitted to them: the values are those above. A call is the
mean of five draws of loads, as in the benchmark; ranges are those of the mean over active experts of even
loads.

| card | calls | {ranges} |
|---|---|{range_rule}
{uneven}

Narrower numbers are multiplied at `gpu.fp8_efficiency` and `gpu.fp4_efficiency` of `gpu.fp8_tflops` and
`gpu.fp4_tflops`. These shares are fitted with all other values as in 16 bits:

| family | numbers | calls | share of their peak | {ranges} |
|---|---|---|---|{range_rule}
{narrow}

The 8-bit floats of Hopper are those with a scale for a block of weights. vLLM's kernel for a scale for the
whole matrix (`fp8`) reads at a fifth of the bandwidth there, and is left out. The share of blocks shows that
these kernels multiply no faster than in 16 bits.

Other programs, with the values of vLLM (of the sets below for Ampere). Their kernels differ so
much that one set of values cannot stand for all; give `gpu.fused_efficiency` and the other keys for them:

| card | program | calls | {ranges} |
|---|---|---|{range_rule}
{programs}

### Sets from elsewhere

Fits of the same formula to single sets, with one efficiency for all reads (`gpu.memory_efficiency`). If a
source does not say how many experts were active, the tokens of a batch choose evenly. The values stand for
families without layers above, and `memory_efficiency` for reads of dense parts.

Mean error over {sets} sets on {cards} cards, with all values fitted again for each cell:

| p | {tiles} |
|---|{rule}
{powers}

Reading and computing overlap partially: the maximum of the two times, as in the roofline, is less
accurate. Chosen values: p = {power:g} and tiles of {tile}.

| family | {keys} |
|---|---|---|---|---|
{families}

A family with one set, or only with sets that are bound by memory, is kept near the fit of all families
(`any`).

| set | card | expert | calls | error | left out | then by | by layers |
|---|---|---|---|---|---|---|---|
{fused}

The mean error of a set is {own_mean} in the mean over sets; left out it is {out_mean} in the mean and
{out_median} in the median. "Left out": with values fitted to the other sets of the family, or to all
other families if it has one set. "By layers": with the family's values of the layers above, which know
nothing of the set. Slices below 3 MB are 3 to 10% off. The worst when left out are H20 (a
seventh of the H100's compute, of which kernels reach 0.8), MI308X (0.17 of its peak), and Mixtral with
hundreds of tokens an expert.

## Experts launched by themselves

The same formula with `gpu.compute_efficiency`, and `gpu.expert_overhead_us` for each expert:

| set | compute_efficiency | overhead | error | left out |
|---|---|---|---|---|
{single}

The H100's overhead, fitted with the bandwidth of fused calls, is near the {lone} us that `trimoe.yaml`
takes from its paper. The fit is worst between 192 and 512 tokens, where the time rises in steps because
kernels with other tiles are used.

{one_by_one}

## Attention

Queries with keys and values take c + m + `gpu.attention_overhead_us`: here computing and reading add
(`gpu.attention_power` of 1). c is the time of the products and of the softmax at `gpu.attention_efficiency`
of the peak. Each query, key and head needs one exponential, in whose time the matrix units make
`gpu.softmax_operations`; without it, heads of 64, 128 and 256 values would need efficiencies of their own.
m is the time to read the cache at `gpu.memory_efficiency`, and queries and results at
`gpu.attention_memory_efficiency`: blocks of few queries start and end more often than they overlap. Values
fitted to vLLM's attention in 16 bits, {attention_calls} calls of {attention_shapes} shapes of heads
(`gpu_measured/attention.csv`); softmax_operations is not fitted, but the ratio of the units' rates:

| family | {attention_keys} | softmax_operations |
|---|---|---|---|---|
{attention_values}

Families that were not measured (`any`) have the medians. Errors of each shape with values fitted to all
other shapes, by tokens: the median, and the 90th percentile.

| card | calls | prefill {prefills} | decode {decodes} |
|---|---|{attention_rule}
{attention_errors}

The A100's program is older than the others', and its decode slower. Short prompts on the L40S and the RTX PRO
6000 stay in their L2 cache.

Cards without a kernel for queries with latent vectors (MLA) compute them with one in Triton. Its
`gpu.latent_efficiency` is fitted with all other values as above, to SGLang's decode with 16 and 128 heads:

| family | latent_efficiency | calls | error {decodes} | with attention_efficiency |{latent_rule}
{latent}

Families with such a kernel have no latent_efficiency. On Ampere no such kernel was measured.

## Kernels of dense parts

Qwen3-30B-A3B on an RTX PRO 6000, fitted: compute_efficiency {dense_compute} (projections from 256
tokens on, head) and kernel_overhead_us {kernel} (norms of up to 16 tokens). Attention has the values of its
family above, which know nothing of this model's measurements.

| operation | calls | error | mean |
|---|---|---|---|
{dense}

The profiler repeats a kernel. Weights of projections (17 and 21 MB) and activations of norms are
therefore in the 128 MB L2 cache of this card; a whole model reads them from memory. Short pieces of a
prompt on a long context are 2 to 10 times too fast, because kernels have tiles of about 256 queries.

Llama-3.1-8B on an RTX 4090, with the values that stand for Ada. They were fitted to other cards, so these
errors are of predictions:

| operation | calls | error | mean |
|---|---|---|---|
{ada}

Products of this card reach 163 to 166 of the 165.2 TFLOPS of its data sheet from 512 tokens on, so that the
simulated time is half too long. The family has no compute_efficiency of its own: GeForce cards multiply at
half the rate of other Ada cards when sums have 32 bits, and no product of the others was measured.

FP8 products on an H800 (DeepGEMM's README), with the H100's efficiencies for experts and a
kernel_overhead_us of {h800_kernel} fitted to them: {h800}.

Overheads of kernels and launches, measured by others:

{launches}

## Copies over PCIe

| generation | what large copies reach of 16 lanes | packets of 128 B, of 256 B |
|---|---|---|
{links}

Packets (`pcie.packet_bytes`) of 128 B are nearest to measured PCIe 3 and 4; packets of 256 B would be
faster than measured.

| small copies (up to 2 MB) | measured | beyond the rate of large ones | time, with the others' median |
|---|---|---|---|
{copies}

`pcie.copy_overhead_us`: {copy:.1f}, the median; three cards, from 2 to 21 us.
"""


class Fit(NamedTuple):
    """A line of the file of fits."""

    family: str
    key: str
    value: float
    measurements: str
    worst_error: str


def spread(errors: Iterable[float]) -> str:
    """From the least to the most."""
    each = list(errors)
    return f"{min(each):+.0%} to {max(each):+.0%}"


def worst(errors: Iterable[float]) -> str:
    """The one farthest from 0."""
    return f"{max(errors, key=abs):+.3f}"


fused = functools.cache(lambda: fused_fits(POWER, TILE))


@functools.cache
def layers() -> dict[str, tuple[float, ...]]:
    """By family, the values of `gpu_layers.KEYS` that suit measured layers."""
    return {
        family: tuple(map(rounded, measured_layers(family, gpu_layers.PROGRAM, "bfloat16").fit(POWER, TILE)))
        for family in gpu_layers.FAMILIES
    }


def measured_layers(family: str, program: str, numbers: str) -> gpu_layers.Layers:
    """The measured layers of a family's cards."""
    return gpu_layers.Layers(gpu_layers.of_family(family), program, [numbers])


def by_layers(name: str, family: str) -> str:
    """Errors of a set with the values of its family's layers, if there are any."""
    if family not in layers():
        return ""
    errors = Calls([name]).errors(layers()[family], POWER, TILE)
    return f"{spread(errors)}, mean {np.abs(errors).mean():.1%}"


#: Numbers narrower than 16 bits by family: what stands for 8 and for 4 bits.
NARROW = {
    "hopper": ("fp8_block",), "ada": ("fp8",), "blackwell": ("fp8", "nvfp4"), "b200": ("fp8", "nvfp4")
}  # fmt: skip


def layer_lines() -> tuple[list[Fit], dict[str, str]]:
    """Fits of measured layers, and the page's tables."""
    fits, values, errors, uneven, narrow, programs = [], [], [], [], [], []
    for family, of_it in layers().items():
        calls = measured_layers(family, gpu_layers.PROGRAM, "bfloat16")
        off = calls.left_out(POWER, TILE)
        source = f"AIConfigurator's layers: {' '.join(np.unique(calls.cards))}"
        fits += [
            Fit(family, key, value, source, worst(calls.errors(of_it, POWER, TILE)))
            for key, value in zip(gpu_layers.KEYS, of_it, strict=True)
        ]
        values.append(f"| {family} | {' | '.join(f'{value:g}' for value in of_it)} |")
        for card in np.unique(calls.cards):
            chosen = calls.cards == card
            cells = gpu_layers.by_range(calls.columns["load"][chosen], off[chosen])
            errors.append(f"| {gpu_layers.CARDS[card].name} | {chosen.sum()} | {cells} |")
        uneven += gpu_uneven.lines(family, of_it, POWER, TILE)
        for numbers in NARROW[family]:
            share = gpu_layers.narrow_efficiency(family, numbers, of_it, POWER, TILE)
            calls = measured_layers(family, gpu_layers.PROGRAM, numbers)
            off = calls.errors((share, *of_it[1:]), POWER, TILE)
            cells = gpu_layers.by_range(calls.columns["load"], off)
            narrow.append(f"| {family} | {numbers} | {len(off)} | {share:g} | {cells} |")
            key = "fp4_efficiency" if numbers == "nvfp4" else "fp8_efficiency"
            fits.append(Fit(family, key, share, f"{source}, {numbers}", worst(off)))
    for card, program in (("h100_sxm", "sglang"), ("b200_sxm", "trtllm"), ("a100_sxm", "sglang")):
        about, calls = gpu_layers.CARDS[card], gpu_layers.Layers([card], program, ["bfloat16"])
        off = calls.errors(layers().get(about.family) or fused().values(about.family), POWER, TILE)
        cells = gpu_layers.by_range(calls.columns["load"], off)
        programs.append(f"| {about.name} | {program} | {len(off)} | {cells} |")
    return fits, {
        "layer_calls": f"{sum(len(row) - 8 for row in rows('moe_layers')):,}",
        "layer_models": str(
            len({(row["hidden"], row["intermediate"], row["experts"]) for row in rows("moe_layers")})
        ),
        "layer_keys": " | ".join(gpu_layers.KEYS), "layer_values": "\n".join(values),
        "ranges": gpu_layers.range_names(), "range_rule": "---|" * len(gpu_layers.RANGES),
        "layer_errors": "\n".join(errors), "uneven": "\n".join(uneven),
        "narrow": "\n".join(narrow), "programs": "\n".join(programs),
        "layer_powers": ", ".join(
            f"{'the longer' if power is None else f'p = {power:g}'} {error:.1%}"
            for power, error in gpu_layers.by_power(TILE).items()
        ),
    }  # fmt: skip


def fused_lines() -> tuple[list[Fit], dict[str, str]]:
    """Fits of fused calls, and the page's tables."""
    found, about = fused(), {one["set"]: one for one in rows("fused_sets")}
    of_family = families()
    fits = [
        Fit(ANY, "roofline_power", POWER, "all fused calls", ""),
        Fit(ANY, "tile_tokens", TILE, "all fused calls", ""),
    ]
    for family, names in [(ANY, list(about)), *of_family.items()]:
        errors = np.concatenate([found.errors(name, family) for name in names])
        sets = "all fused calls" if family == ANY else " ".join(names)
        kept = FUSED if family not in layers() else ("memory_efficiency",)
        fits += [
            Fit(family, key, value, sets, worst(errors))
            for key, value in zip(FUSED, found.values(family), strict=True)
            if key in kept
        ]
    powers = []
    for power in POWERS:
        cells = " | ".join(f"{mean_error(power, tile):.3f}" for tile in TILES)
        powers.append(f"| {'the longer' if power is None else f'{power:g}'} | {cells} |")
    lines = []
    for family, names in of_family.items():
        for name in names:
            one, (source, others) = about[name], found.left_out[name]
            size = (
                int(one["matrices"])
                * int(one["intermediate"])
                * int(one["hidden"])
                * int(one["weight_bytes"])
                / 1e6
            )
            error = found.errors(name, family)
            lines.append(
                f"| {name} | {one['device']} | {size:.3g} MB | {len(error)} | {spread(error)}, "
                f"mean {np.abs(error).mean():.1%} | {spread(others)}, mean "
                f"{np.abs(others).mean():.1%} | {source} | {by_layers(name, family)} |"
            )
    left_out = [float(np.abs(errors).mean()) for _, errors in found.left_out.values()]
    return fits, {
        "sets": str(len(about)),
        "cards": str(len({one["device"] for one in about.values()})),
        "tiles": " | ".join("no tiles" if tile == 1 else f"tiles of {tile}" for tile in TILES),
        "rule": "---|" * len(TILES),
        "powers": "\n".join(powers),
        "keys": " | ".join(FUSED),
        "families": "\n".join(
            f"| {family} | {' | '.join(f'{value:g}' for value in found.values(family))} |"
            for family in (ANY, *of_family)
        ),
        "fused": "\n".join(lines),
        "own_mean": f"{mean_error(POWER, TILE):.1%}",
        "out_mean": f"{statistics.mean(left_out):.0%}",
        "out_median": f"{statistics.median(left_out):.0%}",
    }


def single_lines() -> tuple[list[Fit], dict[str, str]]:
    """Fits of experts launched by themselves, and the page's table."""
    fits, lines = [], []
    of_family = {
        family: [name for name in SINGLE if SINGLE[name][0] == family] for family in ("hopper", "ampere")
    }
    for family, names in [(ANY, list(SINGLE)), *of_family.items()]:
        values = tuple(map(rounded, single_fit(names, fused())))
        errors = {name: one_by_one_errors(name, values) for name in names}
        keys = zip(("compute_efficiency", "expert_overhead_us"), values, strict=True)
        off = worst(np.concatenate(list(errors.values())))
        fits += [Fit(family, key, value, " ".join(names), off) for key, value in keys]
        for name in names if family != ANY else ():
            others = single_fit((one for one in SINGLE if one != name), fused())
            lines.append(
                f"| {name} | {values[0]:g} | {values[1]:g} us | {spread(errors[name])}, mean "
                f"{np.abs(errors[name]).mean():.1%} | {spread(one_by_one_errors(name, others))} |"
            )
    return fits, {"single": "\n".join(lines), "one_by_one": one_by_one(fits), "lone": f"{LONE_US}"}


def one_by_one_errors(name: str, values: tuple[float, ...]) -> Floats:
    """Of a set with these values and its family's memory."""
    return single_errors(name, values[0], values[1], fused().values(SINGLE[name][0])[1], fused())


def one_by_one(fits: list[Fit]) -> str:
    """How much longer 128 small experts take by themselves than in one call."""
    name = "rtx-pro-6000-qwen3-30b"
    calls, (_, memory, *_) = Calls([name]), fused().values("blackwell")
    point = [
        (one["tokens"], one["active_experts"]) for one in rows("fused_calls") if one["set"] == name
    ].index(("64", "128"))
    given = {fit.key: fit.value for fit in fits if fit.family == ANY}
    part = slice(calls.starts[point], calls.starts[point + 1])
    tokens = -(-calls.loads[part] // TILE) * TILE
    compute_us = tokens * calls.compute_us[part] / given["compute_efficiency"]
    bare_us = float(calls.counts[part] @ together(compute_us, calls.memory_us[part] / memory, POWER))
    ratios = " and ".join(
        f"{(bare_us + 128 * overhead) / calls.us[point]:.1f} (with {overhead:g} us each)"
        for overhead in (LONE_US, given["expert_overhead_us"])
    )
    return (
        f"128 experts of Qwen3-30B-A3B with 64 tokens on an RTX PRO 6000, one by one, take\n{ratios} times "
        "as long as the\nmeasured fused call. `gpu.expert_calls` chooses between the two."
    )


@functools.cache
def attention() -> dict[str, tuple[float, ...]]:
    """By family, the values of `gpu_attention.KEYS` that suit measured attention; of any, their medians."""
    found = {
        family: tuple(map(rounded, measured_attention(family).fit()))
        for family in gpu_attention.SOFTMAX
        if gpu_layers.of_family(family)
    }
    return {ANY: tuple(rounded(float(np.median(each))) for each in zip(*found.values(), strict=True))} | found


def measured_attention(family: str, latent: bool = False) -> gpu_attention.Attention:
    """The measured attention of a family's cards."""
    return gpu_attention.Attention(family, fused().values(family)[1], latent)


def attention_lines() -> tuple[list[Fit], dict[str, str]]:
    """Fits of attention, and the page's tables."""
    measured = [gpu_attention.SOFTMAX[family] for family in attention() if family != ANY]
    softmax = {ANY: float(statistics.median(measured)), **gpu_attention.SOFTMAX}
    fits = [Fit(ANY, "attention_power", gpu_attention.POWER, "all attention", "")]
    fits += [Fit(family, "softmax_operations", of, "ratio of units", "") for family, of in softmax.items()]
    values, errors, latent = [], [], []
    lengths, calls_in_all = gpu_attention.PREFILL, 0
    for family, of_it in attention().items():
        kept = zip(gpu_attention.KEYS, of_it, strict=True)
        cells = " | ".join(f"{value:g}" for value in (*of_it, softmax[family]))
        values.append(f"| {family} | {cells} |")
        if family == ANY:
            fits += [Fit(ANY, key, value, "the medians of families", "") for key, value in kept]
            continue
        calls = measured_attention(family)
        off, prefill, tokens = calls.left_out(), calls.columns["prefill"] > 0, calls.columns["tokens"]
        source, of_all = f"attention: {' '.join(np.unique(calls.cards))}", worst(calls.errors(of_it))
        fits += [Fit(family, key, value, source, of_all) for key, value in kept]
        calls_in_all += len(off)
        for card in np.unique(calls.cards):
            of_card = calls.cards == card
            both = [
                gpu_attention.cells(tokens[of_card & of], off[of_card & of], at)
                for of, at in ((prefill, lengths), (~prefill, gpu_attention.DECODE))
            ]
            errors.append(f"| {gpu_layers.CARDS[card].name} | {of_card.sum()} | {' | '.join(both)} |")
        if family in gpu_attention.LATENT:
            share = gpu_attention.latent_efficiency(family, of_it, fused().values(family)[1])
            calls = measured_attention(family, latent=True)
            after, before = (calls.errors((one, *of_it[1:])) for one in (share, of_it[0]))
            fits.append(Fit(family, "latent_efficiency", share, f"{source}, latent vectors", worst(after)))
            by_tokens = gpu_attention.cells(calls.columns["tokens"], after, gpu_attention.DECODE)
            median = np.median(np.abs(before))
            latent.append(f"| {family} | {share:g} | {len(after)} | {by_tokens} | {median:.0%} |")
    return fits, {
        "attention_calls": f"{calls_in_all:,}",
        "attention_shapes": str(len({tuple(row[key] for key in ("heads", "key_heads", "head_size"))
                                     for row in rows("attention") if row["step"] != "latent"})),
        "attention_keys": " | ".join(gpu_attention.KEYS), "attention_values": "\n".join(values),
        "prefills": " | ".join(f"{length:,}" for length in lengths),
        "decodes": " | ".join(f"{length:,}" for length in gpu_attention.DECODE),
        "attention_rule": "---|" * (len(lengths) + len(gpu_attention.DECODE)),
        "attention_errors": "\n".join(errors),
        "latent_rule": "\n|---|---|---|" + "---|" * (len(gpu_attention.DECODE) + 1),
        "latent": "\n".join(latent),
    }  # fmt: skip


def kernel_lines(hopper_compute: float, any_compute: float) -> tuple[list[Fit], dict[str, str]]:
    """Fits of the kernels of dense parts, and the page's figures."""
    norms = [
        float(one["time_us"])
        for one in rows("dense_rtxpro6000")
        if one["operation"] == "layernorm" and int(one["tokens"]) <= 16
    ]
    kernel = rounded(statistics.mean(norms))

    def dense_part(compute: float) -> list[float]:
        card = RTX_PRO_6000.gpu(fused(), compute, kernel)
        return [off for key, off in RTX_PRO_6000.dense_errors(card).items() if in_compute(key)]

    def table(card: Card, compute: float, kernel_us: float) -> str:
        family = card.family
        softmax = gpu_attention.SOFTMAX[family]
        return dense_table(card, card.gpu(fused(), compute, kernel_us, attention()[family], softmax))

    compute = rounded(best(dense_part, 0.2, 1.0))

    def h800(value: float) -> list[float]:
        memory = fused().values("hopper")[1]
        return list(h800_errors(hopper_compute, memory, value, POWER).values())

    h800_kernel, back_to_back = rounded(best(h800, 0.1, 20.0)), float(rows("launches")[0]["us"])
    common = rounded(statistics.median((kernel, h800_kernel, back_to_back)))
    fits = [
        Fit("blackwell", "compute_efficiency", compute, PRODUCTS, worst(dense_part(compute))),
        Fit("blackwell", "kernel_overhead_us", kernel, NORMS, worst(kernel / one - 1 for one in norms)),
        Fit("hopper", "kernel_overhead_us", h800_kernel, "H800, DeepGEMM", worst(h800(h800_kernel))),
        Fit("ampere", "kernel_overhead_us", back_to_back, "RTX 3060 and 3060 Ti, kernels back to back", ""),
        Fit(ANY, "kernel_overhead_us", common, "the median of three families", worst(
            common / one - 1 for one in (kernel, h800_kernel, back_to_back))),
    ]  # fmt: skip
    launches = "\n".join(
        f"- {one['device']}, {one['what']}: {float(one['us']):g} us" for one in rows("launches")
    )
    return fits, {
        "dense_compute": f"{compute:g}", "kernel": f"{kernel:g}", "h800_kernel": f"{h800_kernel:g}",
        "h800": f"{spread(h800(h800_kernel))}, mean {np.abs(h800(h800_kernel)).mean():.1%}",
        "launches": launches, "dense": table(RTX_PRO_6000, compute, kernel),
        "ada": table(RTX_4090, any_compute, common),
    }  # fmt: skip


def dense_table(card: Card, gpu: Gpu) -> str:
    """Errors of a card's kernels by operation."""
    groups: dict[str, list[float]] = {}
    for (operation, tokens), off in card.dense_errors(gpu).items():
        part = (
            "" if operation == "lm_head" else (", up to 128 tokens" if tokens <= 128 else ", from 256 tokens")
        )
        groups.setdefault(operation + part, []).append(off)
    for (_, new, context), off in card.attention_errors(gpu).items():
        if new == 1:
            name = f"decode, context {'up to 256' if context <= 256 else 'from 1024'}"
        else:
            name = f"prefill, {'16 to 256' if new <= 256 else 'from 512'} new tokens"
        groups.setdefault(name, []).append(off)
    return "\n".join(
        f"| {name} | {len(each)} | {spread(each)} | {np.abs(each).mean():.0%} |"
        for name, each in groups.items()
    )


def copy_lines() -> dict[str, str]:
    """The tables of copies."""
    copies = []
    for name, each in copy_overheads().items():
        others = copy_overhead_us(name)
        off = spread((total - beyond + others) / total - 1 for beyond, total in each)
        beyond_us, total_us = (", ".join(f"{us:.1f}" for us in of_it) for of_it in zip(*each, strict=True))
        copies.append(f"| {name} | {total_us} us | {beyond_us} us | {off} |")
    packets = ", ".join(f"{size / (size + HEADER_BYTES):.3f}" for size in (128, 256))
    links = [
        f"| {generation} | {min(of_it):.2f} to {max(of_it):.2f}, mean {np.mean(of_it):.2f} | {packets} |"
        for generation, of_it in sorted(link_shares().items())
    ]
    return {"links": "\n".join(links), "copies": "\n".join(copies)}


@functools.cache
def page() -> tuple[list[Fit], str]:
    """The lines of the file of fits, and the page."""
    layer_fits, of_layers = layer_lines()
    fits, tables = fused_lines()
    single_fits, single = single_lines()
    compute = {fit.family: fit.value for fit in single_fits if fit.key == "compute_efficiency"}
    kernel_fits, kernels = kernel_lines(compute["hopper"], compute[ANY])
    attention_fits, of_attention = attention_lines()
    values = {**of_layers, **tables, **single, **kernels, **of_attention, **copy_lines()}
    return (
        sorted(
            [*fits, *layer_fits, *single_fits, *kernel_fits, *attention_fits],
            key=lambda fit: (fit.family != ANY, fit.family),
        ),
        TEXT.format(power=POWER, tile=TILE, copy=copy_overhead_us(), **values),
    )


def text() -> str:
    """The text of gpu.md."""
    return page()[1]


def fits_text() -> str:
    """The text of the file of fits."""
    lines = io.StringIO()
    lines.write("# Written by validation/gpu.py; gpu.md beside it says what the values were fitted to.\n")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(Fit._fields)
    writer.writerows((*fit[:2], f"{fit.value:g}", *fit[3:]) for fit in page()[0])
    return lines.getvalue()


if __name__ == "__main__":
    Path(__file__).with_name("gpu.md").write_text(text(), encoding="utf-8")
    (FOLDER / "gpu.csv").write_text(fits_text(), encoding="utf-8")
