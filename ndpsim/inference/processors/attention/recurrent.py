"""A layer with a state in place of keys and values.

The convolution makes 2 operations for each token, channel and tap. The rule reads and writes the state once
(`delta_rule`, `state_space`).
"""

from __future__ import annotations

from fractions import Fraction

from ndpsim.inference.processors.attention import delta_rule, state_space
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, Operation, product
from ndpsim.workload.models import LinearAttention
from ndpsim.workload.models.recurrent import Lightning, SelectiveScan, ShortConvolution, StateSpace


def operations(
    attention: LinearAttention, hidden: int, step: AnyStep, bits: int | Fraction
) -> list[Operation]:
    """The projections, the convolution, the rule of the state, and the gated norm of the result."""
    tokens, results = step.tokens, attention.value_heads * attention.value_size
    projections, output = attention.projections(hidden), attention.output(hidden)
    done = [product("attention", matrix.name, [matrix], tokens, bits) for matrix in projections]
    # The last tokens, if there are any, are read before the step and written after it.
    kept = -(-step.state_moves * attention.convolution_bits // 8)
    done += [
        Operation(
            "attention",
            matrix.name,
            2 * matrix.rows * matrix.columns * tokens,
            -(-matrix.rows * matrix.columns * bits // 8),
            2 * tokens * attention.channels * ACTIVATION_BYTES,
            kept,
        )
        for matrix in attention.convolved()
    ]
    if isinstance(attention, ShortConvolution):
        # Before the convolution and behind it, two vectors are read and their product is written.
        gating = Operation("attention", "gates", 0, 0, 6 * tokens * results * ACTIVATION_BYTES, kernels=2)
    else:
        done += [_rule(attention, part) for part in step.by_kernel]
        # The result and the gate are read, and the product of its norm is written.
        gating = Operation("attention", "norm_and_gate", 0, 0, 3 * tokens * results * ACTIVATION_BYTES)
    return [*done, gating, product("attention", "out_proj", [output], tokens, bits)]


def _rule(attention: LinearAttention, step: AnyStep) -> Operation:
    """The rule of the state on sequences that all have one new token, or all have more."""
    name = "state_space"
    if isinstance(attention, SelectiveScan):
        flops, between, kernels = state_space.scan(attention, step)
    elif isinstance(attention, StateSpace | Lightning):
        flops, between, kernels = state_space.rule(attention, step)
    else:
        name, (flops, between, kernels) = "delta_rule", delta_rule.rule(attention, step)
    # Queries, keys, values and results; decays and shares.
    results = attention.value_heads * attention.value_size
    vectors = step.tokens * (attention.channels + results + attention.gates) * ACTIVATION_BYTES
    state = -(-step.state_moves * attention.state_values * attention.state_bits // 8)
    return Operation("attention", name, flops, 0, vectors + between, state, kernels, attends=True)
