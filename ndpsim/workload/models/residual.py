"""What stands between the blocks of a layer where the residual is not one vector, or a norm has weights.

Manifold-constrained hyper-connections (arXiv 2512.24880), as DeepseekV4HyperConnection in Transformers: a
token has several vectors between blocks, its streams. Their sum with weights goes into a block; the block's
result is added to each stream, and the streams are mixed. HYV4HyperConnection does not mix them. In
AXK2GatedRMSNorm a norm's result has a gate of two small matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ndpsim.base.annotated import Annotated
from ndpsim.workload.models._config import Config
from ndpsim.workload.models.expert import MAX_SIZE, Matrix


@dataclass(frozen=True)
class Residual(Annotated):
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


# ---- What a `config.json` says of them


_MAX_STREAMS = 1 << 10


def read_residual(config: Config, kind: str, hidden: int) -> Residual | None:
    """The residual of a kind, a key of `_KINDS`; None for "".

    Raises:
        InputError: a value is out of range or missing.
    """
    return _KINDS[kind](config, hidden) if kind else None


def _mixed(config: Config, hidden: int) -> Residual:
    """DeepSeek-V4: weights of each stream before and behind the block, and of their mixture."""
    return _hyper(config, hidden, mixed=True, weighted_end=True)


def _mixed_mean(config: Config, hidden: int) -> Residual:
    """GLM-5.3-Flash: as DeepSeek-V4; at the end the mean of the streams."""
    return _hyper(config, hidden, mixed=True, weighted_end=False)


def _apart(config: Config, hidden: int) -> Residual:
    """Hunyuan 4: streams are not mixed."""
    return _hyper(config, hidden, mixed=False, weighted_end=True)


def _hyper(config: Config, hidden: int, mixed: bool, weighted_end: bool) -> Residual:
    streams = config.integer(("hc_mult",), _MAX_STREAMS)
    rows, columns = streams * (2 + streams if mixed else 2), streams * hidden
    block = (Matrix("fn", rows, columns),)
    end = (Matrix("hc_head", streams, columns),) if weighted_end else ()
    return Residual(streams, mixed, block, block, block, end)


def _gated_residual(config: Config, hidden: int) -> Residual:
    """Qwen4-Exp: weights of each entry of each stream, by a product of two matrices; no mixture."""
    streams, rank = config.integer(("hc_count",), _MAX_STREAMS), config.integer(("hc_lowrank",), MAX_SIZE)
    columns = streams * hidden
    weights = (Matrix("input_mix_weight_down", rank, columns), Matrix("input_mix_weight_up", columns, rank))
    block = (*weights, Matrix("block_inject_weight", streams, columns))
    return Residual(streams, False, block, block, block, weights)


def _gated_norms(config: Config, hidden: int) -> Residual:
    """A.X K2: norms with a gate, but before networks without experts and behind the last layer."""
    rank = config.integer(("gated_norm_rank",), MAX_SIZE)
    gate = (Matrix("fc1", rank, hidden), Matrix("fc2", hidden, rank))
    return Residual(1, False, gate, gate)


_KINDS: Mapping[str, Callable[[Config, int], Residual]] = {
    "mixed": _mixed,
    "mixed-mean": _mixed_mean,
    "apart": _apart,
    "gated-residual": _gated_residual,
    "gated-norms": _gated_norms,
}
