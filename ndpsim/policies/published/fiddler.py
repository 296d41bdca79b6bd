"""Fiddler: popular experts in the GPU's memory; for others, the cheaper of the CPU and a copy.

Kamahori et al., "Fiddler: CPU-GPU Orchestration for Fast Inference of Mixture-of-Experts Models", ICLR 2025;
released code efeslab/fiddler @227715b, src/fiddler/mixtral.py.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ndpsim.policies.interface import Assignment, Parts, PolicyParameters
from ndpsim.policies.offline import descending, hottest, mean_loads
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.views import Flags, Floats, Ints, LayerView, OfflineView, Placement

# Constants of the released code: a token on the CPU, and a missing expert on the GPU.
_CPU_TOKEN, _GPU_MISSING = 7.0, 70.0
_ENUMERATED = 16  # maximum number of experts for a comparison of all subsets


class FiddlerParameters(PolicyParameters):
    """Parameters of Fiddler."""

    experts: Literal["cheaper", "cpu"] = "cheaper"
    """missing experts. cheaper (the default, the paper's and the code's rule): on the CPU, or copied to the
    GPU, by `objective`; cpu: all on the CPU, as the edge paper describes Fiddler ('performs expert
    computations on the CPU rather than the GPU', Section IV-A)"""

    objective: Literal["sum", "max"] = "sum"
    """what is minimised. sum (the default, what the code does): the sum of the CPU's and the GPU's times, so
    that each expert goes where it is cheaper, at equal costs to the GPU; max (the comment in the code, and
    the paper): the larger of the two times. For up to 16 missing experts all sets are compared; for more, all
    first ones in the order of tokens, which is optimal if GPU times are equal; otherwise the error is at most
    their difference"""

    constants: Literal["profile", "code"] = "profile"
    """costs. profile (the default): those of this machine, as the code wants its constants to be set: the CPU
    computes and reads weights at the same time; the GPU computes after a copy; code: 7 a token on the CPU, 70
    for a missing and 0 for a resident expert on the GPU"""

    overlap: bool = False
    """GPU, copies and CPU work at the same time, as the larger sum assumes; the code computes the GPU's
    experts first, each missing one after its copy, and then the CPU's"""

    residents: Literal["popular", "none"] = "popular"
    """experts that stay in GPU memory. popular (the default, the code): those with most tokens over all
    layers in the offline trace, which stands for the code's table, as many as fit; none: no experts"""


class Fiddler(Offloading[FiddlerParameters]):
    """Fiddler: popular experts with the GPU, of others the cheaper of CPU and copy.

    There are no migrations: the CPU computes a missing expert, or it is copied, used once and dropped.
    """

    name = "fiddler"
    paper = "Kamahori et al., ICLR 2025"
    mixed_steps = "All rules, by all tokens of the step."

    def place(self, view: OfflineView) -> Placement:
        """All experts are striped, which the host reads fastest; popular ones are also on the GPU."""
        room = self.machine.gpu_experts if self.parameters.residents == "popular" else 0
        return self.residents(hottest(mean_loads(view), room))

    def assign(self, view: LayerView) -> Assignment:
        """Residents to the GPU, missing experts by their costs, in the order of their numbers."""
        active = np.flatnonzero(view.loads)
        resident = view.placement.resident[active]
        there, missing = active[resident], active[~resident]
        chosen = self._copied(view.loads[there], view.loads[missing])
        gpu, cpu = np.concatenate([there, missing[chosen]]), missing[~chosen]
        overlap, times_ns = self.parameters.overlap, self.times_ns(view, gpu, cpu)
        layer_ns = max(times_ns) if overlap else sum(times_ns)
        return Assignment(Parts(gpu), Parts(cpu), estimated_ns=layer_ns, sequential=not overlap)

    def _copied(self, there: Ints, missing: Ints) -> Flags:
        """The missing experts, by their tokens, that the GPU computes; `there`: tokens of residents."""
        if self.parameters.experts == "cpu" or not self.machine.expert_buffers or not len(missing):
            return np.zeros(len(missing), np.bool_)
        begun = 0.0
        if self.parameters.constants == "code":
            on_gpu, on_cpu = np.full(len(missing), _GPU_MISSING), np.float64(_CPU_TOKEN) * missing
        else:
            on_gpu = self.copy_ns + self.estimates.gpu_ns[missing]
            on_cpu = self.estimates.on_cpu_ns[missing]
            begun = float(self.estimates.gpu_ns[there].sum())
        if self.parameters.objective == "sum":
            return np.asarray(on_gpu <= on_cpu)
        return least_longer_sum(on_gpu, on_cpu, begun)


def least_longer_sum(on_gpu: Floats, on_cpu: Floats, begun: float) -> Flags:
    """The experts for the GPU for which the larger of the two sums is smallest.

    Exact up to 16 experts. With more, the GPU gets the first ones by their time on the CPU.

    Args:
        begun: time of the GPU's other work.
    """
    count = len(on_gpu)
    if count <= _ENUMERATED:
        gpu, cpu, sets = np.full(1, begun), np.full(1, float(on_cpu.sum())), np.zeros(1, np.int64)
        for expert in range(count):
            gpu = np.concatenate([gpu, gpu + on_gpu[expert]])
            cpu = np.concatenate([cpu, cpu - on_cpu[expert]])
            sets = np.concatenate([sets, sets | 1 << expert])
        best = int(sets[np.argmin(np.maximum(gpu, cpu))])
        return np.asarray((best >> np.arange(count) & 1) > 0)
    order = descending(on_cpu)
    gpu = begun + np.append(0.0, np.cumsum(on_gpu[order]))
    cpu = on_cpu.sum() - np.append(0.0, np.cumsum(on_cpu[order]))
    flags = np.zeros(count, np.bool_)
    flags[order[: int(np.argmin(np.maximum(gpu, cpu)))]] = True
    return flags


POLICY = Fiddler
