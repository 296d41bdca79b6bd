"""How many experts of each layer the GPU's memory holds, where layers share it evenly."""

from __future__ import annotations

from ndpsim.policies.interface import Machine


def cache_slots(machine: Machine, share: float, reserved: int = 0) -> list[int]:
    """Experts of each layer: a share of its experts, or what there is room for.

    What does not go round goes to the first layers.

    Args:
        share: of a layer's experts, at most.
        reserved: experts for which room stays free.
    """
    layers, experts = len(machine.layers), machine.model.routed_experts
    most = round(share * experts)
    each, left = divmod(max(machine.gpu_experts - reserved, 0), layers)
    return [min(most, each + (row < left)) for row in range(layers)]
