"""``ndpsim rtl``: write a unit as Verilog, and count its gates, memory bits and area."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ndpsim.base.options import Flag, Kind, Output, Parameter, Whole, table
from ndpsim.base.options.gemv import MAX_TOKENS
from ndpsim.base.options.hardware import DEFAULT_MODEL, SET, WEIGHTS, YAML, model_of
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, progress_of

if TYPE_CHECKING:
    from ndpsim.studies.rtl import Synthesis

_RTL = table(
    {
        "What is built": (
            Parameter(
                "unit",
                "The unit: a file of rtl_params that has hardware, or aim_bank.",
                Kind(form="UNIT"),
                positional=True,
                required=True,
            ),
            Parameter("params", "Another file of the form of rtl_params.", Kind(form="FILE"), files=YAML),
            SET,
            model_of(DEFAULT_MODEL, help="The model whose experts it multiplies, for rows at once."),
            WEIGHTS[0],
            Parameter("tokens", "Tokens of an expert at once.", Whole(1, MAX_TOKENS), 1),
        ),
        "Results": (
            Parameter("output", "Write Verilog into this file.", Output(), short="o"),
            Parameter(
                "synth", "Map the unit to gates, and print cells, memory bits, depth, area and clock.", Flag()
            ),
            replace(JSON, needs="synth"),
        ),
    }
)


@taking(
    _RTL,
    examples=(
        "ndpsim rtl trimoe_gemv -o unit.v",
        "ndpsim rtl trimoe_gemv --synth --set ndp.gemv.fifo_bursts=16",
    ),
)
def command(options: Options) -> None:
    """Write a unit as Verilog, and count its gates, memory bits and area.

    The unit is hardware in validation/rtl, with the sizes of a file of rtl_params. It equals the model of the
    unit clock by clock (docs/rtl.md). Needs the extra rtl: pip install 'ndpsim[rtl]'.
    """
    from ndpsim.studies.rtl import build_unit, synthesise, verilog

    if "output" not in options and "synth" not in options:
        raise click.UsageError("give -o FILE, --synth, or both")
    chosen = _RTL.arguments(options, "params", "set", "model", "bits", "tokens")
    unit = build_unit(options["unit"], **chosen)
    if "output" in options:
        from ndpsim.base.files import replacing

        with replacing(options["output"]) as file:
            file.write(verilog(unit).encode())
    if "synth" in options:
        with progress_of("synthesising") as progress:
            progress(0.0)
            found = synthesise(unit)
        answer(options, found.to_dict, lambda: _print(found))


def _print(found: Synthesis) -> None:
    from ndpsim.report.printing import print_table

    sizes = ", ".join(f"{name} {value}" for name, value in found.sizes.items())
    rows = [(kind, f"{number:,}") for kind, number in found.cells.items()]
    rows += [
        ("transistors", f"{found.transistors:,}"),
        ("gate equivalents (NAND2)", f"{found.gate_equivalents:,.0f}"),
        (f"depth, in {found.deepest}", f"{found.depth} levels of NAND2"),
    ]
    print_table(f"{found.unit}: {sizes}", ("cells", "number"), rows, left=1)
    bits = [(name, f"{number:,}") for name, number in (*found.memories.items(), ("all", found.memory_bits))]
    print_table("Memories", ("module and memory", "bits"), bits, left=1)
    processes = [
        (
            each.process,
            f"{each.least_mm2:.3g} to {each.most_mm2:.3g}",
            "-" if each.memory_mm2 is None else f"{each.memory_mm2:.3g}",
            " to ".join(dict.fromkeys((f"{each.least_mhz:.3g}", f"{each.most_mhz:.3g}"))),
        )
        for each in found.processes
    ]
    if found.paper_mm2 is not None:
        processes.append(("paper, all units of a DIMM", f"{found.paper_mm2:g}", "", ""))
    if found.clock_mhz is not None:
        processes.append(("its model", "", "", f"{found.clock_mhz:g}"))
    heads = ("process", "logic mm2", "memory mm2, one port", "MHz, without wires")
    print_table("Area and clock (sources: validation/rtl/processes.yaml)", heads, processes, left=1)
