"""The linear programme of a bound: a time that no policy can beat on the layers of consecutive steps.

A *visit* v is a layer in a step, in the order of the run. Its time T_v is the time from the gate to the last
result. W_v is the time for which PCIe is free for weights in the window before it. An *item* i is a group of
n experts of a visit's layer with the same loads in every step, for which equal shares are optimal. The
variables of each item, in experts, are

    k    in the GPU's memory since the group's last visit, or since the first step began, where they are free
    q    copied there by migrations since then            f    of k + q, computed on the GPU
    c    copied there within the layer, and computed      u, d    computed on the CPU, on NDP units

and for each visit T; B, time that PCIe had until then and did not use; O, the room that k takes; I, time in
which NDP units are idle; and b_j, experts that the host reads while units compute those of class j. C, U and
V are sums over the items of the visit: C of c, U of u, and V of activations to the host, of at least (u + d)
x tokens / choices of a token; results back are as large. Rows with these sums have few entries. The sum of
all T is least, with, over the items of each visit (S: shared experts; x+: what any use of x takes once,
spread over all active experts; e: the little that rounding shares to whole columns may save):

    GPU           S + sum f (gpu + call+) + c (gpu + call) <= T + e      S <= T
    PCIe          C wire + V <= T
    copy engines  C copy <= T
    PCIe so far   B_v = B_(v-1) + W_v + T_v - (C + sum q) wire - V >= 0
    channels      (C + U) read <= T
    CPU           2 V + sum u (cpu + hand-over+) <= T + e
    NDP units     sum d ndp + sum over j of lost_j b_j + I <= units x T + e      I >= 2 units x V
    reads         C + U <= sum over j of b_j + I / read_alone
    reads beside  read_alone b_j <= sum over class j of d ndp + lost_j b_j
    GPU memory    O + sum q <= room,    O: the k of all layers whose span from visit to visit has v in it
    each expert   f + c + u + d = n     f <= k + q     k <= k + q + c of the group's visit before

Every schedule is a solution: experts may be split at any point, engines start at once and never wait for each
other. Any multipliers of these rows give a lower bound by weak duality; the bound uses those that the solver
finds.

In one step each group has one visit. All experts need the same space and the same time of PCIe. Therefore the
sums of k and q over a visit replace them, and the sum of f is at most these sums. The other variables are
shares of ways for each group, in rows of one or two visits: ndpsim solves this itself. Several steps need
HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from ndpsim.policies.views import Floats, Ints


@dataclass(frozen=True, eq=False)
class ExpertUses:
    """Lower bounds in ns on the time of a whole expert, by number of tokens; a share s of an expert takes at
    least the share s of them.

    Attributes:
        tokens: numbers of tokens, ascending, from 1.
        gpu_ns: on the GPU, with its weights there.
        cpu_ns: on the CPU, its weights read meanwhile; None: the machine has none that computes experts.
        ndp_ns: on one NDP unit, or over all that share it; None: there is none.
        lost_ns: minimum loss of units that compute such experts while the host reads a whole expert.
    """

    tokens: Ints
    gpu_ns: Floats
    cpu_ns: Floats | None
    ndp_ns: Floats | None
    lost_ns: Floats


@dataclass(frozen=True)
class MachineUses:
    """Uses that do not depend on an expert's tokens; times in ns.

    Attributes:
        wire_ns: time of PCIe for an expert's weights.
        copy_ns: time of all copy engines for a copy alone.
        copies: whether experts can be copied within a layer.
        read_ns: time of all host channels for an expert's weights.
        read_alone_ns: time of one DIMM for the bytes of an expert at the peak of its channel.
        call_ns: time of the GPU for a call of experts.
        hand_over_ns: time of the CPU, once for each layer in which it computes experts.
        token_ns, vectors_ns: time of PCIe in one direction for each token with an expert outside the GPU, and
            once for each layer.
        units: number of NDP units.
        room: number of experts that fit the GPU's memory, over all layers.
        choices: experts of a token.
        rounding: maximum share of an expert by which rounding to whole columns makes a part smaller.
    """

    wire_ns: float
    copy_ns: float
    copies: bool
    read_ns: float
    read_alone_ns: float
    call_ns: float
    hand_over_ns: float
    token_ns: float
    vectors_ns: float
    units: int
    room: int
    choices: int
    rounding: float


@dataclass(frozen=True, eq=False)
class Steps:
    """Consecutive steps.

    Attributes:
        loads: tokens by expert, int64 [step, layer, expert].
        free_ns: time for which PCIe is free for weights in the window before each layer, [step, layer].
        shared_ns: time of the shared experts of a layer on the GPU, [step].
    """

    loads: Ints
    free_ns: Floats
    shared_ns: Floats


_Uses = TypeVar("_Uses", Steps, ExpertUses, MachineUses)


def scaled(uses: _Uses, unit_ns: float) -> _Uses:
    """The same with times in another unit."""
    times = {each.name: getattr(uses, each.name) for each in fields(uses) if each.name.endswith("_ns")}
    scaled: dict[str, Any] = {name: None if ns is None else ns / unit_ns for name, ns in times.items()}
    return replace(uses, **scaled)


@dataclass(frozen=True, eq=False)
class _Items:
    """The items of some steps, of `count` experts each: arrays [item], those of a group in a row."""

    visit: Ints
    load: Ints
    count: Ints
    group: Ints


def _items_of_step(loads: Ints) -> _Items:
    """loads: of one step, [layer, expert]."""
    most = int(loads.max()) + 1
    found, counts = np.unique(loads + np.arange(len(loads))[:, None] * most, return_counts=True)
    used = found % most > 0
    return _Items(found[used] // most, found[used] % most, counts[used], np.arange(int(used.sum())))


def _items_of_steps(loads: Ints) -> _Items:
    """loads: [step, layer, expert]."""
    layers, groups = loads.shape[1], 0
    parts: list[tuple[Ints, ...]] = []
    for row in range(layers):
        of_group, counts = np.unique(loads[:, row].T, axis=0, return_counts=True)
        group, step = np.nonzero(of_group)
        parts.append((step * layers + row, of_group[group, step], counts[group], group + groups))
        groups += len(counts)
    return _Items(*(np.concatenate(part) for part in zip(*parts, strict=True)))


class Rows:
    """Rows of a sparse matrix with their right sides, filled entry by entry."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Any, Any]] = []
        self._right: list[Floats] = []
        self._count = 0

    def new(self, right: Floats) -> Ints:
        """The numbers of new rows."""
        self._right.append(right)
        self._count += len(right)
        return np.arange(self._count - len(right), self._count)

    def add(self, rows: Ints, columns: Ints, values: Any) -> None:
        """Add entries, each in a row and a column."""
        self._entries.append((rows, columns, np.broadcast_to(values, rows.shape)))

    def entries(self) -> tuple[Ints, Ints, Floats]:
        """Rows, columns and values of the entries that are not 0."""
        rows, columns, values = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        there = values != 0
        return rows[there], columns[there], values[there]

    def right(self) -> Floats:
        """The right sides."""
        return np.concatenate(self._right)

    def matrix(self, columns: int) -> Any:
        """The matrix in the form of scipy."""
        from scipy.sparse import csr_array  # noqa: PLC0415 (an extra)

        rows, places, values = self.entries()
        return csr_array((values, (rows, places)), shape=(self._count, columns))


