"""Reads the index that chooses the tokens of sparse attention, by the kind of a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ndpsim.workload.models._config import Config
from ndpsim.workload.models.attention import Attention
from ndpsim.workload.models.expert import MAX_HEADS, MAX_SIZE
from ndpsim.workload.models.indexed import Index

#: The object that has the keys of MiniMax-M3's index in published files.
SPARSE = "sparse_attention_config"
_OF_SPARSE = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}


def read_index(config: Config, kind: str, attention: Attention) -> Index:
    """The index of a kind, a key of `_KINDS`, over the tokens of `attention`.

    Raises:
        InputError: a value is out of range or missing, or sizes do not fit each other.
    """
    return _KINDS[kind](config, attention)


def _of_tokens(config: Config, attention: Attention) -> Index:
    """DeepSeek-V3.2; without heads, what the layer before it chose."""
    top, size = config.integer(("index_topk",), MAX_SIZE), config.integer(("index_head_dim",), MAX_SIZE)
    if config.find(("index_n_heads",)) is None:
        return Index(top)
    return Index(top, config.integer(("index_n_heads",), MAX_HEADS), size)


def _of_latent(config: Config, attention: Attention) -> Index:
    """As above, with queries of the latent vector of the queries."""
    if not attention.query_rank:
        raise config.error("q_lora_rank", "missing; the index makes its queries of this vector", "missing")
    return _of_tokens(config, attention)


def _of_gated_pools(config: Config, attention: Attention) -> Index:
    """GLM-5.3-Flash: pools of tokens; those behind the last whole pool are chosen, too."""
    index, pool = _of_latent(config, attention), config.integer(("index_kpool",), MAX_SIZE)
    if not config.flag_or(True, "index_kpool_always_select_tail") and pool > 1:
        problem = "is false; only pools with the tokens behind them are modelled"
        raise config.error("index_kpool_always_select_tail", problem, code="unsupported")
    top = index.top // pool * pool
    return Index(top, index.heads, index.size, pool, gated=index.heads > 0)


def _of_pools(config: Config, attention: Attention) -> Index:
    """Qwen4-Exp: pools of tokens by the mean of their keys, without weights of heads."""
    pool = config.integer(("indexer_compress_ratio",), MAX_SIZE)
    top = config.integer(("indexer_budget",), MAX_SIZE)
    if top % pool:
        raise config.error("indexer_budget", f"is not a multiple of pools of {pool} tokens", code="conflict")
    if config.integer(("indexer_kv_heads",), MAX_HEADS) != 1:
        raise config.error("indexer_kv_heads", "is not 1", code="unsupported")
    heads = config.integer(("indexer_n_heads",), MAX_HEADS)
    return Index(top, heads, config.integer(("indexer_head_dim",), MAX_SIZE), pool, weighted=False)


def _of_blocks(config: Config, attention: Attention) -> Index:
    """MiniMax-M3: blocks of tokens, chosen by each head of the index for a head of keys."""
    inner = config.part(SPARSE)
    _check_blocks(inner)

    def value(key: str, most: int, low: int = 1) -> int:
        published = _OF_SPARSE[key]
        config.find((key,))
        found = inner if inner.find((published,)) else config
        return found.integer((published if found is inner else key,), most, low)

    block, blocks = value("index_block_size", MAX_SIZE), value("index_topk_blocks", 1 << 12)
    heads = value("index_n_heads", MAX_HEADS)
    if not 0 < value("index_local_blocks", 1 << 12, low=0) <= blocks:
        problem = "is 0, or above index_topk_blocks; the block of the query must be among the chosen ones"
        raise config.error("index_local_blocks", problem, code="unsupported")
    if heads != attention.kv_heads:
        problem = f"{heads} are not the {attention.kv_heads} heads of keys"
        raise config.error("index_n_heads", problem, code="conflict")
    size = value("index_head_dim", MAX_SIZE)
    return Index(blocks * block, heads, size, block, by_head=True, weighted=False)


def _check_blocks(config: Config) -> None:
    """Refuse what the index of published files may have, and the class in Transformers has not."""
    if not config.flag_or(True, "use_sparse_attention"):
        raise config.error("use_sparse_attention", "is false; leave the object out", code="conflict")
    if config.integer_or(0, ("sparse_init_block",), MAX_SIZE):
        raise config.error("sparse_init_block", "is not 0: first blocks are not modelled", code="unsupported")
    without_values = config.list_of("sparse_disable_index_value")
    if without_values and without_values != config.list_of("sparse_attention_freq"):
        problem = "is not sparse_attention_freq: an index with values is not modelled"
        raise config.error("sparse_disable_index_value", problem, code="unsupported")


_KINDS: Mapping[str, Callable[[Config, Attention], Index]] = {
    "latent": _of_latent,
    "tokens": _of_tokens,
    "gated-pools": _of_gated_pools,
    "pools": _of_pools,
    "blocks": _of_blocks,
}
