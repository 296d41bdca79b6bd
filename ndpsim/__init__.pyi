# The public names, once: for type checkers, and through ndpsim.base._later for dir(), help() and import.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

__version__: str

from ndpsim.audit import CommandBuses as CommandBuses
from ndpsim.audit import Finding as Finding
from ndpsim.audit import Report as Report
from ndpsim.audit import ScheduleReport as ScheduleReport
from ndpsim.audit import ServingReport as ServingReport
from ndpsim.audit import Violation as Violation
from ndpsim.audit import check as check
from ndpsim.audit import check_lanes as check_lanes
from ndpsim.audit import check_schedule as check_schedule
from ndpsim.audit import check_serving as check_serving
from ndpsim.audit.banks import check_units as check_units
from ndpsim.base.arguments import Progress, Sets
from ndpsim.base.errors import InputError as InputError
from ndpsim.base.errors import MismatchError as MismatchError
from ndpsim.base.options.dram import ControllerOptions as _ControllerOptions
from ndpsim.base.options.serve import ServiceLevel
from ndpsim.config import Hardware as Hardware
from ndpsim.config import hardware_names as hardware_names
from ndpsim.config import load_hardware as load_hardware
from ndpsim.config.banks import BankHardware as BankHardware
from ndpsim.config.banks import load_bank_hardware as load_bank_hardware
from ndpsim.config.importers import Imported as Imported
from ndpsim.config.importers import import_hardware as import_hardware
from ndpsim.dimm.engines import OpenRow
from ndpsim.dimm.layout import ExpertFormat as ExpertFormat
from ndpsim.dimm.layout import WeightFormat as WeightFormat
from ndpsim.dram.spec import Device as Device
from ndpsim.dram.spec import resolve as resolve
from ndpsim.dram.traces import CommandTrace as CommandTrace
from ndpsim.dram.traces import Requests as Requests
from ndpsim.dram.traces import read_commands as read_commands
from ndpsim.dram.traces import read_requests as read_requests
from ndpsim.dram.traces import write_commands as write_commands
from ndpsim.dram.traces.unit_commands import UnitCommands as UnitCommands
from ndpsim.dram.traces.unit_commands import read_unit_commands as read_unit_commands
from ndpsim.dram.traces.unit_commands import write_unit_commands as write_unit_commands
from ndpsim.inference.layers.record import Observer
from ndpsim.inference.processors import AttentionTime as AttentionTime
from ndpsim.inference.processors import DenseTime as DenseTime
from ndpsim.inference.processors import ExpertTime as ExpertTime
from ndpsim.inference.processors import GpuMemory as GpuMemory
from ndpsim.inference.processors import Processors as Processors
from ndpsim.inference.processors import load_processors as load_processors
from ndpsim.inference.processors.layer_attention import simulate_layer_attention as simulate_layer_attention
from ndpsim.inference.serving.log import ServingLog, ServingObserver
from ndpsim.inference.serving.measured import compare_measured as compare_measured
from ndpsim.inference.serving.server import find_rate as find_rate
from ndpsim.policies import Policy
from ndpsim.policies import PolicyCheck as PolicyCheck
from ndpsim.policies import check_policy as check_policy
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.simulate import ContentionResult as ContentionResult
from ndpsim.simulate import DimmResult as DimmResult
from ndpsim.simulate import ExpertResult as ExpertResult
from ndpsim.simulate import HostReadResult as HostReadResult
from ndpsim.simulate import LoadPoint as LoadPoint
from ndpsim.simulate import PlacedExpert as PlacedExpert
from ndpsim.simulate import RelayoutResult as RelayoutResult
from ndpsim.simulate import ResultCache as ResultCache
from ndpsim.simulate import TraceResult as TraceResult
from ndpsim.simulate import place_expert as place_expert
from ndpsim.simulate import run_requests as run_requests
from ndpsim.simulate import sweep_load as sweep_load
from ndpsim.simulate.bank_operands import simulate_bank_attention as simulate_bank_attention
from ndpsim.simulate.bank_operands import simulate_bank_expert as simulate_bank_expert
from ndpsim.simulate.memory import Memory as _Memory
from ndpsim.simulate.pim import run_pim as run_pim
from ndpsim.simulate.results import FoundRate as FoundRate
from ndpsim.simulate.results import MoeResult as MoeResult
from ndpsim.simulate.results import PolicyRun as PolicyRun
from ndpsim.simulate.results import ServingResult as ServingResult
from ndpsim.simulate.results.pim import PimResult as PimResult
from ndpsim.simulate.results.prediction import Prediction
from ndpsim.simulate.session import Session as _Session
from ndpsim.simulate.timing import Earliest as Earliest
from ndpsim.simulate.timing import Probe as Probe
from ndpsim.studies.search.result import SearchResult as SearchResult
from ndpsim.studies.sweeps.table import SweepResult as SweepResult
from ndpsim.studies.sweeps.values import Definition
from ndpsim.workload.models import Attention as Attention
from ndpsim.workload.models import Expert as Expert
from ndpsim.workload.models import LinearAttention as LinearAttention
from ndpsim.workload.models import MixedAttention as MixedAttention
from ndpsim.workload.models import MoeShape as MoeShape
from ndpsim.workload.models import load_model as load_model
from ndpsim.workload.models import model_names as model_names
from ndpsim.workload.models.weights import WeightFile as WeightFile
from ndpsim.workload.models.weights import weight_file as weight_file
from ndpsim.workload.models.weights import weight_names as weight_names
from ndpsim.workload.requests import RequestStatistics as RequestStatistics
from ndpsim.workload.requests import describe_requests as describe_requests
from ndpsim.workload.requests import generate_requests as generate_requests
from ndpsim.workload.requests import import_requests as import_requests
from ndpsim.workload.requests import load_requests as load_requests
from ndpsim.workload.requests import save_requests as save_requests
from ndpsim.workload.routing import Routing as Routing
from ndpsim.workload.routing import RoutingStatistics as RoutingStatistics
from ndpsim.workload.routing import capture_routing as capture_routing
from ndpsim.workload.routing import describe_routing as describe_routing
from ndpsim.workload.routing import find_routing as find_routing
from ndpsim.workload.routing import generate_routing as generate_routing
from ndpsim.workload.routing import import_routing as import_routing
from ndpsim.workload.routing import load_routing as load_routing

