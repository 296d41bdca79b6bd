"""Fewer cases than a product of lists has: any two values of two lists meet in one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any


def all_pairs(lists: Mapping[str, Iterable[Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Names and cases for `pytest.mark.parametrize`; a name "a, b" is of two, and its values are pairs.

    Of the product's cases the one that has most pairs of values without a case yet comes next.
    """
    values = [list(each) for each in lists.values()]
    columns = list(itertools.combinations(range(len(values)), 2))
    product = list(itertools.product(*map(range, map(len, values))))
    left = {(i, case[i], j, case[j]) for case in product for i, j in columns}
    chosen: list[tuple[int, ...]] = []
    while left:
        case = max(product, key=lambda case: sum((i, case[i], j, case[j]) in left for i, j in columns))
        chosen.append(case)
        left -= {(i, case[i], j, case[j]) for i, j in columns}
    names = [name.split(", ") for name in lists]

    def of_case(case: tuple[int, ...]) -> tuple[Any, ...]:
        picked = (each[number] for each, number in zip(values, case, strict=True))
        parts = (value if len(of) > 1 else (value,) for value, of in zip(picked, names, strict=True))
        return tuple(itertools.chain.from_iterable(parts))

    return tuple(itertools.chain.from_iterable(names)), [of_case(case) for case in chosen]
