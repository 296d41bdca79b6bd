"""What a policy answers, and what it is.

`place` is called once; then, layer by layer, `assign` when its tokens are routed and `background` right after
that, or when the experts of the layer are done, or both (`Policy.moments`).
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

from pydantic import BaseModel, ConfigDict

from ndpsim.policies.predictor import StatedPredictor
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Estimates,
    LayerView,
    Machine,
    OfflineView,
    Placement,
)

GpuOrder = Literal["listed", "arrived"]


@dataclass(frozen=True)
class Part:
    """A share of an expert's intermediate columns; the shares of an expert add up to 1."""

    expert: int
    share: float = 1.0


def parts_of(listed: Sequence[int | Part]) -> list[tuple[int, float]]:
    """Experts and their shares."""
    return [(one.expert, one.share) if isinstance(one, Part) else (int(one), 1.0) for one in listed]


@dataclass(frozen=True)
class Assignment:
    """Which engine computes which expert, in which order.

    Attributes:
        gpu, cpu, ndp: experts, or parts of them, in the order in which the engine takes them; of `gpu` see
            `PolicyParameters.gpu_order`. Those of `ndp` run on the DIMMs where they lie, each DIMM in this
            order.
        estimated_ns: what the policy believes that the layer takes; None: it does not say.
        details: further numbers for the log, such as the estimate before a refinement.
        bits: by expert, the bits of the replica whose weights are read; of all others the full weights are.
            Those of experts without tokens are of no meaning.
        sequential: nothing overlaps: the GPU copies and computes one expert after the other, then the CPU
            computes its experts, then the NDP units theirs.
        planning: what the decision takes, in ns, before anything else of the layer begins; "measured": as
            long as `assign` took here, which differs from run to run.
        awaits: experts on their way to the GPU without which the layer does not end, though no token may have
            chosen them. Those that the GPU computes are waited for in any case.
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
    """An expert is to move.

    Attributes:
        kind: "prefetch" or "fetch" (a copy into the GPU's memory), "keep" (the copy that the layer which is
            done has made stays there), "evict" (the copy is given up), "relayout" (between striped and
            localized) or "rebalance" (to another DIMM).
        layer, expert: which.
        to: the DIMM of a relayout or a rebalance, or `STRIPED`; of no meaning for the others.
        estimated_ns: what the policy believes that it takes.
        bits: of the replica that a prefetch or a fetch copies; None: the full weights. It takes the room of
            an expert all the same, and the GPU computes with it while it is there.
    """

    kind: str
    layer: int
    expert: int
    to: int = STRIPED
    estimated_ns: float = 0.0
    bits: int | None = None


class PolicyParameters(BaseModel):
    """Parameters of a policy: typed fields with defaults and limits.

    The text below a field, or its `description`, says what it means and cites its source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    gpu_order: GpuOrder = "listed"
    """of the experts that the GPU computes. listed: as the policy lists them; arrived: those that were copied
    first, as soon as they are there, so that their buffers are free sooner"""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ndpsim.policies.rehearsal import Rehearsal

    Parameters_co = TypeVar("Parameters_co", bound=PolicyParameters, covariant=True, default=PolicyParameters)
else:
    Parameters_co = typing.TypeVar("Parameters_co", covariant=True)


class Policy(ABC, Generic[Parameters_co]):
    """A policy under way, for one run.

    A class says its `name`, what it is (its docstring, `paper`), on which `engines` it computes experts,
    which of them it `needs`, and what can be set: ``class Mine(Policy[MyParameters])``.
    """

    name: ClassVar[str]
    #: What it is, in a line: the first one of the docstring, unless a class has another.
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    #: Of "gpu", "cpu" and "ndp".
    engines: ClassVar[tuple[str, ...]] = ("gpu", "cpu", "ndp")
    #: Those of `engines` without which it cannot be run. Every machine has a GPU.
    needs: ClassVar[tuple[str, ...]] = ()
    #: What can be set: what stands in the brackets of its base class.
    Parameters: ClassVar[type[PolicyParameters]] = PolicyParameters
    #: When `background` is asked, in this order. "gate": the layer's experts are assigned, and what is to
    #: move begins beside them, behind their own copies over PCIe; "end": they are done.
    moments: tuple[Literal["gate", "end"], ...] = ("end",)
    #: `background` is shown the loads of the next layer, which no real system knows.
    sees_the_future: bool = False
    #: It tries whole runs first (`rehearse`). It is run after all others of a call, and "all" leaves it out.
    rehearses: ClassVar[bool] = False
    #: Draws from what comes next what `BackgroundView.predicted` shows, as often right as it says; None: no.
    stated_predictor: StatedPredictor | None = None
    #: Whether NDP units, host and relayouts slow each other down where they share a DIMM. False: as equations
    #: have it that leave it out, a machine that does not exist, to compare.
    contention: bool = True

    def __init_subclass__(cls) -> None:
        if "title" not in cls.__dict__ and cls.__doc__:
            cls.title = cls.__doc__.partition("\n")[0].rstrip(".")
        for base in cls.__dict__.get("__orig_bases__", ()):
            for given in typing.get_args(base):
                if isinstance(given, type) and "Parameters" not in cls.__dict__:
                    cls.Parameters = given

    def __init__(self, machine: Machine, estimates: Estimates, parameters: Parameters_co) -> None:
        self.machine = machine
        self.estimates = estimates
        self.parameters = parameters
        self.row = {layer: row for row, layer in enumerate(machine.layers)}
        self.setup()

    def setup(self) -> None:
        """Create the state of the run. Called once, before anything else."""

    def place(self, view: OfflineView) -> Placement:
        """Where experts lie before the first step. All striped, unless a policy says otherwise."""
        return Placement.striped(*self.machine.shape)

    @classmethod
    def whole_runs(cls, parameters: Any) -> int:
        """How many whole runs it takes at most, its own among them."""
        return 1

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Try whole runs on the run's own trace. Called once, before `place`, where the class `rehearses`."""

    @abstractmethod
    def assign(self, view: LayerView) -> Assignment:
        """Every expert with tokens, and no other, to engines."""

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """What is to move, the most urgent first. Nothing, unless a policy says otherwise."""
        return ()

    def cache_counts(self) -> Mapping[str, float | None] | None:
        """What its cache did: `hits`, `misses`, `hit_rate`, and further shares; None: the experts that the
        GPU has computed are counted, those that were in its memory as hits.
        """
        return None

    def prediction(self) -> Mapping[str, Any] | None:
        """How often its predictions were right, and what was counted; None: it predicts nothing."""
        return None
