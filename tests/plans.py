"""Plans of slowdown tables for tests."""

from __future__ import annotations

from ndpsim.inference.layers.shared_dimm import Plan

#: Rates of experts beside the host are measured in a fraction of the time.
SHORT = Plan(
    tokens=(1, 8),
    relayout_tokens=(1, 8),
    shares_of_several=(0.5,),
    crowded=(3,),
    window_ns=(2_000.0, 16_000.0),
    relayout_window_ns=(2_000.0, 6_000.0),
    vector_tokens=(1, 4),
    vector_experts=3,
)
