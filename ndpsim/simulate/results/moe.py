"""The result of a run of a whole model, policy by policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.arguments import imported
from ndpsim.base.reported import Reported, html_columns, quantity, said, table_of
from ndpsim.base.units import TIMES

#: What computes a pair of a token and an expert.
ENGINES = {"gpu_hit": "GPU without a copy", "gpu_miss": "GPU after a copy", "cpu": "CPU", "ndp": "NDP"}

#: Groups of resources, by how the names of those in it begin.
RESOURCES = {
    "gpu": "GPU",
    "cpu": "CPU",
    "ndp": "NDP units",
    "pcie-down": "PCIe to the GPU",
    "pcie-up": "PCIe from the GPU",
    "channel": "host channels",
    "host": "memory of the host",
    "memory": "memory of the device",
    "banks": "devices with units in banks",
    "banks-in": "link to these devices",
    "banks-out": "link from these devices",
}

_IN_SHORT = ("time_ns", "speedup", "moe_ns")  # in a line of a repr, which is 80 columns wide
_IN_TABLE = ("time_ns", "prefill_ns", "decode_ns", "tokens_per_s", "speedup")  # of a notebook
_OF_LAYER = 0.02  # the limit of a layer's own error, where that of ends is no smaller


@dataclass(frozen=True)
class CheckedEnd:
    """When something ended by the rate model, and when in the cycle-level session.

    Attributes:
        name: "dimm 3": its last expert; "read 17 cpu", "read 17 gpu": the host's read of expert 17 for it.
        rate_ns, cycle_ns: from the beginning of the layer.
        error: the first less the second, as a share of the layer's time, or of `cycle_ns` where `critical`.
        critical: by rates it is on the layer's critical path.
    """

    name: str
    rate_ns: float
    cycle_ns: float
    error: float
    critical: bool = False


@dataclass(frozen=True)
class LayerCheck:
    """A layer whose DIMMs and host reads were run again in the cycle-level session.

    Attributes:
        step, layer: the numbers of its step and layer.
        limit: of the size of each end's error.
        rate_ns, cycle_ns: how long the layer takes by both.
        error: the first less the second, over the second.
        ends: of each DIMM's last expert and of each host read.
    """

    step: int
    layer: int
    limit: float
    rate_ns: float
    cycle_ns: float
    error: float
    ends: tuple[CheckedEnd, ...]

    @property
    def largest(self) -> CheckedEnd | None:
        """The end with the largest error; None: there is none."""
        return max(self.ends, key=lambda end: abs(end.error), default=None)

    @property
    def layer_limit(self) -> float:
        """Limit of the layer's own error."""
        return min(self.limit, _OF_LAYER)

    @property
    def beyond(self) -> list[CheckedEnd]:
        """The ends beyond the limit, the furthest first."""
        return sorted(
            (end for end in self.ends if abs(end.error) > self.limit), key=lambda end: -abs(end.error)
        )

    @property
    def ok(self) -> bool:
        """Whether every error is within its limit."""
        return not self.beyond and abs(self.error) <= self.layer_limit


