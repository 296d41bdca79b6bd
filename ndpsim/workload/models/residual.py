"""What stands between the blocks of a layer where the residual is not one vector, or a norm has weights.

Manifold-constrained hyper-connections (arXiv 2512.24880), as DeepseekV4HyperConnection in Transformers: a
token has several vectors between blocks, its streams. Their sum with weights goes into a block; the block's
result is added to each stream, and the streams are mixed. HYV4HyperConnection does not mix them. In
AXK2GatedRMSNorm a norm's result has a gate of two small matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndpsim.workload.models.expert import Matrix


@dataclass(frozen=True)
class Residual:
    """What stands between the blocks.

    Attributes:
        streams: vectors of a token between blocks.
        mixed: the streams are mixed by a matrix that each token gives.
        attention, experts, dense: matrices before the attention of a layer, before its experts, and before a
            network without experts.
        end: matrices behind the last layer.
    """

    streams: int
    mixed: bool = False
    attention: tuple[Matrix, ...] = ()
    experts: tuple[Matrix, ...] = ()
    dense: tuple[Matrix, ...] = ()
    end: tuple[Matrix, ...] = ()

    def weights(self, layers: int, moe_layers: int) -> int:
        """All weights of a model of so many layers."""
        counts = (
            (self.attention, layers),
            (self.experts, moe_layers),
            (self.dense, layers - moe_layers),
            (self.end, 1),
        )
        return sum(count * matrix.rows * matrix.columns for found, count in counts for matrix in found)
