"""Claims of papers, checked; and the expressions by which they are computed."""

from __future__ import annotations

import ast
import fnmatch
import functools
import statistics
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ndpsim.base.errors import InputError, one_of
from ndpsim.config.files import data_folder
from ndpsim.config.nodes import Node, line_of, parse, plain_of, read_text

# ---- Expressions of claims: a line of Python over metrics of runs, ``klotski.moe_ns / trimoe.moe_ns``


#: The metrics of each run, by dotted name.
Metrics = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _RunMetrics:
    """The metrics of a run; `before`: the beginning of a dotted name, up to a dot."""

    name: str
    metrics: Mapping[str, Any]
    before: str = ""

    def __getattr__(self, name: str) -> Any:
        name = self.before + name
        if name not in self.metrics and any(metric.startswith(f"{name}.") for metric in self.metrics):
            return _RunMetrics(self.name, self.metrics, f"{name}.")
        return _metric(self, name)


def _metric(run: _RunMetrics, name: str) -> float:
    """A metric of a run, or the mean of all whose names match.

    Raises:
        InputError: there is none, or one of them is not known (None).
    """
    names = [name] if name in run.metrics else fnmatch.filter(run.metrics, name)
    if not names:
        raise InputError(f"{run.name}: {one_of(name, run.metrics, 'metric')}", "unknown-name")
    values = [run.metrics[metric] for metric in names]
    for metric, value in zip(names, values, strict=True):
        if not isinstance(value, int | float):
            raise InputError(f"{run.name}.{metric} is {value!r}, no number", "type")
    return values[0] if names == [name] else statistics.fmean(values)


_FUNCTIONS = {
    "abs": abs,
    "max": max,
    "mean": lambda *values: statistics.fmean(values),
    "metric": _metric,  # metric(run, "utilization.ndp *")
    "min": min,
    "round": round,
}


@dataclass(frozen=True)
class Expression:
    """A line of Python with metrics as ``RUN.METRIC`` or ``metric(RUN, "name with blanks or *")``.

    It is code of the authors, as a test is: the files of claims come with ndpsim.

    Raises:
        InputError: it is no line of Python.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            _ = self._code
        except (SyntaxError, ValueError) as error:
            raise InputError(f"'{self.text}' is no expression: {error}", "form") from None

    @functools.cached_property
    def _tree(self) -> ast.Expression:
        return ast.parse(self.text.strip(), mode="eval")

    @functools.cached_property
    def _code(self) -> CodeType:
        return compile(self._tree, "ours", "eval")

    @property
    def runs(self) -> set[str]:
        """The names of the runs in the expression."""
        return {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Its metrics, as they are in the text: ``RUN.METRIC`` and ``metric(RUN, "name")``."""
        found: list[str] = []

        def visit(node: ast.AST) -> None:
            called = isinstance(node, ast.Call) and ast.unparse(node.func) == "metric"
            if called or isinstance(node, ast.Attribute):
                found.append(ast.unparse(node))
            else:
                for child in ast.iter_child_nodes(node):
                    visit(child)

        visit(self._tree)
        return list(dict.fromkeys(found))

    @property
    def is_one_metric(self) -> bool:
        """Whether the expression is a single metric, without arithmetic."""
        return isinstance(self._tree.body, ast.Attribute)

    def of(self, metrics: Metrics, keys: Mapping[str, Any] | None = None) -> Any:
        """Its value.

        Args:
            metrics: of each run.
            keys: values of further names.

        Raises:
            InputError: a metric is not there, is not known (None), or a division is by 0.
        """
        runs = {name: _RunMetrics(name, values) for name, values in metrics.items()}
        try:
            return eval(self._code, {"__builtins__": {}}, {**_FUNCTIONS, **(keys or {}), **runs})
        except ZeroDivisionError:
            raise InputError(f"'{self.text}' divides by 0", "invalid") from None


def parts_of(text: str) -> list[tuple[str, Expression | None, str]]:
    """The parts of a text with figures in braces, ``{fast.time_ns / 1e6:.1f} ms``.

    Returns:
        for each part the words before a figure, its expression, and its format of Python; the expression of
        the last words is None.

    Raises:
        InputError: a figure in braces is no expression, or a brace is alone.
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"'{text}': {error}", "form") from None
    return [
        (words, None if field is None else Expression(field), spec or "") for words, field, spec, _ in parts
    ]


# ---- Claims of papers, checked


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Name = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9.-]*$", max_length=80)]
Words = Annotated[str, Field(min_length=1)]
Source = Literal["paper", "simulator", "measurement"]
SOURCES: tuple[Source, ...] = get_args(Source)


class PublishedFigure(_Part):
    """A claim of the paper: a value, an interval, or for a trend a statement.

    Attributes:
        value: the printed figure; or `low` and `high`; or `statement`, in words.
        unit: "x" for a ratio of times or similar, "%" for a share ("share" for a share of 1), "% more" for a
            gain, else the paper's unit; it decides how the simulated figure is compared.
        quote: a few words or table cells of the paper with the figure.
        reading: "printed", "derived" (by `derivation`), or "drawn" (read from a plot).
        derivation: the computation of the figure from printed ones.
        reading_error: error of a figure that is read from a plot, as a share of it.
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
    def _one_form(self) -> PublishedFigure:
        forms = [
            self.value is not None,
            self.low is not None and self.high is not None,
            self.statement is not None,
        ]
        if sum(forms) != 1 or (self.low is None) != (self.high is None):
            raise ValueError("give value, or low and high, or statement")
        if self.reading == "derived" and not self.derivation:
            raise ValueError("a derived figure needs its derivation")
        return self