class _Columns:
    """The numbers of the variables.

    Arrays [visit], `beside` [class, visit], and [item]; `retained` and `migrated` are [visit] if `summed`.
    """

    def __init__(self, visits: int, classes: int, items: int, summed: bool) -> None:
        self.count = 0
        self.time, self.unused, self.room, self.idle = self._new(4, visits)
        self.copies, self.on_cpu, self.vectors = self._new(3, visits)
        self.beside = self._new(classes, visits)
        self.retained, self.migrated = self._new(2, visits if summed else items)
        self.held, self.copied, self.cpu, self.ndp = self._new(4, items)

    def _new(self, *shape: int) -> Ints:
        numbers = self.count + np.arange(math.prod(shape)).reshape(shape)
        self.count += numbers.size
        return numbers


class Writer:
    """Writes the programme, resource by resource.

    Attributes:
        summed: retained and migrated experts are variables of a visit instead of an item.
    """

    summed = False

    def __init__(self, steps: Steps, experts: ExpertUses, machine: MachineUses) -> None:
        self.machine = machine
        self.items = items = _items_of_step(steps.loads[0]) if self.summed else _items_of_steps(steps.loads)
        self.free, self.shared = steps.free_ns.ravel(), np.repeat(steps.shared_ns, steps.loads.shape[1])
        self.visits, none = len(self.free), np.zeros(len(items.visit))
        known = np.searchsorted(experts.tokens, items.load)
        self.gpu, self.cpu, self.ndp = (
            none if times is None else times[known]
            for times in (experts.gpu_ns, experts.cpu_ns, experts.ndp_ns)
        )
        self.has_cpu, self.has_ndp = experts.cpu_ns is not None, experts.ndp_ns is not None
        self.lost, of_tokens = np.unique(experts.lost_ns, return_inverse=True)
        self.lost_class = of_tokens.ravel()[known]
        self.active = self.sums(np.ones(len(known)))[items.visit]
        # One direction of PCIe, for each expert outside the GPU.
        self.vector = items.load / machine.choices * machine.token_ns + machine.vectors_ns / self.active
        self.columns = _Columns(self.visits, len(self.lost), len(known), self.summed)
        self.costs = np.zeros(self.columns.count)
        self.costs[self.columns.time] = 1.0
        self.at_most = Rows()
        self.write_gpu()
        self.write_sums()
        self.write_pcie()
        self.write_host()
        if self.has_ndp:
            self.write_ndp()
        self.most_retained = self.write_memory()

    def write_memory(self) -> Floats:
        """Write the rows of the GPU's memory: how experts come into it, and their space.

        Returns:
            Limits of retained and of migrated experts.
        """
        raise NotImplementedError

    def sums(self, uses: Floats) -> Floats:
        """Sums over the experts of each visit."""
        return np.bincount(self.items.visit, uses * self.items.count, self.visits).astype(float)

    def spend(self, right: Any, uses: Sequence[tuple[Ints, Any]], *of_visit: tuple[Ints, float]) -> Ints:
        """New rows, one for each visit: variables of its items, and its own, times their uses <= right."""
        rows = self.at_most.new(np.broadcast_to(right, self.visits))
        for variables, used in uses:
            self.at_most.add(rows[self.items.visit], variables, used)
        for variables, used in of_visit:
            self.at_most.add(rows, variables, used)
        return rows

    def spend_time(
        self, right: Any, uses: Sequence[tuple[Ints, Any]], *of_visit: tuple[Ints, float], engines: int = 1
    ) -> Ints:
        """As `spend`, but <= right + the visit's time on this number of engines."""
        return self.spend(right, uses, *of_visit, (self.columns.time, -float(engines)))

    def write_gpu(self) -> None:
        machine, columns = self.machine, self.columns
        held, copied = self.gpu + machine.call_ns / self.active, self.gpu + machine.call_ns
        right = machine.rounding * self.sums(self.gpu) - self.shared
        self.spend_time(right, [(columns.held, held), (columns.copied, copied)])
        self.spend_time(-self.shared, [])

    def write_sums(self) -> None:
        columns = self.columns
        for sums, uses in (
            (columns.copies, [(columns.copied, 1.0)]),
            (columns.on_cpu, [(columns.cpu, 1.0)]),
            (columns.vectors, [(columns.cpu, self.vector), (columns.ndp, self.vector)]),
        ):
            self.spend(0.0, uses, (sums, -1.0))

    def write_pcie(self) -> None:
        machine, columns = self.machine, self.columns
        sums = (columns.copies, machine.wire_ns), (columns.vectors, 1.0)
        self.spend_time(0.0, [], *sums)
        self.spend_time(0.0, [], (columns.copies, machine.copy_ns))
        self.so_far = rows = self.spend_time(self.free, [], *sums)
        self.at_most.add(rows, columns.unused, 1.0)
        self.at_most.add(rows[1:], columns.unused[:-1], -1.0)

    def write_host(self) -> None:
        machine, columns = self.machine, self.columns
        self.spend_time(0.0, [], (columns.copies, machine.read_ns), (columns.on_cpu, machine.read_ns))
        cpu = self.cpu + machine.hand_over_ns / self.active
        right = machine.rounding * self.sums(self.cpu)
        self.spend_time(right, [(columns.cpu, cpu)], (columns.vectors, 2.0))

    def write_ndp(self) -> None:
        machine, columns, at_most = self.machine, self.columns, self.at_most
        right = machine.rounding * self.sums(self.ndp)
        rows = self.spend_time(right, [(columns.ndp, self.ndp)], (columns.idle, 1.0), engines=machine.units)
        self.spend(0.0, [], (columns.vectors, 2.0 * machine.units), (columns.idle, -1.0))
        if not self.lost.any():
            return
        reads = self.spend(
            0.0, [], (columns.copies, 1.0), (columns.on_cpu, 1.0), (columns.idle, -1 / machine.read_alone_ns)
        )
        for number, lost in enumerate(self.lost.tolist()):
            beside, of_class = columns.beside[number], self.lost_class == number
            at_most.add(rows, beside, lost)
            at_most.add(reads, beside, -1.0)
            rows_beside = self.spend(0.0, [(columns.ndp, -self.ndp * of_class)])
            at_most.add(rows_beside, beside, max(machine.read_alone_ns - lost, 0.0))

    def upper(self) -> Floats:
        """Limits of the variables; without a rule, a value that the best solution cannot exceed."""
        columns, machine, items = self.columns, self.machine, self.items
        upper = np.zeros(columns.count)
        upper[columns.room] = machine.room
        upper[columns.retained] = upper[columns.migrated] = self.most_retained
        upper[columns.held] = items.count
        upper[columns.copied] = items.count * machine.copies
        upper[columns.cpu], upper[columns.ndp] = items.count * self.has_cpu, items.count * self.has_ndp
        upper[columns.beside] = upper[columns.copies] = upper[columns.on_cpu] = self.sums(
            np.ones(len(items.visit))
        )
        upper[columns.vectors] = self.sums(self.vector)
        # The sum of the times of all ways of every expert is longer than any solution.
        of_any = machine.call_ns + 2 * machine.wire_ns + machine.copy_ns + machine.read_ns
        of_any += machine.read_alone_ns + machine.hand_over_ns
        all_ways = self.shared + self.sums(self.gpu + self.cpu + self.ndp + 4 * self.vector + of_any)
        upper[columns.time] = total = float(all_ways.sum())
        upper[columns.unused] = total + float(self.free.sum())
        upper[columns.idle] = total * max(machine.units, 1)
        return upper
