"""``ndpsim attention``: simulate the attention of a layer on units in banks."""

from __future__ import annotations

from ndpsim.base.options import table
from ndpsim.base.options.pim import ATTENTION
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import COMMANDS, JSON


@taking(
    ATTENTION,
    table({"Results": (JSON, COMMANDS)}),
    examples=(
        "ndpsim attention --hw attacc --model qwen3-235b-a22b --context 4096 --batch 8 --engine bankgroup",
        "ndpsim attention --hw aim --model qwen3-235b-a22b --context 1000 --json -",
    ),
)
def command(options: Options) -> None:
    """Simulate scores and context of one step of a layer on one device with units in its banks.

    All sequences have the same context; keys and values are in place. Softmax is a command of AttAcc, and
    outside of AiM. docs/banks.md has the layouts.
    """
    from ndpsim.cli.pim import finish
    from ndpsim.config.banks import load_bank_hardware
    from ndpsim.simulate.bank_operands import simulate_bank_attention

    sets = [*options.get("set", ()), *([f"level={options['engine']}"] if "engine" in options else [])]
    hardware = load_bank_hardware(ATTENTION.value(options, "hw"), sets, ATTENTION.value(options, "rules"))
    model, context, batch = (ATTENTION.value(options, name) for name in ("model", "context", "batch"))
    result = simulate_bank_attention(hardware, model, context, batch, record_commands="commands" in options)
    finish(options, hardware, result)
