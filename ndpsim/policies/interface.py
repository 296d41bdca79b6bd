"""The base class of policies, and their decisions.

`place` is called once. Then, layer by layer, `assign` is called when the tokens are routed, and `background`
directly afterwards, or when the experts of the layer are done, or at both moments (`Policy.moments`).
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ndpsim.policies.offline import StatedPredictor
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Estimates,
    Floats,
    Ints,
    LayerView,
    Machine,
    OfflineView,
    Placement,
)

GpuOrder = Literal["listed", "arrived"]

#: Kinds of migrations that copy an expert into the GPU's memory.
COPIES = ("prefetch", "fetch")


@dataclass(frozen=True)
class Part:
    """A share of an expert's intermediate columns; the shares of an expert add up to 1."""

    expert: int
    share: float = 1.0


def parts_of(listed: Sequence[int | Part]) -> list[tuple[int, float]]:
    """Experts and their shares."""
    return [(part.expert, part.share) if isinstance(part, Part) else (int(part), 1.0) for part in listed]


def experts_and_parts(shares: Sequence[tuple[int, float]]) -> list[int | Part]:
    """Experts with their shares for an `Assignment`: whole experts by their number."""
    return [expert if share == 1.0 else Part(expert, share) for expert, share in shares]


class Parts(Sequence["int | Part"]):
    """Experts of an engine as arrays, for an `Assignment` in place of a list. The arrays must not change.

    Attributes:
        experts: int64 [part], in the order of the engine.
        shares: of each expert, float64 [part]; by default the whole expert.

    Raises:
        ValueError: the arrays have different shapes.
    """

    __slots__ = ("experts", "shares")

    def __init__(self, experts: Ints, shares: Floats | None = None) -> None:
        self.experts = np.asarray(experts)
        self.shares = np.ones(len(self.experts)) if shares is None else np.asarray(shares)
        if self.experts.shape != self.shares.shape:
            raise ValueError(f"experts of shape {self.experts.shape}, and shares of {self.shares.shape}")

    def listed(self) -> list[tuple[int, float]]:
        """Expert and share of each part."""
        return [*zip(self.experts.tolist(), self.shares.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.experts)

    def __iter__(self) -> Iterator[int | Part]:
        return iter(experts_and_parts(self.listed()))

    def __getitem__(self, index: Any) -> Any:
        return experts_and_parts(self.listed())[index]

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, list | tuple | Parts) else NotImplemented

    def __repr__(self) -> str:
        return repr([*self])


@dataclass(frozen=True)
class Assignment:
    """The engine of each expert, and the order of experts on an engine.

    Attributes:
        gpu, cpu, ndp: experts, or parts of experts, in the order of the engine (for `gpu` see
            `PolicyParameters.gpu_order`). Experts in `ndp` run on their DIMMs, on each DIMM in this order.
        estimated_ns: the policy's estimate of the layer's time; None: no estimate.
        details: further numbers for the log, such as the estimate before a refinement.
        bits: for an expert, the bits of the replica that is read; for other experts the full weights are
            read. Entries of experts without tokens are ignored.
        sequential: no work overlaps: the GPU copies and computes one expert after the other, then the CPU
            computes its experts, and then the NDP units compute theirs.
        planning: time of the decision in ns, before anything else of the layer begins; "measured": the time
            that `assign` took here, which differs from run to run.
        awaits: experts whose copies to the GPU have not ended, and for which the layer waits, even if no
            token has chosen them. The layer always waits for experts that the GPU computes.
    """

    gpu: Sequence[int | Part] = ()
    cpu: Sequence[int | Part] = ()
    ndp: Sequence[int | Part] = ()
    estimated_ns: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    bits: Mapping[int, int] = field(default_factory=dict)
    sequential: bool = False
    planning: float | Literal["measured"] = 0.0
    awaits: Sequence[int] = ()


@dataclass(frozen=True)
class Migration:
    """A move of an expert.

    Attributes:
        kind: "prefetch" or "fetch" (a copy into the GPU's memory), "keep" (the copy that the finished layer
            has made stays there), "evict" (the copy is dropped), "relayout" (between striped and localized)
            or "rebalance" (to another DIMM).
        layer, expert: the expert that moves.
        to: the DIMM of a relayout or a rebalance, or `STRIPED`; ignored for other kinds.
        estimated_ns: the policy's estimate of its time.
        bits: bits of the replica that a prefetch or a fetch copies; None: the full weights. A replica
            occupies the space of a whole expert, and the GPU computes with the replica while it is resident.
    """

    kind: str
    layer: int
    expert: int
    to: int = STRIPED
    estimated_ns: float = 0.0
    bits: int | None = None