class ClaimRun(_Part):
    """A run that gives metrics for `Claim.ours`.

    Attributes:
        command: gemv, attention, moe, serve, relayout or dram, as in ``ndpsim sweep``; hardware or model: the
            values of ``ndpsim show``; processor: one expert on a GPU or CPU; routing: the statistics of
            ``ndpsim routing describe`` for a generated trace, and the reuse of experts; residency: the
            experts in the GPU's memory in a moe run.
        given: options by key (without dashes) and keys of the hardware (with dots); ``{KEY}`` stands for the
            value of a key of `Claim.over`, ``{validation}`` for the folder of published figures.
    """

    command: Literal[
        "gemv",
        "attention",
        "moe",
        "serve",
        "relayout",
        "dram",
        "hardware",
        "model",
        "processor",
        "routing",
        "residency",
    ]
    given: dict[str, Any] = {}


class Assumption(_Part):
    """A value that the paper does not give and a claim needs, with its plausible range.

    Attributes:
        key: a key of the runs' `given`.
        values: plausible values; a value may be a mapping by model, ``{mixtral-8x7b: skewed}``, which does
            not change runs of other models.
        runs: the runs in which it is changed; none: all.
        fitted_to: the place that the values were fitted to, "Table 4"; with them, a claim of this place is no
            prediction.
        reason: the reason for these values, with a source if there is one.
    """

    key: Words
    values: list[Any] = Field(min_length=1)
    runs: list[str] = []
    fitted_to: Words | None = None
    reason: Words

    def is_fitted_to(self, claim: Claim) -> bool:
        """Whether the values were fitted to the figure of a claim."""
        return self.fitted_to is not None and claim.place.split(",")[0] == self.fitted_to


class FalsifiedBy(_Part):
    """A condition that would make a trend false, with example figures.

    Figures have the name of a metric in `Claim.ours` (``fast.time_ns``) or a pattern (``fast*.time_ns``). If
    several fit, the last one counts. A metric without a figure is 1.

    Attributes:
        says: a sentence that describes the case in which the trend is false.
        so: figures with which the trend is true.
        not_so: changes of these figures; each alone makes the trend false. For every comparison of the trend
            there is a change in which only this comparison fails.
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
            statement that is true or false), "not-reproducible" (with `why`).
        published: the published figure or statement.
        over: keys with several values; all runs and figures are computed for each combination.
        runs: the runs by name.
        ours: an expression over the metrics of the runs: the simulated figure.
        reduce: how the values of combinations are combined: "mean", "min" or "max"; for a trend only "all".
        given_by: for a trend that inputs or the construction make true: these inputs. Such a trend tests
            nothing and is counted separately.
        falsified_by: for any other trend: a condition that would make it false.
        tolerance: the name of a class of `validation/claims/tolerances.yaml`.
        fitted: parameters that were fitted to this figure, with the script; empty: the figure is a
            prediction.
        assumptions: values that the claim needs and the paper does not give.
        expected: the known verdict, which `why` explains; any other verdict is news, also "holds".
        why: the reason why the claim is not reproducible or off. Figures of the claim's own runs stand in
            braces as expressions, ``{fast.time_ns / 1e6:.1f} ms``, and keys of `over` by their name: of the
            combination that `reduce` takes, of the first that is not so, or the mean over all.
        figure: the paper's figure that contains it, for the picture: "Figure 6".
    """

    name: Name
    place: Words
    kind: Literal["exact", "simulated", "trend", "not-reproducible"]
    published: PublishedFigure
    over: dict[str, list[Any]] = {}
    runs: dict[str, ClaimRun] = {}
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
        """Whether it is a figure of the abstract, or of the summary of results in the introduction."""
        is_figure = self.kind in ("exact", "simulated")
        return is_figure and ("Abstract" in self.place or "also Section 1" in self.place)

    @property
    def is_transcribed(self) -> bool:
        """Whether the figure is only a value of a model or hardware file, copied from its source."""
        if self.kind != "exact" or self.ours is None or ".derived." in self.ours:
            return False
        files = {run.command for run in self.runs.values()} <= {"model", "hardware"}
        return files and Expression(self.ours).is_one_metric

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        if self.kind == "not-reproducible":
            if not self.why or self.ours is not None:
                raise ValueError("a claim that is not reproducible needs why, and has no ours")
            return self
        if self.ours is None or not self.runs:
            raise ValueError("runs and ours are missing")
        if (self.kind == "trend") != (self.published.statement is not None):
            raise ValueError("a statement is for trends only, and each trend needs one")
        if (self.kind == "trend") != (self.reduce == "all"):
            raise ValueError("reduce: all is for trends only, and each trend needs it")
        if (self.given_by is not None) + (self.falsified_by is not None) != (self.kind == "trend"):
            raise ValueError("given_by or falsified_by is for trends only, and each trend needs one of them")
        if (self.kind == "trend") == (self.tolerance is not None):
            raise ValueError("a tolerance is for exact and simulated claims only, and each of them needs one")
        if self.expected != "holds" and not self.why:
            raise ValueError("a claim that is expected to be off needs why")
        named = {"ours": Expression(self.ours).runs - set(self.runs)}
        for _, figure, _ in parts_of(self.why or ""):
            named["why"] = named.get("why", set()) | (
                figure.runs - {*self.runs, *self.over} if figure else set()
            )
        for key, unknown in named.items():
            if unknown:
                problem = f"{key} names a run that the claim does not have: {', '.join(sorted(unknown))}"
                raise ValueError(problem)
        for assumption in self.assumptions:
            if set(assumption.runs) - set(self.runs):
                raise ValueError(f"the assumption {assumption.key} names a run that the claim does not have")
        return self


