"""The shape of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.reported import Shown
from ndpsim.workload.models.attention import Attention, LinearAttention, Network
from ndpsim.workload.models.compressed import CompressedAttention
from ndpsim.workload.models.expert import Expert
from ndpsim.workload.models.quantization import Quantization
from ndpsim.workload.models.residual import Residual
from ndpsim.workload.models.stored import WeightFile

_MAX_LAYERS = 1 << 16

#: The attention of a layer.
LayerAttention = Attention | LinearAttention | CompressedAttention | Network


@dataclass(frozen=True)
class MixedAttention(Annotated):
    """The attention of a model whose layers differ: its `kinds`, and for each layer the index of its kind."""

    kinds: tuple[LayerAttention, ...]
    of_layer: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        last = max(self.of_layer, default=0)
        if last >= len(self.kinds):
            raise InputError(f"{last} is no index of {len(self.kinds)} kinds", "range", key="of_layer")


@dataclass(frozen=True, repr=False)
class MoeShape(Annotated, Shown):
    """A model: a mixture of experts, or a dense one, in which no layer has experts.

    Attributes:
        name: the name that the caller gave.
        family: its `model_type`; "unknown" if the file has none.
        source: the file that it was read from, or the bundled name.
        hidden: hidden size.
        expert_intermediate, routed_experts, experts_per_token: intermediate size of a routed expert, and
            their numbers in a layer and for a token; 0 in a dense model.
        layers, moe_layers: number of all layers, and of layers with experts.
        dense_layers: indexes of the layers without experts, from 0.
        dense_intermediate: intermediate size in the dense layers; 0 if there are none.
        shared_experts: shared experts of a layer.
        shared_intermediate: intermediate size of all shared experts of a layer together; 0 if there are none.
        hidden_act: the activation by its Hugging Face name ("silu").
        attention: attention of all layers, or of each layer if they differ; None if the file does not
            describe it, or describes attention that is not modelled.
        vocabulary: number of tokens in the vocabulary; None if the file does not give it.
        tied_embeddings: whether the embedding of a token and the head are one matrix.
        context: maximum number of tokens of a sequence; None if the file does not give it.
        attention_problem: the message that names the key of unsupported attention.
        expert_hidden: size that experts work on, if it is not `hidden`; else 0.
        residual: what stands between blocks; None: plain norms and one vector, to which results are added.
        gated_experts: whether experts, shared ones among them, have a gate beside up.
        stored: how its own file stores the weights; None: the file does not say so.
        single_blocks: a layer is one block with one norm: attention, a state, a network or experts; else it
            has two.
        zero_experts: experts of a layer that the router may choose beside the routed ones, and whose result
            is their input: they have no weights.
    """

    may_be_zero: ClassVar = (
        *("expert_intermediate", "moe_layers", "dense_intermediate", "routed_experts", "experts_per_token"),
        *("shared_experts", "shared_intermediate"),
    )

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
    attention: LayerAttention | MixedAttention | None = None
    vocabulary: int | None = None
    tied_embeddings: bool = False
    context: int | None = None
    attention_problem: str = ""
    expert_hidden: int = 0
    residual: Residual | None = None
    gated_experts: bool = True
    stored: Quantization | WeightFile | None = None
    zero_experts: int = 0
    single_blocks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.layers, "layers", 1, _MAX_LAYERS)

    @property
    def choices(self) -> int:
        """Experts of a layer that a router chooses from; ids from `routed_experts` on are without weights."""
        return self.routed_experts + self.zero_experts

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return self.moe_layers > 0

    @property
    def expert(self) -> Expert:
        """One routed expert.

        Raises:
            InputError: the model has none.
        """
        if not self.has_experts:
            raise InputError(f"{self.name} is a dense model: it has no experts", "unsupported", key="model")
        return Expert(self.expert_hidden or self.hidden, self.expert_intermediate, self.gated_experts)

    @property
    def expert_parameters(self) -> int:
        """Weights of the routed experts of all layers; shared experts and dense layers are not counted."""
        return self.moe_layers * self.routed_experts * self._expert_weights

    @property
    def _expert_weights(self) -> int:
        return self.expert.weights if self.has_experts else 0

    @property
    def attention_kinds(self) -> tuple[LayerAttention, ...]:
        """The kinds of attention of the layers, in the order of the first layer; empty if not known."""
        if isinstance(self.attention, MixedAttention):
            return self.attention.kinds
        return () if self.attention is None else (self.attention,)

    @property
    def kind_of_layer(self) -> tuple[int, ...]:
        """For each layer the index of its attention in `attention_kinds`."""
        if isinstance(self.attention, MixedAttention):
            return self.attention.of_layer[: self.layers]
        return (0,) * self.layers

    @property
    def layers_of_kind(self) -> tuple[int, ...]:
        """The number of layers of each of `attention_kinds`."""
        count = Counter(self.kind_of_layer)
        return tuple(count[index] for index in range(len(self.attention_kinds)))

    def to_dict(self) -> dict[str, Any]:
        """The fields and derived values, for JSON.

        `attention_layers`: for each kind its layers, the cached bytes of a token in one layer, the maximum
        number of cached tokens (None: all), and the cached bytes of a sequence that do not depend on its
        length, with 16 bits a value.
        """
        fields = asdict(replace(self, stored=None))
        fields["stored"] = None if self.stored is None else self.stored.source
        fields["dense_layers"] = list(self.dense_layers)
        if isinstance(self.attention, MixedAttention):
            fields["attention"] = {name: list(value) for name, value in fields["attention"].items()}
        layers = [
            {
                "kind": kind.title,
                "layers": count,
                "kv_bytes_per_token": 2 * kind.cached_values,
                "kv_tokens": kind.most_tokens,
                "state_bytes": kind.fixed_bits(16) // 8,
            }
            for kind, count in zip(self.attention_kinds, self.layers_of_kind, strict=True)
        ]
        return fields | {
            "attention_layers": layers,
            "expert_weights": self._expert_weights,
            "expert_parameters": self.expert_parameters,
        }

    def _title(self) -> str:
        return f"MoeShape of {self.name}"

    def _rows(self) -> list[tuple[str, str]]:
        plain = replace(self, stored=None)
        rows = [
            (field.name, str(getattr(plain, field.name)))
            for field in fields(self)[1:]
            if field.name != "stored"
        ]
        return rows if self.stored is None else [*rows, ("stored", self.stored.source)]
