"""Assigns experts to CPU and GPU so that the longer of two sums is as short as possible.

DALI, equations 3 to 9: min max(T_gpu, T_cpu), each expert on one of the two. The GPU computes at most as many
missing experts as fit its memory. There are three methods: algorithm 1 (greedy), integer programming
(optimal), and beam search (appendix A.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.sums import product_sum
from ndpsim.policies.offline import descending
from ndpsim.policies.views import Estimates, Flags, Floats, Ints


@dataclass(frozen=True, eq=False)
class TwoEngines:
    """The experts of a layer: arrays [expert].

    Attributes:
        gpu_ns, cpu_ns: time of each expert there; both are 0 for experts without tokens, whose engine does
            not matter.
        missing: flags of experts that are not in the GPU's memory.
        room: maximum number of missing experts that the GPU may compute (equation 9).
    """

    gpu_ns: Floats
    cpu_ns: Floats
    missing: Flags
    room: int

    @property
    def active(self) -> Flags:
        """The experts with tokens."""
        return np.asarray((self.gpu_ns != 0) | (self.cpu_ns != 0))

    def makespan_ns(self, on_gpu: Flags) -> float:
        """The longer of T_gpu (equation 5) and T_cpu (equation 4)."""
        return float(max(self.gpu_ns[on_gpu].sum(), self.cpu_ns[~on_gpu].sum()))


def times_of(
    loads: Ints, there: Flags, arrives_ns: Floats, estimates: Estimates, room: int | None = None
) -> TwoEngines:
    """Equations 4 to 6 from a profile.

    t_gpu is the longer of the copy and the computation. The copy takes no time if the GPU's memory has the
    expert (section 4.3), and the remaining time if the copy has begun.

    Args:
        loads: tokens by expert.
        there: flags [expert]: in the GPU's memory, or being copied.
        arrives_ns: remaining copy time of experts that are being copied; 0 for others.
        room: missing experts that the GPU may compute; None: all.
    """
    copy_ns = estimates.copy_ns
    some = loads > 0
    gpu_ns = np.maximum(estimates.gpu_ns[loads], np.where(there, arrives_ns, copy_ns))
    cpu_ns = estimates.on_cpu_ns[loads]
    missing = some & ~there
    return TwoEngines(
        np.where(some, gpu_ns, 0.0),
        np.where(some, cpu_ns, 0.0),
        missing,
        int(missing.sum()) if room is None else room,
    )


def _in_order(engines: TwoEngines) -> list[int]:
    """Line 5 of algorithm 1: experts by the difference between the engines; ties go to the first expert."""
    order: list[int] = descending(
        np.abs(engines.gpu_ns - engines.cpu_ns), np.flatnonzero(engines.active)
    ).tolist()
    return order


def greedy(engines: TwoEngines) -> Flags:
    """Algorithm 1: flags [expert] of experts on the GPU.

    The algorithm does not mention equation 9: an expert that does not fit goes to the CPU.
    """
    on_gpu = np.zeros(len(engines.gpu_ns), np.bool_)
    gpu_ns, cpu_ns, missing = engines.gpu_ns.tolist(), engines.cpu_ns.tolist(), engines.missing.tolist()
    gpu_sum_ns = cpu_sum_ns = 0.0
    room = engines.room
    for expert in _in_order(engines):
        fits = not missing[expert] or room > 0
        if fits and gpu_sum_ns + gpu_ns[expert] <= cpu_sum_ns + cpu_ns[expert]:
            on_gpu[expert] = True
            gpu_sum_ns += gpu_ns[expert]
            room -= missing[expert]
        else:
            cpu_sum_ns += cpu_ns[expert]
    return on_gpu


def beam(engines: TwoEngines, size: int = 2) -> Flags:
    """Beam search in the order of algorithm 1, which keeps the `size` partial assignments of least time.

    The paper gives only the size and the score. Ties go to the assignment with less work in sum.
    """
    gpu_ns, cpu_ns, missing = engines.gpu_ns.tolist(), engines.cpu_ns.tolist(), engines.missing.tolist()
    beams: list[tuple[float, float, int, tuple[int, ...]]] = [(0.0, 0.0, engines.room, ())]
    for expert in _in_order(engines):
        longer = []
        for gpu_sum_ns, cpu_sum_ns, room, chosen in beams:
            longer.append((gpu_sum_ns, cpu_sum_ns + cpu_ns[expert], room, chosen))
            if not missing[expert] or room > 0:
                longer.append(
                    (gpu_sum_ns + gpu_ns[expert], cpu_sum_ns, room - missing[expert], (*chosen, expert))
                )
        longer.sort(key=lambda partial: (max(partial[:2]), partial[0] + partial[1], partial[3]))
        beams = longer[:size]
    on_gpu = np.zeros(len(gpu_ns), np.bool_)
    on_gpu[list(beams[0][3])] = True
    return on_gpu


def milp_solver(policy: str) -> Any:
    """`scipy.optimize`, whose integer programming is HiGHS.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        from scipy import optimize  # noqa: PLC0415 (an extra: nothing else needs it)
    except ImportError:
        problem = "needs scipy: pip install 'ndpsim[milp]'"
        raise InputError(problem, "not-installed", key=f"policy {policy}") from None
    return optimize


def optimal(engines: TwoEngines, solver: Any, gap: float = 0.0, nodes: int = 100_000) -> Flags:
    """The 0-1 programme of equations 3 to 9, with a whole number for equal experts; no worse than greedy.

    Args:
        solver: the result of `milp_solver`.
        gap: accepted difference from the optimum, as a share of it.
        nodes: maximum number of nodes of the search tree.
    """
    best = greedy(engines)
    active = np.flatnonzero(engines.active)
    if not len(active):
        return best
    keys = np.stack([engines.gpu_ns[active], engines.cpu_ns[active], engines.missing[active]], axis=1)
    kinds, members, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    numbers = _numbers_on_gpu(kinds, counts, engines, solver, (gap, nodes), engines.makespan_ns(best))
    if numbers is None:
        return best
    found = np.zeros(len(best), np.bool_)
    for kind, number in enumerate(numbers.tolist()):
        found[active[members.ravel() == kind][:number]] = True
    fits = int((found & engines.missing).sum()) <= engines.room
    return found if fits and engines.makespan_ns(found) < engines.makespan_ns(best) else best


def _numbers_on_gpu(
    kinds: Floats,
    counts: NDArray[Any],
    engines: TwoEngines,
    solver: Any,
    limits: tuple[float, int],
    scale: float,
) -> NDArray[np.int64] | None:
    """The number of experts of each kind on the GPU; None: no solution was found. The last variable is T."""
    last = len(kinds)
    gpu, cpu = kinds[:, 0] / scale, kinds[:, 1] / scale
    rows = np.vstack([np.append(gpu, -1.0), np.append(-cpu, -1.0), np.append(kinds[:, 2], 0.0)])
    most = [0.0, -product_sum(cpu, counts), float(engines.room)]
    found = solver.milp(
        np.eye(1, last + 1, last)[0],
        integrality=np.append(np.ones(last), 0),
        bounds=solver.Bounds(0, np.append(counts, np.inf)),
        constraints=solver.LinearConstraint(rows, -np.inf, most),
        options={"mip_rel_gap": limits[0], "node_limit": limits[1]},
    )
    return None if found.x is None else np.rint(found.x[:last]).astype(np.int64)
