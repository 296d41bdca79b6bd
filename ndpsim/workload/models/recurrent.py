"""Layers with a state of constant size in place of keys and values, other than the gated delta net.

- `KimiDelta`: the delta rule with a decay for each entry of a key (Kimi Linear, arXiv 2510.26692), as
  KimiLinearDeltaAttention and BailingHybridKimiDeltaAttention in Transformers.
- `StateSpace`: Mamba-2 (Dao and Gu, arXiv 2405.21060), as GraniteMoeHybridMambaLayer.
- `SelectiveScan`: Mamba (Gu and Dao, arXiv 2312.00752), as JambaMambaMixer.
- `Lightning`: linear attention with a fixed decay (MiniMax-01, arXiv 2501.08313),
  as MiniMaxLightningAttention.
- `ShortConvolution`: a convolution of few tokens between two gates (LFM2), as Lfm2MoeShortConv.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.workload.models.attention import LinearAttention
from ndpsim.workload.models.expert import Matrix


@dataclass(frozen=True)
class KimiDelta(LinearAttention):
    """Kimi Delta Attention.

    Attributes:
        gate_rank: rank of the projections of the decay and of the gate; 0: each is one matrix.
    """

    gate_rank: int = 0

    @property
    def title(self) -> str:
        """Always "linear (Kimi delta attention)"."""
        return "linear (Kimi delta attention)"

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """Queries, keys, values, the decay of each entry of a key, shares of values, and the gate."""
        keys, results = self.key_heads * self.key_size, self.value_heads * self.value_size
        return (
            Matrix("q_proj", keys, hidden),
            Matrix("k_proj", keys, hidden),
            Matrix("v_proj", results, hidden),
            *self._of_gate("f", self.value_heads * self.key_size, hidden),
            Matrix("b_proj", self.value_heads, hidden),
            *self._of_gate("g", results, hidden),
        )

    def _of_gate(self, name: str, rows: int, hidden: int) -> tuple[Matrix, ...]:
        if not self.gate_rank:
            return (Matrix(f"{name}_proj", rows, hidden),)
        rank = self.gate_rank
        return Matrix(f"{name}_a_proj", rank, hidden), Matrix(f"{name}_b_proj", rows, rank)

    @property
    def gates(self) -> int:
        """Numbers of a token beside queries, keys and values: decays and shares."""
        return self.value_heads * (self.key_size + 1)


@dataclass(frozen=True)
class StateSpace(LinearAttention):
    """Mamba-2: B and C are keys and queries, of `key_heads` groups, and X are values.

    Attributes:
        chunk: tokens of a chunk, if more than one token is new.
    """

    chunk: int = 256

    @property
    def title(self) -> str:
        """Always "linear (Mamba-2)"."""
        return "linear (Mamba-2)"

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """The gate, X, B, C, and a time step for each head, by one matrix."""
        rows = self.channels + self.value_heads * self.value_size + self.value_heads
        return (Matrix("in_proj", rows, hidden),)

    @property
    def gates(self) -> int:
        """Numbers of a token beside X, B and C: time steps."""
        return self.value_heads


@dataclass(frozen=True)
class SelectiveScan(LinearAttention):
    """Mamba: each of `value_heads` channels has a state of `key_size` numbers.

    Attributes:
        rank: rank of the time steps.
    """

    rank: int = 1

    @property
    def title(self) -> str:
        """Always "linear (Mamba)"."""
        return "linear (Mamba)"

    @property
    def channels(self) -> int:
        """Values of a token that are convolved."""
        return self.value_heads

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """X and the gate; rank, B and C of X; time steps. A_log, the rates, is read like a matrix."""
        inner = self.value_heads
        return (
            Matrix("in_proj", 2 * inner, hidden),
            Matrix("x_proj", self.rank + 2 * self.key_size, inner),
            Matrix("dt_proj", inner, self.rank),
        )

    @property
    def gates(self) -> int:
        """Numbers of a token beside X: time steps, B and C."""
        return self.value_heads + 2 * self.key_size


@dataclass(frozen=True)
class Lightning(LinearAttention):
    """Lightning attention; it has no convolution.

    Attributes:
        chunk: tokens of a block, if more than one token is new.
    """

    chunk: int = 256

    @property
    def title(self) -> str:
        """Always "linear (lightning)"."""
        return "linear (lightning)"

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """Queries, keys and values, and the gate."""
        results = self.value_heads * self.value_size
        return Matrix("qkv_proj", self.channels, hidden), Matrix("output_gate", results, hidden)

    def convolved(self) -> tuple[Matrix, ...]:
        """None."""
        return ()

    @property
    def gates(self) -> int:
        """None: the decay is fixed."""
        return 0


@dataclass(frozen=True)
class ShortConvolution(LinearAttention):
    """A convolution between two gates: one head of `value_size` channels, without a further state."""

    may_be_zero = ("key_heads", "key_size")

    @property
    def title(self) -> str:
        """Always "short convolution"."""
        return "short convolution"

    def projections(self, hidden: int) -> tuple[Matrix, ...]:
        """Two gates and the channels."""
        return (Matrix("in_proj", 3 * self.channels, hidden),)

    @property
    def gates(self) -> int:
        """The two gates."""
        return 2 * self.channels
