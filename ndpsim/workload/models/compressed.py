"""Compressed attention of DeepSeek-V4, as DeepseekV4Attention and its compressors in Transformers have it.

A token has one vector, which is its key and its value for all heads. A query meets the vectors of a window,
and entries that a compressor makes of `rate` tokens each: all of them ("heavily compressed"), or those that
an index chooses ("compressed sparse"). The index has entries of its own, made in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.base.annotated import Annotated
from ndpsim.workload.models.expert import Matrix
from ndpsim.workload.models.indexed import Index

# Bits of what a compressor keeps of tokens that are not compressed yet: activations.
_KEPT_BITS = 16


@dataclass(frozen=True)
class CompressedAttention(Annotated):
    """The compressed attention of a layer.

    Attributes:
        heads: heads of queries.
        head_size: entries of a query, of the vector of a token, and of an entry.
        query_rank: length of the latent vector of the queries.
        output_groups, output_rank: groups of heads of the result, and what each is projected to first.
        window: maximum number of tokens whose vectors a token meets, including itself.
        rate: tokens of an entry; 0: there are none.
        index: chooses `top` of the entries, which overlap: each is made of the tokens of two windows of
            `rate`. None: a token meets all entries, which do not overlap.
    """

    heads: int
    head_size: int
    query_rank: int
    output_groups: int
    output_rank: int
    window: int
    rate: int = 0
    index: Index | None = None

    @property
    def kind(self) -> str:
        """Always "compressed"."""
        return "compressed"

    @property
    def title(self) -> str:
        """Its window, and how many tokens an entry has: "compressed 4 to 1, window of 128"."""
        made = f" {self.rate} to 1" if self.rate else ""
        return f"compressed{made}, window of {self.window}{f', {self.index.title}' if self.index else ''}"

    @property
    def entry_values(self) -> int:
        """Values of an entry, with that of the index."""
        return self.head_size + (self.index.size if self.index else 0)

    @property
    def series(self) -> int:
        """Vectors that a compressor makes of a token: two if entries overlap."""
        return 2 if self.index else 1

    @property
    def cached_values(self) -> int:
        """Values that the cache grows by with a token, rounded up; the window does not grow."""
        return -(-self.entry_values // self.rate) if self.rate else 0

    @property
    def most_tokens(self) -> int | None:
        """Maximum number of tokens with an entry in the cache; None: all."""
        return None if self.rate else 0

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: queries, results, its vector, and those of compressors."""
        index = self.index.heads * (self.index.size + 1) if self.index else 0
        made = 2 * self.series * self.entry_values if self.rate else 0
        return (2 * self.heads + 1) * self.head_size + self.output_groups * self.output_rank + made + index

    def entries(self, tokens: int) -> int:
        """Entries of a sequence."""
        return tokens // self.rate if self.rate else 0

    def _span(self, context: int, new_tokens: int) -> int:
        """Tokens of the window that the last `new_tokens` meet."""
        return min(context, self.window + new_tokens - 1)

    def pairs(self, context: int, new_tokens: int) -> int:
        """Pairs of query and vector, or entry, of the last `new_tokens` of a sequence."""
        return self._pairs(context) - self._pairs(context - new_tokens)

    def _pairs(self, tokens: int) -> int:
        inside = min(tokens, self.window)
        in_window = inside * (inside + 1) // 2 + (tokens - inside) * inside
        if self.index is None:
            return in_window + self._entry_pairs(tokens)
        # From this token on there are more entries than the index chooses.
        first = min(tokens, self.index.top * self.rate)
        return in_window + self._entry_pairs(first) + (tokens - first) * self.index.top

    def _entry_pairs(self, tokens: int) -> int:
        """Pairs of query and entry of the first tokens of a sequence, before any choice."""
        entries, rest = divmod(tokens, self.rate) if self.rate else (0, 0)
        return self.rate * entries * (entries - 1) // 2 + entries * (rest + 1)

    def index_pairs(self, context: int, new_tokens: int) -> int:
        """Pairs of query and entry of the index of the last `new_tokens` of a sequence."""
        return self._entry_pairs(context) - self._entry_pairs(context - new_tokens) if self.index else 0

    def attended_values(self, context: int, new_tokens: int) -> int:
        """Values of vectors and entries that the last `new_tokens` read: at most all different."""
        entries = self.entries(context)
        if self.index:
            entries = min(entries, new_tokens * self.index.top)
        return (self._span(context, new_tokens) + entries) * self.head_size

    def index_values(self, context: int) -> int:
        """Values of the index that a step reads of a sequence."""
        return self.entries(context) * self.index.size if self.index else 0

    def waiting_values(self, tokens: int) -> int:
        """Values that compressors keep: of tokens without an entry, and of those that the next overlaps."""
        if not self.rate:
            return 0
        pair = 2 * self.entry_values  # a vector and its weights
        overlap = self.rate * pair if self.index and tokens >= self.rate else 0
        return tokens % self.rate * self.series * pair + overlap

    def kept_values(self, context: int) -> int:
        """Values of a sequence's cache: vectors of the window, and all entries."""
        return min(context, self.window) * self.head_size + self.entries(context) * self.entry_values

    def kept_bits(self, context: int, kv_bits: int) -> int:
        """Bits of a sequence's cache, with what compressors keep."""
        return self.kept_values(context) * kv_bits + self.waiting_values(context) * _KEPT_BITS

    def fixed_bits(self, kv_bits: int) -> int:
        """Bits that do not depend on a sequence's length: a full window, and all that compressors keep."""
        most = self.waiting_values(2 * self.rate - 1) if self.rate else 0
        return self.window * self.head_size * kv_bits + most * _KEPT_BITS

    def read_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step reads from a sequence's cache."""
        before = context - new_tokens
        entries = self.entries(before)
        met = min(entries, new_tokens * self.index.top) if self.index else entries
        values = min(before, self.window - 1) * self.head_size + met * self.head_size
        return (values + self.index_values(before)) * kv_bits + self.waiting_values(before) * _KEPT_BITS

    def written_bits(self, context: int, new_tokens: int, kv_bits: int) -> int:
        """Bits that a step adds to a sequence's cache."""
        made = self.entries(context) - self.entries(context - new_tokens)
        values = min(new_tokens, self.window) * self.head_size + made * self.entry_values
        waiting = min(self.waiting_values(context), 2 * new_tokens * self.series * self.entry_values)
        return values * kv_bits + (waiting if self.rate else 0) * _KEPT_BITS

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices for every token, with the names of Hugging Face, in the order of use."""
        results, groups = self.heads * self.head_size, self.output_groups
        return (
            Matrix("q_a_proj", self.query_rank, hidden),
            Matrix("q_b_proj", results, self.query_rank),
            Matrix("kv_proj", self.head_size, hidden),
            *self.compressor_matrices(hidden),
            *self.index_matrices(hidden),
            Matrix("o_a_proj", groups * self.output_rank, results // groups),
            Matrix("o_b_proj", hidden, groups * self.output_rank),
        )

    def compressor_matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The vectors of which entries are made, and their weights."""
        if not self.rate:
            return ()
        rows = self.series * self.head_size
        return (
            Matrix("compressor.kv_proj", rows, hidden),
            Matrix("compressor.gate_proj", rows, hidden),
        )

    def index_matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The index: the vectors and weights of its entries, its queries, and the weights of its heads."""
        index = self.index
        if index is None:
            return ()
        return (
            Matrix("indexer.kv_proj", self.series * index.size, hidden),
            Matrix("indexer.gate_proj", self.series * index.size, hidden),
            Matrix("indexer.q_b_proj", index.heads * index.size, self.query_rank),
            Matrix("indexer.weights_proj", index.heads, hidden),
        )
