"""Fits the gates of the GEMV unit to its sizes: writes `gemv_sizes.json`, for `ndpsim.studies.rtl`.

Run in the checkout, with the extra `rtl`: ``python validation/rtl/fit.py``. It synthesises the modules of
some units, which takes a while; those that the file has are not synthesised again. Each module is a sum of
its terms (`gemv_sizes.terms`), whose factors are at least 0 and make the relative errors least. The error is
that of whole units: each unit is left out once, and predicted by the others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.simulate.rtl.build import load_module, write_rtlil
from ndpsim.studies.rtl import gate_equivalents, map_module

FILE = Path(__file__).with_name("gemv_sizes.json")
GEMV: Any = load_module(Path(__file__).with_name("gemv.py"))
SIZES: Any = load_module(Path(__file__).with_name("gemv_sizes.py"))

PAPER = SIZES.Parameters(256, 8, 16, 16, 11, 32, 8)
VALUES = {
    "burst_bits": (64, 128),  # small, since gates are sums of terms; the paper's unit tells whether they are
    "values_per_multiplier": (4, 8),
    "lanes": (1, 2, 4, 8, 16),
    "bits": (4, 8, 16),
    "bit_serial_cycles": (2, 4, 8, 16),
    "fifo_bursts": (4, 8, 16, 32, 64),
    "adder_tree_cycles": (2, 5, 8, 11),
    "tokens": (1, 4, 16),
    "window": (4, 16, 64),
}
OF_A_LANE = (1, 2, 4, 8)  # multipliers
DRAWN = 20  # some of them are used, beside the paper's


def drawn() -> list[Any]:
    """Units within the ranges, that of the paper first."""
    random = np.random.default_rng(65)
    units = [PAPER]
    for _ in range(DRAWN):
        chosen = {name: int(random.choice(values)) for name, values in VALUES.items()}
        multipliers = chosen["lanes"] * int(random.choice(OF_A_LANE))
        unit = replace(PAPER, multipliers=multipliers, **chosen)
        if unit.step_bits <= 4 and unit.chunk * unit.step_bits <= 32:  # larger products take long to map
            units.append(unit)
    return units


def synthesised(units: list[Any]) -> list[dict[str, Any]]:
    """Sizes of the units, and gate equivalents of their modules; the file has them after each."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"units": []}
    found = {json.dumps(unit["sizes"]): unit for unit in known["units"]}
    for unit in units:
        key = json.dumps(asdict(unit))
        if key not in found:
            texts = write_rtlil(GEMV.modules(unit))
            gates = {
                name: gate_equivalents(map_module(name, texts[f"{name}.il"])[0])
                for name in SIZES.counts(unit)
            }
            found[key] = {"sizes": asdict(unit), "gates": gates}
            print(key, gates, flush=True)
            FILE.write_text(json.dumps({**known, "units": list(found.values())}), encoding="utf-8")
    return [found[json.dumps(asdict(unit))] for unit in units]


def factors(units: list[dict[str, Any]], module: str) -> dict[str, float]:
    """The factors of a module's terms, of at least 0."""
    terms = [SIZES.terms(SIZES.Parameters(**unit["sizes"]))[module] for unit in units]
    gates = np.array([unit["gates"][module] for unit in units])
    names = list(terms[0])
    while True:
        matrix = np.array([[each[name] for name in names] for each in terms]) / gates[:, None]
        solution = np.linalg.lstsq(matrix, np.ones(len(gates)))[0]
        if solution.min() >= 0:
            return {name: float(f"{factor:.4g}") for name, factor in zip(names, solution, strict=True)}
        del names[int(solution.argmin())]


def fitted(units: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The factors of all modules."""
    return {module: factors(units, module) for module in units[0]["gates"]}


def errors(units: list[dict[str, Any]]) -> Any:
    """The relative error of each unit, if the others predict it."""
    relative = []
    for number, unit in enumerate(units):
        sizes = SIZES.Parameters(**unit["sizes"])
        predicted = SIZES.gates(sizes, fitted(units[:number] + units[number + 1 :]))
        true = sum(count * unit["gates"][module] for module, count in SIZES.counts(sizes).items())
        relative.append(predicted / true - 1)
    return np.array(relative)


def main() -> None:
    """Synthesise, fit and write."""
    units = synthesised(drawn())
    error = abs(errors(units))
    found = {"factors": fitted(units), "mean_error": error.mean(), "most_error": error.max()}
    FILE.write_text(json.dumps({**found, "paper_error": error[0], "units": units}, indent=1) + "\n")
    print(f"{len(units)} units, each predicted by the others: mean error {error.mean():.1%},")
    print(f"at most {error.max():.1%}; the first, that of the paper: {error[0]:.1%}")


if __name__ == "__main__":
    main()
