"""The bound of steps: a solver's dual prices of their linear programme (`bound_programme`) give it."""

from __future__ import annotations

import importlib.util

import numpy as np

from ndpsim.base.arrays import product_sum
from ndpsim.policies.assignment.interior_point import Search, programme_of
from ndpsim.policies.bound_programme import ExpertUses, MachineUses, Rows, Steps, Writer, scaled
from ndpsim.policies.views import Floats


def has_solver() -> bool:
    """Whether scipy, which contains HiGHS, is installed: several steps need it."""
    return importlib.util.find_spec("scipy") is not None


def run_bound_ns(steps: Steps, experts: ExpertUses, machine: MachineUses) -> float:
    """Lower bound in ns on the time of these layers' experts for any policy; 0 if the solver finds nothing.

    Raises:
        ImportError: there are several steps, and scipy is not installed.
    """
    if not steps.loads.any():
        return float(steps.loads.shape[1] * steps.shared_ns.sum())
    unit_ns = machine.wire_ns  # scales the solver's numbers to about 1
    of_scaled = scaled(steps, unit_ns), scaled(experts, unit_ns), scaled(machine, unit_ns)
    is_single = len(steps.loads) == 1
    bound = _step_bound(_StepWriter(*of_scaled)) if is_single else _steps_bound(_StepsWriter(*of_scaled))
    return max(0.0, bound) * unit_ns


class _StepWriter(Writer):
    """The programme of one step: sums of residents over a visit, without rows of items."""

    summed = True

    def write_memory(self) -> Floats:
        columns, at_most = self.columns, self.at_most
        at_most.add(self.so_far, columns.migrated, self.machine.wire_ns)
        if not self.machine.room:
            return np.zeros(self.visits)
        rows = self.spend(float(self.machine.room), [])
        at_most.add(rows, columns.migrated, 1.0)
        at_most.add(rows, columns.room, 1.0)
        rows = self.spend(0.0, [])
        at_most.add(rows, columns.retained, 1.0)
        at_most.add(rows, columns.room, -1.0)
        at_most.add(rows[:-1], columns.room[1:], 1.0)
        rows = self.spend(0.0, [(columns.held, 1.0)])
        at_most.add(rows, columns.retained, -1.0)
        at_most.add(rows, columns.migrated, -1.0)
        return self.sums(np.ones(len(columns.held)))


def _step_bound(writer: _StepWriter) -> float:
    """The bound of one step; its variables are in groups of ways."""
    layout, counts, upper = writer.columns, writer.items.count.astype(float), writer.upper()
    of_items = [layout.held, layout.copied, layout.cpu, layout.ndp]
    ways = [of for of in of_items[not writer.machine.room :] if upper[of].all()]
    if not ways:
        return 0.0
    rows, columns, uses = writer.at_most.entries()
    # Rows of a visit are neighbours, those of items first; each is scaled by its largest entry.
    kinds = len(writer.at_most.right()) // writer.visits
    of_item = np.isin(np.arange(kinds), rows[columns >= layout.held[0]] // writer.visits)
    order = np.argsort(~of_item, kind="stable")
    rows = rows % writer.visits * kinds + np.argsort(order)[rows // writer.visits]
    right = writer.at_most.right().reshape(kinds, -1)[order].T.ravel()
    others = (np.bincount(columns, minlength=layout.count) > 0) & (upper > 0)
    others[np.concatenate(of_items)] = False
    listed = np.concatenate([np.stack(ways, axis=1).ravel(), np.flatnonzero(others)])
    place = np.full(layout.count, -1)
    place[listed] = np.arange(len(listed))
    in_programme = place[columns] >= 0
    rows, columns, uses = rows[in_programme], place[columns[in_programme]], uses[in_programme]
    largest = np.zeros(len(right))
    np.maximum.at(largest, rows, np.abs(uses))
    largest[largest == 0] = 1.0
    programme = programme_of(
        np.append(rows, np.arange(len(right))),  # with the slack of each row
        np.append(columns, len(listed) + np.arange(len(right))),
        np.append(uses / largest[rows], np.ones(len(right))),
        np.append(writer.costs[listed], np.zeros(len(right))),
        right / largest,
        counts,
        writer.items.visit * kinds,
        len(ways),
    )
    prices = np.maximum(Search(programme).prices(), 0.0) / largest
    reduced = writer.costs[listed] + np.bincount(columns, uses * prices[rows], len(listed))
    of_ways, others_left = np.split(reduced, [len(counts) * len(ways)])
    bound = product_sum(counts, of_ways.reshape(len(counts), -1).min(axis=1))
    bound += product_sum(np.minimum(others_left, 0.0), upper[others])
    return bound - product_sum(prices, right)


class _StepsWriter(Writer):
    """The programme of several steps: residents stay from visit to visit, item by item."""

    def write_memory(self) -> Floats:
        columns, items, at_most = self.columns, self.items, self.at_most
        at_most.add(self.so_far[items.visit], columns.migrated, self.machine.wire_ns)
        rows = self.spend(float(self.machine.room), [(columns.migrated, 1.0)])
        at_most.add(rows, columns.room, 1.0)
        first = np.diff(items.group, prepend=-1) != 0
        self.equal = Rows()
        follow = self.equal.new(np.zeros(self.visits))
        self.equal.add(follow, columns.room, 1.0)
        self.equal.add(follow[1:], columns.room[:-1], -1.0)
        begin = np.where(first, 0, np.roll(items.visit, 1) + 1)
        self.equal.add(follow[begin], columns.retained, -1.0)
        ends = items.visit + 1 < self.visits
        self.equal.add(follow[items.visit[ends] + 1], columns.retained[ends], 1.0)
        each = self.equal.new(items.count.astype(float))
        for variables in (columns.held, columns.copied, columns.cpu, columns.ndp):
            self.equal.add(each, variables, 1.0)
        each = at_most.new(np.zeros(len(items.visit)))
        for variables, sign in ((columns.held, 1.0), (columns.retained, -1.0), (columns.migrated, -1.0)):
            at_most.add(each, variables, sign)
        later = np.flatnonzero(~first)
        each = at_most.new(np.zeros(len(later)))
        at_most.add(each, columns.retained[later], 1.0)
        for variables in (columns.retained, columns.migrated, columns.copied):
            at_most.add(each, variables[later - 1], -1.0)
        return items.count.astype(float)


def _steps_bound(writer: _StepsWriter) -> float:
    """The bound of several steps, with prices of HiGHS."""
    from scipy.optimize import linprog  # noqa: PLC0415 (an extra)

    upper, costs = writer.upper(), writer.costs
    at_most, equal = writer.at_most.matrix(len(costs)), writer.equal.matrix(len(costs))
    most, to = writer.at_most.right(), writer.equal.right()
    limits = np.stack([np.zeros_like(upper), upper], axis=1)
    found = linprog(costs, at_most, most, equal, to, limits, method="highs-ipm")
    if found.ineqlin.marginals is None:
        return 0.0
    prices, values = np.maximum(-found.ineqlin.marginals, 0.0), -found.eqlin.marginals
    reduced = costs + at_most.T @ prices + equal.T @ values
    bound = product_sum(np.minimum(reduced, 0.0), upper)
    return bound - product_sum(prices, most) - product_sum(values, to)
