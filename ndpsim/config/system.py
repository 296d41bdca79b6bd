"""The hardware description, typed: what every key of a hardware file is called, means and may be.

What values may be, and their units, is in `quantities`; the memory in `dram`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from ndpsim.config.dram import Dram
from ndpsim.config.quantities import (
    ActivationBytes,
    Area,
    AreaMm2,
    Bits,
    BufferKib,
    BufferPj,
    ClockMhz,
    Count,
    Cycles,
    ExpertTimes,
    FifoBursts,
    FifoPj,
    Gbps,
    HeaderBytes,
    Kib,
    Latency,
    LinkLatency,
    Microseconds,
    Name,
    PacketBytes,
    Picojoules,
    PicojoulesPerBit,
    PicojoulesPerByte,
    Positive,
    ProductPj,
    Section,
    Share,
    Side,
    StaticMw,
    Tables,
    Text,
    Tflops,
    WireGbps,
    unit,
)
from ndpsim.units import exact

__all__ = [
    "MULTIPLIERS",
    "UNITS",
    "Activation",
    "Cxl",
    "Dimm",
    "Gemv",
    "Gpu",
    "Host",
    "Link",
    "Multiplier",
    "Ndp",
    "Pcie",
    "Published",
    "Relayout",
    "System",
    "Systolic",
]

#: The units of the `ndp` section that may stand in files of their own.
UNITS = ("gemv", "systolic", "activation", "relayout")


class Dimm(Section):
    """The DIMMs; with an `ndp` section, each has an NDP unit on its buffer chip.

    A memory device on a CXL link is one DIMM whose sub-channels are all channels of the device.
    """

    count: int = Field(default=1, ge=1, le=1024, description="DIMMs in the system")
    ranks: int = Field(default=1, ge=1, le=16, description="ranks on a DIMM")
    subchannels: int = Field(
        default=1, ge=1, le=64, description="independent channels of a DIMM (DDR5: two) or device"
    )
    command_bus: Literal["private", "shared", "broadcast"] = Field(
        default="private",
        description=(
            "between the buffer chip and the ranks of a sub-channel: private, a bus for every rank; shared, "
            "one on which they take turns; broadcast, one whose commands all of them obey together"
        ),
    )


class Host(Section):
    """The CPU and its memory system."""

    channels: int = Field(default=1, ge=1, le=64, description="memory channels of the host")
    memory_bandwidth_gbps: Gbps | None = Field(
        default=None, description="memory bandwidth of the host over all channels"
    )
    memory_tb: Annotated[Positive, unit("TB")] | None = Field(
        default=None, description="memory capacity of the host"
    )
    cpu_tflops: Tflops | None = Field(default=None, description="peak of the CPU's matrix units")
    cpu_compute_efficiency: Share | None = Field(
        default=None, description="share of cpu_tflops that an expert of many tokens reaches"
    )
    cpu_added_tokens: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="an expert takes as long as if it had so many tokens more",
        json_schema_extra={"unit": "tokens"},
    )
    cpu_read_gbps: Gbps | None = Field(
        default=None, description="what the CPU reads of an expert's weights in a ns at most"
    )
    cpu_cores: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="cores that make cpu_tflops; fewer threads than cores make that share of it",
    )
    cpu_threads: int | None = Field(
        default=None, ge=1, le=65_536, description="threads that compute experts on the CPU"
    )
    cpu_expert_times: ExpertTimes = None
    measured_power: Annotated[
        Tables,
        Field(description="power of CPU and GPU while a model runs: tables by their names, or .csv files"),
    ] = None


class Gpu(Section):
    """The GPU and its link to the host."""

    tflops: Tflops = Field(description="peak of the GPU")
    memory_gb: Annotated[Positive, unit("GB")] = Field(description="capacity of the GPU's memory")
    memory_tbps: Annotated[Positive, unit("TB/s")] = Field(description="bandwidth of the GPU's memory")
    pcie_gbps: Gbps = Field(description="PCIe bandwidth between host and GPU, one direction")
    compute_efficiency: Share | None = Field(
        default=None, description="share of tflops that matrix products of many tokens reach"
    )
    attention_efficiency: Share | None = Field(
        default=None, description="share of tflops that queries with keys and values reach"
    )
    memory_efficiency: Share | None = Field(
        default=None, description="share of memory_tbps that the reading of weights and caches reaches"
    )
    expert_overhead_us: Microseconds = Field(
        default=0.0, description="what an expert takes besides: launches, gathering and scattering of tokens"
    )
    kernel_overhead_us: Microseconds = Field(
        default=0.0, description="what every kernel of dense parts and attention takes besides"
    )
    expert_times: ExpertTimes = None
    reserved_gb: Annotated[float, Field(ge=0, le=1e6), unit("GB")] = Field(
        default=0.0, description="memory left to driver, libraries and fragmentation"
    )
    expert_buffers: int = Field(
        default=2,
        ge=0,
        le=65_536,
        description="experts arriving over PCIe that the memory has room for",
        json_schema_extra={"unit": "experts"},
    )


class Link(Section):
    """The links between DIMMs; each carries packets both ways at once, at `link_gbps` each way."""

    lanes: int = Field(ge=1, le=256, description="serial lanes of a link")
    lane_gbit_s: Annotated[Positive, unit("Gb/s")] = Field(description="rate of a lane")
    link_gbps: WireGbps = Field(description="bandwidth of a link, one direction")
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of a link, both ends")
    topology: Literal["chain", "ring", "mesh", "full", "groups"] = Field(
        description="which DIMMs are linked; groups: chains of group_dimms, bridged over the host's channels"
    )
    ports: int = Field(ge=1, le=1023, description="links a DIMM can have")
    hop_latency_ns: LinkLatency = Field(
        description="latency of a hop, from the last byte sent to it being ready to go on"
    )
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    group_dimms: int = Field(default=1, ge=1, le=1024, description="DIMMs in a group, with topology: groups")
    host_latency_ns: LinkLatency = Field(
        default=0.0, description="latency of a packet in the host, with topology: groups"
    )


class Pcie(Section):
    """The PCIe link between host and GPU."""

    gbps: WireGbps = Field(description="bandwidth in one direction, after line coding, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    copy_engines: int = Field(ge=1, le=64, description="copies under way at once; they share the link")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Cxl(Section):
    """The CXL link between host or GPU and a memory that computes."""

    gbps: WireGbps = Field(description="bandwidth in one direction, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    copy_engines: int = Field(
        default=1, ge=1, le=64, description="copies to a GPU under way at once; they share the link"
    )
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Multiplier(Section):
    """A unit that multiplies; `ndp` has one.

    What a subclass says of itself is all that configuration knows of it; `ndpsim.ndp` has a module of its
    name in the section `ndp`.
    """

    called: ClassVar[str]
    peak_formula: ClassVar[str]

    @property
    def peak_gflops(self) -> float:
        """At native precision, of the whole unit: a product and a sum are two."""
        raise NotImplementedError

    def problem(self, system: System) -> tuple[str, str] | None:
        """What keeps it from being in a system: a key and what is wrong with it."""
        return None


class Gemv(Multiplier):
    """The matrix-vector unit of a DIMM."""

    called: ClassVar[str] = "GEMV unit"
    peak_formula: ClassVar[str] = "multipliers x values_per_multiplier / bit_serial_cycles x 2 x clock_mhz"

    multipliers: Count = Field(description="multipliers of the unit")
    values_per_multiplier: int = Field(ge=1, le=1024, description="products a multiplier works on at once")
    native_bits: Bits = Field(description="bits of a value the multiplier is built for")
    bit_serial_cycles: Cycles = Field(description="cycles a multiplier takes for native values")
    adder_tree_cycles: Latency = Field(description="latency of the adder tree")
    clock_mhz: ClockMhz = Field(description="clock of the unit")
    buffer_kib: BufferKib
    activation_bytes: ActivationBytes
    fifo_bursts: FifoBursts
    product_pj: ProductPj = None
    buffer_pj_per_byte: BufferPj = None
    fifo_pj_per_byte: FifoPj = None
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None

    @property
    def peak_gflops(self) -> float:
        """See `Multiplier.peak_gflops`."""
        products = Fraction(self.multipliers * self.values_per_multiplier, self.bit_serial_cycles)
        return float(2 * products * exact(self.clock_mhz) / 1000)


class Systolic(Multiplier):
    """The systolic arrays of a memory device, before all its channels."""

    called: ClassVar[str] = "systolic arrays"
    peak_formula: ClassVar[str] = "arrays x rows x columns x 2 x clock_mhz"

    arrays: Count = Field(description="arrays of the device")
    rows: Side = Field(description="rows of processing elements in an array")
    columns: Side = Field(description="columns of processing elements in an array")
    clock_mhz: ClockMhz = Field(description="clock of the arrays")
    dataflow: Literal["output-stationary", "weight-stationary"] = Field(
        description="what stays in a processing element while the rest moves: its sum, or its weight"
    )
    low_bit_throughput: Literal["fixed", "inverse-bits"] = Field(
        description="products of an element a cycle: one, or native_bits over the bits of a weight"
    )
    native_bits: Bits = Field(description="bits of a weight that takes an element a cycle")
    stationary_registers: int = Field(
        ge=1,
        le=2,
        description="sums or weights an element has room for; with 2 a tile fills while another drains",
    )
    load_rows: Side = Field(description="rows that take weights from outside at once, if weight-stationary")
    buffer_kib: BufferKib
    activation_bytes: ActivationBytes
    fifo_bursts: FifoBursts
    product_pj: ProductPj = None
    buffer_pj_per_byte: BufferPj = None
    fifo_pj_per_byte: FifoPj = None
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None

    @property
    def peak_gflops(self) -> float:
        """See `Multiplier.peak_gflops`."""
        return float(2 * self.arrays * self.rows * self.columns * exact(self.clock_mhz) / 1000)

    def problem(self, system: System) -> tuple[str, str] | None:
        """See `Multiplier.problem`."""
        if system.cxl is None:
            return "cxl", "is missing: systolic arrays stand in a device behind a CXL link"
        if self.load_rows > self.rows:
            problem = f"{self.load_rows} is more than the {self.rows} rows of an array"
            return "ndp.systolic.load_rows", problem
        return None


class Activation(Section):
    """The unit for non-linear functions beside the multipliers."""

    units: Count = Field(description="values worked on side by side")
    cycles_per_value: Cycles = Field(description="cycles from one value to the next in a unit")
    latency_cycles: Latency = Field(description="cycles from a value to its result")
    clock_mhz: ClockMhz = Field(description="clock of the unit")
    value_pj: Picojoules | None = Field(default=None, description="energy of a value")
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Relayout(Section):
    """The engine that moves experts between DIMMs and layouts."""

    clock_mhz: ClockMhz = Field(description="clock of the engine")
    buffer_kib: Kib = Field(description="staging buffer of the engine")
    concurrent_experts: int = Field(ge=1, le=1024, description="experts in migration at once, at most")
    pj_per_byte: PicojoulesPerByte | None = Field(
        default=None, description="energy of a byte through the engine, in and out"
    )
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Published(Section):
    """Figures of an NDP unit as published: cross-checks, used by no simulation."""

    gflops: Annotated[Positive, unit("GFLOPS")] | None = Field(default=None, description="peak of a unit")
    bandwidth_gbps: Gbps | None = Field(
        default=None, description="memory bandwidth inside its DIMM or device"
    )
    memory_gb: Annotated[Positive, unit("GB")] | None = Field(
        default=None, description="capacity of its DIMM or device"
    )
    area_mm2: Area | None = Field(default=None, description="area of all units of a DIMM")


class Ndp(Section):
    """The near-data processing of a DIMM by a `gemv` unit, or of a device on a CXL link by `systolic` arrays.

    Each unit is a mapping, or the name of a file in ``rtl_params/``.
    """

    gemv: Gemv | None = None
    systolic: Systolic | None = None
    activation: Activation
    relayout: Relayout | None = None
    published: Published = Published()

    @property
    def multiplier(self) -> tuple[str, Gemv | Systolic]:
        """The unit that multiplies: its name, and what the file says of it."""
        return next((name, getattr(self, name)) for name in MULTIPLIERS if getattr(self, name) is not None)


#: The units of the `ndp` section that multiply, by name.
MULTIPLIERS: dict[str, type[Multiplier]] = {
    name: kind
    for name, field in Ndp.model_fields.items()
    for kind in get_args(field.annotation)
    if isinstance(kind, type) and issubclass(kind, Multiplier)
}


class System(Section):
    """A hardware file: a memory, and what stands around it: a host, a GPU, DIMMs that compute.

    A section that is None is not there.
    """

    name: Name = Field(description="short name of the hardware")
    title: Text | None = Field(default=None, description="what it is, in one line")
    paper: Text | None = Field(default=None, description="the publication its numbers come from")
    dram: Dram
    dimm: Dimm = Dimm()
    host: Host = Host()
    gpu: Gpu | None = None
    link: Link | None = None
    pcie: Pcie | None = None
    cxl: Cxl | None = None
    ndp: Ndp | None = None