class PolicyParameters(BaseModel):
    """Parameters of a policy: typed fields with defaults and limits.

    The text below a field, or its `description`, has its meaning and its source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gpu_order: GpuOrder = "listed"
    """order of the experts that the GPU computes. listed: as the policy lists them; arrived: those that were
    copied first, as soon as they are there, so that their buffers are free sooner"""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ndpsim.policies.script import Rehearsal

    Parameters_co = TypeVar("Parameters_co", bound=PolicyParameters, covariant=True, default=PolicyParameters)
else:
    Parameters_co = typing.TypeVar("Parameters_co", covariant=True)


class Policy(ABC, Generic[Parameters_co]):
    """A policy, started for one run.

    A class has a `name`, a docstring, its `paper`, the `engines` that it uses, the engines that it `needs`,
    and its parameters: ``class Mine(Policy[MyParameters])``.
    """

    name: ClassVar[str]
    #: Its description in a line: the first line of the docstring, unless a class has another.
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    #: Of "gpu", "cpu" and "ndp".
    engines: ClassVar[tuple[str, ...]] = ("gpu", "cpu", "ndp")
    #: The engines that a machine must have. Every machine has a GPU.
    needs: ClassVar[tuple[str, ...]] = ()
    #: A sentence: the rules for a step of serving with both prompt tokens and decoded tokens.
    mixed_steps: ClassVar[str] = ""
    #: The class of its parameters, from the brackets of the base class.
    Parameters: ClassVar[type[PolicyParameters]] = PolicyParameters
    #: The moments at which `background` is called, in this order. "gate": the layer's experts are assigned,
    #: and migrations begin beside them, after their own copies over PCIe; "end": the experts are done.
    moments: tuple[Literal["gate", "end"], ...] = ("end",)
    #: Whether `background` gets the loads of the next layer, which no real system knows.
    sees_the_future: bool = False
    #: Whether it tries whole runs first (`rehearse`). It then runs after all other policies of a call, and
    #: "all" does not include it.
    rehearses: ClassVar[bool] = False
    #: Predicts experts of the next layer with a stated accuracy, for `BackgroundView.predicted`; None: no
    #: predictor.
    stated_predictor: StatedPredictor | None = None
    #: Whether NDP units, host and relayouts slow each other down on a shared DIMM. False: an unreal machine
    #: without this slowdown, as in the equations of some papers, for comparison.
    contention: bool = True

    def __init_subclass__(cls) -> None:
        if "title" not in cls.__dict__ and cls.__doc__:
            cls.title = cls.__doc__.partition("\n")[0].rstrip(".")
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in typing.get_args(base):
                if isinstance(argument, type) and "Parameters" not in cls.__dict__:
                    cls.Parameters = argument

    def __init__(self, machine: Machine, estimates: Estimates, parameters: Parameters_co) -> None:
        self.machine = machine
        self.estimates = estimates
        self.parameters = parameters
        self.row = {layer: row for row, layer in enumerate(machine.layers)}
        self.setup()

    @classmethod
    def check(cls, machine: Machine, parameters: Any) -> None:
        """Raise an `InputError` if it cannot run with these parameters; called before any simulation."""

    def setup(self) -> None:
        """Create the state of the run. Called once, before anything else."""

    def place(self, view: OfflineView) -> Placement:
        """Location of experts before the first step. By default all are striped."""
        return Placement.striped(*self.machine.shape)

    @classmethod
    def whole_runs(cls, parameters: Any) -> int:
        """The maximum number of whole runs that it needs, including its own run."""
        return 1

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Try whole runs on the run's own trace. Called once, before `place`, where the class `rehearses`."""

    @abstractmethod
    def assign(self, view: LayerView) -> Assignment:
        """Assign every expert with tokens, and no other, to engines."""

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Migrations to start, the most urgent first. By default none."""
        return ()

    def cache_counts(self) -> Mapping[str, float | None] | None:
        """Counts of its cache: `hits`, `misses`, `hit_rate`, and further shares.

        None: the experts that the GPU computes are counted, as hits if they were in its memory.
        """
        return None

    def prediction(self) -> Mapping[str, Any] | None:
        """Accuracy of its predictions, and the definition of the accuracy; None: it makes no predictions."""
        return None


class GivesRoom(ABC):
    """A base class of policies whose residents may be evicted between two steps of serving.

    A growing KV cache uses their space, and frees it later. Such a policy must not exceed
    `BackgroundView.gpu_free`, and finds the residents in the placements of its views.
    """

    @abstractmethod
    def resident_worth(self, placement: Placement) -> NDArray[np.floating | np.integer]:
        """Worth of residents, [layer, expert]: residents with the least worth are evicted first."""
