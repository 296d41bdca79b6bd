"""Sizes of the GEMV unit as hardware, and what its modules consist of; without Amaranth.

`terms` counts what each module has most of: bits of registers, of adders, of multiplexers. The gates of a
module are a sum of these, with factors that `fit.py` finds from modules that were synthesised. Bits of
memories are exact.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Sizes of the unit; keys as in `rtl_params`, and those that its machine and its weights give.

    Attributes:
        lanes, burst_bits: lanes of the DIMM, and bits of a burst.
        bits: bits of a weight.
        tokens: most tokens of a tile.
        window: rows whose sums can be open at once, a power of 2.
    """

    multipliers: int
    values_per_multiplier: int
    native_bits: int
    bit_serial_cycles: int
    adder_tree_cycles: int
    fifo_bursts: int
    lanes: int
    burst_bits: int = 512
    bits: int = 16
    tokens: int = 1
    window: int = 32
    buffer_kib: int = 256
    activation_bits: int = 16

    def __post_init__(self) -> None:
        if self.burst_bits % self.bits:
            raise ValueError(f"bits: {self.bits} does not divide a burst of {self.burst_bits} bits")
        if self.multipliers < self.lanes:
            raise ValueError(f"multipliers: {self.multipliers} are fewer than the {self.lanes} lanes")
        if self.front < 1:
            raise ValueError(f"adder_tree_cycles: {self.adder_tree_cycles} is too few, 2 is the least")

    @property
    def values(self) -> int:
        """Weights in a burst."""
        return self.burst_bits // self.bits

    @property
    def lane_vectors(self) -> int:
        """Activations of a burst that the part of the buffer of a lane holds."""
        return self.buffer_kib * 8192 // self.lanes // (self.values * self.activation_bits)

    @property
    def group_multipliers(self) -> int:
        """Multipliers of a group."""
        return min(-(-self.values // self.values_per_multiplier), self.multipliers // self.lanes)

    @property
    def groups(self) -> int:
        """Groups of a lane."""
        return self.multipliers // self.lanes // self.group_multipliers

    @property
    def chunk(self) -> int:
        """Weights that a group multiplies at once."""
        return min(self.group_multipliers * self.values_per_multiplier, self.values)

    @property
    def chunks(self) -> int:
        """Parts of a burst, one after the other."""
        return -(-self.values // self.chunk)

    @property
    def pass_cycles(self) -> int:
        """Clocks of a part of a burst and a token."""
        return -(-self.bit_serial_cycles * self.bits // self.native_bits)

    @property
    def step_bits(self) -> int:
        """Bits of a weight in a clock."""
        return -(-self.bits // self.pass_cycles)

    @property
    def used(self) -> int:
        """Clocks of a pass with bits; in the others the group waits."""
        return -(-self.bits // self.step_bits)

    @property
    def sum_bits(self) -> int:
        """Bits of a sum of up to 2^14 products."""
        return self.bits + self.activation_bits + 14

    @property
    def slot_bits(self) -> int:
        """Bits of a row's number within the window."""
        return (self.window - 1).bit_length()

    @property
    def token_bits(self) -> int:
        """Bits of a token's number."""
        return max(1, (self.tokens - 1).bit_length())

    @property
    def front(self) -> int:
        """Registers in front of the sums of rows; the other `adder_tree_cycles` follow them."""
        levels = max(1, (self.chunk - 1).bit_length())
        return min(levels, self.adder_tree_cycles - 1)

    @property
    def lane_registers(self) -> int:
        """Registers behind the sums of rows that are in a lane."""
        levels = (self.groups - 1).bit_length()
        over_lanes = (self.lanes - 1).bit_length()
        back = self.adder_tree_cycles - self.front
        return min(levels, back) if over_lanes else back


def counts(parameters: Parameters) -> dict[str, int]:
    """How often each module is in the unit."""
    return {"group": parameters.lanes * parameters.groups, "lane": parameters.lanes, "unit": 1}


def memory_bits(parameters: Parameters) -> int:
    """Bits of all memories: FIFOs, buffers of activations, and sums and counts of open rows."""
    p = parameters
    fifo = p.groups * -(-p.fifo_bursts // p.groups) * _entry_bits(p)
    buffer = p.lane_vectors * p.values * p.activation_bits
    return p.lanes * (fifo + buffer + p.groups * _open_rows(p) * (p.sum_bits + 16))


def terms(parameters: Parameters) -> dict[str, dict[str, float]]:
    """What each module consists of, in bits, by module and name."""
    p = parameters
    clock_bits = (p.pass_cycles - 1).bit_length()
    adders, registers = _tree(p.chunk, p.activation_bits + (p.step_bits > 1) * (p.step_bits + 1), p.front)
    group = {
        "activations": p.values * p.activation_bits,
        "weights": p.values * p.used * p.step_bits,
        "products": p.chunk * p.activation_bits * p.step_bits,
        "product adders": p.chunk * p.activation_bits * (p.step_bits - 1),
        "adders": adders,
        "registers": registers,
        "parts of a burst": p.chunk * (p.chunks - 1) * (p.activation_bits + p.step_bits),
        "shift": p.sum_bits * clock_bits,
        "open rows": _open_rows(p),
        "one": 1,
    }
    adders, registers = _tree(p.groups, p.sum_bits, p.lane_registers)
    lane = {
        "FIFO": p.groups * _entry_bits(p),
        "adders": adders,
        "registers": registers,
        "groups": p.groups,
        "one": 1,
    }
    over_lanes = p.adder_tree_cycles - p.front - p.lane_registers
    adders, registers = _tree(p.lanes, p.sum_bits, over_lanes)
    tags = (p.adder_tree_cycles + p.front) * (16 + p.token_bits)
    return {"group": group, "lane": lane, "unit": {"adders": adders, "registers": registers + tags, "one": 1}}


def _entry_bits(p: Parameters) -> int:
    """Bits of an entry of a FIFO: a burst, its row and place, and its phase."""
    return p.burst_bits + 16 + 16 + 1


def _open_rows(p: Parameters) -> int:
    """Rows and tokens that a group can have open."""
    return 1 << (p.slot_bits + p.token_bits)


def _tree(count: int, bits: int, registers: int) -> tuple[int, int]:
    """Bits of the adders, and of the registers, of `parts.add_tree`."""
    levels = (count - 1).bit_length()
    added, held, done = 0, 0, 0
    for stage in range(registers):
        until = levels * (stage + 1) // registers
        for _ in range(until - done):
            bits, added = bits + 1, added + count // 2 * (bits + 1)
            count -= count // 2
        done, held = until, held + count * bits
    while count > 1:
        bits, added = bits + 1, added + count // 2 * (bits + 1)
        count -= count // 2
    return added, held


def gates(parameters: Parameters, factors: dict[str, dict[str, float]]) -> float:
    """Gate equivalents of the unit, with the factors of each module's terms."""
    of_module = terms(parameters)
    return sum(
        count * sum(factor * of_module[module][name] for name, factor in factors[module].items())
        for module, count in counts(parameters).items()
    )
