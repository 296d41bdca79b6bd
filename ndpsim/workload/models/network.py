"""What a layer of one block has in place of attention (Nemotron-H): a feed-forward network, or nothing.

A layer with experts has nothing here; its experts are those of the shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.workload.models.expert import Matrix


@dataclass(frozen=True)
class Network:
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
    def cached_values(self) -> int:
        """Values of a token that a layer caches: none."""
        return 0

    @property
    def most_tokens(self) -> int | None:
        """Maximum number of tokens of a sequence with keys and values in the cache: none."""
        return 0

    @property
    def values_in_work(self) -> int:
        """Values of a token in memory at once: the vector inside, before and behind the activation."""
        return 2 * self.intermediate

    def kept_values(self, context: int) -> int:
        """Values of tokens that a sequence caches: none."""
        return 0

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
