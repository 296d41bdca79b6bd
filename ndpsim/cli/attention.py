"""``ndpsim attention``: simulate the attention of a layer on units in banks."""

from __future__ import annotations

from ndpsim.base.errors import InputError
from ndpsim.base.options import Flag, Parameter, Whole, refuse, table
from ndpsim.base.options.gemv import MAX_TOKENS
from ndpsim.base.options.pim import ATTENTION, MOST_CONTEXT, PIM
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import answer, plot_of
from ndpsim.cli.pim import BANK_OUTPUTS, finish, records

_OPERANDS = ("model", "context", "batch")
_NAMES = {"append-tokens": "append_tokens", "expert-tokens": "expert_tokens"}
_ADDED = table(
    {
        "What is simulated": (
            Parameter("append", "Simulate the writes of each sequence's new token instead.", Flag()),
            Parameter(
                "append-tokens",
                "New tokens that --append writes; as many as the context has: those of a prompt.",
                Whole(1, MOST_CONTEXT),
                1,
                needs="append",
            ),
            Parameter(
                "expert-tokens",
                "Tokens of an expert afterwards, whose weights lie behind the cache in the same banks.",
                Whole(0, MAX_TOKENS),
                0,
            ),
        )
    }
)


@taking(
    ATTENTION,
    table({"What is simulated": (PIM["set"],)}),
    _ADDED,
    BANK_OUTPUTS,
    examples=(
        "ndpsim attention --hw attacc --model qwen3-235b-a22b --context 4096 --batch 8 --engine bankgroup",
        "ndpsim attention --hw aim --model qwen3-235b-a22b --context 1000 --json -",
    ),
)
def command(options: Options) -> None:
    """Simulate scores and context of one step of a layer on units in banks.

    On a device, one program of all sequences runs. On a machine (--hw dgx-attacc) the sequences are dealt
    over its devices, and transfers are included; --engine gpu is the roofline of its GPU.

    All sequences have the same context; keys and values are in place, and --append simulates the writes of
    the newest. Softmax is a command of AttAcc, and outside of AiM. docs/banks.md has the layouts.
    """
    from ndpsim.config.banks import is_bank_hardware, load_bank_hardware
    from ndpsim.simulate.bank_operands import simulate_bank_attention

    plot = plot_of(options, "banks")
    if not is_bank_hardware(ATTENTION.value(options, "hw")):
        _on_machine(options)
        return
    if options.get("engine") == "gpu":
        problem = "gpu needs a machine with a GPU (ndpsim list hw); this is a device with units in its banks"
        raise InputError(problem, "unsupported", key="engine")
    sets = [*options.get("set", ()), *([f"level={options['engine']}"] if "engine" in options else [])]
    hardware = load_bank_hardware(ATTENTION.value(options, "hw"), sets, ATTENTION.value(options, "rules"))
    model, context, batch = (ATTENTION.value(options, name) for name in _OPERANDS)
    _ADDED.check_needs(options, "--")
    more = {key: _ADDED.value(options, name) for name, key in _NAMES.items()}
    result = simulate_bank_attention(
        hardware, model, context, batch, record_commands=records(options), append="append" in options, **more
    )
    finish(options, hardware, result, plot)


def _on_machine(options: Options) -> None:
    """The attention on the devices of a machine, or on its GPU."""
    from ndpsim.inference.processors.layer_attention import simulate_layer_attention
    from ndpsim.report.pim import print_attention

    refuse(
        options,
        "applies only to one device; a machine has several",
        *(name for name in BANK_OUTPUTS if name != "json"),
    )
    refuse(options, "applies only to a device; a machine uses the rules of the standard", "rules")
    refuse(options, "applies only to a device; a machine writes new tokens in any case", "append", *_NAMES)
    hw, model, context, batch = (ATTENTION.value(options, name) for name in ("hw", *_OPERANDS))
    engine, sets = options.get("engine"), options.get("set", ())
    result = simulate_layer_attention(hw, model, context, batch, engine, sets)
    answer(options, result.to_dict, lambda: print_attention(result))
