"""Attention with keys and values, to all tokens, in a window or in chunks; multi-head latent attention.

Equations: Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762); grouped keys, Ainslie et al. (arXiv
2305.13245); latent vectors, DeepSeek-V2 (arXiv 2405.04434); sliding windows, Mistral 7B (arXiv 2310.06825).
Chunks, and a gate on the result, are those of Llama4TextAttention and Qwen3NextAttention in Transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.base.annotated import Annotated
from ndpsim.workload.models.expert import Matrix
from ndpsim.workload.models.indexed import Index


@dataclass(frozen=True)
class Attention(Annotated):
    """The attention of a layer with keys and values.

    Attributes:
        heads: heads of queries.
        kv_heads: heads of keys and values; `heads` / `kv_heads` queries share each.
        head_size, value_size: entries of a query or a key, and of a value.
        query_rank: length of the latent vector of the queries (MLA); 0: queries have no latent vector.
        latent_rank: length of the latent vector from which keys and values of all heads are computed (MLA);
            0: there is none.
        rope_size: with a latent vector, the entries of a key that carry the position and are common to all
            heads; they are part of `head_size`.
        window: maximum number of tokens that a token attends to, including itself; 0: no limit.
        chunk: a token attends to the tokens since the last multiple of this number; 0: to all.
        gated: the result is multiplied by a gate. The projection of the queries is then twice as wide.
        head_gated: the result of each head is multiplied by one number, which has a projection of its own.
        values_of_keys: values are the projected keys; both are cached, since keys are then rotated.
        gate_of_queries: with a latent vector of the queries, that vector before and behind its norm is
            projected to queries and gate by one matrix.
        index: chooses the tokens that a token attends to; None: it attends to all.
    """

    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    query_rank: int = 0
    latent_rank: int = 0
    rope_size: int = 0
    window: int = 0
    chunk: int = 0
    gated: bool = False
    head_gated: bool = False
    values_of_keys: bool = False
    gate_of_queries: bool = False
    index: Index | None = None

    @property
    def kind(self) -> str:
        """One of "mla", "mha" (keys for every query), "mqa" (the same for all) and "gqa"."""
        if self.latent_rank:
            return "mla"
        if self.kv_heads == self.heads:
            return "mha"
        return "mqa" if self.kv_heads == 1 else "gqa"

    @property
    def title(self) -> str:
        """The kind and its distinguishing property: "gqa window of 128"."""
        limits = (("window", self.window), ("chunk", self.chunk))
        words = ["gated"] if self.gated or self.head_gated else []
        words += [self.kind, *(f"{name} of {tokens}" for name, tokens in limits if tokens)]
        words += [self.index.title] if self.index else []
        return " ".join(words)

    @property
    def cached_values(self) -> int:
        """Values of a token that a layer caches: those that queries meet, and the key of the index."""
        return self.attended_values + (self.index.cached_values if self.index else 0)

    @property
    def attended_values(self) -> int:
        """Keys and values of a token, or its latent vector and the common key."""
        if self.latent_rank:
            return self.latent_rank + self.rope_size
        return self.kv_heads * (self.head_size + self.value_size)

    @property
    def most_tokens(self) -> int | None:
        """Maximum number of tokens of a sequence with keys and values in the cache; None: all."""
        return self.window or self.chunk or None

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: queries, keys, values, the result and its gate."""
        gate = self.heads * self.value_size if self.gated else self.heads if self.head_gated else 0
        index = self.index.values_in_work if self.index else 0
        return (self.heads + self.kv_heads) * (self.head_size + self.value_size) + gate + index

    def first_key(self, position: int) -> int:
        """The first position that the token at `position`, counted from 0, attends to."""
        if self.window:
            return max(0, position - self.window + 1)
        return position - position % self.chunk if self.chunk else 0

    def pairs(self, context: int, new_tokens: int) -> int:
        """Pairs of query and key of the last `new_tokens` of a sequence of `context` tokens."""
        return self._pairs(context) - self._pairs(context - new_tokens)

    def attended(self, context: int, new_tokens: int) -> int:
        """Tokens whose keys the last `new_tokens` of a sequence read: of an index, at most all different."""
        tokens = context - self.first_key(context - new_tokens)
        return min(tokens, self.pairs(context, new_tokens)) if self.index else tokens

    def _pairs(self, tokens: int) -> int:
        """Pairs of the first tokens of a sequence."""
        if self.chunk:
            chunks, rest = divmod(tokens, self.chunk)
            return (chunks * self.chunk * (self.chunk + 1) + rest * (rest + 1)) // 2
        if self.index:
            return self.index.pairs(tokens)
        inside = min(tokens, self.window or tokens)
        return inside * (inside + 1) // 2 + (tokens - inside) * inside

    def kept_values(self, context: int) -> int:
        """Values of a sequence's cache: of all its tokens, or of the tokens of a window or a chunk."""
        return min(context, self.most_tokens or context) * self.cached_values

    def kept_bits(self, context: int, kv_bits: int) -> int:
        """Bits of a sequence's cache."""
        return self.kept_values(context) * kv_bits

    def fixed_bits(self, kv_bits: int) -> int:
        """Bits of a sequence that do not depend on its length: none."""
        return 0

    def read_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step reads from a sequence's cache."""
        before = context - new_tokens
        there = before - self.first_key(before)
        met = min(there, self.pairs(context, new_tokens)) if self.index else there
        of_index = self.cached_values - self.attended_values
        return (met * self.attended_values + there * of_index) * kv_bits

    def written_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step adds to a sequence's cache, for new tokens that the last one attends to."""
        attended = context - self.first_key(context - 1)
        return min(new_tokens, attended) * self.cached_values * kv_bits

    def index_pairs(self, context: int, new_tokens: int) -> int:
        """Pairs of query and key of the index of the last `new_tokens` of a sequence."""
        return self.index.scored(context) - self.index.scored(context - new_tokens) if self.index else 0

    def index_values(self, context: int) -> int:
        """Values of the index that a step reads of a sequence."""
        return context * (self.cached_values - self.attended_values)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices for every token, with the names of Hugging Face, in the order of use."""
        queries, results = self.heads * self.head_size, self.heads * self.value_size
        index = self.index.matrices(self.query_rank or hidden, hidden) if self.index else ()
        output = Matrix("o_proj", hidden, results)
        if not self.latent_rank:
            keys, values = self.kv_heads * self.head_size, self.kv_heads * self.value_size
            gate = results if self.gated else 0
            projections = [("q_proj", queries + gate), ("k_proj", keys)]
            projections += [] if self.values_of_keys else [("v_proj", values)]
            by_head = (Matrix("g_proj", self.heads, hidden),) if self.head_gated else ()
            return (*(Matrix(name, rows, hidden) for name, rows in projections), *by_head, *index, output)
        expanded = self.heads * (self.head_size - self.rope_size) + results
        gate = results if self.gated else self.heads if self.head_gated else 0
        return (
            *self._of_queries(hidden, queries, results),
            Matrix("kv_a_proj_with_mqa", self.latent_rank + self.rope_size, hidden),
            *((Matrix("g_proj", gate, hidden),) if gate and not self.gate_of_queries else ()),
            *index,
            Matrix("kv_b_proj", expanded, self.latent_rank),
            output,
        )

    def _of_queries(self, hidden: int, queries: int, results: int) -> tuple[Matrix, ...]:
        """With a latent vector of keys, the matrices of queries, and of a gate that comes with them."""
        if not self.query_rank:
            return (Matrix("q_proj", queries, hidden),)
        down = Matrix("q_a_proj", self.query_rank, hidden)
        if self.gate_of_queries:
            return down, Matrix("q_gate_proj", queries + results, 2 * self.query_rank)
        return down, Matrix("q_b_proj", queries, self.query_rank)


# ---- Linear attention by the gated delta rule, with a state of constant size instead of keys and values
#
# The rule of Yang et al., "Gated Delta Networks" (arXiv 2412.06464), with the projections and the short
# convolution of Qwen3NextGatedDeltaNet in Transformers.


# Bits of a value that the convolution keeps: an activation.
_CONVOLUTION_BITS = 16


class WithoutKeys(Annotated):
    """What a layer has in place of attention caches no keys and values of tokens."""

    @property
    def cached_values(self) -> int:
        """Values of a token that a layer caches: none."""
        return 0

    @property
    def most_tokens(self) -> int | None:
        """Maximum number of tokens of a sequence with keys and values in the cache: none."""
        return 0

    def kept_values(self, context: int) -> int:
        """Values of tokens that a sequence caches: none."""
        return 0


@dataclass(frozen=True)
class LinearAttention(WithoutKeys):
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
    def values_in_work(self) -> int:
        """Values of a token in memory at once: the projected and convolved values, and the result."""
        results = self.value_heads * self.value_size
        return 2 * self.channels + 2 * results + self.gates

    def kept_bits(self, context: int, kv_bits: int) -> int:
        """Bits of a sequence's states, the same for any `context` and `kv_bits`."""
        return self.state_values * self.state_bits + self.convolution_bits

    def fixed_bits(self, kv_bits: int) -> int:
        """Bits of a sequence that do not depend on its length: all."""
        return self.kept_bits(1, kv_bits)

    def read_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step reads of a sequence's states: none if the sequence begins with this step."""
        return self.kept_bits(context, kv_bits) if context > new_tokens else 0

    def written_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step writes of a sequence's states: all."""
        return self.kept_bits(context, kv_bits)

    @property
    def gates(self) -> int:
        """Numbers of a token beside queries, keys and values: a decay and a share for each head."""
        return 2 * self.value_heads

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices for every token, with the names of Hugging Face, in the order of use."""
        return *self.projections(hidden), *self.convolved(), self.output(hidden)

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices before the state.

        in_proj_qkvz gives queries, keys, values and the gate of the result. in_proj_ba gives the decay of the
        state, and the share of a value that enters it.
        """
        results = self.value_heads * self.value_size
        return (
            Matrix("in_proj_qkvz", self.channels + results, hidden),
            Matrix("in_proj_ba", 2 * self.value_heads, hidden),
        )

    def convolved(self) -> tuple[Matrix, ...]:
        """The convolution, which has a row for every channel."""
        return (Matrix("conv1d", self.channels, self.convolution),)

    def output(self, hidden: int) -> Matrix:
        """The matrix behind the state."""
        return Matrix("out_proj", hidden, self.value_heads * self.value_size)


@dataclass(frozen=True)
class Network(WithoutKeys):
    """A network of two matrices without a gate, as NemotronHMLP in Transformers; it caches nothing.

    `intermediate`: its intermediate size; 0: nothing.
    """

    intermediate: int = 0

    @property
    def kind(self) -> str:
        """One of "network" and "none"."""
        return "network" if self.intermediate else "none"

    @property
    def title(self) -> str:
        """The kind."""
        return self.kind

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: the vector inside, before and behind the activation."""
        return 2 * self.intermediate

    def kept_bits(self, context: int, kv_bits: int) -> int:
        """Bits of a sequence's cache: none."""
        return 0

    def fixed_bits(self, kv_bits: int) -> int:
        """Bits of a sequence that do not depend on its length: none."""
        return 0

    def read_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step reads of a sequence's cache: none."""
        return 0

    def written_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step adds to a sequence's cache: none."""
        return 0

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices for every token, with the names of Hugging Face, in the order of use."""
        if not self.intermediate:
            return ()
        return Matrix("up_proj", self.intermediate, hidden), Matrix("down_proj", hidden, self.intermediate)
