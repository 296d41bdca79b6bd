"""Two kernels, one inlined in the other, that tests compile elsewhere."""

from ndpsim.base.jit import inlined, kernel


@inlined
def twice(number):
    return 2 * number


@kernel
def thrice(number):
    return twice(number) + number
