"""The search of `ndpsim.policies.assignment.least_maximum` once more, in plain Python: loads are summed anew each time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

_ROUNDING = 1e-9
_LEAST_GAIN = 1e-6


def _in_norm(share: float, squarings: int) -> float:
    for _ in range(squarings):
        share *= share
    return share


@dataclass
class Layer:
    """What is given, as the kernel takes it."""

    uses: np.ndarray
    overhead: np.ndarray
    allowed: np.ndarray
    base: np.ndarray
    opening: np.ndarray
    here: int
    splits: int = 0
    parts: int = 16

    def loads(self, choice: list[int], second: dict[int, tuple[int, int]] | None = None) -> np.ndarray:
        """The load of each resource; `second`: the second way of an expert, and its parts."""
        loads, second = self.base.copy(), second or {}
        for way in {*choice, *(way for way, _ in second.values())}:
            loads = loads + self.opening[way]
        for expert, way in enumerate(choice):
            if expert not in second:
                loads = loads + self.uses[expert, way]
                continue
            other, moved = second[expert]
            for one, share in ((way, 1 - moved / self.parts), (other, moved / self.parts)):
                fixed = self.overhead[expert, one]
                loads = loads + fixed + share * (self.uses[expert, one] - fixed)
        return loads


@dataclass
class _Search:
    layer: Layer
    choice: list[int] = field(default_factory=list)
    second: dict[int, tuple[int, int]] = field(default_factory=dict)

    def now(self) -> np.ndarray:
        return self.layer.loads(self.choice, self.second)

    def begin(self) -> None:
        """Thresholds: the first of the missing experts to the GPU, the last to the NDP units."""
        layer, best = self.layer, math.inf
        count = len(layer.uses)
        for first in range(layer.here, count + 1):
            for last in range(count, first - 1, -1):
                choice = [0] * first + [1] * (last - first) + [2] * (count - last)
                ways = enumerate(choice[layer.here :], layer.here)
                if all(layer.allowed[expert, way] for expert, way in ways):
                    most = float(layer.loads(choice).max())
                    if most < best:
                        best, self.choice = most, choice

    def after(self, changed) -> list[int]:
        """The choice with the ways of some experts changed."""
        choice = list(self.choice)
        for expert, way in changed:
            choice[expert] = way
        return choice

    def candidates(self, full: int, limit: float):
        """Loads after each change of some experts' ways that raises nothing to the limit."""
        before = self.now()
        for changed in self.changes():
            after = self.layer.loads(self.after(changed))
            grown = after > before
            if after[full] < limit and not (after[grown] >= limit).any():
                yield changed, before, after

    def changes(self):
        for expert, way in enumerate(self.choice):
            for target in range(3):
                if target != way and self.layer.allowed[expert, target]:
                    yield [(expert, target)]

    def move(self) -> bool:
        loads = self.now()
        full = int(np.argmax(loads))
        limit, best, found = loads[full] * (1 - _ROUNDING), math.inf, None
        for changed, before, after in self.candidates(full, limit):
            grows = np.maximum(after - before, 0)
            price = float((grows * after).sum()) / float(before[full] - after[full])
            if price < best:
                best, found = price, changed
        self.choice = self.after(found or ())
        return found is not None

    def exchange(self) -> bool:
        loads, allowed, choice = self.now(), self.layer.allowed, self.choice
        full = int(np.argmax(loads))
        best, found = loads[full] * (1 - _ROUNDING), None
        for one, two in itertools.permutations(range(len(choice)), 2):
            if choice[one] == choice[two] or not self.layer.uses[one, choice[one], full]:
                continue
            if not (allowed[one, choice[two]] and allowed[two, choice[one]]):
                continue
            other = list(choice)
            other[one], other[two] = choice[two], choice[one]
            after = self.layer.loads(other)
            touched = (after > loads) | (np.arange(len(loads)) == full)
            if after[touched].max() < best:
                best, found = float(after[touched].max()), (one, two)
        if found:
            one, two = found
            choice[one], choice[two] = choice[two], choice[one]
        return found is not None

    def lower_norm(self, squarings: int) -> bool:
        """The move after which the sum of powers of all loads is least."""
        loads = self.now()
        most, best, found = float(loads.max()), -_LEAST_GAIN, None
        for changed in self.changes() if most > 0 else ():
            grows = 0.0
            changed_loads = self.layer.loads(self.after(changed))
            for before, after in zip(loads.tolist(), changed_loads.tolist(), strict=True):
                if before != after:
                    grows += _in_norm(after / most, squarings) - _in_norm(before / most, squarings)
            if grows < best:
                best, found = grows, changed
        self.choice = self.after(found or ())
        return found is not None

    def lower_maximum(self) -> float:
        while self.move() or self.exchange():
            pass
        return float(self.now().max())

    def split(self) -> bool:
        """Of all splits with the best whole parts, the one after which what it touches is lowest."""
        loads, layer = self.now(), self.layer
        full = int(np.argmax(loads))
        best, found = loads[full] * (1 - _ROUNDING), None
        for expert, way in enumerate(self.choice):
            if expert in self.second or not layer.uses[expert, way, full]:
                continue
            for target in range(3):
                if target == way or not layer.allowed[expert, target]:
                    continue
                for parts in self.near_the_best(loads, expert, target):
                    after = layer.loads(self.choice, {**self.second, expert: (target, parts)})
                    touched = (after > loads) | (np.arange(len(loads)) == full)
                    if after[touched].max() < best:
                        best, found = float(after[touched].max()), (expert, target, parts)
        if found:
            self.second[found[0]] = found[1:]
        return found is not None

    def near_the_best(self, loads: np.ndarray, expert: int, target: int) -> list[int]:
        """Whole parts below and above the share with the lowest upper envelope of the lines of touched loads."""
        layer, way = self.layer, self.choice[expert]
        opens = target not in {*self.choice, *(other for other, _ in self.second.values())}
        fixed = layer.overhead[expert, target] + (layer.opening[target] if opens else 0.0)
        rises = (layer.uses - layer.overhead)[expert, target] - (layer.uses - layer.overhead)[expert, way]
        lines = [
            (Fraction(float(loads[r] + fixed[r])), Fraction(float(rises[r])))
            for r in range(len(loads))
            if rises[r] or fixed[r] > 0
        ]
        shares = {Fraction(0), Fraction(1)}
        for (at, rise), (other_at, other_rise) in itertools.combinations(lines, 2):
            if rise != other_rise:
                shares.add((at - other_at) / (other_rise - rise))
        within = (share for share in shares if 0 <= share <= 1)
        best = min(within, key=lambda share: (max(at + share * rise for at, rise in lines), share))
        below = int(best * layer.parts)
        return [parts for parts in (below, below + 1) if 0 < parts < layer.parts]


def least_maximum(layer: Layer) -> tuple[list[int], dict[int, tuple[int, int]], float]:
    """Ways, second ways with parts, and the largest load."""
    search = _Search(layer)
    search.begin()
    least, kept = search.lower_maximum(), list(search.choice)
    for squarings in (3, 2, 1):
        while search.lower_norm(squarings):
            pass
        most = search.lower_maximum()
        if most < least * (1 - _LEAST_GAIN):
            least, kept = most, list(search.choice)
        search.choice = list(kept)
    for _ in range(layer.splits):
        if not search.split():
            break
    return search.choice, search.second, float(search.now().max())
