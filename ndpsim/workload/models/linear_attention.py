"""Linear attention by the gated delta rule, with a state of constant size instead of keys and values.

The rule of Yang et al., "Gated Delta Networks" (arXiv 2412.06464), with the projections and the short
convolution of Qwen3NextGatedDeltaNet in Transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.workload.models.expert import Matrix

# Bits of a value that the convolution keeps: an activation.
_CONVOLUTION_BITS = 16


@dataclass(frozen=True)
class LinearAttention:
    """The linear attention of a layer, a gated delta net.

    Each head of values has a state of `key_size` x `value_size` numbers.

    Attributes:
        key_heads: heads of queries and keys; `value_heads` / `key_heads` heads of values share each.
        value_heads: heads of values.
        key_size, value_size: entries of a query or a key, and of a value.
        convolution: tokens that the convolution of queries, keys and values spans.
        state_bits: bits of a number of a state.
    """

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    convolution: int
    state_bits: int = 32

    @property
    def kind(self) -> str:
        """Always "linear"."""
        return "linear"

    @property
    def title(self) -> str:
        """Always "linear (gated delta net)"."""
        return "linear (gated delta net)"

    @property
    def channels(self) -> int:
        """Values of a token that are convolved: queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size

    @property
    def state_values(self) -> int:
        """Numbers in the states of a sequence."""
        return self.value_heads * self.key_size * self.value_size

    @property
    def convolution_bits(self) -> int:
        """Bits of the convolution's state of a sequence: its values of the last tokens."""
        return (self.convolution - 1) * self.channels * _CONVOLUTION_BITS

    @property
    def cached_values(self) -> int:
        """Values of a token that a layer caches: none, its state does not grow."""
        return 0

    @property
    def most_tokens(self) -> int | None:
        """Maximum number of tokens of a sequence with keys and values in the cache: none."""
        return 0

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: the projected and convolved values, and the result."""
        results = self.value_heads * self.value_size
        return 2 * self.channels + 2 * results + 2 * self.value_heads

    def kept_bits(self, context: int, kv_bits: int) -> int:
        """Bits of a sequence's states, the same for any `context` and `kv_bits`."""
        return self.state_values * self.state_bits + self.convolution_bits

    def read_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step reads of a sequence's states: none if the sequence begins with this step."""
        return self.kept_bits(context, kv_bits) if context > new_tokens else 0

    def written_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step writes of a sequence's states: all."""
        return self.kept_bits(context, kv_bits)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices for every token, with the names of Hugging Face, in the order of use.

        in_proj_qkvz gives queries, keys, values and the gate of the result. in_proj_ba gives the decay of the
        state, and the share of a value that enters it. conv1d has a row for every channel.
        """
        results = self.value_heads * self.value_size
        return (
            Matrix("in_proj_qkvz", self.channels + results, hidden),
            Matrix("in_proj_ba", 2 * self.value_heads, hidden),
            Matrix("conv1d", self.channels, self.convolution),
            Matrix("out_proj", hidden, results),
        )