# ---- Made by `python docs/generate.py` from the settings of these calls

def optimize(  # ndpsim.studies.search.run
    command: str | PathLike[str],
    vary: Mapping[str, Any] | None = ...,
    objectives: Mapping[str, str] | None = ...,
    *,
    fixed: Mapping[str, Any] | None = ...,
    constraints: Mapping[str, str] | None = ...,
    derived: Mapping[str, str] | None = ...,
    zip: bool | Sequence[Sequence[str]] = ...,
    base: Mapping[str, Any] | None = ...,
    budget: int | None = ...,
    sampler: str | None = ...,
    seed: int | None = ...,
    batch: int | None = ...,
    out: str | PathLike[str] | None = ...,
    jobs: int | None = ...,
    cluster: str | None = ...,
    retry_failed: bool = ...,
    force: bool = ...,
    progress: Callable[[float], None] | bool | None = ...,
) -> SearchResult: ...
def predict(  # ndpsim.inference.prediction.run
    cpu: str,
    memory: str,
    gpu: str,
    model: str = ...,
    weights: str | None = ...,
    prompt: int = ...,
    sockets: int = ...,
    link: str = ...,
    generated: int = ...,
    program: str = ...,
    chunk: int | None = ...,
    n_cpu_moe: int | None = ...,
    memory_gb: float | None = ...,
    kv_bits: int = ...,
    sets: Sets = ...,
    upgrades: bool = ...,
    seed: int = ...,
    *,
    progress: Callable[[float], None] | bool | None = ...,
) -> Prediction: ...
def run_moe(  # ndpsim.inference.layers.run
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape = ...,
    policies: Sequence[str | type[Policy] | ChosenPolicy] = ...,
    batch: int | None = ...,
    steps: int | None = ...,
    routing: str | PathLike[str] | Routing | None = ...,
    seed: int = ...,
    prompt: int | None = ...,
    prefix: int = ...,
    layers: Sequence[int] | None = ...,
    sets: Sets = ...,
    bits: int | None = ...,
    dense_bits: int | None = ...,
    weights: str | None = ...,
    kv: str = ...,
    attention: str = ...,
    kv_bits: int = ...,
    context: int = ...,
    gpu_experts: int | None = ...,
    host_gbps: float | str | None = ...,
    arbitration: str = ...,
    cache: bool | ResultCache = ...,
    *,
    observer: Observer | None = ...,
    check_layer: tuple[int, int] | None = ...,
    check_limit: float = ...,
    bounds: bool = ...,
    progress: Callable[[float], None] | bool | None = ...,
) -> MoeResult: ...
def run_serving(  # ndpsim.inference.serving.server
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape = ...,
    requests: str | PathLike[str] | Requests | None = ...,
    policy: str | type[Policy] | ChosenPolicy | None = ...,
    rate: float | None = ...,
    slo: str | ServiceLevel | None = ...,
    scheduler: str = ...,
    max_batch: int = ...,
    max_tokens: int = ...,
    preemption: str = ...,
    parallel: str | None = ...,
    kv: str = ...,
    attention: str = ...,
    kv_bits: int = ...,
    kv_blocks: int | None = ...,
    block_tokens: int = ...,
    prefix_cache: bool = ...,
    async_scheduling: bool = ...,
    step_overhead_us: float = ...,
    routing: str | PathLike[str] | Routing | None = ...,
    seed: int = ...,
    sets: Sets = ...,
    bits: int | None = ...,
    dense_bits: int | None = ...,
    weights: str | None = ...,
    gpu_experts: int | None = ...,
    host_gbps: float | str | None = ...,
    arbitration: str = ...,
    cache: bool | ResultCache = ...,
    *,
    log: ServingLog | None = ...,
    observer: ServingObserver | None = ...,
    progress: Callable[[float], None] | bool | None = ...,
) -> ServingResult: ...
def run_trace(  # ndpsim.simulate.trace
    requests: str | PathLike[str] | Requests | tuple[ArrayLike, ArrayLike] | Iterator[Any],
    standard: str = ...,
    org: str = ...,
    timing: str = ...,
    ranks: int = ...,
    overrides: Mapping[str, int | str] | None = ...,
    mapper: str = ...,
    scheduler: str = ...,
    row_policy: str = ...,
    row_cap: int = ...,
    refresh: str = ...,
    read_buffer: int = ...,
    write_buffer: int = ...,
    channels: int = ...,
    wrap: bool = ...,
    record_commands: bool = ...,
    exact_check: bool = ...,
    cache: bool | ResultCache = ...,
    rules: str = ...,
    wck: str = ...,
    refresh_control: str | None = ...,
    rfm: str = ...,
    rfm_threshold: int | None = ...,
    rck: str = ...,
    rck_idle: int = ...,
    jobs: int | None = ...,
) -> TraceResult: ...
def simulate_contention(  # ndpsim.simulate.contention
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape | Expert = ...,
    tokens: int | Sequence[int] = ...,
    host_gbps: float | str = ...,
    read_share: float = ...,
    pattern: str | PathLike[str] = ...,
    arbitration: str = ...,
    slice_clocks: int = ...,
    layout: str = ...,
    bits: int | ExpertFormat = ...,
    sets: Sets = ...,
    record_commands: bool = ...,
    cache: bool | ResultCache = ...,
    release_ns: float | Sequence[float] = ...,
    *,
    progress: Progress | bool | None = ...,
) -> ContentionResult: ...
def simulate_dimm(  # ndpsim.simulate.session
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    experts: Sequence[Mapping[str, Any]] = ...,
    host: Sequence[Mapping[str, Any]] = ...,
    host_reads: Sequence[Mapping[str, Any]] = ...,
    relayout: Mapping[str, Any] | None = ...,
    until_ns: float | None = ...,
    dimms: int | None = ...,
    arbitration: str = ...,
    slice_clocks: int = ...,
    start_clock: int = ...,
    open_rows: Iterable[OpenRow] = ...,
    sets: Sets = ...,
    record_commands: bool = ...,
) -> DimmResult: ...
def simulate_expert(  # ndpsim.simulate.expert
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape | Expert = ...,
    tokens: int | Sequence[int] = ...,
    layout: str = ...,
    bits: int | ExpertFormat = ...,
    sets: Sets = ...,
    record_commands: bool = ...,
    exact_check: bool = ...,
    cache: bool | ResultCache = ...,
    release_ns: float | Sequence[float] = ...,
    start_clock: int = ...,
    refresh_phases: int | None = ...,
    rtl: str | None = ...,
    vcd: str | None = ...,
    *,
    progress: Progress | bool | None = ...,
) -> ExpertResult: ...
def simulate_host_read(  # ndpsim.simulate.host
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape | Expert = ...,
    layout: str = ...,
    bits: int | ExpertFormat = ...,
    sets: Sets = ...,
    record_commands: bool = ...,
    exact_check: bool = ...,
    cache: bool | ResultCache = ...,
    *,
    progress: Progress | bool | None = ...,
) -> HostReadResult: ...
def simulate_relayout(  # ndpsim.simulate.relayout
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
    model: str | PathLike[str] | MoeShape | Expert = ...,
    experts: int = ...,
    source: str = ...,
    target: str = ...,
    source_dimms: Sequence[int] | None = ...,
    target_dimms: Sequence[int] | None = ...,
    bits: int | ExpertFormat = ...,
    sets: Sets = ...,
    host: bool = ...,
    other_dimms: bool = ...,
    record_commands: bool = ...,
    cache: bool | ResultCache = ...,
    *,
    progress: Progress | bool | None = ...,
) -> RelayoutResult: ...
def sweep(  # ndpsim.studies.sweeps.run
    command: str | PathLike[str] | Definition,
    vary: Mapping[str, Any] | None = ...,
    *,
    fixed: Mapping[str, Any] | None = ...,
    zip: bool | Sequence[Sequence[str]] = ...,
    baseline: Mapping[str, Any] | None = ...,
    out: str | PathLike[str] | None = ...,
    jobs: int | None = ...,
    cluster: str | None = ...,
    retry_failed: bool = ...,
    force: bool = ...,
    progress: Callable[[float], None] | bool | None = ...,
) -> SweepResult: ...