class Paper(_Part):
    """The claims of a paper, or of another source of published figures.

    Attributes:
        paper: its short name.
        title: the printed title.
        source: "paper": its systems are bundled; "simulator": results of another simulator; "measurement":
            measurements of real machines and models.
        hardware: the bundled hardware of its machine.
        counted: the tables, figures and sections of the paper that were read, with the number of claims from
            each.
        assumptions: assumptions of all claims that simulate something, besides their own.
    """

    paper: Name
    title: Words
    source: Source = "paper"
    hardware: Words
    counted: dict[str, str]
    assumptions: list[Assumption] = []
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
    """The allowed difference between simulated and published figures, with its reason.

    Attributes:
        share: allowed difference as a share of the published figure; the rounding of a printed figure is
            added.
        reason: the reason for this share.
    """

    share: float = Field(ge=0, le=1)
    reason: Words


# ---- Reads claims and tolerances from their files


M = TypeVar("M", bound=BaseModel)

_FOLDER = "validation/claims"
_SIMULATED = ("gemv", "attention", "moe", "serve", "relayout", "dram")
_PAPERS = ("trimoe", "edge", "cxl", "cache", "dali")  # the order in the README


def _validated(model: type[M], root: Node, file: Path) -> M:
    try:
        return model.model_validate(plain_of(root))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        keys = tuple(first["loc"])
        key = ".".join(map(str, keys)) or None
        raise InputError(str(first["msg"]), "form", file=file, line=line_of(root, keys), key=key) from None


def read_paper(file: Path) -> Paper:
    """The claims of a paper.

    Raises:
        InputError: the file cannot be read, or something in it is wrong; with its line.
    """
    paper = _validated(Paper, parse(read_text(file), str(file)), file)
    claims = [
        claim.model_copy(update={"assumptions": [*claim.assumptions, *paper.assumptions]})
        if any(run.command in _SIMULATED for run in claim.runs.values())
        else claim
        for claim in paper.claims
    ]
    return paper.model_copy(update={"claims": claims})


@functools.cache
def read_papers() -> Mapping[str, Paper]:
    """All bundled claims, by the short names of their papers: the papers, other simulators, measurements."""
    files = sorted(data_folder(_FOLDER).glob("*.yaml"))
    papers = [read_paper(file) for file in files if file.stem != "tolerances"]
    return {paper.paper: paper for paper in sorted(papers, key=_place)}


def _place(paper: Paper) -> tuple[int, int]:
    index = _PAPERS.index(paper.paper) if paper.paper in _PAPERS else len(_PAPERS)
    return SOURCES.index(paper.source), index


def read_tolerances() -> Mapping[str, ToleranceClass]:
    """The classes of tolerance by name."""
    file = data_folder(_FOLDER) / "tolerances.yaml"
    root = parse(read_text(file), str(file))
    assert isinstance(root.value, dict)
    return {name: _validated(ToleranceClass, node, file) for name, node in root.value.items()}
