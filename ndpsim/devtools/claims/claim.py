"""Claims of papers, checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ndpsim.devtools.claims.expression import Expression


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Name = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9.-]*$", max_length=80)]
Words = Annotated[str, Field(min_length=1)]
Source = Literal["paper", "simulator", "measurement"]
SOURCES: tuple[Source, ...] = get_args(Source)


class Published(_Part):
    """A claim of the paper: a value, an interval, or for a trend a statement.

    Attributes:
        value: as printed; or `low` and `high`; or `statement`, in words.
        unit: of the figure: "x" of a ratio of two times or the like, "%" of a share (also "share", of 1),
            "% more" of a gain, else as the paper writes it; it decides how ours is judged.
        quote: the paper's own few words or table cells that hold the figure.
        reading: "printed", "derived" (by `derivation`), or "drawn" (read from a plot).
        derivation: how a figure follows from printed ones.
        reading_error: of one that is read from a plot, as a share of it.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    statement: str | None = None
    unit: str = ""
    quote: Words
    reading: Literal["printed", "derived", "drawn"] = "printed"
    derivation: str | None = None
    reading_error: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _one_form(self) -> Published:
        forms = [
            self.value is not None,
            self.low is not None and self.high is not None,
            self.statement is not None,
        ]
        if sum(forms) != 1 or (self.low is None) != (self.high is None):
            raise ValueError("give value, or low and high, or statement")
        if self.reading == "derived" and not self.derivation:
            raise ValueError("a derived figure says by which derivation")
        return self


class Run(_Part):
    """A run whose metrics `ours` is made of.

    Attributes:
        command: gemv, moe, serve, relayout or dram, as ``ndpsim sweep`` runs it; hardware or model: what
            ``ndpsim show`` says, as metrics; processor: one expert on a GPU or CPU; routing: what
            ``ndpsim routing describe`` says of a generated one, and how long experts stay; residency: which
            experts the GPU's memory has in a moe run.
        given: options by key (without dashes) and keys of the hardware (with dots); ``{KEY}`` stands for the
            value of a key of `over`, ``{validation}`` for the folder of published figures.
    """

    command: Literal[
        "gemv", "moe", "serve", "relayout", "dram", "hardware", "model", "processor", "routing", "residency"
    ]
    given: dict[str, Any] = {}


class Assumption(_Part):
    """Something that the paper does not say and a claim rests on, with its plausible range.

    Attributes:
        key: a key of the runs' `given`.
        values: what it may plausibly be; also a mapping by model, ``{mixtral-8x7b: skewed}``, which leaves
            runs of other models as they are.
        runs: the runs that it is changed in; none: all.
        reason: why these, with source where there is one.
    """

    key: Words
    values: list[Any] = Field(min_length=1)
    runs: list[str] = []
    reason: Words


class FalsifiedBy(_Part):
    """Conditions that would make a trend false, and figures with which it is.

    Figures are by the name of a metric as `Claim.ours` has it (``fast.time_ns``), or by a pattern of several
    (``fast*.time_ns``), of which the last that fits counts; a metric without one is 1.

    Attributes:
        says: a sentence on the case in which the trend is false.
        so: figures with which the trend is so.
        not_so: changes of these with which it is not, each alone; every comparison of the trend is the only
            one that fails in one of them.
    """

    says: Words
    so: dict[str, float] = {}
    not_so: list[dict[str, float]] = Field(min_length=1)


