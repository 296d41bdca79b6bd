"""A small machine with simple numbers, on which `check_policy` runs a policy without a simulation."""

import numpy as np

from ndpsim.policies.views import Estimates, Machine
from ndpsim.workload.models import MoeShape

BATCH, PROMPT = 64, 4  # sequences, and prompt tokens of each

MODEL = MoeShape(
    name="check",
    family="unknown",
    source="check_policy",
    hidden=2048,
    expert_intermediate=1024,
    layers=5,
    moe_layers=4,
    dense_layers=(0,),
    dense_intermediate=8192,
    routed_experts=32,
    experts_per_token=4,
    shared_experts=1,
    shared_intermediate=1024,
    hidden_act="silu",
)

MACHINE = Machine(
    MODEL,
    layers=(1, 2, 3, 4),
    expert_bytes=MODEL.expert.weight_bytes(),
    dimms=4,
    channel=(0, 0, 1, 1),
    gpu_experts=12,
    expert_buffers=2,
)

_TOKENS = np.arange(BATCH * PROMPT + 1.0)
_SOME = _TOKENS > 0

#: Times of the magnitude of a server's; the fastest engine depends on the tokens.
ESTIMATES = Estimates(
    gpu_ns=np.where(_SOME, 5_000 + 20 * _TOKENS, 0.0),
    cpu_ns=np.where(_SOME, 20_000 + 600 * _TOKENS, 0.0),
    ndp_ns=np.where(_SOME, np.maximum(90_000, 50_000 * _TOKENS), 0.0),
    ndp_error=0.01,
    pcie_ns=200_000.0,
    striped_read_ns=42_000.0,
    localized_read_ns=330_000.0,
    to_striped_ns=170_000.0,
    to_localized_ns=170_000.0,
    rebalance_ns=500_000.0,
    window_ns=450_000.0,
    shared_ns=6_000.0,
    token_ns=70.0,
    vector_ns=600.0,
    sharded_ns=lambda dimms: np.where(_SOME, np.maximum(90_000, 50_000 * _TOKENS) / dimms, 0.0),
    gpu_part_ns=2_000.0,
    pcie_part_ns=500.0,
    ndp_part_ns=lambda dimms: 1_000.0,
    sharded_read_ns=lambda dimms: 42_000.0 * max(1, 2 / dimms),
    lost_ns=lambda dimms, read_ns, other_ns: np.full(len(_TOKENS), 0.2 * read_ns),
    read_delay_ns=lambda dimms: 300.0 * _TOKENS,
)
