"""A stable sort for kernels."""

from __future__ import annotations

from ndpsim.base.jit import outlined


@outlined
def sort_falling(worth, numbers, count, spare):
    """Sort the first `count` numbers by the worth of each, the largest first; equal ones keep their order.

    Args:
        worth: by number.
        spare: an array like `numbers` to work with.
    """
    width = 1
    while width < count:
        first = 0
        while first < count:
            middle, end = min(first + width, count), min(first + 2 * width, count)
            left, right = first, middle
            for turn in range(first, end):
                if left < middle and (right == end or worth[numbers[left]] >= worth[numbers[right]]):
                    spare[turn] = numbers[left]
                    left += 1
                else:
                    spare[turn] = numbers[right]
                    right += 1
            first = end
        for turn in range(count):
            numbers[turn] = spare[turn]
        width *= 2