class Claim(_Part):
    """One quantitative claim of a paper.

    Attributes:
        name: its name, which begins with the paper's.
        place: its place in the paper.
        kind: "exact" (arithmetic and configuration: equal), "simulated" (within `tolerance`), "trend" (a
            statement that is so or not), "not-reproducible" (with `why`).
        published: what the paper says.
        over: keys with several values; everything is run and worked out for each combination.
        runs: the runs by name.
        ours: an expression over the metrics of the runs.
        reduce: of the values over combinations: "mean", "min" or "max"; of a trend "all", and nothing else.
        given_by: of a trend that our inputs or the construction make true, what of them; it tests nothing and
            is counted apart.
        falsified_by: of any other trend, what would make it false.
        tolerance: the name of a class of `validation/claims/tolerances.yaml`.
        fitted: parameters that were fitted to this very figure, with the script; empty: none, and it is a
            prediction.
        assumptions: what the claim rests on that the paper does not say.
        expected: the verdict that is known and explained by `why`; another one is news, also where it holds.
        why: of a claim that is not reproducible, or known to be off.
        figure: the figure of the paper that it is part of, for the picture: "Figure 6".
    """

    name: Name
    place: Words
    kind: Literal["exact", "simulated", "trend", "not-reproducible"]
    published: Published
    over: dict[str, list[Any]] = {}
    runs: dict[str, Run] = {}
    ours: str | None = None
    reduce: Literal["mean", "min", "max", "all"] = "mean"
    given_by: Words | None = None
    falsified_by: FalsifiedBy | None = None
    tolerance: str | None = None
    fitted: list[Words] = []
    assumptions: list[Assumption] = []
    expected: Literal["holds", "off", "not-comparable"] = "holds"
    why: str | None = None
    figure: str | None = None

    @property
    def is_headline(self) -> bool:
        """Whether it is a figure of the abstract, or of the introduction's sum of results."""
        is_figure = self.kind in ("exact", "simulated")
        return is_figure and ("Abstract" in self.place or "also Section 1" in self.place)

    @property
    def is_transcribed(self) -> bool:
        """Whether ours is a value of a model or hardware file, taken over from its source: no check of it."""
        if self.kind != "exact" or self.ours is None or ".derived." in self.ours:
            return False
        files = {run.command for run in self.runs.values()} <= {"model", "hardware"}
        return files and Expression(self.ours).is_one_metric

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        if self.kind == "not-reproducible":
            if not self.why or self.ours is not None:
                raise ValueError("a claim that is not reproducible says why, and has no ours")
            return self
        if self.ours is None or not self.runs:
            raise ValueError("runs and ours are missing")
        if (self.kind == "trend") != (self.published.statement is not None):
            raise ValueError("a trend, and nothing else, publishes a statement")
        if (self.kind == "trend") != (self.reduce == "all"):
            raise ValueError("reduce is all for a trend, and for nothing else")
        if (self.given_by is not None) + (self.falsified_by is not None) != (self.kind == "trend"):
            raise ValueError("a trend, and nothing else, has either given_by or falsified_by")
        if (self.kind == "trend") == (self.tolerance is not None):
            raise ValueError("a tolerance belongs to exact and simulated claims, and to all of them")
        if self.expected != "holds" and not self.why:
            raise ValueError("what is expected to be off says why")
        unknown = Expression(self.ours).runs - set(self.runs)
        if unknown:
            raise ValueError(f"ours has a run that is not there: {', '.join(sorted(unknown))}")
        for assumption in self.assumptions:
            if set(assumption.runs) - set(self.runs):
                raise ValueError(f"the assumption {assumption.key} is of a run that is not there")
        return self


class Paper(_Part):
    """The claims of a paper, or of another source of published figures.

    Attributes:
        paper: its short name.
        title: the printed title.
        source: "paper": one whose systems are bundled; "simulator": another simulator's results;
            "measurement": what was measured on real machines and models.
        hardware: the bundled hardware of its machine.
        counted: what of the paper was gone through: tables, figures and sections, with the number of claims
            from each.
    """

    paper: Name
    title: Words
    source: Source = "paper"
    hardware: Words
    counted: dict[str, str]
    claims: list[Claim]

    @model_validator(mode="after")
    def _names(self) -> Paper:
        names = [claim.name for claim in self.claims]
        for name in names:
            if not name.startswith(f"{self.paper}-"):
                raise ValueError(f"{name} does not begin with {self.paper}-")
            if names.count(name) > 1:
                raise ValueError(f"two claims are called {name}")
        return self


class ToleranceClass(_Part):
    """How far ours may be from what is published, for a reason.

    Attributes:
        share: of the published figure; besides, one that is printed may differ by half of its last digit.
        reason: why so much.
    """

    share: float = Field(ge=0, le=1)
    reason: Words