@dataclass(frozen=True, eq=False, repr=False)
class PolicyRun(Reported):
    """A model under one policy; a dense model has none, and nothing of experts.

    "By engine" is by "gpu_hit" (on the GPU, from its memory), "gpu_miss" (on the GPU, after a copy over
    PCIe), "cpu" and "ndp".

    Attributes:
        policy: its name; "none" for a dense model.
        parameters: all of them, with defaults.
        time_ns: total time: `prefill_ns` + `decode_ns`.
        prefill_ns, decode_ns: time of the prefill (0 without one), and of all decode steps.
        moe_ns: time of the layers' experts, from the gate to the last result, summed over all layers:
            `prefill_moe_ns` + `decode_moe_ns`.
        shared_ns: time in which the GPU computed shared experts.
        layer_ns: time of a layer's experts: "mean", "p50", "p99", "max".
        tokens_per_s: decoded tokens over `decode_ns`; for a prefill alone, its tokens over `prefill_ns`.
        speedup, speedup_prefill, speedup_decode, speedup_moe: `time_ns`, `prefill_ns`, `decode_ns` and
            `moe_ns` of the first policy of the call over this one's; None without this phase.
        bound: method of `bound_ns`: "linear-programme", or "steps" if scipy is missing, which the programme
            of a whole run needs: then each step has a programme of its own.
        bound_ns: lower bound on `moe_ns`, the time of the layers' experts, for every policy. Both are None
            if bounds were not requested.
        pairs: computed pairs of a token and an expert.
        experts, pairs_by_engine: by engine; parts of an expert count by their share.
        weight_bits: mean bits of the weights that pairs were computed with, by engine; None: no pairs.
        utilization: share of `time_ns` for which each resource was busy: "gpu", "cpu", "pcie-down",
            "pcie-up", "ndp 0" (DIMM 0), "channel 0" (of the host), ...; behind a CXL link "memory" (of the
            device) in place of channels.
        migrations: by kind: "count", "bytes", "hidden_ns" (in windows), "exposed_ns" (beside a
            layer's experts).
        cache: "hits" and "misses" of experts that the GPU computed, and "hit_rate", None without such
            experts. A policy with counts of its own replaces them or adds further shares.
        prediction: "accuracy", and its definition; None if the policy makes no predictions.
        estimated_ns: sum of the policy's own estimates of its layers, to compare with `moe_ns`; None: it
            makes none.
        policy_wall_s: duration of the policy's own code.
        bottleneck: share of the time of the layers' critical paths by resource.
        energy_nj: by component, None if not known: standby of all memory over `time_ns`, and what experts,
            host reads and relayouts add to it ("dram": None if its currents are not known); and the "total"
            of the known components.
        energy_note: source of the energy, and the components that it does not include.
        wall_s: duration of the run, without `compile_s`.
        compile_s: duration of compiling kernels for it; 0 if they were in the cache.
        check: comparison of one layer with the cycle-level session; None if not requested.
        best_known_ns: `time_ns` of the best known run: that of a policy that rehearses, such as `oracle`, in
            the same call. It is no bound; do not compare it with `bound_ns`. None: there is no such run, or
            this run reads fewer bits.
    """

    policy: str
    parameters: Mapping[str, Any]
    time_ns: float = field(metadata=quantity("total time"))
    prefill_ns: float = field(metadata=quantity("prefill time"))
    decode_ns: float = field(metadata=quantity("decode time"))
    moe_ns: float = field(metadata=quantity("experts' time"))
    prefill_moe_ns: float = field(repr=False, metadata=quantity("experts' time in prefill"))
    decode_moe_ns: float = field(repr=False, metadata=quantity("experts' time in decode"))
    shared_ns: float = field(metadata=quantity("shared experts' time"))
    layer_ns: Mapping[str, float] = field(metadata=quantity("experts' time of a layer"))
    tokens_per_s: float = field(metadata=quantity("throughput of decode, or of prefill alone"))
    speedup: float = field(metadata=quantity("speed-up of total time"))
    speedup_prefill: float | None = field(repr=False, metadata=quantity("speed-up of prefill", TIMES))
    speedup_decode: float | None = field(repr=False, metadata=quantity("speed-up of decode", TIMES))
    speedup_moe: float = field(metadata=quantity("speed-up of experts' time"))
    bound: str | None
    bound_ns: float | None = field(metadata=quantity("lower bound on experts' time", whole="moe_ns"))
    pairs: int = field(metadata=quantity("token-expert pairs"))
    experts: Mapping[str, float] = field(metadata=quantity("experts", parts=ENGINES))
    pairs_by_engine: Mapping[str, float] = field(metadata=quantity("pairs", whole="pairs", parts=ENGINES))
    weight_bits: Mapping[str, float | None] = field(
        repr=False, metadata=quantity("bits of weights", parts=ENGINES)
    )
    utilization: Mapping[str, float] = field(
        repr=False, metadata=quantity("utilization", "%", parts=RESOURCES, numbered="mean")
    )
    migrations: Mapping[str, Mapping[str, float]] = field(metadata=quantity("migrations"))
    cache: Mapping[str, float | None] = field(metadata=quantity("GPU cache"))
    prediction: Mapping[str, Any] | None = field(metadata=quantity("prediction", "%", counts=("counted",)))
    estimated_ns: float | None = field(
        metadata=quantity("policy's estimate of experts' time", whole="moe_ns")
    )
    policy_wall_s: float = field(repr=False)
    bottleneck: Mapping[str, float] = field(
        metadata=quantity("share of the critical path", "%", numbered="sum")
    )
    energy_nj: Mapping[str, float | None] = field(metadata=quantity("energy"))
    energy_note: str = field(repr=False)
    wall_s: float = field(metadata=quantity("simulated in"))
    check: LayerCheck | None = field(default=None, repr=False)
    best_known_ns: float | None = field(default=None, metadata=quantity("best known time", whole="time_ns"))
    compile_s: float = field(default=0.0, repr=False, metadata=quantity("kernels compiled in"))

    def _title(self) -> str:
        return f"PolicyRun of {self.policy}"


@dataclass(frozen=True, eq=False, repr=False)
class MoeResult(Reported):
    """A model's layers with their experts on GPU, CPU and DIMMs, under one policy or several.

    Attributes:
        config: everything that was used.
        routing: statistics of the routing by `describe_routing`, as plain data; empty for a dense model.
        runs: a run for each policy, in the order of the call; speed-ups are against the first.
        not_run: for "all": policies that could not run, by name, with the reason.
    """

    config: Mapping[str, Any] = field(repr=False)
    routing: Mapping[str, Any] = field(repr=False)
    runs: tuple[PolicyRun, ...]
    not_run: Mapping[str, str]

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each policy, and the columns of ``to_dict(flat=True)``.

        >>> import ndpsim
        >>> result = ndpsim.run_moe("cxl", "mixtral-8x7b", ["cxl", "monde"], batch=1)  # doctest: +SKIP
        >>> result.to_pandas()["time_ns"].idxmin()  # doctest: +SKIP
        'monde'

        Raises:
            InputError: pandas is not installed.
        """
        pandas = imported("pandas")
        rows = [run.to_dict(flat=True) for run in self.runs]
        return pandas.DataFrame(rows).set_index("policy")

    @property
    def best(self) -> PolicyRun:
        """The run with the shortest total time."""
        return min(self.runs, key=lambda run: run.time_ns)

    def _rows(self) -> list[tuple[str, str]]:
        return [(run.policy, said(run, *_IN_SHORT)) for run in self.runs]

    def _repr_html_(self) -> str:
        labels, rows = table_of(self.runs, *_IN_TABLE)
        cells = [(run.policy, *row) for run, row in zip(self.runs, rows, strict=True)]
        return html_columns(self._title(), ("policy", *labels), cells, self.runs.index(self.best))
