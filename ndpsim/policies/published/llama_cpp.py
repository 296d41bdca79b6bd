"""llama.cpp: whole layers of experts on the CPU or the GPU, one part after the other.

ggml-org/llama.cpp, commit 0054c01: common/arg.cpp (--n-cpu-moe), ggml/src/ggml-backend.cpp (splits, op
offload); as a baseline: DALI, sections 2.2 and 6.1. No popularity, no prefetch, no cache. Its slower CPU
kernels are not modelled: the CPU computes at the machine's rate.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ndpsim.base.errors import InputError
from ndpsim.policies.interface import Assignment, PolicyParameters
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.views import LayerView, Machine, OfflineView, Placement


class LlamaCppParameters(PolicyParameters):
    """Parameters of llama.cpp."""

    n_cpu_moe: int | None = Field(None, ge=0)
    """number of the model's first layers whose experts are in the host's memory (--n-cpu-moe, [code]
    common/arg.cpp); none: as few layers as the GPU's memory and gpu_share make necessary"""

    gpu_share: float = Field(1.0, ge=0, le=1)
    """share of layers with their experts in the GPU's memory, if n_cpu_moe is not given; 1: as many as fit,
    so that all policies use the same memory; DALI, section 6.1, has what its cache takes"""

    offload: bool = True
    """op offload: the GPU computes layers of the host's memory, too, where the batch is large ([code]
    ggml-backend.cpp; off: --no-op-offload)"""

    offload_tokens: int = Field(32, ge=1)
    """minimum tokens of such a batch ([code] GGML_OP_OFFLOAD_MIN_BATCH; ik_llama.cpp: 32 x experts / experts
    of a token)"""


class LlamaCpp(Offloading[LlamaCppParameters]):
    """llama.cpp: whole layers on GPU or CPU, large batches copied to the GPU, nothing overlaps.

    The last layers on the GPU, the first ones on the CPU; large batches of these are copied.
    """

    name = "llama-cpp"
    paper = "ggml-org/llama.cpp; DALI, section 6.1"
    mixed_steps = "All rules, by all tokens of the step."

    @classmethod
    def check(cls, machine: Machine, parameters: LlamaCppParameters) -> None:
        """Refuse more layers on the GPU than have room."""
        experts, on_gpu = machine.shape[1], cls._on_gpu(machine, parameters)
        fit = machine.gpu_experts // experts
        if on_gpu > fit:
            problem = f"leaves the GPU {on_gpu} layers of {experts} experts; it has room for {fit}"
            raise InputError(problem, "too-large", key=f"policy {cls.name}:n_cpu_moe")

    @staticmethod
    def _on_gpu(machine: Machine, wanted: LlamaCppParameters) -> int:
        """The number of layers on the GPU."""
        layers, experts = machine.shape
        if wanted.n_cpu_moe is None:
            return min(machine.gpu_experts // experts, round(wanted.gpu_share * layers))
        return sum(layer >= wanted.n_cpu_moe for layer in machine.layers)

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped; the experts of the last layers are also in the GPU's memory."""
        layers, experts = self.machine.shape
        on_gpu = self._on_gpu(self.machine, self.parameters)
        resident = np.zeros((layers, experts), np.bool_)
        resident[layers - on_gpu :] = True
        return self.residents(resident)

    def assign(self, view: LayerView) -> Assignment:
        """All experts of a layer on one engine; only those with tokens are copied (PR #15346)."""
        experts = np.flatnonzero(view.loads).tolist()
        large = self.parameters.offload and view.tokens >= self.parameters.offload_tokens
        if view.placement.resident[experts].all() or (large and self.machine.expert_buffers):
            gpu, cpu = experts, []
        else:
            gpu, cpu = [], experts
        return Assignment(gpu, cpu, sequential=True, estimated_ns=sum(self.times_ns(view, gpu, cpu)))


POLICY = LlamaCpp
