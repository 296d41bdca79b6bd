"""The GEMV unit: bit-serial multipliers behind the lanes of a DIMM, and an adder tree.

The multipliers are shared out evenly: each lane feeds its own. A burst of weights occupies as many of
them as hold its values and stays for one bit-serial pass a token; the next burst that they serve can
start when they are done. A lane's multipliers are therefore `servers` equal places that each hold a
burst for `burst_cycles`, which is the sink of the lane's DRAM channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.errors import InputError

__all__ = ["GemvUnit", "Tiling", "fit_tokens"]


@dataclass(frozen=True)
class Tiling:
    """Tokens in tiles that fit the activation buffer; the weights are read once a tile.

    Attributes:
        tokens: tokens of each tile.
        bytes_per_token: buffer bytes a token takes.
        buffer_bytes: what the buffer holds.
    """

    tokens: tuple[int, ...]
    bytes_per_token: int
    buffer_bytes: int


def fit_tokens(
    tokens: int, bytes_per_token: int, buffer_bytes: int, unit: str, key: str, at_once: int | None = None
) -> Tiling:
    """The fewest tiles, as even as they can be, of tokens that fit a buffer, and of no more than `at_once`.

    Raises:
        InputError: not even one token fits; `unit` is whose buffer it is, `key` the buffer's.
    """
    most = buffer_bytes // bytes_per_token
    if most == 0:
        raise InputError(
            f"not supported: one token needs {bytes_per_token} bytes of activations, the {unit}'s "
            f"buffer holds {buffer_bytes}",
            key=key,
        )
    count = -(-tokens // min(most, at_once or most))
    share, larger = divmod(tokens, count)
    return Tiling((share + 1,) * larger + (share,) * (count - larger), bytes_per_token, buffer_bytes)


@dataclass(frozen=True)
class GemvUnit:
    """A GEMV unit as its parameters say; cycles are of its own clock.

    Attributes:
        multipliers: on the whole unit.
        values_per_multiplier: values a multiplier works on at once.
        native_bits: bits of a weight that takes `bit_serial_cycles`.
        bit_serial_cycles: cycles of one pass over weights of `native_bits`.
        adder_tree_cycles: from the last product of a row to its sum.
        buffer_bytes: activations and intermediate results.
        activation_bytes: bytes of one activation.
        fifo_bursts: bursts each lane's FIFO holds.
    """

    multipliers: int
    values_per_multiplier: int
    native_bits: int
    bit_serial_cycles: int
    adder_tree_cycles: int
    buffer_bytes: int
    activation_bytes: int
    fifo_bursts: int

    def pass_cycles(self, bits: int) -> int:
        """Cycles of one pass over weights of `bits` bits: bit-serial, so in proportion, rounded up."""
        return -(-self.bit_serial_cycles * bits // self.native_bits)

    def burst_work(self, lanes: int, burst_bytes: int, bits: int) -> tuple[int, int]:
        """(servers of a lane, cycles that a burst holds one of them per token).

        Multipliers take whole bursts, so those that are too few for one burst more stand idle: of the 32
        of a lane, with 8 values each, a burst of 3-bit weights, 171 of them, takes 22 for 3 cycles, where
        two bursts of 4-bit weights take all for 4 cycles. Then 3 bits are slower than 4 by an eighth.

        Raises:
            InputError: there are fewer multipliers than lanes.
        """
        of_lane = self.multipliers // lanes
        if of_lane == 0:
            raise InputError(
                f"{self.multipliers} multipliers are fewer than the {lanes} lanes", key="ndp.gemv.multipliers"
            )
        values = -(-burst_bytes * 8 // bits)
        wanted = -(-values // self.values_per_multiplier)
        return max(1, of_lane // wanted), -(-wanted // of_lane) * self.pass_cycles(bits)

    def tile(self, tokens: int, hidden: int, intermediate: int) -> Tiling:
        """The fewest tiles, as even as they can be.

        A token needs its `hidden` inputs and its `intermediate` values; its `hidden` results then take
        the place of its inputs, which gate and up have used.

        Raises:
            InputError: not even one token fits.
        """
        per_token = (hidden + intermediate) * self.activation_bytes
        return fit_tokens(tokens, per_token, self.buffer_bytes, "GEMV unit", "ndp.gemv.buffer_kib")
