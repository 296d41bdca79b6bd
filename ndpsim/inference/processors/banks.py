"""Attention of decoded tokens on devices with units in their banks, which have the KV cache.

A layer's attention goes through five parts, one after the other: norms and projections on the GPU; queries,
and the new keys and values, over the link to the devices; there the writes of these, then scores, softmax and
context, as programs of commands (`ndpsim.simulate.bank_turns`); the results back over the link; the output
projection on the GPU. The GPU computes the attention of sequences with several new tokens meanwhile, and
reads their earlier keys and values from the devices.

Parts of a sequence (AttAcc: a head of keys; AiM: all heads) are dealt over the devices in turn, by the number
of the sequence. A layer waits for the device with the most to do. The products that expand latent vectors
(MLA) are the GPU's. Keys and values of prompts are written in the banks before the attention of other
sequences. Linear attention stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ndpsim.base.errors import InputError
from ndpsim.config import Hardware
from ndpsim.config.banks import BankHardware
from ndpsim.inference.processors.operations import ACTIVATION_BYTES, AnyStep, MixedStep, Step
from ndpsim.simulate.bank_operands import refuse_index
from ndpsim.simulate.bank_turns import AttentionTurns, check_fits
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.workload.models import Attention, LayerAttention, MoeShape


@dataclass(frozen=True)
class BankAttention:
    """A layer's attention with the devices.

    Attributes:
        before_ns, beside_ns: the GPU's work before it, and beside it.
        time_ns: the devices' time.
        in_bytes, out_bytes: to the devices and back.
    """

    before_ns: float
    beside_ns: float
    time_ns: float
    in_bytes: int
    out_bytes: int


class AttentionDevices:
    """The devices of a machine, for a model.

    Args:
        kinds: the kinds of attention of its layers.
        layers: the number of layers of each kind.
        cache: as in `simulate_expert`.

    Raises:
        InputError: the machine has no such devices, or they cannot compute this attention.
    """

    def __init__(
        self,
        hardware: Hardware,
        model: MoeShape,
        kinds: Sequence[LayerAttention],
        kv_bits: int,
        cache: bool | ResultCache,
    ) -> None:
        device, section = hardware.bank_device, hardware.system.banks
        if device is None or section is None:
            problem = "is missing: attention=ndp needs devices with units in their banks"
            raise InputError(problem, "missing", file=hardware.file, key="banks")
        unit_bits = 8 * device.unit.get("element_bytes", 2)
        if kv_bits != unit_bits:
            problem = f"{kv_bits} are not the {unit_bits} that the units of {device.name} multiply"
            raise InputError(problem, "unsupported", key="kv_bits")
        for kind in kinds:
            if isinstance(kind, Attention):
                refuse_index(kind, model.name, "attention")
        self.device: BankHardware = device
        self.count, self._kv_bits, self._model = section.count, kv_bits, model
        self._layers = model.layers_of_kind
        self._turns = [
            AttentionTurns(device, kind, model.name, cache) if isinstance(kind, Attention) else None
            for kind in kinds
        ]
        if not any(self._turns):
            problem = f"{model.name} has no attention with keys and values"
            raise InputError(problem, "unsupported", key="attention")

    def kept_bytes(self, kind: int, tokens: int) -> int:
        """Bytes that devices keep of so many tokens of a sequence in a layer of a kind."""
        turns = self._turns[kind]
        if turns is None:
            return 0
        return -(-turns.sizes.copies * turns.attention.kept_bits(tokens, self._kv_bits) // 8)

    def block_bytes(self, tokens: int) -> int:
        """Bytes that devices keep of so many tokens in all layers, those of windows and chunks among them."""
        sizes = (
            layers * turns.sizes.copies * tokens * turns.attention.cached_values * self._kv_bits // 8
            for turns, layers in zip(self._turns, self._layers, strict=True)
            if turns is not None
        )
        return sum(sizes)

    def _most_parts(self, kind: int, sequences: int) -> int:
        """Parts on the device that has the most of them."""
        turns = self._turns[kind]
        return 0 if turns is None else -(-sequences * turns.sizes.parts // self.count)

    def blocks(self, sequences: int, tokens: int) -> int:
        """Blocks of so many tokens that equal sequences may have: the fullest device's are its room."""
        fullest = 0
        for kind, layers in enumerate(self._layers):
            turns = self._turns[kind]
            if turns is not None:
                size = turns.sizes.copies * tokens * turns.attention.cached_values * self._kv_bits // 8
                fullest += layers * self._most_parts(kind, sequences) * -(-size // turns.sizes.parts)
        return self.device.capacity_bytes * sequences // max(fullest, 1)

    def check_room(self, sequences: int, context: int) -> int:
        """Check that the cache of equal sequences fits the device with the most parts of them.

        Returns:
            Bytes on all devices.

        Raises:
            InputError: it does not, or a sequence is too long for the layout.
        """
        self.check_lengths(context)
        fullest = total = 0
        for kind, layers in enumerate(self._layers):
            turns = self._turns[kind]
            if turns is not None:
                size, parts = layers * self.kept_bytes(kind, context), turns.sizes.parts
                total += sequences * size
                fullest += self._most_parts(kind, sequences) * -(-size // parts)
        what = f"keys and values of {sequences} sequences of {context} tokens of {self._model.name}"
        check_fits(fullest, self.device.capacity_bytes, what)
        return total

    def check_lengths(self, context: int) -> None:
        """Check that a sequence of this context has a layout in the banks.

        Raises:
            InputError: it has not.
        """
        for turns in self._turns:
            if turns is not None:
                turns.check_length(min(context, turns.attention.most_tokens or context))

    def holds(self, kind: int) -> bool:
        """Whether devices have the keys and values of layers of this kind."""
        return self._turns[kind] is not None

    def on_gpu(self, kind: int, step: AnyStep) -> AnyStep | None:
        """The sequences of a step whose attention the GPU computes; None: there are none."""
        if self._turns[kind] is None:
            return step
        more = tuple((new, context) for count, new, context in step.groups for _ in range(count) if new > 1)
        if len(more) == sum(count for count, _, _ in step.groups):
            return step
        return MixedStep(more, step.kv_bits) if more else None

    def attention(self, kind: int, step: AnyStep, before_ns: float, beside_ns: float) -> BankAttention:
        """The attention of a step in a layer of a kind, with the GPU's times."""
        turns = self._turns[kind]
        assert turns is not None
        attention = turns.attention
        decoded, prompted = ([list[int]() for _ in range(self.count)] for _ in range(2))
        for number, new, context in _sequences(step):
            attended = context - attention.first_key(context - 1)
            loads, length = (decoded, attended) if new == 1 else (prompted, min(new, attended))
            for part in range(number * turns.sizes.parts, (number + 1) * turns.sizes.parts):
                loads[part % self.count].append(length)
        tokens = sum(count for count, new, _ in step.groups if new == 1)
        prompts = self.on_gpu(kind, step)
        read = 0 if prompts is None else prompts.read_bytes(attention)  # earlier keys and values of prompts
        query, result = attention.head_size, attention.value_size
        if attention.latent_rank:
            query, result = attention.latent_rank + attention.rope_size, attention.latent_rank
        queries = tokens * attention.heads * query * ACTIVATION_BYTES
        for lengths in (*decoded, *prompted):
            lengths.sort(reverse=True)
        both = zip(decoded, prompted, strict=True)
        return BankAttention(
            before_ns,
            beside_ns,
            max(turns.prompts_ns(new) + turns.written_ns(old) + turns.time_ns(old) for old, new in both),
            queries + step.written_bytes(attention),
            tokens * attention.heads * result * ACTIVATION_BYTES + read,
        )


def _sequences(step: AnyStep) -> list[tuple[int, int, int]]:
    """The number, the new tokens and the context of each sequence."""
    if isinstance(step, Step):
        return [(number, step.new_tokens, step.context) for number in range(step.sequences)]
    numbers = step.numbers or range(len(step.lengths))
    return [(number, new, context) for number, (new, context) in zip(numbers, step.lengths, strict=True)]
