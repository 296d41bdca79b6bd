"""Bounds of a run: for each layer by itself, for a step, and for all steps together.

They are linear programmes (`ndpsim.policies.run_bound`) with simulated times. Each time is the minimum over
the layouts, shares and bits that a policy may choose:

- An expert on NDP units takes its simulated time on one unit. For large numbers of tokens, the time of a
  smaller simulated number or the peak of the unit is used, because more tokens never take less time. Several
  units together take no less time, and a share takes no less than its part, except for `_LEAST`.
- On each channel the host reads an expert no faster than a striped or a localized one, except for `_LEAST`.
- The loss of NDP units to host reads is the minimum per byte over all rates of the host, all experts and the
  tables of the run's layouts. It is 0 without contention, or if the host has its own memory.
- Windows are those of the run, rounded up to whole ns, so that runs with the same windows have one bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.run_state import DoneLayer, Listener
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.inference.processors import Processors
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.operations import ACTIVATION_BYTES
from ndpsim.policies.bound_programme import ExpertUses, MachineUses, Steps
from ndpsim.policies.run_bound import has_solver, run_bound_ns
from ndpsim.policies.views import Machine
from ndpsim.simulate import simulate_expert
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.slowdown import SlowdownTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Maximum number of pairs of a visited layer and an active expert in one programme of several steps.
_MOST_PAIRS = 10_000
#: Minimum time of other layouts and shares, relative to the simulated layout and whole expert: refreshes make
#: a mean uncertain by half a percent (`ndpsim.inference.layers.costs`). The smallest measured ratio over all
#: counts of DIMMs and shares down to 3% is 0.9991, for trimoe with qwen3-235b-a22b.
_LEAST = 0.995
_MOST_LOST = 0.99  # an NDP unit keeps at least a hundredth of its speed
_LAST_SIMULATED = 512  # tokens; larger numbers are on the line of `Costs.expected_ns`
_SIGNIFICANT_BITS = 5  # numbers of tokens that are simulated
_FLOATS = 1 - 1e-9  # rounding of sums of times


class _Visit(NamedTuple):
    """A layer's experts in a step: tokens by expert, and the fields of `Steps`."""

    loads: Ints
    free_ns: float
    shared_ns: float


class Bounds:
    """The bounds of runs that differ only in the policy.

    Args:
        cache: as in `simulate_expert`.
    """

    def __init__(
        self,
        hardware: Hardware,
        processors: Processors,
        costs: Costs,
        transfers: Transfers,
        machine: Machine,
        cache: bool | ResultCache,
    ) -> None:
        self._processors, self._machine = processors, machine
        self._costs, self._transfers = costs, transfers
        self._found: dict[tuple[object, ...], float] = {}
        self.has_solver = has_solver()
        expert, on_gpu = machine.model.expert, processors.gpu_expert(machine.model.expert)
        # The same numbers of tokens occur in every step.
        self._gpu_ns = functools.cache(lambda n, bits: processors.gpu.expert_time(on_gpu, n, bits).time_ns)
        self._cpu_ns = functools.cache(lambda n, bits: processors.cpu.expert_time(expert, n, bits).time_ns)
        self._ndp_ns = functools.cache(self._on_ndp_ns)
        self._one_token = functools.cache(
            lambda bits: simulate_expert(hardware, machine.model, 1, bits=bits, cache=cache)
        )

    def of(
        self, visits: Sequence[_Visit], layers: int, slowdown: SlowdownTable, replicas: Sequence[int]
    ) -> float:
        """Bound of consecutive steps of `layers` by one linear programme, in ns, for any experts in the GPU.

        replicas: bits of copies that may be read instead of the experts.
        """
        bits, lost = self._all_bits(replicas), self._lost_ns_per_byte(slowdown)
        loads = np.stack([one.loads for one in visits]).reshape(-1, layers, len(visits[0].loads))
        free_ns = np.array([one.free_ns for one in visits]).reshape(-1, layers)
        shared_ns = np.array([one.shared_ns for one in visits[::layers]])
        key = (loads.tobytes(), free_ns.tobytes(), shared_ns.tobytes(), lost, bits)
        found = self._found.get(key)
        if found is None:
            tokens = np.unique(loads[loads > 0])
            uses = self._expert_uses(tokens, bits, lost), self._machine_uses(bits)
            found = self._found[key] = _FLOATS * run_bound_ns(Steps(loads, free_ns, shared_ns), *uses)
        return found

    def _all_bits(self, replicas: Sequence[int]) -> tuple[int | ExpertFormat, ...]:
        return self._machine.weights, *sorted({*replicas} - {self._machine.bits})

    def _ndp_peak_ns(self, tokens: int, bits: int | ExpertFormat) -> float:
        """The time of an expert on one NDP unit at its peaks: the longer of reading and computing."""
        model = self._machine.model
        if self._costs.hardware.experts_in_banks:
            return 0.0  # each token takes as long as the first one, which is simulated
        one = self._one_token(bits)
        size, products = weight_bytes(model.expert, bits), 2.0 * model.expert.weights * tokens
        return max(size / one.peak_bandwidth_gbps, products / one.peak_gflops)

    def _smallest(self, bits: Sequence[int | ExpertFormat]) -> int:
        """Bytes of an expert in the fewest bits."""
        return min(weight_bytes(self._machine.model.expert, one) for one in bits)

    def _host_gbps(self) -> float:
        """The highest rate at which the host reads a channel."""
        reads = self._costs.host_read(None), self._costs.host_read(1)
        return max(one.gbps_per_channel for one in reads) / _LEAST

    def _read_ns(self, bits: Sequence[int | ExpertFormat]) -> float:
        """The time in which the host reads an expert over all of its channels."""
        return self._smallest(bits) / (self._host_gbps() * self._costs.host_read(None).channels)

    def _machine_uses(self, bits: Sequence[int | ExpertFormat]) -> MachineUses:
        machine, transfers, processors = self._machine, self._transfers, self._processors
        size, vector = self._smallest(bits), machine.model.hidden * ACTIVATION_BYTES
        pcie = transfers.pcie
        return MachineUses(
            wire_ns=transfers.copy_wire_ns(machine.expert_bytes) * size / machine.expert_bytes,
            copy_ns=transfers.copy_ns(size) / pcie.copy_engines,
            copies=machine.expert_buffers > 0,
            read_ns=self._read_ns(bits),
            read_alone_ns=size / self._host_gbps(),
            call_ns=processors.gpu.call_ns,
            hand_over_ns=processors.cpu.layer_overhead_ns if machine.has_cpu else 0.0,
            token_ns=vector * (1 + pcie.header_bytes / pcie.packet_bytes) / pcie.gbps,
            vectors_ns=transfers.pcie_ns(vector) - transfers.wire_ns(vector),
            units=machine.dimms,
            room=machine.gpu_experts,
            choices=machine.model.experts_per_token,
            rounding=0.5 / machine.model.expert_intermediate,
        )

    def _expert_uses(self, tokens: Ints, bits: Sequence[int | ExpertFormat], lost: float) -> ExpertUses:
        machine = self._machine

        def least(time_ns: Callable[[int, int | ExpertFormat], float]) -> Floats:
            times_ns: Floats = np.array([[time_ns(n, one) for n in tokens.tolist()] for one in bits])
            return np.asarray(times_ns.min(axis=0))

        gpu_ns = least(self._gpu_ns)
        cpu_ns = ndp_ns = None
        if machine.has_cpu:
            cpu_ns = np.maximum(least(self._cpu_ns), self._read_ns(bits))
        if machine.dimms:
            ndp_ns = _LEAST * least(self._ndp_ns)
        return ExpertUses(tokens, gpu_ns, cpu_ns, ndp_ns, np.full(len(tokens), self._smallest(bits) * lost))

    def _on_ndp_ns(self, tokens: int, bits: int | ExpertFormat) -> float:
        """A lower bound on the time of an expert on one NDP unit; infinite for bits that it lacks."""
        if self._costs.hardware.experts_in_banks and bits != self._machine.weights:
            return math.inf
        costs = self._costs if bits == self._machine.weights else self._costs.for_bits(int(bits))  # type: ignore[arg-type]
        if tokens > _LAST_SIMULATED:
            times, error = costs.expected_ns(tokens)
            least = max(float(times[tokens]) * (1 - error), costs.expert(_LAST_SIMULATED).time_ns)
        else:
            further = max(tokens.bit_length() - _SIGNIFICANT_BITS, 0)
            least = costs.expert(tokens >> further << further).time_ns
        return max(least, self._ndp_peak_ns(tokens, bits))

    def _lost_ns_per_byte(self, slowdown: SlowdownTable) -> float:
        if not self._costs.hardware.host_reads_dimms:
            return 0.0
        return least_lost_ns_per_byte(slowdown, self._host_gbps())


