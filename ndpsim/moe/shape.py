"""The shape of an expert and of a mixture-of-experts model, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from ndpsim import arguments
from ndpsim.reported import html_table, text_table

__all__ = ["MAX_SIZE", "Attention", "Expert", "Matrix", "MoeShape", "whole_number"]

#: The largest hidden or intermediate size that is believed.
MAX_SIZE = 1 << 24

_MAX_BITS = 64


def whole_number(value: object, low: int, high: int) -> str | None:
    """What is wrong with `value` as a whole number from `low` to `high`, or None; True and 8.0 are none."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    return f"{arguments.shown(value)} is not a whole number from {low} to {high}"


class Matrix(NamedTuple):
    """One weight matrix: `rows` outputs of `columns` inputs each."""

    name: str
    rows: int
    columns: int


@dataclass(frozen=True)
class Expert:
    """A gated feed-forward expert: down(act(gate(x)) * up(x)), without biases.

    `hidden` is the length of x and of the result, `intermediate` that of act(gate(x)).

    Raises:
        InputError: a size is not a whole number from 1 to 2**24.
    """

    hidden: int
    intermediate: int

    def __post_init__(self) -> None:
        for name, size in (("hidden", self.hidden), ("intermediate", self.intermediate)):
            object.__setattr__(self, name, arguments.whole_number(size, name, 1, MAX_SIZE))

    def matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        """gate and up (intermediate x hidden) and down (hidden x intermediate), in the order of use."""
        return (
            Matrix("gate", self.intermediate, self.hidden),
            Matrix("up", self.intermediate, self.hidden),
            Matrix("down", self.hidden, self.intermediate),
        )

    @property
    def weights(self) -> int:
        """Weights in the three matrices together."""
        return 3 * self.hidden * self.intermediate

    def weight_bytes(self, bits: int = 16) -> int:
        """Bytes of the three matrices at `bits` a weight, each rounded up to whole bytes; no group scales.

        Raises:
            InputError: `bits` is not a whole number from 1 to 64.
        """
        bits = arguments.whole_number(bits, "bits", 1, _MAX_BITS)
        return sum(-(-matrix.rows * matrix.columns * bits // 8) for matrix in self.matrices())


@dataclass(frozen=True)
class Attention:
    """The attention of a layer.

    `head_size`: of a query and a key; `value_size`: of a value. `kv_heads`: heads of keys and values, each
    shared by `heads` / `kv_heads` queries. With `latent_rank` (MLA) keys and values of all heads are made
    of one latent vector of that length, and `rope_size` of the `head_size` entries of a key, which carry
    the position, are common to all heads; `query_rank` is the length of the latent vector of the queries, 0:
    they have none. `window`: tokens that a token attends to at most, in some layer or in all; 0: no limit.
    """

    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    query_rank: int = 0
    latent_rank: int = 0
    rope_size: int = 0
    window: int = 0

    @property
    def kind(self) -> str:
        """One of "mla", "mha" (keys for every query), "mqa" (the same for all) and "gqa"."""
        if self.latent_rank:
            return "mla"
        if self.kv_heads == self.heads:
            return "mha"
        return "mqa" if self.kv_heads == 1 else "gqa"

    @property
    def cached_values(self) -> int:
        """Values of a token that a layer caches: keys and values, or the latent vector and the common key."""
        if self.latent_rank:
            return self.latent_rank + self.rope_size
        return self.kv_heads * (self.head_size + self.value_size)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The matrices that every token is multiplied by, named as Hugging Face does, in the order of use."""
        queries, results = self.heads * self.head_size, self.heads * self.value_size
        output = Matrix("o_proj", hidden, results)
        if not self.latent_rank:
            keys, values = self.kv_heads * self.head_size, self.kv_heads * self.value_size
            projections = ("q_proj", queries), ("k_proj", keys), ("v_proj", values)
            return (*(Matrix(name, rows, hidden) for name, rows in projections), output)
        query = (
            (Matrix("q_a_proj", self.query_rank, hidden), Matrix("q_b_proj", queries, self.query_rank))
            if self.query_rank
            else (Matrix("q_proj", queries, hidden),)
        )
        expanded = self.heads * (self.head_size - self.rope_size) + results
        return (
            *query,
            Matrix("kv_a_proj_with_mqa", self.latent_rank + self.rope_size, hidden),
            Matrix("kv_b_proj", expanded, self.latent_rank),
            output,
        )


@dataclass(frozen=True, repr=False)
class MoeShape:
    """A mixture-of-experts model.

    `name`: how it was asked for. `family`: its `model_type`, "unknown" if the file has none.
    `source`: the file it was read from, or the bundled name.
    `dense_layers`: indexes, counted from 0, of the layers without experts; `moe_layers`: how many have them.
    `dense_intermediate`: intermediate size in those dense layers, 0 if there are none.
    `shared_intermediate`: intermediate size of all shared experts of a layer together, 0 if there are none.
    `hidden_act`: the activation by its Hugging Face name ("silu").
    `attention`: that of every layer, None where the file does not say, or has linear or sparse attention.
    `vocabulary`: tokens in it, None where the file does not say; `tied_embeddings`: the embedding of a token
    and the head are one matrix.
    """

    name: str
    family: str
    source: str
    hidden: int
    expert_intermediate: int
    layers: int
    moe_layers: int
    dense_layers: tuple[int, ...]
    dense_intermediate: int
    routed_experts: int
    experts_per_token: int
    shared_experts: int
    shared_intermediate: int
    hidden_act: str
    attention: Attention | None = None
    vocabulary: int | None = None
    tied_embeddings: bool = False

    @property
    def expert(self) -> Expert:
        """One routed expert."""
        return Expert(self.hidden, self.expert_intermediate)

    @property
    def expert_parameters(self) -> int:
        """Weights of the routed experts of all layers; shared experts and dense layers are not counted."""
        return self.moe_layers * self.routed_experts * self.expert.weights

    def to_dict(self) -> dict[str, Any]:
        """The fields and what follows from them, ready for JSON."""
        fields = asdict(self)
        fields["dense_layers"] = list(self.dense_layers)
        return fields | {"expert_weights": self.expert.weights, "expert_parameters": self.expert_parameters}

    def _rows(self) -> list[tuple[str, str]]:
        return [(field.name, str(getattr(self, field.name))) for field in fields(self)[1:]]

    def __repr__(self) -> str:
        return text_table(f"MoeShape of {self.name}", self._rows())

    def _repr_html_(self) -> str:
        return html_table(f"MoeShape of {self.name}", self._rows())