class ControllerOptions(_ControllerOptions):
    def __init__(
        self,
        scheduler: str = ...,
        row_policy: str = ...,
        row_cap: int = ...,
        refresh: str = ...,
        read_buffer: int = ...,
        write_buffer: int = ...,
        wck: str = ...,
        refresh_control: str | None = ...,
        rfm: str = ...,
        rfm_threshold: int | None = ...,
        rck: str = ...,
        rck_idle: int = ...,
    ) -> None: ...

class Memory(_Memory):
    @classmethod
    def named(
        cls,
        standard: str = ...,
        org: str = ...,
        timing: str = ...,
        ranks: int = ...,
        overrides: Mapping[str, int | str] | None = ...,
        mapper: str = ...,
        channels: int = ...,
        options: ControllerOptions | None = ...,
        rules: str = ...,
    ) -> Memory: ...

class Session(_Session):
    def __init__(
        self,
        hw: str | PathLike[str] | Mapping[str, Any] | Hardware = ...,
        dimms: int | None = ...,
        arbitration: str = ...,
        slice_clocks: int = ...,
        start_clock: int = ...,
        open_rows: Iterable[OpenRow] = ...,
        sets: Sets = ...,
        record_commands: bool = ...,
    ) -> None: ...
    def expert(
        self,
        model: str | PathLike[str] | MoeShape | Expert = ...,
        tokens: int = ...,
        dimm: int = ...,
        release_ns: float = ...,
        bits: int | ExpertFormat = ...,
    ) -> int: ...
    def host(
        self,
        pattern: str | PathLike[str] = ...,
        gbps: float | str = ...,
        read_share: float = ...,
        dimm: int = ...,
        start_ns: float = ...,
    ) -> int: ...
    def host_read(
        self,
        model: str | PathLike[str] | MoeShape | Expert = ...,
        layout: str = ...,
        gbps: float | str = ...,
        start_ns: float = ...,
        bits: int | ExpertFormat = ...,
        dimm: int = ...,
        behind: bool = ...,
    ) -> int: ...
    def relayout(
        self,
        model: str | PathLike[str] | MoeShape | Expert = ...,
        experts: int = ...,
        source: str = ...,
        target: str = ...,
        source_dimms: Sequence[int] | None = ...,
        target_dimms: Sequence[int] | None = ...,
        bits: int | ExpertFormat = ...,
        start_ns: float = ...,
    ) -> int: ...