def least_lost_ns_per_byte(slowdown: SlowdownTable, most_gbps: float) -> float:
    """The minimum loss of NDP units for each byte that the host reads from their DIMMs.

    Beside host reads of C GB/s on its channel, a unit loses h (1 - v(C)) of its time. The shares h of the
    channel's DIMMs add up to 1 (`SlowdownTable`). The bound does not know which DIMM has which share, so
    that it takes the least over all experts and all numbers of streams. Between two rates of the table,
    (1 - v(C)) / C lies between its values at both; beyond the last, v stays.

    most_gbps: maximum rate of host reads on a channel.
    """
    lost = np.minimum(1 - slowdown.ndp_speed.max(axis=0)[:, 1:], _MOST_LOST)
    rates = np.append(slowdown.host_gbps[1:], max(most_gbps, slowdown.host_gbps[-1]))
    return float((np.column_stack([lost, lost[:, -1]]) / rates).min())


class RunBound(Listener):
    """The bound of one run; listens to its layers.

    Args:
        slowdown: the slowdown of the run.
        replicas: bits of copies that may be read instead of the experts.
    """

    def __init__(self, bounds: Bounds, slowdown: SlowdownTable, replicas: Sequence[int], layers: int) -> None:
        self._bounds, self._layers = bounds, layers
        self._beside = slowdown, replicas
        self._visits: list[_Visit] = []

    def layer_done(self, done: DoneLayer) -> None:
        """Add a layer's experts in a step."""
        self._visits.append(_Visit(done.view.loads, math.ceil(done.free_ns), done.visit.shared_ns))

    def last_ns(self) -> float:
        """Bound of the layer that was added last, by itself, in ns."""
        last = self._visits[-1]
        return self._bounds.of([_Visit(np.sort(last.loads), 0.0, last.shared_ns)], 1, *self._beside)

    def total_ns(self) -> tuple[str, float]:
        """Bound of all layers together, in ns, and its `PolicyRun.bound`.

        All steps are one programme if they have few active experts; otherwise each step is one.
        """
        visits = self._visits
        pairs = sum(int((visit.loads > 0).sum()) for visit in visits)
        together = pairs <= _MOST_PAIRS and len(visits) > self._layers
        solved = self._bounds.has_solver or not together
        every = len(visits) if together and solved else self._layers
        parts = (visits[first : first + every] for first in range(0, len(visits), every))
        total_ns = sum(self._bounds.of(part, self._layers, *self._beside) for part in parts)
        return "linear-programme" if solved else "steps", total_ns
